package engine

import (
	"context"
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

// Census counts the sessions and what they own. It looks at all of them, and waits for a shard that is at an entry as Ephemerals does.
func (e *Engine) Census(ctx context.Context) (Census, error) {
	var c Census
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
		if err := m.lock(ctx); err != nil {
			return Census{}, err
		}
		for i := range c.Sessions {
			s := &c.Sessions[i]
			s.Ephemerals = append(s.Ephemerals, m.mu.table.Ephemerals(s.ID)...)
		}
		m.mu.Unlock()
	}
	return c, nil
}

// Znodes counts the znodes, those that there are from birth included.
func (e *Engine) Znodes() (n int) {
	for _, m := range e.shards {
		n += m.tree.Load().Len() - fromBirth - 1 // the root too is on every shard
	}
	return n + fromBirth + 1
}

// Visible is the newest transaction that reads show. With several shards it is that of the one that has come furthest, for their zxids
// do not compare.
func (e *Engine) Visible() (z tree.Zxid) {
	for _, m := range e.shards {
		z = max(z, m.tree.Load().Visible())
	}
	return z
}
