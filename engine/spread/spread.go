package spread

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
)

const (
	// pauseElections is how many longest elections another member must have led a shard before
	// this member asks for its share. A member that starts has other things to do, and one that
	// comes and goes must not take the leaderships along.
	pauseElections = 5
	// pauseMax bounds the pause before this member asks again for a leadership that it keeps
	// losing. The pause doubles each time, until the member has kept the leadership for this long.
	pauseMax = 10 * time.Minute
)

// A share is a shard that this member should lead, so that leaderships are spread evenly over the
// members. Each member asks for its own shares, because it knows best whether it is ready for them.
type share struct {
	id    replication.ShardID
	since time.Time     // since when it has its present leader; zero: unknown
	leads bool          // this member leads it
	pause time.Duration // before it asks next
}

// A Node is what a Spreader needs from above it.
type Node interface {
	// Leader says who leads a shard; nobody once the node is over.
	Leader(replication.ShardID) replication.Leader
	// TakeOver asks for the leadership of a shard.
	TakeOver(replication.ShardID) error
}

// A Spreader asks for this member's shares.
type Spreader struct {
	Node     Node
	Forest   forest.Forest
	Roster   *roster.Roster
	Host     *replication.Host
	Election time.Duration   // the longest
	Reach    context.Context // ends when the node reaches no one any more
	Done     <-chan struct{} // closed when the node is over for its users
}

// shares returns all shards as they may be shares of this member.
func (s *Spreader) shares() (all []*share) {
	for _, r := range s.Forest {
		all = append(all, &share{id: r.Shard, pause: s.pauseMin()})
	}
	return all
}

// isShare reports whether this member should lead a shard. The voters take turns.
func (s *Spreader) isShare(id replication.ShardID) bool {
	voters := s.Roster.Voters(command.HomeShard)
	return len(voters) > 0 && voters[(int(id)-1)%len(voters)] == s.Roster.Self()
}

func (s *Spreader) pauseMin() time.Duration {
	return pauseElections * s.Election
}

// Loop asks for this member's shares. It ends with the node.
func (s *Spreader) Loop() {
	shares := s.shares()
	ticker := time.NewTicker(s.Election)
	defer ticker.Stop()
	for {
		select {
		case <-s.Reach.Done():
			return
		case <-s.Done:
			return
		case <-ticker.C:
		}
		for _, one := range shares {
			if s.isShare(one.id) && one.due(s.Node.Leader(one.id).Member, s.Roster.Self(), s.pauseMin(), time.Now()) && s.askFor(one.id) {
				one.asked(s.pauseMin(), time.Now())
			}
		}
	}
}

// due reports whether it is time to ask for the shard. leader is its present leader, zero if there
// is none.
func (s *share) due(leader, own replication.MemberID, pauseMin time.Duration, now time.Time) bool {
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
		if lasted > pauseMax {
			s.pause = pauseMin
		}
		return false
	}
	return lasted >= s.pause
}

// asked records that this member asked for the leadership.
func (s *share) asked(pauseMin time.Duration, now time.Time) {
	s.since, s.pause = now, min(2*s.pause, max(pauseMin, pauseMax))
}

// askFor asks for a shard's leadership, and reports whether it did. It first waits until this node
// has applied what was committed. Otherwise the present leader would stand still until this node
// has caught up.
func (s *Spreader) askFor(id replication.ShardID) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.Election)
	defer cancel()
	if s.Host.Barrier(ctx, id, 0) != nil {
		return false
	}
	_ = s.Node.TakeOver(id) // if it fails, the loop asks again
	return true
}
