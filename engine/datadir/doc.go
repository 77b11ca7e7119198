// Package datadir knows what a member's directory holds besides its identity file, and whether its
// parts are of one time: image and Raft log of each shard, and what a former member has left there.
package datadir
