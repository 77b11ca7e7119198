package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
)

// Leader says who leads a shard, as far as this node knows. A node that is over leads nothing and
// knows no leader, so only the last term is left.
func (e *Engine) Leader(id ShardID) Leader {
	l := e.raftLeader(id)
	if e.over() != nil {
		l.Member = 0
	}
	return l
}

// raftLeader is Leader for what goes on in Raft while a member leaves and serves nobody any more.
func (e *Engine) raftLeader(id ShardID) Leader {
	h := e.host.Load()
	if h == nil {
		return Leader{}
	}
	l := h.Leader(id)
	if e.halted() || !e.hears(id, l.Member) {
		l.Member = 0
	}
	return l
}

// hears reports whether this node may believe that a member leads a shard. A learner never loses
// its leader: Raft has it name the last one for ever, and pass commands to it. So it must have
// heard from that leader lately. A voter stands for election when its leader is silent.
func (e *Engine) hears(id ShardID, leader MemberID) bool {
	if leader == 0 || leader == e.roster.Self() || !e.roster.Learns(id) {
		return true
	}
	return time.Since(e.transport.Pulse(uint64(leader), int(id)).Led) < 2*LongestElection(e.cfg.Tick)
}

// leaderChanged runs on a goroutine of Raft, so it must return soon.
func (e *Engine) leaderChanged(id ShardID, l Leader) {
	e.shards[id-1].LeaderChanged()
	e.purger.Signal()
	e.leaders.Lock()
	defer e.leaders.Unlock()
	if !e.leaders.over {
		e.tellLeaderLocked(id, l)
	}
}

// forgetLeaders tells observers that this node, which is over, knows of no leader. After that it
// tells them nothing.
func (e *Engine) forgetLeaders() {
	e.leaders.Lock()
	defer e.leaders.Unlock()
	e.leaders.over = true
	for i, l := range e.leaders.known {
		if l.Member != 0 {
			e.tellLeaderLocked(ShardID(i+1), Leader{Term: l.Term})
		}
	}
}

func (e *Engine) tellLeaderLocked(id ShardID, l Leader) {
	if e.leaders.known == nil {
		e.leaders.known, e.leaders.last = make([]Leader, len(e.shards)), make([]MemberID, len(e.shards))
	}
	e.leaders.known[id-1] = l
	e.health.Recent.Note(health.Occurrence{Kind: health.LeaderChanged, Shard: id, Member: l.Member, Number: l.Term})
	if l.Member != 0 {
		e.log.Info("leader changed", "shard", id, "term", l.Term, "from", e.leaders.last[id-1], "to", l.Member)
		e.leaders.last[id-1] = l.Member
		e.meters.leaders[id-1].Inc()
		e.health.Slow.Work.Elections.Begin()
		e.health.Slow.Work.Elections.End()
	}
	e.health.Look()
	if id == command.HomeShard {
		e.leaders.since = time.Time{}
		if l.Member == e.roster.Self() {
			e.leaders.since = time.Now()
		}
	}
	if e.cfg.LeaderChanged != nil {
		e.cfg.LeaderChanged(id, l) // queues the call, so it does not block
	}
}

// LeadsSince returns since when this node leads the first shard. It returns false if this node does
// not lead it.
func (e *Engine) LeadsSince() (time.Time, bool) {
	if e.silenced() {
		return time.Time{}, false
	}
	e.leaders.Lock()
	defer e.leaders.Unlock()
	return e.leaders.since, !e.leaders.since.IsZero()
}

// TransferLeadership asks a shard's leader to transfer its leadership to a member.
func (e *Engine) TransferLeadership(id ShardID, to MemberID) error {
	if over := e.over(); over != nil {
		return over
	}
	err := e.transfer(id, to, TransferAsked)
	return cmp.Or(e.over(), err)
}

func (e *Engine) transfer(id ShardID, to MemberID, why TransferCause) error {
	if id < 1 || int(id) > len(e.shards) {
		return fmt.Errorf("shard %d is not in 1..%d", id, len(e.shards))
	}
	host := e.host.Load()
	if host == nil {
		return e.health.Explain(outbox.ErrUnavailable)
	}
	if !slices.Contains(e.roster.Voters(id), to) {
		return fmt.Errorf("member %d is none of the members that vote: %s", to, replication.Listed(e.roster.Voters(id)))
	}
	if err := host.TransferLeader(id, to); err != nil {
		return fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
	}
	e.meters.transfers[id-1][why].Inc()
	return nil
}
