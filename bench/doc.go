//go:build linux

// Bench measures Vivarium side by side with etcd, ZooKeeper and bare dragonboat. All systems run
// the same suites with three members each and fsync on the same disk, in rounds that alternate.
//
//	go run . -suite write,lock
//
// README.md explains the method and how to read the output.
//
// A suite (suite.go, lock.go, state.go, process.go) is written once, on top of what every system
// can do (system.go). The systems are in vivarium.go, etcd.go, zookeeper.go and dragonboat.go. The
// parent (main.go) starts a worker (worker.go) for each system of a suite. A worker is a process
// with an ensemble; it measures on request. The parent compares the results (report.go).
package main
