//go:build linux

// Greedy lets clients take what they can get from a small ensemble, at every door, and says what that
// costs the others. README.md in the folder above explains the method and how to read the output.
//
//	go run ./greedy -d 10m
//
// The members are processes of vivarium serve (members.go). The greedy ones (greeds.go) come from
// addresses of their own. Clients that ask for little (fair.go) measure what is left for them.
package main
