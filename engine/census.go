package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Census has the sessions of the ensemble for monitoring, as this node's replicas know them.
type Census struct {
	Sessions []SessionCensus // in the order of members and ids
}

// SessionCensus is a session of the ensemble.
type SessionCensus struct {
	ID         tree.SessionID
	Timeout    time.Duration
	Ephemerals []string // sorted

	member session.MemberID
}

// Census lists the sessions and their ephemerals. It looks at all sessions, and waits while a
// replica applies an entry. Entries may be applied in between. When the node is over, it returns
// ErrFailed or ErrClosed.
func (e *Engine) Census(ctx context.Context) (Census, error) {
	c, err := e.count(ctx)
	if over := e.over(); over != nil { // checked last: the tables may be gone by now
		return Census{}, over
	}
	return c, err
}

func (e *Engine) count(ctx context.Context) (c Census, err error) {
	err = e.inspect(ctx, e.home(), func(table *session.Table) {
		for r := range table.All() {
			c.Sessions = append(c.Sessions, SessionCensus{ID: r.ID, Timeout: r.Timeout, member: r.Origin})
		}
	})
	if err != nil {
		return Census{}, err
	}
	slices.SortFunc(c.Sessions, func(a, b SessionCensus) int { // not while no entry is applied
		return cmp.Or(cmp.Compare(a.member, b.member), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range e.shards {
		if err := e.ephemeralsOfAll(ctx, r, c.Sessions); err != nil {
			return Census{}, err
		}
	}
	for _, s := range c.Sessions {
		slices.Sort(s.Ephemerals)
	}
	return c, nil
}

// inspect calls look with a shard's session table while no entry is applied there. It waits until
// ctx ends, or for the request timeout if ctx has no deadline.
func (e *Engine) inspect(ctx context.Context, r *replica.Replica, look func(table *session.Table)) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	err := r.Inspect(ctx, e.done, look)
	switch {
	case err == nil:
		return nil
	case e.over() != nil:
		return e.over()
	}
	return outbox.Lacking(ctx, err)
}

// censusPortion is how many sessions and ephemerals of a shard are collected before an entry may be
// applied in between.
const censusPortion = 1000

// ephemeralsOfAll adds the ephemerals that sessions have on a shard, unsorted.
func (e *Engine) ephemeralsOfAll(ctx context.Context, r *replica.Replica, all []SessionCensus) error {
	for len(all) > 0 {
		err := e.inspect(ctx, r, func(table *session.Table) {
			for n := 0; n < censusPortion && len(all) > 0; all = all[1:] {
				owned := table.Owned(all[0].ID)
				all[0].Ephemerals = append(all[0].Ephemerals, owned...)
				n += 1 + len(owned)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Count returns the numbers of a Census, at a lower cost. On each shard it counts at one moment.
func (e *Engine) Count(ctx context.Context) (sessions, ephemerals int, err error) {
	sessions, ephemerals, err = e.numbers(ctx)
	if over := e.over(); over != nil { // checked last, as in Census
		return 0, 0, over
	}
	return sessions, ephemerals, err
}

func (e *Engine) numbers(ctx context.Context) (sessions, ephemerals int, err error) {
	for _, r := range e.shards {
		err := e.inspect(ctx, r, func(table *session.Table) {
			if r == e.home() {
				sessions = table.Len()
			}
			ephemerals += table.CountEphemerals()
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return sessions, ephemerals, nil
}

// Znodes counts the znodes, including those that exist from birth.
func (e *Engine) Znodes() (n int) {
	for _, r := range e.shards {
		n += r.Figures().Znodes - forest.FromBirth - 1 // the root, too, is on every shard
	}
	return n + forest.FromBirth + 1
}

// bornBytes is the size of the znodes that exist from birth.
const bornBytes = len("/" + "/zookeeper" + "/zookeeper/quota" + "/zookeeper/config")

// Size returns the bytes of the paths and data of all znodes.
func (e *Engine) Size() (n int) {
	for _, r := range e.shards {
		n += r.Figures().Size - bornBytes
	}
	return n + bornBytes
}

// Peers returns how many members are connected to this one.
func (e *Engine) Peers() int {
	if e.transport == nil || e.silenced() {
		return 0
	}
	return e.transport.Heard()
}

// Proposals returns the sizes of the proposals that this node has applied on the first shard.
func (e *Engine) Proposals() *replica.Sizes { return &e.home().Sizes }

// Visible returns the newest transaction that reads show. Zxids of several shards do not compare,
// so then it is the largest.
func (e *Engine) Visible() (z tree.Zxid) {
	for _, r := range e.shards {
		z = max(z, r.Figures().Zxid)
	}
	return z
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

// Status returns what this node knows of each shard now.
func (e *Engine) Status() []ShardStatus {
	list := make([]ShardStatus, len(e.shards))
	for i, r := range e.shards {
		f := r.Figures()
		list[i] = ShardStatus{Shard: r.Shard, Leader: e.Leader(r.Shard), Applied: f.Applied, Zxid: f.Zxid, TreeSize: f.TreeSize, OverSoftQuota: f.OverSoftQuota}
	}
	return list
}
