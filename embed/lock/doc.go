// Package lock has locks that the processes of an ensemble share: Mutex, RWMutex, Semaphore, Multi
// for several paths at once, and Keys for many keys. It is built on embed's public API only.
//
//	hold, err := lock.NewMutex(session, "/locks/report").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Release()
//	return writeReport(hold.Context(), hold.Token())
//
// Do does the same for one function, with a session of its own. DoWith has the options of a lock,
// and its function gets the Hold.
//
// # What a Hold is
//
// Lock returns a Hold: one acquisition of the lock. It lasts until one of these ends it, and
// Hold.Err then says which:
//
//   - Its owner calls Release: embed.ErrReleased.
//   - Its session reaches its local deadline: embed.ErrSuspended. That is 90 % of the session's
//     timeout after the node sent its newest write or beat that was applied. An idle node beats
//     every sixth of the timeout. So a pause, or a time without a quorum, of 90 % always ends the
//     Hold, and one of 73 % may.
//   - The machine's wall clock jumps by more than 10 % of the timeout: embed.ErrSuspended too.
//   - Somebody deletes its znode: embed.ErrDeleted.
//   - Its session or its node ends first: for example embed.ErrSessionClosed or embed.ErrClosed.
//
// An ended Hold never comes back, even if its session is Connected again later. A Hold ends on its
// own node before anybody else can be granted the lock. There are two exceptions. One is a machine
// whose clocks mislead the node; see Hold.Token below, and ToldFirst in docs/guarantees.md. The
// other is a deletion by hand: the node ends the Hold when it applies the deletion, and another
// node may apply it sooner.
//
// When a Hold ends, its owner must stop what the lock protects. Use these:
//
//   - Hold.Context ends with the Hold. Pass it to the work that runs under the lock.
//   - Hold.Err compares the clock when it is called. Call it right before each step that others can
//     see. It is right even after a pause, before any timer has run.
//   - Hold.Token is a number for the resource that the lock protects. No check in this process can
//     stop a call that is already in flight, and none notices time in which the machine's clocks
//     stood still. A resource that refuses tokens smaller than the greatest it has seen is safe
//     from both.
//   - Guard does the same for data in the tree. The write and the check that the Hold still lasts
//     are one transaction.
//
// A loop under a lock looks like this:
//
//	for _, job := range jobs {
//		if err := hold.Err(); err != nil {
//			return err // the lock is lost: the rest is for the next holder
//		}
//		err := publish(hold.Context(), hold.Token(), job)
//		...
//	}
//
// To continue, call Lock again. If the session has ended too, open a new one first.
//
// For example, a process with a session timeout of 10 s, the default, is paused or cut off from the
// ensemble:
//
//	 0 s  its node sends the last write or beat that the ensemble applies
//	 9 s  the local deadline: the session is Suspended, and its Holds have ended
//	10 s  the ensemble may expire the session; then the next contender is granted the lock
//	19 s  if it is still cut off or paused, the session is Expired here too
//
// If it comes back in between, the session may be Connected again, but its Holds are lost. A call
// of Hold.Err after 9 s returns embed.ErrSuspended, even if the process was paused until that
// moment. It returns embed.ErrSessionExpired if the node has applied the expiry by then.
//
// docs/sessions.md has more cases. The documentation of package engine, "The end of a session",
// names the code behind them.
//
// A client of ZooKeeper or etcd learns that it lost a lock from an event of its connection or its
// lease, and a pause delays that event. Here the holder's own node compares the clock at each
// question, so no event has to arrive first.
//
// # Order
//
// A contender for a lock is an ephemeral sequential znode under the lock's path, so every tool can
// see who waits. Its name has the form of Curator's recipes, _c_<uuid>-lock-0000000007.
//
// Contenders are served in the order of their numbers, which is the order in which they arrived.
// Each one waits for one other only, so a release wakes one contender. Downgrade, Upgrade and
// Options.Identity take over a place in the queue. The new contender is created in the transaction
// that deletes the old one, or directly in front of the contender that must wait for it. So nobody
// comes between, and tokens keep growing; see Token.
//
// # Keeping a lock without a commit
//
// With Options.Keep, a Mutex keeps the lock when a Hold is released. Its contender stays first in
// the queue, so the next Hold of the same Mutex begins without a commit. Meanwhile the contender
// keeps everybody else out, as before. These rules make that safe:
//
//  1. The contender is not deleted while a Hold lives. The Mutex gives it up only after the Hold
//     was released, under the same mutex that grants Holds. If the contender ends in another way,
//     by the session's local deadline or its end, the node ends the Hold first, as any Hold. After
//     a deletion by hand the node ends the Hold when it applies the deletion.
//  2. A grant compares the clock. It begins a new tenure of the contender's claim, and the node
//     refuses that from the session's local deadline on. A claim that was lost is never held again.
//  3. A Hold ends before the next one begins, on this node too: Err and Done say so, and a
//     transaction that it guards is refused. The node checks this when the transaction is issued,
//     and again in the step that puts it into the node's queue. And the next Hold begins only when
//     everything that the session submitted before has been applied. So nothing that the old Hold
//     guards is applied after the new one has begun, although both have the same znode and the
//     ensemble cannot tell them apart. Transactions of other sessions keep no such order, so a kept
//     Hold cannot guard them.
//  4. Tokens grow. All Holds of a contender share the zxid of its commit, and Token.Local counts
//     them.
//  5. A watch on the path notices a contender from outside this Mutex. If the watch ends for any
//     reason, the Mutex assumes that somebody waits. From then on it grants the lock only to
//     callers that queue in it, and after Keep to nobody. So the contender from outside waits for
//     Keep, for the Hold of that moment, and for the commit that lets it in.
//
// A Mutex serves its own callers in their order. Between them and contenders from outside, rule 5
// is the only bound.
//
// # Beside ZooKeeper's clients
//
// Through embed/gateway, clients of ZooKeeper can queue for the same locks. The tests in
// embed/gateway/clienttest check that both sides exclude each other and are served in order:
//
//	Mutex      Curator's InterProcessMutex and LeaderSelector, kazoo's Lock, go-zookeeper's Lock
//	Multi      the same, on each of its paths
//	Keys       the same, on the path of each key
//	RWMutex    Curator's InterProcessReadWriteLock, kazoo's ReadLock and WriteLock;
//	           a Mutex on the same path is a writer
//	Semaphore  Curator's InterProcessSemaphoreV2, and InterProcessSemaphoreMutex for a limit
//	           of one; kazoo's Semaphore on <path>/leases with its lock_path at <path>/locks
//
// Revoke and Hold.Revoked work with Curator's Revocable and Revoker. Everything else that only this
// package has works among its own callers:
//
//   - A client waits for a lost contender as long as the ensemble keeps it: for its Delay and up to
//     a minute more.
//   - A client takes over no places.
//   - A client's limit of a semaphore is its own; it does not read ours.
//   - kazoo's Lock sees a Mutex by the pattern "-lock-", or without a pattern one with
//     Options.Kazoo.
//   - kazoo matches the names of Curator's writers and candidates by a pattern. The pattern has to
//     allow more than ten digits, because the name of a contender that took a place in front of
//     another ends with 33 characters: [0-9]{10}[0-9a-f]{8}-[0-9a-f]{4}[0-9]{10}.
package lock
