package engine

import (
	"context"
	"slices"
	"time"
)

const (
	// sharePauseElections is how long, in longest elections, another member must have led a shard before the one whose share it is
	// asks for it: a member that starts has other things to do, and one that comes and goes must not take the leaderships along.
	sharePauseElections = 5
	// sharePauseMax is how seldom a leadership is asked for that is lost again and again: each time after twice the pause, until it
	// was kept for that long.
	sharePauseMax = 10 * time.Minute
)

// A share is a shard that this member should lead, so that the leaderships of all shards are spread evenly over the members.
// The members take their shares themselves: nobody else knows so well whether they are up to it.
type share struct {
	id    ShardID
	since time.Time     // another member leads since then, or this one; zero: unknown
	leads bool          // this one
	pause time.Duration // before the next time that it asks
}

// shares are the shards whose turn it is to be led by this member.
func (e *Engine) shares() (own []*share) {
	if e.cfg.Alone || len(e.shards) == 1 {
		return nil // there is nothing to spread
	}
	ids := e.cfg.memberIDs()
	for i := slices.Index(ids, e.cfg.Member); i < len(e.shards); i += len(ids) {
		own = append(own, &share{id: e.shards[i].Shard, pause: e.sharePauseMin()})
	}
	return own
}

func (e *Engine) sharePauseMin() time.Duration {
	return sharePauseElections * LongestElection(e.cfg.Tick)
}

// spreadLoop asks for this member's shares. It ends when the node does.
func (e *Engine) spreadLoop() {
	shares := e.shares()
	if len(shares) == 0 {
		return
	}
	ticker := time.NewTicker(LongestElection(e.cfg.Tick))
	defer ticker.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-e.done:
			return
		case <-ticker.C:
		}
		for _, s := range shares {
			if s.due(e.Leader(s.id).Member, e.cfg.Member, e.sharePauseMin(), time.Now()) && e.ask(s.id) {
				s.asked(e.sharePauseMin(), time.Now())
			}
		}
	}
}

// due reports whether it is time to ask for a shard that a member leads, none if it is zero.
func (s *share) due(leader, own MemberID, pauseMin time.Duration, now time.Time) bool {
	if leads := leader == own; leader == 0 || leads != s.leads || s.since.IsZero() {
		s.leads = leads
		s.since = now
		if leader == 0 {
			s.since = time.Time{}
		}
		return false
	}
	lasted := now.Sub(s.since)
	if s.leads {
		if lasted > sharePauseMax {
			s.pause = pauseMin
		}
		return false
	}
	return lasted >= s.pause
}

// asked is told that the leadership was asked for.
func (s *share) asked(pauseMin time.Duration, now time.Time) {
	s.since, s.pause = now, min(2*s.pause, max(pauseMin, sharePauseMax))
}

// ask asks for a shard's leadership, and reports whether it did: not before this node has applied what was committed, for the
// leader stands still until the one that it hands over to has everything.
func (e *Engine) ask(id ShardID) bool {
	ctx, cancel := context.WithTimeout(context.Background(), LongestElection(e.cfg.Tick))
	defer cancel()
	if e.host.Load().Barrier(ctx, id, 0) != nil {
		return false
	}
	_ = e.TransferLeadership(id, e.cfg.Member) // if it fails, it is asked for again
	return true
}
