// Package outbox carries the requests of this node to one shard. It coalesces waiting calls into
// batches, numbers the batches and proposes them in order. It sends a batch again when there is
// evidence that it was lost. When this node's replica has applied a batch, each call gets its
// outcome.
//
//	caller ── Submit ──▶ queue ── seal ──▶ batch (origin, seq) ── Propose ──▶ Raft
//	                                                                            │
//	caller ◀── outcome ◀── Complete ◀── this node's replica applies the batch ◀─┘
//
// A lone call is proposed at once, on its caller's goroutine. While a batch is in flight, the next
// one fills. Replicas accept a batch only in its place in the stream, so sending it again is
// harmless.
//
// An outbox knows a session as an [Owner]: whether the shard knows it, and whether it has ended.
package outbox
