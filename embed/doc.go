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
// Locks are in embed/lock, elections in embed/election, and embed/embedtest runs whole ensembles inside a test.
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
// package differs it says so: Sync is a linearizable read barrier, failed writes use no zxid, and times are those of
// the node that issued the write. Of ZooKeeper's znodes, containers, TTLs, ACLs and quotas are not here yet.
//
// # Several nodes in one process
//
// Any number of nodes may run in one process, of one ensemble or of several; they share nothing but dragonboat's logger,
// which is of the whole process (see package replication).
//
// Read config.go, node.go and session.go first, then watch.go and claim.go.
package embed
