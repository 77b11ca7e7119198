// Package replica is one shard's replicated machine on this node: the tree, the session table and
// the zxid. Every replica makes the same transitions from the same log. What a replica does beyond
// that concerns its own node only, and never flows back: it completes calls, ends claims and sends
// events to watches.
//
// The package also has what a leader does about its shard. Each only proposes commands, which are
// judged where they are applied:
//
//   - the expirer measures the silence of origins, and expires sessions in portions;
//   - the reaper removes containers and TTL znodes whose time has come;
//   - the purger carries the ends of sessions from the home shard to the others.
//
// A replica asks its node through [Node], and its Raft group through [Raft]. It knows no session of
// the node and no caller.
package replica
