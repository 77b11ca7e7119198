// Package embedtest runs a whole ensemble inside a test, for the tests of services that embed one: no ports, no processes,
// directories that go with the test. What a member stands on can be broken and mended, members can be stopped, killed, paused
// and restarted.
//
//	ens := embedtest.New(t, 3, embedtest.Options{})
//	s, err := ens.Node(1).NewSession(ctx, embed.SessionOptions{})
//	ens.Kill(ens.Leader())
//	ens.Faults(2).SetLink(3, embedtest.Link{Loss: 0.3})
//
// Everything is real except the network: Raft, fsync, sessions and their timeouts, with a short tick so that elections and
// a session's end take a second or so: the least timeout is 720 ms.
//
// # What can be broken
//
//	link, both ways   Cut, Isolate, Heal, HealAll
//	link, one way     Faults.SetLink: cut, slow, losing messages
//	disk              Faults.SetDisk: full, failing writes, failing fsyncs, slow
//	wall clock        Faults.SetWallClock: it jumps
//	machine           Faults.Sleep: it has slept
//	member            Kill: a crash; Pause and Resume: it stands still towards the world; Stop: an orderly end
//
// The same Faults serve a member in a process of its own, over real TCP: see Start. There the rest can be had too, by
// signals to the process.
//
// Read ensemble.go first, then faults.go.
package embedtest
