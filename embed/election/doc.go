// Package election lets the processes of an ensemble choose one of them as their leader. It is
// built on embed's public API only.
//
//	err := election.Run(ctx, node, "/elections/scheduler", nil,
//		func(ctx context.Context, token lock.Token) error {
//			return schedule(ctx, token) // in one process at a time; ctx ends with the leadership
//		})
//
// Choose the call by what the service needs:
//
//   - Run calls a function whenever this process leads. The function of RunWith gets the Leadership,
//     to guard writes, to proclaim, and to transfer.
//   - A Latch stands for election in the background and tells whether this process leads.
//   - Campaign waits once for the leadership. Enter and Candidate do it in steps.
//   - Balance and BalanceWith run many elections and spread the leaderships evenly over the
//     processes.
//   - Leader, Observe and Candidates tell who leads and who waits.
//
// Run, a Latch and Balance open sessions by themselves, one after the other. embed.OpenerWith says
// with which timeout, credentials and root.
//
// # What a Leadership is
//
// A Leadership is for an election what a lock.Hold is for a lock. It ends for the same reasons,
// before anybody else can be elected, and it does not come back. Its Context, Err, Token and Guard
// serve the same purposes. The documentation of package lock says what a service must do when it
// ends.
//
// # How it works
//
// A candidate is an ephemeral sequential znode under the election's path. Its data is the
// candidate's value. The first in the queue leads.
//
// A candidate with a priority goes ahead of those that wait with a lower one, but never ahead of
// the first in the queue. It takes the place right before the first candidate that it passes, while
// somebody is still ahead of that place. When the candidate becomes the first itself, it does not
// lead yet: it needs a grant. A grant is a transaction that moves it to the front of its place,
// under a name that only one znode can have. So if two candidates both see themselves first, only
// one is granted the leadership, and tokens grow.
//
// A transfer gives the leadership to a chosen candidate. The leader offers its place, the candidate
// answers, and the leader ends its leadership. Then the candidate deletes the leader's znode and
// creates its own in the same place, in one transaction.
//
// # Beside ZooKeeper's clients
//
// The names follow Curator's LeaderLatch, _c_<uuid>-latch-0000000007, and its clients can stand in
// the same queue. Such a client accepts no transfer and goes ahead of nobody.
//
// No other client may share an election's path. Curator's LeaderSelector, go-zookeeper's Lock and
// kazoo's Election use other names, so they and the candidates here would not wait for each other.
// They belong on the path of a lock.Mutex. Names that begin with "transfer-" below an election's
// path are the election's own.
package election
