// Package gateway is a door for ZooKeeper's clients: it speaks their protocol on a port of a node, so that Java, C, Python and Go
// clients, their recipes, shells and monitors use the tree of a service that embeds it.
//
//	node, err := embed.Start(cfg)
//	...
//	door, err := gateway.Start(node, gateway.Config{Listen: ":2181"})
//
// It is a translation. The rules of the data, of sessions and of watches are those of the tree, which follow ZooKeeper's and are the same
// for callers in the process; package tree and package embed say where they differ. What differs on the wire beside that:
//   - sync is a real barrier: what was acknowledged anywhere before it, the next read shows.
//   - A write that fails uses no zxid: its answer has that of the newest transaction before it.
//   - A create or create2 with the flags of a container creates one. Any other create whose op and
//     flags contradict each other gets BadArguments. In a multi the op is made to fit the flags, as
//     in ZooKeeper.
//   - The reaper's own request (20) and a second createSession (-10) get Unimplemented, as every op that is not known.
//   - Answers to auth, sasl and unknown ops come in their turn, and overtake nothing.
//   - A connection has at most 18 identities; one more is AuthFailed.
//   - A request that is refused before it is sent for a reason which no code tells, such as a want
//     of a quorum or a full queue, ends the connection, and what the client sent behind it is not
//     carried out: a client may rely on that. (With several shards, what is sent behind it to
//     another shard may be.) A member that cannot tell whether its sessions still live answers no
//     pings and ends its connections, so that clients look for another in time. If nobody leads
//     when a client connects, the gateway closes the connection after the time that an election
//     takes.
//   - While commits take more than a third of a session's timeout, its client is kept away as
//     above. If the client never comes back, its session ends at most about eight timeouts after
//     the client was last heard, or after eight commits if those take longer. Other sessions'
//     timeouts do not matter.
//   - If a session owns more than 10,000 ephemerals on a shard, the answer to its closeSession may
//     come before the last of them are gone.
//   - There is no read-only mode, no SASL, no reconfig, no local sessions; they answer as a server that has them turned off.
//   - /zookeeper/config has no data, also in an ensemble: a client that asks for the members is told of none.
//   - A connection for which 65,536 events wait is ended, and so is one whose persistent watches may have missed something because this
//     member was sent a snapshot by another: its client connects again, and looks anew.
//   - A multiRead whose results are more than 16 MiB ends its connection; clients take no frames that long.
//   - With several shards, a zxid is that of some shard, and what comes of writes that were not
//     waited for may be told before the answers to earlier ones; a multi over several gets
//     BadArguments. A client that comes back knows one zxid, and zxids of several shards do not
//     compare. So setWatches fires for every watched znode that exists, changed or not. The client
//     misses nothing. The ephemerals of a closed session go some milliseconds after the answer to
//     closeSession if they are on other shards than the first.
//   - The answer to closeSession has the newest zxid that this member has applied. That may be
//     later than the zxid that ended the session.
//   - mntr has no keys of what is not there or not known: how far the followers have come (zk_synced_followers, zk_pending_syncs; of
//     zk_learners it is known that they are connected), sizes of responses, TLS handshakes under way, ZooKeeper's log and the counters of
//     its inside. Proposals are the entries of the first shard's log that this member has applied. dump lists sessions as a follower does, also
//     on the leader; conf has no keys of elections.
//   - TTL modes are always on. Package embed says how the age of a TTL znode or a container is
//     counted. It is not counted by the leader's wall clock.
//   - A path is at most 64 KiB long, as in the library; a longer one gets BadArguments.
//   - The gateway ends a connection whose watches take more than Config.WatchBytes. A client that
//     connects again and sets as many watches is cut off again, so it needs fewer, or a larger
//     bound.
//   - While all connections together hold more than Config.Memory, the gateway ends the one that
//     holds most.
//   - A watch of the empty path reads the root and never fires, as in ZooKeeper.
//   - gtmk answers like a server whose trace mask was never set. There is no stmk and no hash.
//   - A resume with a wrong password does not end the connection that has the session. A resumed session's former
//     connection ends as soon as its member knows.
//
// # Inside
//
// One goroutine serves a connection, and another comes when there is something to send that it does
// not know of: see conn. An idle connection has no buffers. Whatever a client sends, it can lose
// only its own connection. Config and the constants in conn.go bound what is kept for it. Each
// place where that grows or shrinks counts it against Config.Memory: see conn.hold. The cost of a
// read grows with its answer. A read holds no lock that anybody else needs.
//
// Locks: conn.mu may be held while locks of package watch are taken, Gateway.mu may not.
// engine/doc.go lists the order of all locks.
//
// Read gateway.go first, then conn.go, writer.go and request.go; input.go reads frames, multi.go and auth.go belong to requests, errors.go
// has the codes, words.go the four-letter words, and session.go and watches.go what a connection asks of the engine.
package gateway
