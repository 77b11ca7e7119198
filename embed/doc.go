// Package embed puts a ZooKeeper into a Go process: a service's own replicas form a quorum among themselves, and the service
// has a tree of znodes, sessions, ephemeral and sequential znodes, watches, locks and elections as calls in its process.
// There is no server to run beside it.
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
// Locks are in embed/lock, elections in embed/election, what recipes of your own are made of in embed/claim, and embed/embedtest runs whole ensembles inside a test.
//
// # What a call that returns means
//
// A call ends in one of three ways, which never mix. It was applied: it returns nil, or an answer of the tree such as
// ErrNoNode, and then exactly once, whatever was lost, repeated or restarted on the way. It was not applied and never will
// be: ErrUnavailable, ErrSessionExpired, ErrSessionClosed, ErrClosed, ErrFailed, or the ctx's error alone. Or nobody can
// know yet: ErrUnknownOutcome.
//
// # The rules of the tree
//
// They are ZooKeeper's, to the letter of its server: versions, Stats, sequence numbers, the order of checks. Where this
// package differs it says so: Sync is a linearizable read barrier, failed writes use no zxid, times are those of the node that
// issued the write, TTL znodes and hard quotas are always on, and a container or TTL znode that is used while its removal is on
// its way stays. A session that owns more than 10,000 ephemerals on a shard ends in several transactions, for
// one would stop every member: it has ended with the first, and each znode stays its own until it goes.
// Package tree has the rest of the list.
//
// The member that leads looks for containers and TTL znodes to remove, every
// Config.ContainerCheckInterval. Its own clock counts ages from when it applied the znode's newest
// write, or loaded the znode: when it started, or received the state from another member. So a
// znode lives at least as long as its TTL, and at most an interval and a commit longer. If the
// leader was started meanwhile, the age begins anew.
//
// A session is whoever its Auth proves, for as long as it lasts; the default is nobody, who may do what the ACL allows to
// world:anyone, which is everything unless somebody set another. Members trust one another: an ACL keeps sessions apart, not
// a process that can speak as a member.
//
// A watch that may not be told of a znode is not told, as in ZooKeeper; a WatchOnce that this uses up ends with ErrNoAuth.
//
// A quota is ZooKeeper's: the limits of the subtree /a are the data of /zookeeper/quota/a/zookeeper_limits, such as
// "count=1000,bytes=-1=;byteHardLimit=1000000;countHardLimit=2000", and what is used is kept in zookeeper_stats beside it, once that exists.
// For the whole tree there is Config.MaxTreeSize instead, which is no znode and bounds memory.
//
// # Shards
//
// With Config.Shards above 1 the tree is spread over that many Raft groups, each with its own order of writes, so that what one
// loop cannot apply several can. The first component of a path chooses the shard, by its XXH64 modulo
// the number of shards: everything below /orders is on one, and every promise holds there as with one shard. Ten digits at its end do
// not count, for they may be a sequence number: /job-0000000001 and /job-0000000002 are on the same shard, and so are a million
// /customer-0123456789, which are better put below several parents. A session with a Root below the first component is on one
// shard. Across shards there is no common
// order: zxids compare within a shard only, a Multi whose operations belong to several is refused with ErrCrossShard and
// changes nothing, and a watch on several tells of the changes of each in that one's order. So a lock, what it guards, and whatever else
// must change together belong below one first component. Sessions, and a member's silence, are of the whole node: a session's end
// removes its ephemeral znodes on every shard, on each at its own moment.
//
// A shard that is slow or has no quorum keeps only those waiting who write there, or Sync, or close a session that has written
// there. It is different with the first one, which has the sessions: while it stands still none is opened, and those that
// there are become Suspended at their deadlines. A write proves its member alive on the first shard only; an idle one proves itself
// there in time, so this is to be seen only where a member dies: its sessions' silence counts from what it last said there.
//
// The root is on every shard: its children are those of all, its Stat their sum; its data and its ACL are fixed, and it has no
// quota. Its sequential children have the numbers of their shards, so it is no queue: claim.Before, OpCheckChildren, a lock and an election
// on it end with ErrCrossShard. What is read of it is true of each shard at some moment after the last Sync, not of all at one.
// /zookeeper is on the first shard, except that the quota of a subtree is where the subtree is and that /zookeeper/quota is on every
// shard, as the root.
//
// # Several nodes in one process
//
// Any number of nodes may run in one process, of one ensemble or of several; they share nothing but dragonboat's logger,
// which is of the whole process (see package replication).
//
// Read config.go, node.go and session.go first, then watch.go.
package embed
