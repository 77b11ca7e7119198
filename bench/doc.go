//go:build linux

// Bench measures Vivarium side by side with etcd, ZooKeeper, kazoo, Curator and bare dragonboat.
// All systems run the same suites with three members each and fsync on the same disk, in rounds
// that alternate.
//
//	go run . -suite write,lock
//
// README.md explains the method and how to read the output.
//
// A suite (suite.go, and a file for each group of suites) is written once, on top of what every
// system can do (system.go). The systems are in vivarium.go, etcd.go, zookeeper.go and
// dragonboat.go, and those whose clients are scripts in scripted.go. The parent (main.go) starts a
// worker (worker.go) for each system of a suite. A worker is a process with an ensemble, or with
// what starts one; it measures on request. The parent compares the results (report.go).
//
// The suites of recipes (recipes.go) ask a player for figures, in lines of words (words.go). In
// suite partition each member is a process of its own (partition.go), and the worker follows who
// owns what (owners.go).
package main
