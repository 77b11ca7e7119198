package replica

import (
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

// An expirer measures the silence of every origin while its node leads, and proposes each step when it is over. What
// counts is decided in the log, so two leaders, a late leader or a repeated step can do no harm.
type expirer struct {
	// Immutable after newExpirer.
	machine *Replica
	raft    Raft
	member  replication.MemberID
	least   time.Duration // the smallest timeout that a session of any member can have
	lag     *lag
	log     *slog.Logger
	wake    chan struct{} // capacity 1: this node may lead now, or sessions are due

	// Owned by loop.
	steps  map[session.MemberID]measure
	expire measure
}

func newExpirer(m *Replica, raft Raft, member replication.MemberID, least time.Duration, log *slog.Logger) *expirer {
	return &expirer{machine: m, raft: raft, member: member, least: least, lag: newLag(m, raft, least/4), log: log,
		wake: make(chan struct{}, 1), steps: make(map[session.MemberID]measure)}
}

func (x *expirer) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// look proposes what is to be proposed now and returns when to look again.
func (x *expirer) look(now time.Time) time.Duration {
	if x.raft.Leader(x.machine.Shard).Member != x.member {
		clear(x.steps)
		x.expire = measure{}
		return time.Hour // a change of leader wakes the loop
	}
	if x.lag.behind(now) {
		x.lag.yield()
	}
	// A session that is opened meanwhile is due for its first step no sooner than this.
	next := x.least / 4
	if due, portions := x.machine.due(); due > 0 {
		if x.expire.portions != portions || !x.expire.onWay(now) {
			x.expire = measure{portions: portions, at: now, proposal: x.propose(command.EncodeExpire(now.UnixMilli()))}
		}
		next = min(next, PollInterval)
	}
	for _, s := range x.machine.silences(now) {
		if s.wait > 0 {
			next = min(next, s.wait)
			continue
		}
		if p := x.steps[s.step.Member]; p.step != s.step || !p.onWay(now) {
			x.steps[s.step.Member] = measure{step: s.step, at: now, proposal: x.propose(command.EncodeSilence(s.step, s.duration, now.UnixMilli()))}
		}
		next = min(next, PollInterval)
	}
	return next
}

// propose hands a command to Raft that needs no stream. If it is lost, it is proposed again. It returns nil if Raft did not
// take it.
func (x *expirer) propose(cmd []byte) outbox.Proposal {
	p, err := x.raft.Propose(x.machine.Shard, cmd)
	if err != nil {
		x.log.Debug("silence not proposed", "cause", err)
		return nil
	}
	return p
}

// A silence is the next step of an origin: proposed once wait is over.
type silence struct {
	step     session.Step
	duration time.Duration
	wait     time.Duration
}

// silences returns the next step of every origin that has one. Only the home shard books silence.
func (m *Replica) silences(now time.Time) []silence {
	if m.Shard != command.HomeShard {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []silence
	for _, o := range m.mu.table.Origins() {
		step, d, ok := m.mu.table.NextStep(o.Member)
		if !ok {
			continue
		}
		out = append(out, silence{step: step, duration: d, wait: m.mu.since[o.Member].Add(d).Sub(now)})
	}
	return out
}

// due is how many sessions wait for their turn to expire, and how many portions have had it.
func (m *Replica) due() (sessions int, portions uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.table.DueLen(), m.mu.portions
}
