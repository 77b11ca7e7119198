// Package lock has locks for the processes of an ensemble, built on embed's public face only.
//
// A contender for a lock is an ephemeral sequential znode under the lock's path, so every tool can see who waits. The
// names follow Curator's InterProcessMutex (_c_<uuid>-lock-0000000007).
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
// Read token.go first, then hold.go and mutex.go; the queue they share with elections is embed/internal/queue.
package lock
