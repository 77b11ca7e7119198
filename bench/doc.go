//go:build linux

// Bench measures Vivarium side by side with etcd, ZooKeeper and bare dragonboat: the same suites, three members each, fsync on
// the same disk, in rounds that take turns. README.md says how, and how to read what it prints.
//
// A suite (suite.go, lock.go, state.go, process.go) is written once over what every system can do (system.go); vivarium.go, etcd.go,
// zookeeper.go and dragonboat.go are the systems. The parent (main.go) runs a worker (worker.go) for each system of a suite, a process with
// an ensemble that measures when it is asked to, and compares what they say (report.go).
package main
