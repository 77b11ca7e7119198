// Package engine is one running node: for each shard the replicated machine and the pipeline that carries this node's requests
// to it, and the owner's side of this node's sessions. It is the hub: the only room that knows the others. It carries no
// compatibility promise; services use package embed.
//
// # A write
//
//	caller                    pipeline                      machine (every replica)
//	submit ── queue ────────▶ seal batch (origin, seq)
//	                          propose ──── Raft ──────────▶ accepted only in sequence
//	                                                        tree.Apply (staged)
//	                                                        claims of this node end
//	                                                        watches: queue events, then publish
//	wait ◀── complete ◀────── (this node's batch) ◀──────── result
//	                                                        image: now and then, in one batch
//
// A lone request goes out at once on its caller's goroutine; while a batch is in flight the next one fills. A batch is
// accepted by its place in this node's stream or not at all, so sending one again is harmless, and it is sent again only on
// evidence that it was lost (Outbox.resendLost). The replicated state keeps one number per stream.
//
// # Sessions
//
// The ensemble's side is in package session: silence is earned in the log. This node's side is the keeper: all its sessions
// live by the moment its newest applied batch had first been sent, and whoever asks anything of a session or a claim has
// the clock compared with that first. A claim is held only while its session is Connected; it ends on this node before
// anything of it can be granted elsewhere. What is lost, not given up, lingers if it was made to: whoever ends a session or a claim says
// which it is, in the log (request.lost, ending.lost, Table.Lost). A remote client's session lives by that too, but is not this node's to judge: it may be attached
// to another at any time, and outlives this one (remote.go). But its client's silence is, by the
// session's own timeout, also while commits are slow (silence.go).
//
// # Shards
//
// The tree is spread over shards by the first component of a path (route.go); each is a Raft group of its own with its own
// machine, image and stream of this node's batches. The session table is on the first one, the home shard: its stream is what
// sessions live by, and their ends are carried to the others from there (purger.go). What is on every shard is put together
// by whoever asks (span.go). The members take the leaderships that are their share (spread.go).
//
// # Order of start
//
// Start binds the port, locks the directory, checks identity, images and logs through a view that changes nothing, loads the
// images, counts the start, and only then lets Raft in. It returns when what the logs know to be committed is applied, for which
// no quorum is needed. See start.go.
// Check looks at the directory of a stopped member in the same way, and at more of it. See check.go.
//
// # Locks
//
// A goroutine that holds one of these may take those below it, never one above, and never two of one line. The order is that of all
// packages, and internal/rank has it for programs: tests that are built with the tag lockrank end where it is broken.
//
//	election.balance     what a process leads of an election.Share
//	election.Candidate   where a candidate stands
//	election.Latch       what it leads
//	lock.kept            a lock that its Mutex keeps
//	gateway.Gateway      the connections
//	gateway.conn         the queue of answers, and nothing is sent: while what has to fit between two events is read
//	replica.mu           while one entry is applied; the loops of expiry, reaper and purger, and Ephemerals take it shortly
//	keeper.mu            lives, claims and watches of this node's sessions
//	watch registry       while one transaction's events are queued and it becomes visible; several only in the order of the shards
//	watch.Joint          a watch on several shards
//	watch.Client         events of a remote client's connection
//	tree.pin             which zxids of a tree are pinned
//	outbox.mu            queue and batches in flight
//	shardPurger.mu       what a shard has purged
//	leaders              what observers were told of who leads
//	embed.notifier       calls of Events that wait
//	Engine.identity      the identity file
//	Engine.end           why the node failed
//	replication.Host     calls of dragonboat: it does not survive some during its end
//	shard.starting       one start of a shard at a time
//	barrier.mu           who waits to read
//	retention.mu         where the log is cut
//	shard.mu             who leads
//	logBridge.mu         the hosts of the process
//	replication.locked   the directories of the process
//	logStore.write       one write to the logs at a time
//	logStore.mu          the logs
//	shardLog.mu          what is known of a log
//	fileSystem.mu        what dragonboat has open
//	Image.installing     one install at a time
//	Image.pointing       the pointer file
//	storage.Snapshot     while one is written
//	storage.Image        the image's state
//	file.reading         one Read of an open file at a time
//	node.writer          one write to a log at a time
//	file.mu              where a file is read on
//	overlay.mu           the names that memory alone has
//	nodes.mu             the files that are open
//	node.mu              what of a file memory alone has
//	disk.Disk            the switch
//	dirs.mu              the directories that must be there
//	lack.mu              how long calls wait for room
//	transport.link       the way to a peer
//	transport.Transport  all connections
//	promises.mu          what the peers have promised
//	notices.mu           what was logged
//	transporttest.Faults  in tests: what is broken
//	transporttest.Mesh    in tests: a network in memory
//	transporttest.pipe    in tests: one of its connections
//
// So what is called with a registry's lock held, as a look of watch.Client.Arm is, asks nothing of the keeper: it cannot compare
// clocks, or say why a session ended.
//
// No lock is held over a call of the embedding service, except over the pure functions of its
// authentication schemes, whose panics are contained (scheme.go). None above those of replication is held
// over I/O, except Engine.identity over the identity file.
//
// # Goroutines
//
// Of each shard pipeline.loop, expirer.loop, reaper.loop and, but for the home shard, one of purger.loop's; of the node
// keeper.loop, purger.loop, failureLoop, schemesLoop, reportLoop, spreadLoop if it has shares and, until this member has registered, settle.
// They are
// started by run and end with Close; apply runs on Raft's workers. While a session becomes known to a shard introduce runs, which
// ends with the session: Close does not wait for it.
//
// Read engine.go first, then start.go, waiter.go, pipeline.go, batch.go, resend.go, machine.go, load.go, keeper.go, deadline.go, session.go,
// remote.go, silence.go, watch.go, reader.go, remotewatch.go, claim.go, turn.go, expire.go, leadership.go, lag.go, reaper.go, install.go, reconcile.go and census.go; for
// several shards route.go, span.go, purger.go and spread.go; scheme.go is what a service may get
// wrong; report.go and waiting.go are what it tells people; command.go and record.go are the formats, codec.go how they are written.
package engine
