// Package session knows who is alive: which members speak, for which sessions, for how long each has
// been silent, and who owns which ephemerals. It makes no promise of compatibility to users of the
// library; they import embed.
//
// It has two halves. [Table] is replicated: every replica of shard 1 applies the same calls in the same
// order and gets the same table. [Life] is local: what the node that speaks for a session may believe
// about it, by its own clock.
//
// It never reads a clock, starts a goroutine, does I/O, logs or draws random numbers: times and ids are
// arguments, and no map's order reaches a result. Neither half is safe for concurrent use; the engine
// calls the table from the goroutine that applies, and a life under a lock of its own.
//
// # Origins
//
// A member's node speaks for all its sessions at once, in one stream of batches for each incarnation:
// the origin is (member, start). Register begins a stream and ends the one before it, with its in-process sessions:
// the lock on the directory proves the earlier process dead. A batch is accepted only in its place. All
// of that is decided by numbers that grow, so a copy of a Register or of a batch that turns up late, from
// any incarnation, finds its number taken and changes nothing.
//
// # Sessions of remote clients
//
// Such a session outlives the process of its origin. Register leaves it where it is: the new incarnation speaks for it, and
// watches its client anew. And its client, which knows the password, may come back at any member, whose batch carries Reattach:
// from there on the session is attached to that member, and all that others still ask for it is refused. (Also what a member
// asked before the session left it and came back: in its stream that lies before the Reattach that brought it back.)
//
// What the client proved by coming is the end of its patience with one connection, not of the session. So a member that ends
// a session for its client's silence names the attachment that it saw, and CheckAttachment refuses another. An attachment is the
// transaction that made it: coming back to the same member makes a new one. An in-process session has none, so nobody can
// move it or mistake it.
//
// A member that was started again knows at first what its directory has, which may be old: it may still be the origin there of a
// session that has moved or ended. So a node speaks for no session until it has applied its own Register at home.
//
// # Closed or lost
//
// A session that its owner closes gives back what it has. One that is due was lost: to silence, or with the process that had it, as
// Register shows; and so was one that its own node ends for its silence, which says so when it has it closed. What belongs to a lost
// session may have to be kept from others for a while: its ephemerals linger, if they were made to (package tree). The table keeps how a
// session ended at home for the other shards, where it ends in the same way, whatever they hear first of it but for one: a new
// incarnation of its member, which may register there before they hear that its owner had closed it. Then it is lost there.
//
// # Expiry
//
// No clock can be part of the replicated state, so silence is measured outside and booked in the log.
// When a machine has applied an entry after which NextStep names another Step than before, it starts a
// stopwatch for it. The leader among the machines proposes Silence(step, what it measured) once the
// stopwatch shows what NextStep asks for. Sessions whose timeout the silence reaches are due: Usable
// answers ErrExpired at once and for ever, and the engine closes them in portions. A session that owns
// more than a portion goes in several too, also if its owner closes it: DecideEnd notes how it ends.
//
// Let c be the moment the origin's newest batch was committed (its Register, if there is none).
//
// Never early: at every moment, the silence of an origin is not above the time since c. Look at the steps
// 1 to k that were booked since c, and for each at the interval that its stopwatch measured.
//   - The Step names incarnation, batch and number. Those three together occur once in the life of the
//     table: starts only grow, batches count up within a start, steps count up within a batch. So each
//     step was booked once, and what is booked for it was measured for it, however often and by whomever
//     it was proposed. (Leave out the start, and a step measured after batch 5 of one incarnation would
//     count after batch 5 of the next.)
//   - The interval of step 1 begins when some machine has applied the batch, so after c. The interval of
//     step i+1 begins when some machine has applied step i, so after step i was proposed, so after the
//     end of its interval. The k intervals follow one another without overlap, whatever machines they
//     were measured on, and all lie after c.
//   - What is booked for a step is not above the length of its interval; Silence only ever cuts it down.
//
// So their sum is not above the time since c. Clocks that run at different rates stretch this by their
// ratio, which the owner's Margin covers.
//
// A session takes part in the silence of the origin that it is attached to. Open and Reattach put it there in an accepted batch of that
// origin, when the silence is zero: whatever is booked for it later was measured after the client was heard. At a Register the
// silence of those that stay begins again. So no session is due before its client's newest Reattach, and its origin's newest batch or
// Register, are its timeout ago.
//
// Soon enough: while a quorum and a leader whose machine applies exist, a session with timeout T whose
// origin has gone is due at c + T, plus one commit for each step, plus what leader changes lose.
//   - The time that passes and is not booked is that from the end of one interval to the beginning of the
//     next: what it takes to commit and apply the step. A punctual leader measures no more than counts.
//   - While the smallest live timeout is t, a step is a quarter of t or lands on t. So at most four steps
//     lead from one timeout to the next, and at most four for each different timeout up to T. Nobody joins without a batch of
//     the origin. When the last one with the smallest timeout leaves, by its end or a Reattach, the step that is being measured is
//     at most one more.
//   - A new leader's stopwatch has been running since its machine applied the newest step, and it books
//     at most one step for the time until it leads. Lost is what had passed beyond that: at most the step
//     that its predecessor measured and could not commit, and of the time without a leader what is beyond
//     one step. Steps are short because this is the price of losing one.
//
// A leader whose machine does not apply books nothing. Package engine has it hand the leadership over when something that was
// committed a step ago is not applied: a step or two until that is noticed, and a leader change, or more if the next one is
// down or no better.
//
// And a due session is not saved by its origin coming back, nor by its client: Accept and Register end the silence, but what was
// due becomes Closing first, and Reattach refuses it.
//
// So when a member dies, those of its clients that come to another within their timeout keep their sessions. A member that starts again
// and again gives them their timeout anew each time, and whose client has gone is for the node to find out once it stays up.
// It does within eight of the session's own timeouts, or eight commits if those take longer: see
// silence.go in package engine.
//
// # Several shards
//
// A session is opened, kept alive and ended on its home shard, whose table is meant above. A shard that it uses besides has a
// table too, with a record of it: AddShard books the shard at home, Introduce makes the record there, and only then is anything
// of the session applied there. Close at home keeps the record while Shards are in it; each gets Purge, which closes the
// session there and refuses an Introduce that is still on its way, and is then taken out of the record by Purged. Each step may be
// repeated, late or done by another leader than the one before, so whoever crashes when: the end at home is followed by one
// everywhere, and nothing ends before it.
//
// When a session has moved, its new member has all the Shards of its record admit it, before it asks anything else of them. An Introduce
// names the attachment it was sent for, and an older one than the record has is refused: what is late of a former member takes
// nothing back. Until the new member's Introduce a shard may still apply what the former one had under way; the session's own next
// request comes after it.
//
// A late Introduce must not make a record on a shard where the session has ended, so Purge leaves a memory there. It may come from any
// member that spoke for the session while it used other shards: an Introduce is sent only after AddShard was applied, and by the member
// that the session is attached to. So a record at home names them, Former, once it has left them, each with the incarnation in
// which it left. Later incarnations know better, and an earlier one's stream is closed by theirs. The memory goes member by
// member:
//   - when the stream carries a batch on the shard that was sent in knowledge of the end (AcknowledgeEnds), all that comes later in it was
//     sent for others;
//   - when a later incarnation registers on the shard, nothing more comes.
//
// It is bounded. Each member that takes a session over has its Shards admit it, and that batch carries what it knows. So those that a
// shard keeps in mind for a member were open, and had been the member's, when it sent its newest batch there or since, and each costs
// no more than the ensemble has members. A member that will never come back keeps those it had when it went.
//
// # The owner's view
//
// A Life trusts its session for its timeout less Margin, from when the newest batch that its node has
// seen applied was first sent. The ensemble's c cannot be before that, and its silence not above the time
// since c, so the owner stops trusting before anyone else can be told that the session has gone. It
// compares when asked: a process that was stopped finds the session Suspended at its first question,
// before any timer has run.
//
// Read origin.go first (who speaks), table.go (sessions), class.go (how silence finds those that are
// due), move.go (remote clients), ephemerals.go, durable.go (to storage and back), shards.go (several shards), then life.go.
package session
