// Package session knows which sessions are alive. It records which members speak, for which
// sessions, how long each member has been silent, and which session owns which ephemerals. It makes
// no promise of compatibility to users of the library; they import embed.
//
// The package has two halves. [Table] is replicated: every replica of a shard applies the same
// calls in the same order and gets the same table. [Life] is local: it is what the node that speaks
// for a session may believe about the session, by the node's own clock. Beside them, [Members] is
// the replicated table of the ensemble's members.
//
//	table.Register(origin)         // a member's process starts
//	table.Accept(member, start, 1) // its first batch,
//	table.Open(id, …)              // which opens a session
//	table.Silence(step, d)         // four times: a quarter of the timeout has passed
//	table.Due()                    // [id]
//	table.Close(id, zxid, true)    // after its ephemerals were deleted
//
// The package never reads a clock, starts a goroutine, does I/O, logs or draws random numbers.
// Times and ids are arguments, and the order of a map never reaches a result. Neither half is safe
// for concurrent use. The engine calls the table from the goroutine that applies, and a life under
// a lock of its own.
//
// # Origins
//
// A member's node speaks for all its sessions at once, in one stream of batches for each
// incarnation. The origin is (member, start). Register begins a stream and ends the one before it,
// together with that stream's in-process sessions: the lock on the directory proves that the
// earlier process is dead. A batch is accepted only in its place in the stream. All of that is
// decided by numbers that only grow. So a late copy of a Register or of a batch, from any
// incarnation, finds its number used and changes nothing.
//
// # Remote sessions
//
// A remote session outlives the process of its origin. A Register keeps it: the new incarnation
// speaks for it and watches its client from then on. The client knows the session's password, so it
// may also come back at any member, whose batch carries the Reattach. From there on the session is
// attached to that member, and what other members still ask for it is refused. The same holds for
// requests that the member itself made before the session left it and came back: in the member's
// stream they lie before the Reattach.
//
// A client that comes back has given up one connection, not its session. So a member that ends a
// session for its client's silence names the attachment that it saw, and CheckAttachment refuses
// any other. An attachment is the transaction that made it: a client that comes back to the same
// member makes a new one. An in-process session has none. So no client can come back to it, and
// CheckAttachment never takes it for another attachment.
//
// A member that was started again knows at first only what its directory has, which may be old.
// There it may still be the origin of a session that has been attached elsewhere or has ended. So a
// node speaks for no session until it has applied its own Register at home.
//
// # Closed or lost
//
// When its owner closes a session, the session gives back what it has. A session that becomes due
// is lost: its origin fell silent, or a Register shows that its process has ended. A session is
// also lost if its own node ends it for its client's silence; the node says so when it has the
// session closed. What belongs to a lost session may have to be kept from others for a while: those
// of its ephemerals that were created to linger stay (package tree).
//
// The table remembers for the other shards how a session ended at home. The session ends in the
// same way there, whatever they hear first, with one exception. If the owner closed the session and
// its member then started again, the new incarnation may register on another shard before that
// shard hears of the close. Then the session is lost there.
//
// # Expiry
//
// No clock can be part of the replicated state, so silence is measured outside and recorded in the
// log. When a replica has applied an entry after which NextStep names another Step than before, it
// starts a stopwatch for that Step. The leader among the replicas proposes Silence(step, d) once
// its stopwatch has reached d, the time for which NextStep asks. Sessions whose timeout the silence
// reaches are due. From then on Usable answers ErrExpired for them, and the engine closes them in
// portions. A session that owns more than a portion is closed in several portions, even if its
// owner closes it; DecideEnd records how it ends.
//
// Let c be the moment at which the origin's newest batch was committed, or its Register if it has
// no batch.
//
// Never early: the silence of an origin is never more than the time since c. Take the steps 1 to k
// recorded since c, each with the interval that its stopwatch measured.
//   - The Step names incarnation, batch and number. These three together occur once in the life of
//     the table: starts only grow, batches count up within a start, and steps count up within a
//     batch. So each step was recorded once. What is recorded for it was measured for it, however
//     often and by whichever member it was proposed. (Without the start, a step measured after
//     batch 5 of one incarnation would count after batch 5 of the next.)
//   - The interval of step 1 begins when some replica has applied the batch, so after c. The
//     interval of step i+1 begins when some replica has applied step i. That is after step i was
//     proposed, so after the end of its interval. The k intervals follow one another without
//     overlap, whichever replicas measured them, and all lie after c.
//   - What is recorded for a step is no more than the length of its interval: Silence only ever
//     reduces it.
//
// So their sum is no more than the time since c. Clocks that run at different rates stretch this by
// their ratio; Margin says what it covers.
//
// A session shares the silence of the origin that it is attached to. Open and Reattach put it there
// in an accepted batch of that origin, when the silence is zero. So whatever is recorded for the
// session later was measured after its client was heard. At a Register the silence of the sessions
// that stay begins again. So no session is due until its timeout has passed since its client's
// newest Reattach, and since the newest batch or Register of its origin.
//
// Soon enough: consider a session with timeout T whose origin has gone, while a quorum exists and a
// leader whose replica applies. The session is due at c + T, plus one commit for each step, plus
// what leader changes lose.
//   - The time that passes and is not recorded runs from the end of one interval to the beginning
//     of the next. It is the time that committing and applying the step takes, and the time by
//     which the leader is late to propose it.
//   - While the smallest live timeout is t, a step is a quarter of t or lands on t. So at most four
//     steps lead from one timeout to the next, and at most four are needed for each different
//     timeout up to T. No session joins without a batch of the origin. If the last session with the
//     smallest timeout leaves, by its end or a Reattach, the step that is being measured is at most
//     one more.
//   - A new leader's stopwatch has run since its replica applied the newest step, and the leader
//     records at most one step for the time until it leads. Two things are lost. One is the step
//     that its predecessor measured and could not commit. The other is the time without a leader,
//     as far as it exceeds one step. Steps are short because a leader change may lose one.
//
// A leader whose replica does not apply records nothing. If something that was committed a step ago
// is not applied, package engine transfers the leadership. That costs a step or two until it is
// noticed, and a leader change, or several if the next leader is down or no better.
//
// A due session is not saved when its origin comes back, nor when its client does. Accept and
// Register end the silence, but they make the due sessions Closing first, and Reattach refuses
// those.
//
// So when a member dies, its clients keep their sessions if they come to another member within
// their timeout. A member that starts again and again gives its clients their whole timeout each
// time. Once it stays up, the node finds out which clients have gone. That takes at most eight of
// the session's own timeouts, or eight commits if those take longer: see engine/keeper/silence.go.
//
// # Several shards
//
// A session is opened, kept alive and ended on its home shard; the table above is the home shard's.
// Each other shard that a session uses has a table with a record of it. AddShard records the shard
// at home, Introduce makes the record on that shard, and only then is anything of the session
// applied there. Close at home keeps the record while it has Shards. On each of these, Purge closes
// the session and refuses any Introduce that is still on its way. Purged then removes the shard
// from the record at home. Each step may be repeated, may come late, and may be done by another
// leader than the step before. So whichever member crashes at whatever time, the end at home is
// followed by an end on every shard, and nothing ends before it.
//
// When a session is attached to another member, that member introduces it to all Shards of its
// record before it asks anything else of them. An Introduce names the attachment for which it was
// sent. A shard refuses it if its record has a newer one, so nothing late of a former member takes
// the session back. Until the new member's Introduce, a shard may still apply what the former
// member had under way; the session's own next request comes after the Introduce.
//
// A late Introduce must not make a record on a shard where the session has ended, so Purge leaves a
// memory of the end there. Such an Introduce may come from any member that spoke for the session
// while it used other shards. It can come from no other member, because an Introduce is sent only
// after AddShard was applied, and only by the member that the session is attached to. So the record
// at home names the members that the session has left, Former, each with the incarnation in which
// it left them. Later incarnations know better, and their Register closes the stream of the earlier
// one. The memory of the end goes member by member:
//   - when the member's stream carries a batch on the shard that was sent in knowledge of the end
//     (AcknowledgeEnds), since later batches of the stream ask nothing for that session;
//   - when a later incarnation of the member registers on the shard, since nothing more comes;
//   - when the member is out and Retire closes its stream on the shard, for the same reason.
//
// The memory is bounded. Each member that a session is newly attached to introduces it to its
// Shards, in a batch that also carries what the member knows. So a shard remembers an end for a
// member only if the session was open, and had been the member's, when the member sent its newest
// batch there or since. Each costs no more than the ensemble has members. For a member that never
// comes back and is not retired, the shard keeps those it had when the member went.
//
// # Members
//
// The home shard has a record of each member in Members. Its Wish is what the member is to be, and
// its Places are what it is on each shard, as the leaders there report. Both only go forward, from
// learner to voter to out. So a report that comes late, twice, or in another order does no harm. A
// late wish can do harm, because who is out stays out: a leader that was deposed may have found a
// member silent that has long been well. So each leader of the home shard takes a number by Govern
// before it wishes anything, and only the newest number counts.
//
// A member leaves in steps: its Wish is Out, each shard takes it out of its Raft group, Retire
// closes its stream on that shard, and Report says so. None of them ends a session. The silence
// does that, or the owner, or Doom once it is known that the process has ended. Otherwise somebody
// could get a lock while its former holder, which has not heard that it is out, still trusts its
// own.
//
// Configuration lists the members for ZooKeeper's clients. It follows from the records alone, so all
// replicas write the same to the tree.
//
// When the member is out of all shards and has no session, Forget removes its record. Ids are given
// in order, so an id below Next without a record is that of a member that is gone. It never
// registers again.
//
// # The owner's view
//
// A Life trusts its session for the timeout less Margin, counted from the first send of the newest
// batch that its node has seen applied. The ensemble's c cannot be before that send, and the
// ensemble's silence is no more than the time since c. So the owner stops trusting its session
// before anyone else can learn that the session has gone. The Life compares times when it is asked:
// after a pause of the process, the first question finds the session Suspended, before any timer
// has run.
package session
