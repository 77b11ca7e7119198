package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/tree"
)

// Health says whether a node serves now. It is known without asking anybody.
type Health struct {
	// Ready: the ensemble has registered the member, and no shard has been without a leader that this
	// member is connected with for longer than an election takes. The disk has room. The backup is loaded that the ensemble
	// begins with, if there is one.
	Ready   bool
	Since   time.Time // Ready is as it is since then; of a node that never served, its start
	Waiting string    // what the node lacks, in words; empty if Ready
	Slow    string    // that the disk was slow within the last minute, in words
	Err     error     // why it is over: ErrFailed with the cause, or ErrClosed
}

// serving says whether the node served at the last look, and since when.
type serving struct {
	ready bool
	since time.Time
}

// Health returns what the node knows. It never waits.
func (e *Engine) Health() Health {
	s, lack := e.serving.Load(), e.diskLack.Load()
	lacking := lack != nil && lack.cause != nil
	h := Health{Ready: s.ready && !lacking, Since: s.since, Slow: e.slow.Disk(time.Now())}
	if lack != nil && s.ready && (lacking || lack.since.After(s.since)) {
		h.Since = lack.since
	}
	if over := e.over(); over != nil {
		if h.Ready {
			h.Ready, h.Since = false, e.endedAt()
		}
		h.Err = over
		if cause := e.Err(); cause != nil {
			h.Err = fmt.Errorf("%w: %w", over, cause)
		}
		h.Waiting = h.Err.Error()
		return h
	}
	if lacking {
		h.Waiting = "the disk: " + lack.cause.Error()
	} else if !h.Ready {
		lacks, _ := e.lacks()
		h.Waiting = strings.Join(lacks, "; ")
	}
	return h
}

// A diskLack is what calls of the disk wait for.
type diskLack struct {
	cause error // nil: nothing any more
	since time.Time
}

// noteServing records whether the node serves. Only reportLoop calls it.
func (e *Engine) noteServing(q *health.Quorums, now time.Time) {
	ready := !e.seeding.Pending()
	for _, r := range e.shards {
		ready = ready && isDone(r.Outbox.Ready) && !q.IsLost(r.Shard)
	}
	if old := e.serving.Load(); old.ready != ready {
		e.serving.Store(&serving{ready, now})
	}
}

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
