// Package engine is one running node: a replica of each shard, an outbox for this node's calls to
// each shard, and this node's sessions. It makes no promise of compatibility; services import
// package embed.
//
// This package is the hub: it starts and stops the node, and reads for sessions. The rooms below do
// the rest. A room imports only rooms on lines below its own:
//
//	engine                                      the hub
//	petition  presence                          asks for changes of the ensemble; says where its member is
//	entry  governor  levels  spread  recovery   joins; judges and steers; raises levels; asks for shares; recovers
//	backups  census  health  seeding  offline   copies; counts sessions; watches over itself; begins; works at rest
//	identity  peers                             whose a directory is; who may talk to this node
//	roster  forest                              who is in the ensemble; the trees of all shards as one
//	keeper  replica  ask                        this node's sessions; one shard's state machine; questions to others
//	outbox  backupfile                          this node's batches to one shard; the bytes of a backup
//	command  clock  claim  steer                formats of log and image; time; what is held; who is to vote
//	scheme  datadir                             how a credential proves; what a directory holds
//
// Nothing points up. What a room needs from above it declares as an interface, Node or Raft. The
// engine implements these in callbacks.go.
//
// # A write
//
//	caller                    outbox                        replica, on every member
//	keeper: Session.Submit ─▶ Outbox.Submit: queue
//	                          seal a batch (start, seq)
//	                          Raft.Propose ───── log ─────▶ Replica.Apply
//	                                                        accept the batch in its place
//	                                                        for each request:
//	                                                          tree.ApplyInto, not visible yet
//	                                                          keeper.Gone: end this node's claims
//	                                                            on deleted znodes
//	                                                          Watches.Deliver: queue the events,
//	                                                            then make the change visible
//	                                                        and on the caller's node
//	Pending.Wait ◀─────────── Outbox.Complete ◀──────────── after each request
//	keeper.Proved ◀────────── Outbox.BatchApplied ◀──────── after the batch; the proof is only
//	                                                        of batches to the home shard
//	                                                        at most 1,024 entries later:
//	                                                          save to the image
//
// Each start of a member sends each shard one numbered stream of batches. If nothing holds it back,
// a lone call is proposed at once, on its caller's goroutine; otherwise Outbox.Loop proposes it.
// While a batch is in flight, calls wait in the queue for the next one. When 256 of them wait, a
// second batch goes out beside the first.
//
// A replica accepts a batch only in its place in the stream, so it is harmless to send one again.
// An outbox sends all again on evidence of loss, and the oldest alone when that is overdue. To tell
// repeats, the replicated state needs only the last accepted seq of each stream.
//
// # The end of a session
//
// The ensemble counts a session's silence in the log; package session explains how. This node's
// side is the keeper. All in-process sessions live by one moment: when the newest applied batch of
// this node had first been sent. Every question about a session or a claim first compares the clock
// with the deadlines that follow from it. A claim is held only while its session is Connected. It
// ends on this node before anyone else can be granted what it held.
//
//	the owner closes it   Session.Close: the keeper ends it here, and calls Outbox.QueueEnd
//	its deadline passes   CheckDeadlines: it is Suspended, and claims that were held end
//	a timeout later       CheckDeadlines: the keeper ends it here, and calls Outbox.QueueEnd
//	the log expires it    Replica.Apply calls keeper.Ended, which ends it here
//
// When the keeper ends a session here, its claims and watches end at once, and its queued calls are
// cancelled. The outcome of calls that were sent is unknown. If the log ended the session, they are
// refused on the shard of that log.
//
// In the log of the home shard, the end deletes the session's ephemerals there. The purger carries
// the end to the other shards that the session has used. An ephemeral that was created with a TTL
// lingers if it was lost, that is, if its owner did not give it up. The log says which it is
// (command.Request.Lost).
//
// A remote session is different. It may be attached to another node at any time, and outlives this
// one, so this node does not judge it by its own clock. The node does count the silence of the
// session's client, also while commits are slow. See remote.go and silence.go in package keeper.
//
// # Shards
//
// The first component of a path decides its shard (package forest). Each shard is a Raft group with its
// own replica, image and stream of this node's batches. The first shard is the home shard: it has
// the table of all sessions, and the stream that keeps sessions alive. Another shard gets a session
// on its first write there. The root and a few other znodes are on every shard; readers put them
// together. Each member asks for the leaderships that are its share.
//
// # Members
//
// Members come and go. The table of members on the home shard has a wish for each
// of them: learner, voter or out. Each member has a roster, and asks the leader for changes:
//
//	entry                a node without an id asks the seeds, and joins or founds
//	presence, petition   what a member says of itself, and asks for
//	members.go, stop.go  how it is removed, and leaves
//	question.go          what a member answers
//	governor             where this node leads: admit, judge what is asked, steer each shard
//	recovery             the first start after a recovery
//
// Package ask has the questions and who asks, package datadir what a directory holds, what a former
// member has left there included, and package offline works on the directory of a member that does not
// run. Package seeding begins a new ensemble with a backup.
//
// The leader of the home shard plans wishes. The leader of each shard changes the members of its
// own Raft group until they follow the wishes.
//
// Who leaves serves nobody from its first removal on: finish ends all readers before dragonboat closes
// the shard. Its Raft goes on until it is out of all shards, because the others may need its vote on
// the next one. So what Raft needs ends with stop or the disk, and what users need ends with done.
//
// # Order of start
//
// Start binds the port and locks the directory. It checks the identity file, images and logs
// through a view that changes nothing. Then it loads the images, counts the start, and only then
// starts Raft. It returns when this node has applied what its logs know to be committed, which
// needs no quorum. A node that has yet to join starts Raft later, in enter, once it knows its
// id. A refusal by a peer fails the node only when Start has opened everything. See start.go. Check
// looks at the directory of a stopped member in the same way, and reads more of it. See package offline.
//
// # Turns
//
// Raft calls Apply, Sync, Snapshot, Install and Close of a replica one at a time. A backup's Capture
// takes a turn between them. The turn is no lock of the table below: it is a channel, so that a
// Capture can give up, and nothing that has the turn waits for a backup.
//
// # Locks
//
// A goroutine that holds one of these locks may acquire those below it, never one above, and never
// two of one line. The table covers all packages. Package internal/rank has the same order; tests
// with the build tag lockrank fail when the order is broken.
//
//	election.balance     what a process leads of an election.Share
//	election.Candidate   the state of a candidate
//	election.Latch       what it leads
//	lock.Keys            which locks it keeps
//	lock.kept            a lock that its Mutex keeps
//	view.View            the history of a view
//	task.lookout         which tasks the callers of a Queue try
//	admin.lending        the sessions of an admin handler
//	crowd.Listener       the connections of its server
//	client.session       a session behind a connection
//	client.Client        where a client connects
//	gateway.readOnly     the connections that may only read; held while they are ended
//	gateway.Gateway      its connections
//	gateway.throttle     how many new sessions it may open
//	gateway.conn         its queue of answers; held while it reads what must fit between two events
//	gateway.refusals     which refusals of clients were logged
//	replica.mu           while one entry is applied; briefly by the leader's loops and Inspect
//	keeper.mu            lives, claims and watches of this node's sessions
//	watch registry       while a transaction queues its events and becomes visible; several by shard
//	tree.announcement    while the watches of one transaction are told; readers of what it changed wait
//	watch.Joint          a watch on several shards
//	watch.Client         events of a remote client's connection
//	tree.pin             which zxids of a tree are pinned
//	outbox.mu            the queue and the batches in flight
//	shardPurger.mu       what a shard has purged
//	leaders              the leaders that observers know
//	embed.notifier       calls of Events that wait
//	embed.auditor        records that wait for Config.Audit
//	datadir.IdentityFile  the identity file
//	Engine.end           why the node failed
//	roster.book          where members may be
//	certs.Store          one reading of the files with certificates
//	replication.Host     calls of dragonboat, some of which would crash it while it ends
//	shard.starting       one start of a shard at a time
//	barrier.mu           the readers that wait
//	retention.mu         where the log is cut
//	shard.mu             the leader
//	logBridge.mu         the hosts of the process
//	replication.locked   the directories of the process
//	logStore.turn        one read or write of the logs at a time
//	logStore.mu          the logs
//	shardLog.mu          what is known of one log
//	fileSystem.mu        what dragonboat has open
//	Image.installing     one install at a time
//	Image.pointing       the pointer file
//	storage.Snapshot     while a snapshot is written
//	storage.Image        the image's state
//	file.reading         one Read of an open file at a time
//	node.writer          one write to a log at a time
//	file.mu              the position of an open file
//	overlay.mu           the names that only memory has
//	nodes.mu             the files that are open
//	node.mu              the part of a file that only memory has
//	disk.Disk            the switch
//	dirs.mu              the directories that must exist
//	lack.mu              how long calls wait for disk space
//	transport.link       the link to a peer
//	transport.Transport  all connections
//	promises.mu          what the peers have promised
//	notices.mu           what was logged
//	health.Slowness      what was slow lately
//	health.Recent        what happened lately
//	lines.Queue          the lines that wait for the logger
//	transporttest.Faults  in tests: what is broken
//	transporttest.Mesh    in tests: a network in memory
//	transporttest.pipe    in tests: one of its connections
//
// Code that runs with a registry's lock held must not ask the keeper anything: it can neither
// compare clocks nor learn why a session ended. One example is the look of watch.Client.Arm.
//
// No lock is held over a call of the embedding service. The exception is the pure functions of its
// authentication schemes, whose panics are contained (package scheme). No lock above those of
// replication is held over I/O. The exception is datadir.IdentityFile, over that file.
//
// # Goroutines
//
//	for each shard   Outbox.Loop, Replica.ExpireLoop, Replica.ReapLoop, Replica.SaveLoop, steering.loop in governor
//	for the node     Keeper.Loop, Purger.Loop, failureLoop, Watcher.Loop, Presence.Loop
//	if it has shares Spreader.Loop
//	at the start     whenReady, until this member has registered; enter, until this node is a member
//	until it is done Raiser.Loop, Governor.lineageLoop, Loader.Run
//
// Purger.Loop starts one goroutine for each shard but the home shard. Engine.run and
// Engine.runMember start all of them, and they end with Close. Replica.Apply runs on Raft's
// goroutines. While a session is introduced to a shard, a goroutine of its own runs, which ends
// with the session. Reattach runs one for each shard that the session uses. A Backup runs one beside
// its caller, and one more makes the backup that another process pulls. Figures runs one that asks
// the disk for its space, unless one is running. Close does not wait for them.
package engine
