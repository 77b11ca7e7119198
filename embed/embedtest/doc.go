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
// # Virtual time
//
// Inside a bubble of testing/synctest an ensemble runs in virtual time. When all goroutines wait,
// the clock jumps to the next timer, so minutes pass in milliseconds and hours in seconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		ens := embedtest.New(t, 3, embedtest.Options{})
//		s := ens.Session(1, embed.SessionOptions{})
//		hold, err := lock.NewMutex(s, "/lock").Lock(t.Context())
//		time.Sleep(time.Hour)
//		...
//	})
//
// examples/virtualtime tests a lease of 30 minutes and a job that runs at midnight.
//
// With Config.TLS the members' connections are secured there too, so a test can wait for the day on
// which a certificate expires. The members' names are member-1.test and so on.
//
// The members' directories are in memory there, unless Options.Dir names a real one. So an fsync
// takes no time, and Ensemble.PowerCut can lose what was not synced.
//
// An hour of three members costs some seconds of CPU, because they beat every tick. With a
// Config.Tick of a second it costs a few tenths of a second. The least session timeout is then
// 72 s.
//
// These do not work in a bubble:
//
//   - An ensemble that was made outside: call New inside. A method that needs a member then fails
//     the test. What a bubble has made cannot be used outside it either: the runtime panics.
//   - A real network: embed.Start with several members, an HTTP client. Time stands still while a
//     goroutine waits for the network. A gateway opens no port in a bubble: see Ensemble.Dial.
//   - A sync.Mutex that is held during a time.Sleep, while another goroutine waits for it: time
//     stands still, for ever. Wait for a channel instead.
//   - A disk that is slow, or a member that is paused while it writes: Raft and Pebble write under
//     mutexes, so the same may happen. Break such a disk in real time.
//   - A goroutine of the test that does not end: synctest.Test panics with "deadlock". Give the
//     service t.Context(), which ends before the members do.
//
// Because of the bubbles, one goroutine of this package lives as long as the process. Whoever looks
// for leaked goroutines should ignore those in embedtest.makeTasks.
//
// # What can be broken
//
//	link, both ways   Cut, Isolate, Heal, HealAll
//	link, one way     Faults.SetLink: cut, slow, losing messages
//	disk              Faults.SetDisk: full, failing writes, failing fsyncs, slow
//	wall clock        Faults.SetWallClock: it jumps
//	machine           Faults.Sleep: it has slept
//	member            Kill: a crash; Pause and Resume: it stands still; Stop: an orderly end
//	power             PowerCut: a crash that loses what was not synced; in virtual time only
//
// The same Faults work for a member in a process of its own, over real TCP: see Start. Signals to
// that process do the rest.
package embedtest
