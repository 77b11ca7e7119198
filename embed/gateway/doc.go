// Package gateway opens a node's tree to ZooKeeper's clients.
//
//	node, err := embed.Start(cfg)
//	...
//	door, err := gateway.Start(node, gateway.Config{Listen: ":2181"})
//
// A gateway speaks ZooKeeper's client protocol on a port of the node. Java, C, Python and Go
// clients work with it, and so do their recipes, shells and monitors.
//
// The gateway only translates. Data, sessions and watches follow the rules of the tree, which are
// ZooKeeper's rules, and the same as for callers in the process. Packages tree and embed say where
// they differ from ZooKeeper. The following lists say what else differs on the wire.
//
// # Requests
//
//   - sync is a real barrier. The next read shows everything that was acknowledged anywhere before
//     the sync.
//   - A write that fails uses no zxid. Its answer has the zxid of the newest transaction before it.
//   - A create or create2 with a container's flags creates a container. Any other create whose op
//     and flags contradict each other gets BadArguments. In a multi, the op is changed to fit the
//     flags, as in ZooKeeper.
//   - Unknown ops get Unimplemented. So do deleteContainer (20), which only the reaper may use, and
//     a second createSession (-10).
//   - Answers to auth, sasl and unknown ops keep their place among the answers. They overtake none.
//   - exists needs Read on a znode that is there, as from ZooKeeper 3.7.3, 3.8.4 and 3.9.2 on, and
//     hard quotas are enforced, as there with enforceQuota.
//   - removeWatches of the types Data and Children leaves persistent watches whole, as from ZooKeeper
//     3.9.0 on.
//   - During a slow reconfig or sync, pings are answered before they are read.
//   - TTL modes are always on. Package embed says how the age of a TTL znode or a container is
//     counted. It is not counted by the leader's wall clock.
//   - Writes of /zookeeper itself, of /zookeeper/vivarium and below it, and of their quotas get NoAuth,
//     whatever ACLs say, unless the client is the user of embed.Config.SuperDigest.
//   - /zookeeper/config lists the members, and has an address for clients only if Config.Advertise
//     says one. It has no data on a node that is alone, and until all members have said where they are.
//   - reconfig removes members and lets learners vote. It adds nobody, moves nobody, and makes no
//     observer of a participant. What is so already leaves the version as it was. The permission is
//     checked first. docs/zookeeper-clients.md of the repository has the whole list.
//   - There is no Kerberos, and there are no local sessions. The gateway answers like a server that
//     has them turned off. Without Config.SASL it also answers so to SASL.
//   - With SASL, no user is a superuser, a user acts under the own name only, and a client that is
//     refused loses its connection.
//
// # Sessions and connections
//
//   - If a request is refused before it is submitted, and no code tells why, the gateway ends the
//     connection. Examples are a missing quorum and a full queue. Nothing that the client sent
//     behind the refused request is carried out, and a client may rely on that. (With several
//     shards, what it sent to another shard may be carried out.)
//   - A member that cannot tell whether its sessions still live answers no pings and ends its
//     connections. So clients look for another member in time. If nobody leads when a client
//     connects, the gateway closes the connection after the time that an election takes.
//   - While commits take more than a third of a session's timeout, the gateway treats its client in
//     the same way. If the client never comes back, its session ends at most about eight timeouts
//     after the client was last heard, or after eight commits if those take longer. Other sessions'
//     timeouts do not matter.
//   - A wrong password does not end the connection that has the session. After the session was
//     reattached, its former connection ends as soon as that connection's member knows.
//   - The answer to closeSession has the newest zxid that this member has applied. That may be
//     later than the zxid that ended the session.
//   - If a session owns more than 10,000 ephemerals on a shard, the answer to its closeSession may
//     come before the last of them are gone.
//
// # Vivarium's own client
//
// Package embed/client speaks ZooKeeper's protocol with one op more, number 1000. ZooKeeper's
// clients never send it, and for them nothing changes. With it come transactions of any operations
// of package tree, watches that say what they found, pages of children, walks and waits.
// internal/wire/native.go lists them. They differ from ZooKeeper's requests in this:
//
//   - The first of them is a hello. Then the connection's events have the data and the Stat that
//     their changes left. The data count against Config.Memory while the events wait.
//   - A request that is refused gets an answer, whatever the reason, and the connection stays. What
//     was sent behind it is carried out. The connection ends with the session or the node, and if
//     nobody knows whether a transaction was applied.
//   - A read's answer comes after the events of what it shows. It may show less than the events
//     before it, as with a session in this process.
//   - The client is not trusted. Its operations and paths are checked as package embed checks them.
//   - In read-only mode all of them are refused. The client looks for another member.
//
// # Read-only mode
//
// Config.ReadOnly turns it on. Like ZooKeeper's it serves reads, to clients that ask for it, while
// this member knows no leader. readonly.go draws when it begins and ends. It differs in this:
//
//   - It needs no local sessions. The session of such a client belongs to this gateway alone, and
//     ends with its connection. A client that presents it later is told that it has expired.
//   - It shows only what a quorum has accepted. A ZooKeeper server may show what its log has beyond
//     that, and what a new leader then takes back.
//   - Connections with a session of the ensemble stay open when it begins. As without this mode,
//     they end when the member cannot tell any more whether their sessions live.
//   - With several shards, a client that has seen a zxid is turned away: nobody can tell whether this
//     member is behind it. Clients that have just started are served.
//   - A member that has loaded no state, because it is new to its ensemble, serves nobody.
//
// # Watches
//
//   - A watch of the empty path reads the root and never fires, as in ZooKeeper.
//   - If this member receives a snapshot from another member, persistent watches may have missed
//     something. The gateway ends the connections that have such watches. Their clients connect
//     again and look anew.
//   - A client that comes back with setWatches learns of a znode that it may not read only whether it
//     exists. A watch of such a znode is armed in silence, whatever has changed. In ZooKeeper its
//     events give away the zxids of the znode's changes.
//
// # Several shards
//
//   - A zxid belongs to some shard. Zxids of different shards do not compare.
//   - A client may send writes without waiting for their answers. Then events of a later write may
//     come before the answer to an earlier one.
//   - A multi over several shards gets BadArguments.
//   - A client that comes back knows one zxid, which says nothing about the other shards. So
//     setWatches fires for every watched znode that the client may read, whether it changed or not. The client
//     misses nothing.
//   - After closeSession, ephemerals on other shards than the first go some milliseconds after the
//     answer.
//
// # Limits
//
//   - A connection has at most 18 identities. One more gets AuthFailed.
//   - A path has at most 64 KiB, as in package embed. A longer path gets BadArguments.
//   - A multiRead whose results take more than 16 MiB ends its connection. Clients accept no frames
//     of that length. A walk of Vivarium's own client is shown in portions of 1 MiB. It keeps what
//     is replaced meanwhile in memory, for a minute at most; then the client begins again.
//   - The gateway ends a connection for which 65,536 events wait.
//   - The gateway ends a connection whose watches take more than Config.WatchBytes. A client that
//     connects again and sets as many watches is cut off again. It needs fewer watches or a larger
//     limit.
//   - Config.Watches can bound the number of watches of a connection, which ZooKeeper does not.
//   - New sessions come at 2,000 per second at most, see Config.Handshakes. ZooKeeper's throttle of
//     connections is off by default, and closes some at random.
//   - While all connections together hold more than Config.Memory, the gateway ends the connection
//     that holds most.
//
// # Four-letter words
//
//   - mntr has no keys for what does not exist here or is not known: zk_pending_syncs, sizes of
//     responses, TLS handshakes under way, ZooKeeper's log, and ZooKeeper's internal counters.
//     zk_cnt_fsynctime, its sum and its average are those of the Raft log; the shortest and the
//     longest fsync are not known. zk_updatelatency is of the requests that write, without those
//     that open and close sessions. zk_response_bytes has all that was sent to clients, events and
//     answers to words included. zk_snap_count is of all shards.
//     Proposals are the entries of the first shard's log that this member has applied. A key that
//     ZooKeeper does not have is zk_feature_level; see docs/upgrades.md. A follower or observer
//     counts as synced if it answers and is at most 1,000 entries of the log behind.
//   - dump lists the sessions as a follower does, also on the leader.
//   - conf has no keys about elections.
//   - Image and log share the node's directory. So dirs and conf give its whole size twice. Do not
//     add the two.
//   - gtmk answers like a server whose trace mask was never set. There is no stmk and no hash.
//
// # How a connection works
//
// One goroutine serves each connection: the reader. It decodes requests in their order, submits
// writes, carries out reads and queues the answers. Before it waits for more input, it sends the
// answers that are ready. When an answer or an event becomes ready later, another goroutine starts,
// sends what is ready and ends. An idle connection has no buffers.
//
// A connection goes through these stages. Any goroutine may end it at any time.
//
//	          handshake             closeSession
//	greeting ----------->  serving  ------------>  closing
//	   |                      |                       |
//	   +----------------------+---------- drop -------+---->  ended
//
// The right to write to the connection is its baton. One goroutine holds it at a time. A goroutine
// that finds the baton held marks it as wanted and goes on with its own work.
//
//	      pickUp        pickUp by another
//	free --------> held -----------------> wanted
//	     <--------      <-----------------
//	      putDown        putDown: look again
//
//	free         -- retire ---------------------------------------> retired
//	held, wanted -- retire --> retiring -- the holder stops -------> retired
//	held, wanted -- sending fails, or the last answer is sent -----> retired
//
// Events that come before an answer's place are sent before the answer. A write's place comes from
// its outcome. While an answer in the queue has no place, the answers behind it cannot have one.
// The reader carries out no read then, so such an answer shows no more than the answer before it
// and takes the same place.
//
//	made -- a write is submitted ------> pending   -- its outcome is known ----> placed
//	made -- queued behind an unplaced -> following -- the one before is sent --> placed
//	made -- any other answer is queued ----------------------------------------> placed
//
// Whatever a client sends, it can lose only its own connection. Config and the constants in conn.go
// bound what the gateway keeps for a connection. Each place where that grows or shrinks counts it
// against Config.Memory, see conn.hold. The cost of a read grows with its answer. A read holds no
// lock that anybody else needs.
//
// Locks: locks of package watch may be acquired under conn.mu, but not under Gateway.mu.
// engine/doc.go lists the order of all locks.
package gateway
