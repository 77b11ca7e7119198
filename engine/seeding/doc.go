// Package seeding begins a new ensemble with a backup, Config.Seed. Every member that has the backup
// reads it twice: first for a plan of the parts in which each shard gets it, then part by part. The
// parts are commands in the log, and a member may go on where another one stopped.
package seeding
