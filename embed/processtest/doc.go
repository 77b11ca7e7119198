// Package processtest proves promises that need real processes and real signals: it kills members'
// processes, stops them, and starts them twice. It has only tests.
//
// The test binary runs itself again for each member. The parent drives the members over pipes, one
// request at a time. So it knows what a process knew before it was killed: whatever was
// acknowledged but not yet reported counts as unknown. The members reach each other over TCP on
// loopback ports.
//
//	go test ./embed/processtest -v -seed 7 -dir /tmp/kept
//
// repeats the random choices of a run, and keeps the members' directories and logs. Only the
// moments at which signals arrive differ between runs.
//
// By day, each promise gets one short pass. By night, see testkit.Night, the stops are longer, the
// kills more, and all variants have their turn. A test that needs a session to outlast its own steps
// tries again with a longer timeout, because a busy machine may stop a process at any time.
//
// The files protocol_test.go and member_test.go are the members' side. The parent's side is in
// spawn_test.go and ensemble_test.go. In history_test.go and load_test.go is what is written, and
// what must be left of it.
package processtest
