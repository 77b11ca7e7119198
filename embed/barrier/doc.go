// Package barrier lets processes wait for one another: until a Gate opens, until enough of them
// have come (Enter) and all have gone again (Pass.Leave), or until every part of some work is done
// (Countdown). Nobody passes early. A barrier is no lock: whoever has passed may lose its session
// while the others work on.
//
//	pass, err := barrier.Enter(ctx, session, "/jobs/17/start", 3)
//	// three processes are here
//	err = pass.Leave(ctx) // and now all have left
//
// # On the same znodes as Curator and kazoo
//
// The znodes are those of Curator's DistributedBarrier and DistributedDoubleBarrier and of kazoo's
// Barrier and DoubleBarrier, so their clients can take part through the gateway. A Countdown has no
// counterpart there.
//
// # What decides
//
// Each waiter begins with all that was acknowledged to anybody before its call. Then it follows the
// changes of this node's replica, in their order. So it passes if the condition held at any zxid
// after that beginning, even if it no longer holds when the waiter looks.
//
// Some changes may be unknown: if the replica was away for so long that it takes over the state of
// another member, while the connection of a client is broken, or if 4096 changes wait for the
// waiter. Then the present state decides, and nobody passes early:
//
//   - A Gate that was shut again since is another one, so the waiter passes.
//   - A Countdown whose names were all done, and some deleted since, is embed.ErrWatchGap.
//   - Enter finds the child "ready", unless the ensemble has refused it. Then the member waits on.
//
// The calls wait, and there is no sequence of who is there: a loop over it could miss the moment
// that counts. A group.Group has one.
package barrier
