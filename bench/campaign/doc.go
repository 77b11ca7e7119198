// Package campaign breaks ensembles of Vivarium at random while they are used, and checks that they
// keep every promise. bench/README.md explains the method and how to read the output.
//
// A Ground is where the members live; ground.go has all that a campaign asks of it. On each
// ensemble the campaign plays a round. It starts members (ensemble.go, protocol.go) and clients
// that use them (workload*.go), in an area of the tree on each shard (area.go). Rude remote clients
// use the members' gateways (rude.go). A nemesis breaks the members (nemesis.go, faults*.go). The
// campaign records what was done and seen (history.go) and checks it (check*.go). round.go puts the
// parts together.
//
// A member's process serves the campaign's requests with a Member (member*.go).
package campaign
