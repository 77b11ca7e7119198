//go:build unix

// Recipes measures Vivarium's recipes side by side with those of kazoo and Curator, which run
// against ZooKeeper's own servers. README.md in the folder above explains the method and how to
// read the output.
//
//	go run ./recipes
//	go run ./recipes -suite counter,task -d 5s
//
// The lines (lines.go) say what is measured. A client (client.go) is a process that measures on
// request; its language is lines of words. Vivarium's is this program (vivarium.go, and a file for
// each suite), with three members inside. The others are scripts in the folder clients, and use the
// servers that the parent starts (zookeeper.go). In the suite partition each member is a process
// of its own, and the parent follows who owns what (owners.go). The parent (main.go, run.go) lets
// the systems take turns, and compares the figures of each round (report.go).
package main
