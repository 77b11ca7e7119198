// Package keeper keeps this node's sessions: their lives, deadlines, claims and watches.
//
// All in-process sessions of a node share one time: when the node's newest applied batch was first
// handed to Raft. So a heartbeat costs per node, not per session. Every question about a session or
// a claim first compares the clock with the deadlines.
//
// A claim is the znodes with which a session stands in queues. It can be held only while the
// session is Connected. It ends on this node before anyone else can be granted it.
//
// The sessions of remote clients are judged differently: see remote.go. The ensemble's side of a
// session is in package session. What a session reads is in package engine.
package keeper
