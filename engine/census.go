package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// A Census is what monitors ask a node about the ensemble, as its own replica knows it.
type Census struct {
	Sessions []SessionCensus // in order of members and ids
}

// SessionCensus is a session of the ensemble.
type SessionCensus struct {
	ID         tree.SessionID
	Timeout    time.Duration
	Ephemerals []string // in order
}

// Census lists the sessions and what they own. It looks at all of them, and waits for a shard that is at an entry as Ephemerals does.
// Entries may be applied meanwhile.
// A node that is over has none to count: ErrFailed, ErrClosed.
func (e *Engine) Census(ctx context.Context) (Census, error) {
	c, err := e.count(ctx)
	if over := e.over(); over != nil { // asked last: the tables may have gone meanwhile
		return Census{}, over
	}
	return c, err
}

func (e *Engine) count(ctx context.Context) (c Census, err error) {
	home := e.home()
	if err := home.lock(ctx); err != nil {
		return Census{}, err
	}
	for _, o := range home.mu.table.Origins() {
		for _, r := range home.mu.table.Sessions(o.Member) {
			c.Sessions = append(c.Sessions, SessionCensus{ID: r.ID, Timeout: r.Timeout})
		}
	}
	home.mu.Unlock()
	for _, m := range e.shards {
		if err := m.ephemeralsOfAll(ctx, c.Sessions); err != nil {
			return Census{}, err
		}
	}
	for _, s := range c.Sessions {
		slices.Sort(s.Ephemerals)
	}
	return c, nil
}

// censusPortion is how much is gathered of a shard before an entry may be applied in between.
const censusPortion = 1000

// ephemeralsOfAll adds what sessions own on a shard, in no order.
func (m *machine) ephemeralsOfAll(ctx context.Context, all []SessionCensus) error {
	for len(all) > 0 {
		if err := m.lock(ctx); err != nil {
			return err
		}
		for n := 0; n < censusPortion && len(all) > 0; all = all[1:] {
			owned := m.mu.table.Owned(all[0].ID)
			all[0].Ephemerals = append(all[0].Ephemerals, owned...)
			n += 1 + len(owned)
		}
		m.mu.Unlock()
	}
	return nil
}

// Count is Census of which only the numbers count, and costs less: nothing is applied meanwhile.
func (e *Engine) Count(ctx context.Context) (sessions, ephemerals int, err error) {
	sessions, ephemerals, err = e.numbers(ctx)
	if over := e.over(); over != nil { // asked last, as in Census
		return 0, 0, over
	}
	return sessions, ephemerals, err
}

func (e *Engine) numbers(ctx context.Context) (sessions, ephemerals int, err error) {
	for _, m := range e.shards {
		if err := m.lock(ctx); err != nil {
			return 0, 0, err
		}
		if m == e.home() {
			sessions = m.mu.table.Len()
		}
		ephemerals += m.mu.table.CountEphemerals()
		m.mu.Unlock()
	}
	return sessions, ephemerals, nil
}

// Znodes counts the znodes, those that there are from birth included.
func (e *Engine) Znodes() (n int) {
	for _, m := range e.shards {
		n += m.figures().znodes - fromBirth - 1 // the root too is on every shard
	}
	return n + fromBirth + 1
}

// bornBytes are those of the znodes that there are from birth.
const bornBytes = len("/" + "/zookeeper" + "/zookeeper/quota" + "/zookeeper/config")

// Size is the bytes of the paths and data of all znodes.
func (e *Engine) Size() (n int) {
	for _, m := range e.shards {
		n += m.figures().size - bornBytes
	}
	return n + bornBytes
}

// Peers is how many members are connected to this one.
func (e *Engine) Peers() int {
	if e.transport == nil || e.silenced() {
		return 0
	}
	return e.transport.Heard()
}

// Proposals says how large they were that this node has applied on the first shard.
func (e *Engine) Proposals() *Sizes { return &e.home().sizes }

// Sizes are of things of which the last, the smallest and the largest count. All are zero while there was none.
type Sizes struct{ last, least, most atomic.Int64 }

// note is for one goroutine.
func (s *Sizes) note(n int) {
	size := int64(n)
	s.last.Store(size)
	if least := s.least.Load(); least == 0 || size < least {
		s.least.Store(size)
	}
	if size > s.most.Load() {
		s.most.Store(size)
	}
}

// Read returns them.
func (s *Sizes) Read() (last, least, most int64) { return s.last.Load(), s.least.Load(), s.most.Load() }

// Reset begins anew.
func (s *Sizes) Reset() {
	s.last.Store(0)
	s.least.Store(0)
	s.most.Store(0)
}

// Visible is the newest transaction that reads show. With several shards it is that of the one that has come furthest, for their zxids
// do not compare.
func (e *Engine) Visible() (z tree.Zxid) {
	for _, m := range e.shards {
		z = max(z, m.figures().Zxid)
	}
	return z
}
