// Package processtest proves what only real processes and real signals can prove: that promises hold when a member's
// process is killed, stopped or started twice. It has no code of its own, only tests.
//
// The test binary runs itself again as the members. The parent drives each of them over pipes, one request at a time, so
// that what a process knew before it was killed is known to the parent too: whatever was acknowledged but not yet
// reported counts as unknown. The members reach each other over TCP on loopback ports.
//
// Read main_test.go first, then protocol_test.go and member_test.go (the members' side), spawn_test.go and
// ensemble_test.go (the parent's), history_test.go and load_test.go (what is written and what must be left of it), and the
// tests.
//
//	go test ./embed/processtest -v -seed 7 -dir /tmp/kept
//
// repeats the random choices of a run and keeps the members' directories and logs. The moments at which signals arrive are
// as random as the machine makes them.
package processtest
