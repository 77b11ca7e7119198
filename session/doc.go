// Package session knows who is alive: which members speak, for which sessions, for how long each has
// been silent, and who owns which ephemerals. It makes no promise of compatibility to users of the
// library; they import embed.
//
// It has two halves. [Table] is replicated: every replica of shard 1 applies the same calls in the same
// order and gets the same table. [Life] is local: what the node that speaks for a session may believe about
// it, by its own clock.
//
// It never reads a clock, starts a goroutine, does I/O, logs or draws random numbers: times and ids are
// arguments, and no map's order reaches a result. Neither half is safe for concurrent use; the engine
// calls the table from the goroutine that applies, and a life under a lock of its own.
//
// # Origins
//
// A member's node speaks for all its sessions at once, in one stream of batches for each incarnation: the
// origin is (member, start). Register begins the stream and ends the one before it, with its sessions:
// the lock on the directory proves the earlier process dead. A batch is accepted only in its
// place. All of that is decided by numbers that grow, so a copy of a Register or of a batch that turns up late,
// from any incarnation, finds its number taken and changes nothing.
//
// All sessions are in-process ones so far. A session of a remote client outlives its node's process;
// its record will say so, and Register will leave it where it is, with its silence at zero.
//
// # Expiry
//
// No clock can be part of the replicated state, so silence is measured outside and booked in the log.
// The shard leader watches each origin; when its machine has applied the entry that made NextStep name a
// Step, it starts a stopwatch, and if the Step is the same after the time NextStep asks for, it
// proposes Silence(step, what it measured). Sessions whose timeout the silence reaches are due: Usable
// answers ErrExpired at once and for ever, and the engine closes them in portions.
//
// Let c be the moment the origin's newest batch was committed (its Register, if there is none).
//
// Never early. At every moment, the silence of an origin is not above the time since c. Look at the
// steps 1 … k that were booked since c, and for each at the interval its measurement took.
//   - The Step names incarnation, batch and number. Those three together occur once in the life of the table:
//     starts only grow, batches count up within a start, steps count up within a batch. So each step was
//     booked once, and what is booked for it was measured for it, however often and by
//     whomever it was proposed. (Leave out the start, and a step measured for batch 5 of one incarnation would
//     count after batch 5 of the next.)
//   - The measurement of step 1 began when some machine had applied the batch, so after c. The measurement of
//     step i+1 began when some machine had applied step i, so after step i was proposed, so after the
//     measurement of step i had ended. The k intervals follow one another without overlap, on whatever
//     machines they were measured, and all lie after c.
//   - A booked d is not above the length of its interval, and Silence only ever cuts it down.
//
// So their sum is not above the time since c. Clocks that run at different rates stretch this by their
// ratio, which the owner's Margin covers.
//
// Soon enough. While a quorum and a leader whose machine applies exist, a session with timeout T whose
// origin has gone is due at c + T, plus one commit for each step, plus the losses at leader changes.
//   - The time that passes and is not booked is: from one stopwatch's end to the next one's start, which is
//     how long it takes to commit and apply the step; and what a stopwatch shows beyond a quarter of the smallest timeout, which a punctual
//     leader never lets it show.
//   - While the smallest live timeout is t, a step is a quarter of t or lands on t. So at most four
//     steps lie between two neighbouring timeouts, and there are at most four for each different
//     timeout up to T at that origin.
//   - A leader change loses the step in progress, at most a quarter of the smallest live timeout, and of the time without
//     a leader what is beyond one step: the new leader's machine applied the last step before, and
//     its stopwatch runs from there. A step is short because this is the price of losing it.
//
// And a due session is not saved by its origin coming back: Accept ends the silence, but what was due
// becomes Closing first.
//
// # The owner's view
//
// A Life trusts its session for timeout less Margin from when the newest batch that its node has seen
// applied was first sent. The ensemble's c cannot be before that, and its silence not above the time
// since c, so the owner stops trusting before anyone else can be told that the session has gone. It
// compares when asked: a process that was stopped finds the session Suspended at its first question, before
// any timer has run.
//
// Read origin.go first (who speaks), table.go (sessions), class.go (how silence finds those that
// are due), ephemerals.go, durable.go (to storage and back), then life.go.
package session
