// Package command is the format of the log and of the durable image. It encodes and decodes the
// commands that replicas apply, the requests in a batch, and the records of znodes, sessions and
// members. Package replica decides what a command does.
//
// # Commands
//
// An entry of the log is one command: an array that begins with its kind.
//
//	register [1, member, start, directory, digest, level, wall ms, [scheme, ...], tree max]
//	batch    [2, member, start, seq, wall ms, home zxid, [request, ...]]
//	silence  [3, member, start, seq, step, duration ns, wall ms]
//	expire   [4, wall ms]
//	reap     [5, wall ms, [[path, czxid, mzxid, pzxid], ...]]
//	purge    [6, wall ms, [[session, [[member, start], ...], ended, lost], ...]]
//	purged   [7, shard, [session, ...]]
//	raise    [8, level, [member, ...]]
//	found    [9, lineage, [member, ...], shards, wall ms]
//	join     [10, directory, name, zone, address, observer, former member, former directory, [instead, ...], wall ms]
//	report   [11, member, shard, part, change, wall ms]
//	govern   [12, number, member]
//	want     [13, number, member, wish, reason, wall ms]
//	retire   [14, member]
//	recover  [15, lineage, parent, survivor, [member, ...], zxid, wall ms]
//	load     [16, part, source, zxid, last, wall ms, [[path, znode], ...]]
//
// The member's node proposes register and batch. The leader of the shard proposes silence, expire,
// reap, raise, report and retire. The leader of the home shard proposes purge, purged, found, join,
// govern and want. Any member that has the backup may propose load. The only member that is left after a forced recovery proposes recover, on
// every shard, on the home shard last. A raise that leaves members behind is proposed where somebody asked for it.
//
//	register  Begins the stream of a new start of a member. Carries the member's directory, the
//	          founding digest, the highest feature level that the member agrees to, the names of
//	          its ACL schemes, and the bound of the tree from then on.
//	batch     Carries requests of one node. Accepted only in its place: seq is one more than that
//	          of the last accepted batch of this start. home zxid is the newest transaction of the
//	          home shard that the node had applied when it sent the batch. It is zero in a batch to
//	          the home shard. A batch without requests shows that the node is alive.
//	silence   Records that nothing was committed from this start for the duration. It is one step
//	          of the silence after batch seq.
//	expire    Ends the next portion of the sessions that are due.
//	reap      Deletes containers and TTL znodes, unless they have changed since the leader saw them.
//	purge     Tells a shard that these sessions have ended on the home shard, each in transaction
//	          ended. The listed starts have spoken for the session.
//	purged    Tells the home shard that a shard has nothing left of these sessions.
//	raise     Raises the shard's feature level by one, to this level. It counts only if every
//	          founding member has registered with a build that reads the level. Those in the list
//	          need not have.
//	found     Chooses the ensemble's lineage, and says who the founders are and how many shards
//	          there are. The first one in the log of the home shard counts.
//	join      Gives a directory its member's id, for the home shard. Former are what the process
//	          was before, or zero. Instead are the members that it may replace
//	          by its name. A repeat gives the same id.
//	report    Tells the home shard what a member is on a shard, since a change of that shard's
//	          members at an index in its log.
//	govern    Gives a member that begins to lead the home shard the next number. Wishes under
//	          other numbers do not count from then on.
//	want      Says what a member is to be, under the number of the leader that wishes it. A person
//	          may wish a learner to vote, or a member out, at any time, under zero. A member goes
//	          from learner to voter to out, and never back.
//	retire    Ends a member's stream on the shard for ever. Nothing waits for the member any more.
//	recover   Begins a new lineage on the home shard, if the parent is the present one: all but the
//	          survivor are out. On every shard it retires the members in the list, and the next
//	          transaction is above zxid. The lost majority may have given zxids below it. If the
//	          first start dies, the next one repeats it with a later zxid.
//	load      Loads a part of a backup into a new shard. Part 0 begins that, if nobody has used the
//	          shard. The shard's transactions go on after zxid, which is above all zxids of the
//	          backup. A later part 0 of the same source, before the home shard is loaded, is only
//	          a later zxid. Every later part is a transaction. It counts if it is the next one of the same
//	          source, which is the backup's SHA-256. zxid is zero in it. While the home shard loads,
//	          it opens no session, so nobody uses any shard. Its part 0 comes before those of all
//	          other shards, and its last part after theirs.
//
// # Requests
//
// A request in a batch is an array that begins with its kind.
//
//	txn           [1, session, [op, ...]]
//	open          [2, timeout ns, password, remote, [identity, ...]]
//	close         [3, session, attached, lost]
//	release       [4, session, path, czxid, lost]
//	addShard      [5, session, shard]
//	introduce     [6, session, timeout ns, attached, [identity, ...]]
//	reattach      [7, session, password, timeout ns, [identity, ...]]
//	setIdentities [8, session, attached, [identity, ...]]
//	announce      [9, name, address, client, zone]
//
//	op            [kind, path, data, mode, version, ttl ms, acl, czxid]
//	checkMzxid    [10, path, mzxid]
//	add           [11, path, width, delta]
//	ensure        [12, path]
//	acl           nil, or [[perms, scheme, id], ...]
//	identity      [scheme, id]
//
//	txn            Applies the operations entirely or not at all. tree.OpKind and tree.CreateMode
//	               number the kinds and modes.
//	open           Opens a session. Its id is the zxid of this transaction.
//	close          Ends a session.
//	release        Ends the ephemeral at path if the session created it in transaction czxid: it
//	               is deleted, or lingers if it was lost.
//	addShard       Tells the home shard that the session will use a further shard.
//	introduce      Makes the session known to a further shard.
//	reattach       Attaches a remote session to the member that sent the batch.
//	setIdentities  Replaces the identities that the session has authenticated as.
//	announce       Says what the member that sent the batch is called, and where members and clients
//	               reach it.
//
// remote is set for the session of a client outside the process. attached is the zxid that attached
// such a session to its member. This is the zxid of open or of the newest reattach. For an
// in-process session it is zero. lost is set if the owner did not ask for the end, but was silent
// for too long. Then ephemerals that were created with a TTL linger.
//
// # Records
//
// The image has five tables of records. Each record is an array under a key.
//
//	table     key                            record
//	znodes    the path                       znode
//	sessions  the id in 8 bytes, big-endian  session
//	origins   the member, in the same way    origin
//	meta      "state"                        state
//	members   the id in 8 bytes, big-endian  member
//	          0 in 8 bytes                   ensemble
//
//	znode    [czxid, mzxid, pzxid, ctime ms, mtime ms, version, aversion, created, owner,
//	          container, ttl ms, acl, data]
//	session  [id, password, timeout ns, member, closing, [identity, ...], [shard, ...], ended,
//	          attached, [[member, start], ...], lost]
//	origin   [member, start, directory, digest, level, seq, step, silence ns, [scheme, ...], retired]
//	state    [level, zxid, lead, [scheme, ...], tree max, seed]
//	seed     [source, next part, done], or nil
//	member   [id, directory, name, zone, address, client, observer, wish, reason, since ms,
//	          [[part, change], ...]]
//	ensemble [lineage, next id, shards, govern, governor, [ancestor, ...]]
//
// tree.Znode and the types of package session explain the fields. Only the home shard has members
// and an ensemble. A state has the shard's level, the newest zxid, the ACL schemes in force, the
// bound of the tree, and how far it is loaded from a backup. Its lead is the most that zxid, after any
// command, was above the command's wall, in microseconds. A seed is nil while nobody has used the
// shard. If it was used without a backup, the seed has no next part and is done.
//
// # Levels
//
// Every shard has a feature level. All its records are written at this level. This build writes
// level 1, which allows everything above.
//
// A later build that writes something new gives it a new level, and goes on reading the former
// ones. raise itself is read from 0.1.0 on. It is proposed only when all members have registered
// with a build that reads the next level, so no older build ever meets one.
//
// # Bytes
//
// Everything is MessagePack, each value in its shortest form. The decoder refuses the other forms:
// what it reads is written again as the same bytes. Every array has the length shown, and lists may
// be empty.
//
//	string      path, scheme, id of an identity or ACL entry, name, zone, address, client
//	binary      directory, password, lineage, parent, ancestor (16 bytes), digest, source (32 bytes), data (nil or any length)
//	0 or 1      remote, closing, container, lost, observer, retired, last, done
//	signed      session, owner, a session's id, all ms and ns, version, aversion, created, perms, delta
//	unsigned    all other numbers
//
// Times in ms are Unix times, except ttl. wall is the proposer's clock. Nil data and empty data
// differ. A nil acl stands for tree.OpenACL.
//
// The golden files in testdata pin every byte: what is in the log of a running ensemble must be
// readable by the next build.
//
// The encoder and decoder are our own, because they are on the path of every write. With the
// msgpack library, which writes to an io.Writer, each request escaped to the heap and decoding took
// twice the time. The tests compare the encoder with that library.
package command
