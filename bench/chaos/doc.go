//go:build unix

// Chaos breaks ensembles of Vivarium at random while they are used, and checks whether every promise is kept. README.md in the
// folder above says how, and how to read what it prints.
//
// The program is its own members: spawned with a variable in its environment it serves requests over pipes (member*.go). As
// the parent it has the members of a round (ensemble.go, protocol.go), clients that use them (workload*.go) in an area of the
// tree on each shard (area.go), strangers at their gateways (strangers.go), a nemesis that breaks them (nemesis.go, faults*.go), the history of what was done and seen
// (history.go), and checks of it (check*.go). round.go puts them together.
package main
