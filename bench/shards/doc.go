//go:build unix

// Shards measures what an ensemble of three members writes and what it costs at rest, by the number of its shards, next to a
// bare loop of proposals to dragonboat. README.md in the folder above says how, and how to read what it prints.
//
// Each block is a run of this program in a process of its own (block.go): one ensemble, of Vivarium (vivarium.go) or of
// dragonboat alone (dragonboat.go), at rest (rest.go) and then under load by more and more writers (internal/measure). The parent runs the
// blocks of all kinds in turn, several rounds of them (main.go), and compares those of a round (report.go).
package main
