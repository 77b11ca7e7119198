// Package embedtest runs a whole ensemble inside a test, for the tests of services that embed one: no ports, no processes,
// directories that go with the test. Links between members can be cut and healed, members stopped, killed and restarted.
//
//	ens := embedtest.New(t, 3, embedtest.Options{})
//	s, err := ens.Node(1).NewSession(ctx, embed.SessionOptions{})
//	ens.Kill(ens.Leader())
//
// Everything is real except the network: Raft, fsync, sessions and their timeouts, with a short tick so that elections and
// expiry take well under a second.
package embedtest
