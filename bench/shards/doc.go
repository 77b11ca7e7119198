//go:build unix

// Shards measures ensembles of three members by their number of shards: how much they write, and
// what they cost at rest. It compares them with a bare loop of proposals to dragonboat. README.md
// in the folder above explains the method and how to read the output.
//
// Each block runs this program in a process of its own (block.go) with one ensemble, of Vivarium
// (vivarium.go) or of dragonboat alone (dragonboat.go). The block measures the ensemble at rest
// (rest.go) and then under more and more writers (internal/measure). The parent (main.go) runs the
// blocks of all kinds in turn for several rounds, and compares the blocks of each round
// (report.go).
package main
