// Package keeper has this node's sessions: their lives, deadlines, claims and watches.
//
// All sessions of a node live by one moment: when the newest of the node's batches that was applied
// had first been sent. So a heartbeat costs per node, not per session. Whoever asks anything of a
// session or a claim has the clock compared with the deadlines first.
//
// A claim is the znodes with which a session stands in a queue. It can be held only while the
// session is Connected, and it ends on this node before anything of it can be granted elsewhere.
//
// The ensemble's side of a session is in package session; what a session reads is in package
// engine.
package keeper
