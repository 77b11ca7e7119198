// Package lock has locks for the processes of an ensemble, built on embed's public face only: Mutex, RWMutex, Semaphore, and Multi for several
// paths at once.
//
// A contender for a lock is an ephemeral sequential znode under the lock's path, so every tool can see who waits. The
// names follow Curator's recipes (_c_<uuid>-lock-0000000007), and its clients can stand in the same queue.
//
//	hold, err := lock.NewMutex(session, "/locks/report").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Release()
//	return writeReport(hold.Context(), hold.Token())
//
// What is kept in the tree is best written under a Guard: the write and the question whether the lock is still held are one
// transaction then.
//
// # Order
//
// Contenders are granted in the order of their numbers, which is that of their arrival, and each waits for one other only. Where a
// contender takes over another's place (Downgrade, Upgrade, Options.Identity) it does so in the transaction that deletes that one, or stands
// right in front of the one that must wait for it: nobody comes between, and tokens go on growing (see Token).
//
// # The fast path
//
// With Options.Keep a lock stays with its Mutex when it is released: its contender remains the first in the queue, and the next Hold of the
// same Mutex begins without a commit. Everybody else is kept out by the contender as before, so what has to hold is this:
//
//  1. The contender is not deleted while a Hold lives. The Mutex gives it up only when its Hold has been released, under one lock with
//     the grants. If it ends otherwise, by the session's local deadline, the session's end or by hand, its node ends the Hold first (by hand: when
//     it applies that), as any Hold.
//  2. A grant compares the clock: it asks the node for a turn of the claim, which is refused from the session's local deadline on, and a
//     claim that was lost is never held again.
//  3. A Hold ends before the next one begins, on this node as well: Err and Done say so, and what it guards is refused. That is judged when the
//     transaction is issued and once more when it is queued, in one step with its place in the queue; and a Hold is passed on only when
//     everything that its session had submitted before was applied. So nothing that it guards is applied after the next one has begun,
//     although both have the same znode and the ensemble cannot tell them apart. Transactions of other sessions keep no such order,
//     which is why they cannot be guarded.
//  4. Tokens grow: they share the commit of the contender and count the Holds since.
//  5. A contender of somebody else is noticed by a watch on the path, and whatever ends that watch counts as one. From then on nobody
//     here is granted the lock who has not queued in this Mutex, and nobody at all after Keep. So it waits for Keep, for the Hold of that
//     moment, and for the commit that lets it in.
//
// Within a Mutex callers are served in their order; among them and the contenders of others there is none but that bound.
//
// # Beside other clients
//
// Through embed/gateway ZooKeeper's clients take the same locks, which embed/gateway/clienttest holds: nobody has one beside those
// whom it excludes, and who came first is served first.
//
//	Mutex      Curator's InterProcessMutex and LeaderSelector, kazoo's Lock, go-zookeeper's Lock
//	Multi      the same, on each of its paths
//	RWMutex    Curator's InterProcessReadWriteLock, kazoo's ReadLock and WriteLock; a Mutex there is a writer
//	Semaphore  Curator's InterProcessSemaphoreV2, and InterProcessSemaphoreMutex for a limit of one; kazoo's Semaphore on <path>/leases
//	           with its lock_path at <path>/locks
//
// Revoke and Hold.Revoked are understood by Curator's Revocable and Revoker. What is peculiar to this package works for its own callers: a
// client waits for a lost contender as long as the ensemble keeps it, which is its Delay and up to a minute more; it takes nobody's place, and
// its limit of a semaphore is its own affair. kazoo's pattern for Curator's writers and candidates has to allow for more than ten digits: names of
// places in front of somebody end with 33 characters, which are [0-9]{10}[0-9a-f]{8}-[0-9a-f]{4}[0-9]{10}.
//
// Read token.go first, then hold.go and mutex.go, then the kinds; the queue they share with elections is embed/internal/queue.
package lock
