// Package transport carries Raft messages and snapshots between the members of an ensemble.
//
// It is part of replication and carries no compatibility promise of its own.
//
// It owns the connections between members, the handshake at the start of each, the frames on them,
// and the gate that checks every received message. A [Network] makes the connections: [TCP] does,
// with optional mutual TLS, and package transporttest has one in memory for tests. A member that is
// alone needs no Network. dragonboat uses the transport through [Transport.Factory].
//
// The transport never touches a disk. It never panics over bytes that a peer sends. It knows
// nothing of znodes and sessions.
//
// Members come and go, and change their addresses. The transport keeps no list of them. For each
// dial and each handshake it asks [Options] where a member is and whether it may talk to this one.
//
// # Connections
//
// A connection carries messages in one direction only, from the member that dialled to the member
// that accepted. Nothing but answers travels back. So two members that talk have two connections.
// Snapshots travel on connections of their own, and so does each question.
//
// A connection begins with a handshake in three steps. It has a deadline.
//
//	dialer   -> acceptor: hello
//	acceptor -> dialer:   hello, verdict
//	dialer   -> acceptor: verdict, then frames
//
// Hello (146 bytes, 56 for each shard and the address, big endian):
//
//	offset  size  field
//	     0     4  magic "VvHi"
//	     4     2  version of this protocol
//	     6     1  purpose: 1 messages, 2 snapshot, 3 question
//	     7     1  number of shards n; 0 for a peer that is not recognised
//	     8    32  founding digest
//	    40     8  member that sends it
//	    48     8  member that it is meant for
//	    56    16  directory of the member that sends it
//	    72     8  start of the member that sends it
//	    80    16  nonce
//	    96     8  run: a random id of the process
//	   104     8  tick of the process in nanoseconds
//	   112     4  lowest level that the build reads
//	   116     4  highest level that the build reads
//	   120     4  level in use on the member now, the highest of its shards
//	   124    16  the ensemble's lineage; zero if the member does not know it yet
//	   140     2  length a of the address, at most 300
//	   142  56*n  the state of each shard, in order
//	142+56n    a  host:port at which the member says that it is reached; empty for a peer that is
//	              not recognised
//	      …    4  crc32c of the bytes before
//
// State of a shard (56 bytes):
//
//	offset  size  field
//	     0     8  newest term in the log when the process started
//	     8     8  vote in that term
//	    16     8  index of the last entry then
//	    24     8  term in which the member learned the next field
//	    32     8  index of the newest entry that it knows to be committed now
//	    40     8  term of that entry
//	    48     8  crc32c of that entry
//
// Verdict (28 bytes and a text of at most 1024):
//
//	offset  size  field
//	     0     4  magic "VvOk"
//	     4     2  code: 0 accepted, else the kind of refusal: 1 other version, 2 other ensemble,
//	              3 not a member, 4 wrong member, 5 not accepted, 6 has forgotten, 7 other tick,
//	              8 other history, 9 other level, 10 other lineage, 11 removed, 12 superseded
//	     6     2  length n of the text
//	     8    16  the nonce of the hello that is judged
//	    24     n  text, the reason of a refusal
//	  24+n     4  crc32c of the bytes before
//
// If the acceptor refuses, the dialler sends no verdict, with one exception. To an acceptor of
// another ensemble it says in words what it was founded as, for the log.
//
// A connection on which both verdicts are "accepted" carries frames:
//
//	offset  size  field
//	     0     4  length n of the payload, bounded before anything is allocated
//	     4     1  kind: 1 message batch, 2 snapshot chunk, 3 ask, 4 answer, 5 question, 6 reply
//	     5     3  zero
//	     8     4  crc32c of the eight bytes before and the payload
//	    12     n  payload: protobuf of raftpb; empty for ask and answer; of a question and a reply,
//	              what the caller of Ask and Options.Answer make it
//
// An ask is answered once all frames before it are handled. For messages, the acceptor also asks
// Options.Knows then. If the member was removed meanwhile, the acceptor closes the connection. The
// next handshake tells the member why.
//
// # Members
//
// Options.Address says where to dial a member. It is only a guess: the handshake shows who is
// there. After each handshake Options.Met gets the address at which the peer says that it is
// reached.
//
// Options.Knows may refuse a member. It is asked about members of the same founding and lineage
// only, because the ids of others mean nothing here. A member that was removed gets this member's
// digest and lineage with the refusal. So it can tell that the refusal comes from its own ensemble,
// and that it is final. A member that this one does not know yet is let in if Options.Knows says
// so: the log may have it elsewhere.
//
// What is remembered of a member goes once Options.Knows says that it was removed. Of ids that
// Options.Members does not have, at most 1000 are remembered. With one more, all others of them are
// forgotten and their connections end; whoever is a member connects again.
//
// A learner that cannot keep up would stop all writers with RateLimit messages. Those are dropped.
//
// [Transport.Pulse] says when a member last answered or led, and what it has acknowledged, as far
// as its messages show. It begins anew with each process of the member.
//
// # Nodes that are no members
//
// A node without a member id accepts connections after [Transport.Open]. It refuses messages and
// snapshots as "not a member", which is not final. [Transport.Become] gives it its identity. It
// lets messages in once dragonboat has started the transport.
//
// Anybody may ask a question with [Transport.Ask], member or not; with TLS, it needs a certificate.
// The two sides compare nothing but the version of the protocol. The hello of the asking side has no
// digest, lineage, level in use or address. That of the other side has nothing but its member id,
// which is zero if it is no member.
//
//	asker    -> acceptor: hello (purpose 3)
//	acceptor -> asker:    hello, verdict
//	asker    -> acceptor: verdict, question (at most 64 KiB)
//	acceptor -> asker:    reply (at most 1 MiB)
//
// The question has to come within the three seconds of the handshake, and takes no place before.
// The answer may take 30 seconds. It ends early when the asker closes the connection. 64 questions
// are answered at once, and the newest beyond that are refused. But an address that has fewer of
// them than another one gets a place of the other, whose oldest question ends.
//
// # Versions
//
// A rolling restart puts builds side by side that speak different versions of this protocol. A
// build speaks a range of versions, now 1 alone. Magic and version of a hello never move.
//
// The dialler offers its highest version. The acceptor answers in the same version if it speaks it.
// If not, it answers with a hello in its own highest version, and refuses. If the dialler speaks
// that one, it closes the connection and offers that version on another, at once. It remembers
// nothing of this. So two members meet in the highest version that both speak as soon as they next
// connect. If they share no version, the refusal says which build is too old.
//
// A build stops for good on a code that it does not know. So a new code must not travel in an older
// version.
//
// # Levels
//
// A level says which commands and records may be in the logs; see package engine/command. The
// transport compares levels only. If either side has a level in use that the build of the other
// does not read, they refuse each other. A member whose shards lag behind may be at a lower level
// than the build of its peer reads.
//
// # Lineages
//
// Two ensembles that were founded apart with the same config have the same digest. Their lineages
// tell them apart. Members of different lineages refuse each other, and nothing that one says about
// the other's directory counts.
//
// There is one exception. A forced recovery goes on from one member, under a lineage of its own. A
// member of the lineage that it has ended is superseded, and stops for good. It is told so with the
// digest and the lineage of who tells it. See Options.Ancestor.
//
// # What a member must not forget
//
// Raft is safe only if no member takes back what it told the others: a vote, or that it has an
// entry. A member whose directory is put back to an earlier state does take it back. So the
// transport remembers what each peer has promised in its messages. A new process of the peer says
// in its hello what its directory held, and the transport compares the two (promises.go). A peer
// that has forgotten a promise is refused in both directions, before any message of Raft.
//
// This memory ends with the process. What it misses is found later, when two members disagree about
// a committed entry: see replication.Host.Contradicts.
//
// A new directory has promised nothing. So the record of a member begins again with each new
// directory. Options.Accept decides whether the directory is accepted.
//
// # Ticks
//
// Members whose ticks differ by more than a factor of two refuse each other. Members whose ticks
// differ by less only log a warning. So the tick of an ensemble can be changed one member at a
// time, in steps.
//
// # Invariants
//
//  1. No frame passes in either direction before both members have accepted each other's hello.
//  2. A message reaches dragonboat only if the peer of the handshake sent it to this member, its
//     type travels between members, and its shard is one of the ensemble.
//  3. After Shut has returned, no byte is written to a connection, and no connection is made or
//     accepted. A call of a handler that was running at that moment may still end later.
//  4. Every connection is in the transport's table from before its first byte until it is closed.
//
// # Goroutines
//
// One goroutine accepts connections, and one serves each accepted connection. While a question is
// answered, a second one waits for the end of its connection. One goroutine makes each outgoing
// connection and then reads the answers on it. All of them end on Close, which waits for them.
// Messages are written by dragonboat's own goroutines. Ask and Probe use those of their callers.
package transport
