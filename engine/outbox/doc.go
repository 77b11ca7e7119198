// Package outbox carries the calls of this node to one shard. It coalesces waiting calls into
// batches, numbers the batches and proposes them in order. It sends a batch again when there is
// evidence that it was lost. When this node's replica has applied a batch, each call gets its
// outcome.
//
//	caller ── Submit ──▶ queue ── seal ──▶ batch (origin, seq) ── Propose ──▶ Raft
//	                                                                            │
//	caller ◀── outcome ◀── Complete ◀── this node's replica applies the batch ◀─┘
//
// A lone call is proposed at once, on its caller's goroutine. While a batch is in flight, the next
// one fills. A replica accepts a batch only in its place in the stream, so sending it again is
// harmless.
//
// The calls of one session are applied in the order in which they were queued. Ends, which release
// a lock or close a session, overtake the calls of other sessions.
//
// An outbox knows a session as an [Owner]: whether the shard knows the session, and whether it has
// ended. A session must be introduced to a shard before its calls can go there. Until then its
// calls are parked.
package outbox
