// Package embed runs a coordination service with ZooKeeper's semantics inside a Go process: the
// replicas of a service form a quorum among themselves, and no server runs beside them.
//
//	node, err := embed.Start(embed.Config{
//		Dir: "/var/lib/service/vivarium",
//		ID:  1,
//		Members: map[embed.MemberID]string{
//			1: "10.0.0.1:7400", 2: "10.0.0.2:7400", 3: "10.0.0.3:7400",
//		},
//	})
//	...
//	err = node.Ready(ctx)
//	session, err := node.NewSession(ctx, embed.SessionOptions{})
//	name, err := session.Create(ctx, "/jobs/job-", data, embed.EphemeralSequential)
//
// Start returns before there is a quorum; Ready waits for it. A Session reads and writes a tree of
// znodes, watches them, and owns ephemeral znodes that disappear when the session ends.
//
// What a service reads before there is a quorum, such as its configuration, Node.Peek reads from the
// node's own replica. Session.Put writes a value whether or not its znode exists.
//
// Locks are in embed/lock, elections in embed/election, values and numbers in embed/value, barriers
// in embed/barrier, members in embed/group, services in embed/discovery, jobs in embed/job, tasks in
// embed/task, and parts of a set that members share in embed/partition. Package embed/embedtest runs
// a whole ensemble inside a test. Package embed/claim is for authors of other recipes, and
// embed/gateway serves ZooKeeper's own clients. Package embed/backup reads what Node.Backup writes.
//
// # What a call that returns means
//
// A call ends in one of three ways:
//
//   - It was applied, exactly once, whatever was lost, repeated or restarted meanwhile. The call
//     returns nil, or an answer of the tree such as ErrNoNode.
//   - It was not applied and never will be. The call returns ErrUnavailable, ErrSessionExpired,
//     ErrSessionClosed, ErrClosed, ErrFailed, or the ctx's error alone.
//   - Nobody can know yet. The call returns ErrUnknownOutcome.
//
// # The rules of the tree
//
// The rules are those of ZooKeeper's server, to the letter: versions, Stats, sequence numbers, the
// order of checks. These are the differences that a service may notice; package tree lists the
// rest:
//
//   - Sync is a linearizable read barrier.
//   - A failed write uses no zxid.
//   - Times are those of the node that issued the write.
//   - TTL znodes and hard quotas are always on.
//   - Exists needs Read on a znode that is there, as from ZooKeeper 3.7.3, 3.8.4 and 3.9.2 on.
//   - A container or TTL znode stays if it is used while its removal is in flight.
//   - A session that owns more than 10,000 ephemerals on a shard ends in several transactions,
//     because a single one would stop every member. The session has ended with the first one. Each
//     znode still belongs to it until that znode is deleted.
//
// The leader of a shard looks for containers and TTL znodes to remove, every
// Config.ContainerCheckInterval. Its own clock counts the age of a znode from the moment it applied
// the znode's newest write. If it loaded the znode later, because it started or received the state
// from another member, the age counts from then. So a znode lives at least as long as its TTL, and
// at most an interval and a commit longer. If the leader started meanwhile, the age begins anew.
//
// # Identities and ACLs
//
// A session has the identities that its Auth proves, for as long as it lasts. Without Auth it has
// none, and may do what ACLs allow to world:anyone. That is everything, unless somebody set another
// ACL. Members trust one another: ACLs separate sessions, but do not protect against a process that
// can speak as a member.
//
// As in ZooKeeper, a watch is not told of a znode that its session may not read. Other than there it
// ends when that begins: see Session.Watch.
//
// # Quotas
//
// Quotas are ZooKeeper's. The data of /zookeeper/quota/a/zookeeper_limits are the limits of the
// subtree /a, such as "count=1000,bytes=-1=;byteHardLimit=1000000;countHardLimit=2000". The znode
// zookeeper_stats beside it holds the usage, and without it the limits do not hold. As in ZooKeeper,
// each operation of a Multi is compared with the usage before the Multi, so one Multi may go over a
// hard limit. The whole tree has Config.MaxTreeSize instead, which is no znode and bounds memory.
// Other than in ZooKeeper, a write below /zookeeper/quota also needs Admin on the subtree, or on its
// nearest ancestor that exists. Otherwise anyone could stop all writes there.
//
// # What steers the ensemble
//
// Below /zookeeper/vivarium are the znodes that the members write for one another, such as those of
// package embed/backup/schedule. They, the quotas upon them, and /zookeeper itself are closed to the
// sessions of clients, whatever ACLs say: a write takes an identity of Config.SuperDigest, or a
// session of a member's process. Everybody may read them.
//
// # Shards
//
// With Config.Shards above 1 the tree is spread over that many Raft groups. Each shard has its own
// order of writes, so several apply more than one could. The first component of a path chooses the
// shard: its XXH64 modulo the number of shards. Everything below /orders is on one shard, and every
// promise holds there as in an ensemble of one shard.
//
// Ten digits at the end of the first component do not count, because they may be a sequence number.
// So /job-0000000001 and /job-0000000002 are on the same shard. So are a million znodes such as
// /customer-0123456789: put them below several parents. A session with a Root below the first
// component uses one shard.
//
// There is no common order across shards:
//
//   - Zxids compare within a shard only.
//   - A Multi whose operations belong to several shards is refused with ErrCrossShard and changes
//     nothing.
//   - A watch on several shards tells of each shard's changes in the order of that shard.
//
// So a lock, what it guards, and whatever else must change together belong below one first
// component. Sessions belong to the whole ensemble, and a member's silence concerns all shards.
// When a session ends, its ephemerals are removed on every shard, on each at its own moment.
//
// If a shard is slow or has no quorum, only these calls wait: writes and Syncs on that shard, and
// closing a session that has written there. The first shard is different, because it holds the
// sessions. While it stands still, no session can be opened, and existing sessions become Suspended
// at their deadlines. Only writes on the first shard prove that a member is alive. A member that
// writes nothing there sends it a sign of life in time. So this matters only when a member dies:
// the silence of its sessions counts from its last word to the first shard.
//
// The root is on every shard. Its children are the children on all shards, and its Stat is their
// sum. Its data and ACL are fixed, and it has no quota. Sequential children of the root get the
// numbers of their own shards, so the root cannot be a queue: claim.Before, OpCheckChildren, locks
// and elections on it fail with ErrCrossShard. A read of the root is true of each shard at some
// moment after the last Sync, but not of all shards at one moment.
//
// /zookeeper is on the first shard, with two exceptions. The quota of a subtree is on the shard of
// the subtree, and /zookeeper/quota is on every shard, like the root.
//
// # Several nodes in one process
//
// Any number of nodes may run in one process, of one ensemble or of several. They share what of
// dragonboat belongs to the whole process: its logger, its metrics, and the room it makes for entries
// in memory; see package replication.
package embed
