//go:build unix

// Members measures what many members cost their leader, and how soon a new one serves. README.md in
// the folder above explains the method and how to read the output.
//
//	go run ./members -members 3,50
//	go run ./members -systems vivarium,etcd -znodes 1000000
//
// The first command measures crowds (crowd.go): the founder, which leads, in a process of its own,
// and all others in a second one. The second command measures learners (learner.go): a new member
// of a full ensemble, in Vivarium and in etcd. The parent (main.go) starts the processes
// (process.go), lets them take turns, and compares the figures of each round (report.go).
package main
