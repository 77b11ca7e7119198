// Sim runs the fault campaign of package campaign in virtual time:
//
//	go run ./sim [-virtual 24h] [-seed N] [-members 3] [-shards 4] [-pace 10]
//
// The members are nodes of this process, each round in a bubble of testing/synctest. When everybody
// waits, the clock jumps to the next timer. Disks, links, clocks and the deaths of processes are
// those of package embedtest. The clients, the faults and the checks are those of ./chaos.
//
// The seed fixes the faults and all other random choices, but not every interleaving: the runtime
// chooses which goroutine runs next. So a seed that has failed may not fail again.
//
// # After a violation
//
// Sim leaves out faults as long as the rest still breaks a promise. It prints the command that
// repeats what is left, and how often that fails in 20 runs. The exit status is 1, or 3 if virtual
// time stood still.
//
// # The runtime
//
// In a bubble, time stands while a goroutine waits for a mutex. The logs of Raft and Pebble write
// under mutexes, so a disk that is slow in virtual time would stop time for ever. Sim therefore
// builds itself with a copy of the Go runtime in which a wait for a mutex counts as a wait. The
// first build takes one or two minutes.
package main
