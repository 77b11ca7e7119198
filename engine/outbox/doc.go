// Package outbox carries the calls of this node to one shard. It coalesces waiting calls into
// batches, numbers the batches and proposes them in order. It sends a batch again when that was
// lost or is overdue. When this node's replica has applied a batch, each call gets its outcome.
//
//	caller ── Submit ──▶ queue ── seal ──▶ batch (start, seq) ─── Propose ──▶ Raft
//	                                                                            │
//	caller ◀── outcome ◀── Complete ◀── this node's replica applies the batch ◀─┘
//
// If nothing holds it back, a lone call is proposed at once, on its caller's goroutine; otherwise
// Loop proposes it. While a batch is in flight, calls wait in the queue for the next one. When 256
// of them wait, a second batch goes out beside the first. A replica accepts a batch only in its
// place in the stream, so sending it again is harmless.
//
// The calls of one session are applied in the order in which they were queued. An end is a
// call that releases a lock or closes a session. Ends overtake the calls of other sessions.
//
// An outbox knows a session as an [Owner]: whether the shard knows the session, and whether it has
// ended. A session must be introduced to a shard before its calls can go there. Until then its
// calls are parked.
package outbox
