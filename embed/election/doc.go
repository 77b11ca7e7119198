// Package election lets the processes of an ensemble choose one of them, built on embed's public face only.
//
// A candidate is an ephemeral sequential znode under the election's path that holds the candidate's value; the first in
// the queue leads. The names follow Curator's LeaderLatch (_c_<uuid>-latch-0000000007), and its clients can stand in the same queue.
//
// Run calls a function while this process leads; a Latch tells whether it does; Campaign and Candidate are what they are made of; Balance
// spreads many elections over the processes that stand for them.
//
// A candidate with a priority goes ahead of those who wait with a lower one: it takes a place right before the first of them, while somebody
// is ahead of that one. Its turn is granted by a transaction that moves it to the front of that place, by a name that only one can have, so
// that of two who both see themselves first one is granted it, and tokens grow. A transfer deletes the leader's znode and creates the
// candidate's in its place in one transaction, after the candidate has answered the leader's offer and the leader has ended its turn.
//
// Only Curator's LeaderLatch may share an election's path: LeaderSelector, go-zookeeper's Lock and kazoo's Election have other names and would not wait
// for candidates here, nor be waited for; they belong on the path of a lock.Mutex. A client's candidate accepts no transfer, and goes
// ahead of nobody. What begins with "transfer-" below an election's path is the election's own.
//
// Read election.go first, then candidate.go and leadership.go, transfer.go, run.go, latch.go and balance.go.
package election
