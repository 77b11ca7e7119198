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
// changes of this node's replica, in their order, and misses none. So it passes if the condition
// held at any zxid since it came, even if it no longer holds when the waiter looks. If the replica
// was away for so long that it takes over the state of another member, the changes in between are
// unknown. Then the present state decides: a waiter may pass late, or wait on, but never passes
// early.
//
// The calls wait, and there is no sequence of who is there: a loop over it could miss the moment
// that counts. A group.Group has one.
package barrier
