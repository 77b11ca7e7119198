// Package embedtest runs a whole ensemble inside a test, without ports or processes, for the tests
// of services that embed one.
//
//	ens := embedtest.New(t, 3, embedtest.Options{})
//	s, err := ens.Node(1).NewSession(ctx, embed.SessionOptions{})
//	ens.Kill(ens.Leader())
//	ens.Faults(2).SetLink(3, embedtest.Link{Loss: 0.3})
//
// A test can stop, kill, pause and restart members, and it can break and mend what a member stands
// on. The directories are removed when the test ends.
//
// Everything except the network is real: Raft, fsync, sessions and their timeouts. The tick is
// short, so elections and the end of a session take about a second. The least session timeout is
// 720 ms.
//
// # What can be broken
//
//	link, both ways   Cut, Isolate, Heal, HealAll
//	link, one way     Faults.SetLink: cut, slow, losing messages
//	disk              Faults.SetDisk: full, failing writes, failing fsyncs, slow
//	wall clock        Faults.SetWallClock: it jumps
//	machine           Faults.Sleep: it has slept
//	member            Kill: a crash; Pause and Resume: it stands still; Stop: an orderly end
//
// The same Faults work for a member in a process of its own, over real TCP: see Start. Signals to
// that process do the rest.
package embedtest
