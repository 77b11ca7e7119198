// Package backups makes the backups of a node: for a caller of its own, and for a process that is no
// member and pulls one.
package backups
