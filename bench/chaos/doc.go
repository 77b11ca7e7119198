//go:build unix

// Chaos breaks ensembles of Vivarium at random while they are used, and checks that they keep every
// promise. README.md in the folder above explains the method and how to read the output.
//
// The program also runs the ensemble's members. When a variable in its environment says so, it is a
// member and serves requests over pipes (member*.go).
//
// Otherwise it is the parent. For each round it starts members (ensemble.go, protocol.go) and
// clients that use them (workload*.go), in an area of the tree on each shard (area.go). Rude remote
// clients use the members' gateways (rude.go). A nemesis breaks the members (nemesis.go,
// faults*.go). The parent records what was done and seen (history.go) and checks it (check*.go).
// round.go puts the parts together.
package main
