// Package testkit is the home of code that tests of several rooms share.
//
//	must, bounded, until := testkit.Must, testkit.Context, testkit.Until
//
//	s, err := node.NewSession(bounded(t), embed.SessionOptions{})
//	must(t, err)
//	until(t, "a leader", func() bool { return node.Status().Shards[0].Leader != 0 })
//
// It imports the standard library alone, so that tests of every room can use it, tree's included. A
// room that calls a helper often gives it a short name of its own, as above, in a var declaration
// of its tests.
//
// A wait ends as soon as its condition holds. Its limit is [Patience], which only a test that fails
// reaches. Waits use no clock but that of package time, so they work in the bubbles of
// testing/synctest too, on the bubble's clock.
//
// Random choices come from [Rand], or follow from [Seed]. By day the seed is always the same, so that
// one commit gets one answer. By night it is new, and VIVARIUM_SEED repeats a test that failed.
//
//	rng := testkit.Rand(t)
//
// There is more in the packages below it. Package child runs this program again as processes that a
// test can kill. Package zookeeper starts ZooKeeper's own servers. Package shardsflag has the flag
// -shards. Test code that needs the types of one room lives with that room: embed/embedtest,
// internal/files/memory, internal/wire/wiretest, replication/transport/transporttest.
//
// Only tests, embedtest and the programs of module bench import these packages; embed/arch_test.go
// checks that.
package testkit
