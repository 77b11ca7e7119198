//go:build linux

// Greedy opens every door of an ensemble and asks for too much, while a client that behaves goes on.
// README.md in the folder above explains the method and how to read the output.
//
//	go run ./greedy
//	go run ./greedy -d 10m
//
// The ensemble (ensemble.go) is three processes of vivarium serve, each with few descriptors. The
// attacks (attacks.go) take turns, and then come all together. Meanwhile a judge (main.go) writes as a
// client of each member, opens sessions as a newcomer, asks the admin port with a token, and looks at the
// memory and the descriptors of each process.
package main
