package engine

import (
	"github.com/vivarium-go/vivarium/tree"
)

// Health returns what the node knows of itself. It never waits.
func (e *Engine) Health() Health { return e.health.Health() }

// Joining says what a node waits for that has yet to join. It is empty for a member, and for a node
// that is over.
func (e *Engine) Joining() string {
	if e.roster.Self() != 0 || e.over() != nil {
		return ""
	}
	return e.entry.Lack()
}

// Recent returns the newest occurrences, the oldest of them first: max of them, or all that are
// remembered if max is not positive.
func (e *Engine) Recent(max int) []Occurrence { return e.health.Recent.Newest(max) }

// Connected returns the other members to which this one has a connection, and they to it, in the
// order of their ids.
func (e *Engine) Connected() []MemberID { return e.health.Connected() }

// Missing returns the other members to which this one lacks a connection that it needs, in the order
// of their ids. Members of which neither leads need none.
func (e *Engine) Missing() []MemberID { return e.health.Missing() }

// Peers returns how many members are connected to this one.
func (e *Engine) Peers() int {
	if e.transport == nil || e.silenced() {
		return 0
	}
	return e.transport.Heard()
}

// Status returns what this node knows of each shard now.
func (e *Engine) Status() []ShardStatus {
	list := make([]ShardStatus, len(e.shards))
	for i, r := range e.shards {
		f := r.Figures()
		list[i] = ShardStatus{Shard: r.Shard, Leader: e.Leader(r.Shard), Applied: f.Applied, Zxid: f.Zxid, TreeSize: f.TreeSize, OverSoftQuota: f.OverSoftQuota}
	}
	return list
}

// ShardStatus is what a node knows of one shard.
type ShardStatus struct {
	Shard         ShardID
	Leader        Leader
	Applied       uint64 // index in the Raft log
	Zxid          tree.Zxid
	TreeSize      int64  // see tree.Weight
	OverSoftQuota uint64 // since the start, in transactions
}
