// Package replica is one shard's replica on this node. It applies the shard's log to a
// tree and a session table, and keeps both in memory and in a durable image.
//
// For example, a batch of two requests has these effects on every replica:
//
//	log entry 41: batch of origin 2    create /a          zxid 7: /a exists
//	                                   close session 5    zxid 8: the ephemerals of 5 are gone
//
// # Contract
//
// Every replica makes the same transitions from the same log. So whatever may differ between nodes,
// such as the time, comes from the log. A replica also has effects on its own node, which never
// flow back into the state:
//
//	log entry ──▶ Apply ──▶ tree, session table, zxid     the same on every replica
//	                │
//	                ├──▶ Node        claims and sessions of this node end
//	                ├──▶ Watches     events are queued, then the transaction becomes visible
//	                ├──▶ Outbox      the calls of this node get their outcomes
//	                └──▶ image       after at most 1,024 entries, with the applied index
//
// Within a transaction, the effects come in this order. So a claim ends on its own node before
// anyone there can see that its znode is gone, and an event is queued before a reader of this
// member sees its change. Another member may be ahead.
//
// A replica asks its node through [Node], and its Raft group through [Raft]. It knows none of the
// node's sessions and callers.
//
// # What a leader does
//
// Three loops act for the shard while this node leads it. They only propose commands. Whether a
// command changes anything is decided when it is applied, so late and repeated ones do no harm.
//
//   - The expirer measures the silence of origins, and expires sessions in portions.
//   - The reaper removes containers and TTL znodes whose time has come.
//   - The purger carries the ends of sessions from the home shard to the other shards.
//
// # Goroutines
//
// Raft's worker calls Apply, Sync, Snapshot and Install, one at a time. The node runs ExpireLoop,
// ReapLoop and SaveLoop for each replica, and Purger.Loop once. Only Purger.Loop starts goroutines: one for
// each shard but the home shard. It returns when they have ended.
package replica
