package engine

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
)

const (
	// sharePauseElections is how many longest elections another member must have led a shard before
	// this member asks for its share. A member that starts has other things to do, and one that
	// comes and goes must not take the leaderships along.
	sharePauseElections = 5
	// sharePauseMax bounds the pause before this member asks again for a leadership that it keeps
	// losing. The pause doubles each time, until the member has kept the leadership for this long.
	sharePauseMax = 10 * time.Minute
)

// A share is a shard that this member should lead, so that leaderships are spread evenly over the
// members. Each member asks for its own shares, because it knows best whether it is ready for them.
type share struct {
	id    ShardID
	since time.Time     // since when it has its present leader; zero: unknown
	leads bool          // this member leads it
	pause time.Duration // before it asks next
}

// shares returns all shards as they may be shares of this member.
func (e *Engine) shares() (all []*share) {
	if e.cfg.Alone || len(e.shards) == 1 {
		return nil // there is nothing to spread
	}
	for _, r := range e.shards {
		all = append(all, &share{id: r.Shard, pause: e.sharePauseMin()})
	}
	return all
}

// isShare reports whether this member should lead a shard. The voters take turns.
func (e *Engine) isShare(id ShardID) bool {
	voters := e.roster.Voters(command.HomeShard)
	return len(voters) > 0 && voters[(int(id)-1)%len(voters)] == e.roster.Self()
}

func (e *Engine) sharePauseMin() time.Duration {
	return sharePauseElections * LongestElection(e.cfg.Tick)
}

// spreadLoop asks for this member's shares. It ends with the node.
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
			if e.isShare(s.id) && s.due(e.Leader(s.id).Member, e.roster.Self(), e.sharePauseMin(), time.Now()) && e.askFor(s.id) {
				s.asked(e.sharePauseMin(), time.Now())
			}
		}
	}
}

// due reports whether it is time to ask for the shard. leader is its present leader, zero if there
// is none.
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

// asked records that this member asked for the leadership.
func (s *share) asked(pauseMin time.Duration, now time.Time) {
	s.since, s.pause = now, min(2*s.pause, max(pauseMin, sharePauseMax))
}

// askFor asks for a shard's leadership, and reports whether it did. It first waits until this node
// has applied what was committed. Otherwise the present leader would stand still until this node
// has caught up.
func (e *Engine) askFor(id ShardID) bool {
	ctx, cancel := context.WithTimeout(context.Background(), LongestElection(e.cfg.Tick))
	defer cancel()
	if e.host.Load().Barrier(ctx, id, 0) != nil {
		return false
	}
	_ = e.transfer(id, e.roster.Self(), TransferShare) // if it fails, the loop asks again
	return true
}
