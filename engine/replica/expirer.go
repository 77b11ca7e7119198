package replica

import (
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
)

// An expirer measures the silence of every origin while its node leads, and proposes each step of
// silence when it is over. The log decides what counts. So two leaders, a late leader or a repeated
// step do no harm.
type expirer struct {
	// Immutable.
	replica    *Replica
	raft       Raft
	timeoutMin time.Duration // the smallest possible timeout of a session
	lag        *lag
	log        *slog.Logger
	wake       chan struct{} // capacity 1; this node may lead now, or sessions are due

	// Owned by the loop.
	steps  map[session.MemberID]proposedStep // the newest of each origin
	expire proposedExpire
}

// A proposedStep is a step of silence that this node has proposed.
type proposedStep struct {
	step session.Step
	proposed
}

// A proposedExpire is an Expire that this node has proposed, for a portion of the due sessions.
type proposedExpire struct {
	portions uint64 // how many were applied before
	proposed
}

func newExpirer(r *Replica, raft Raft, timeoutMin time.Duration, log *slog.Logger) *expirer {
	return &expirer{replica: r, raft: raft, timeoutMin: timeoutMin, lag: newLag(r, raft, timeoutMin/4), log: log,
		wake: make(chan struct{}, 1), steps: make(map[session.MemberID]proposedStep)}
}

// signal wakes the loop.
func (x *expirer) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// look proposes what is due now, and returns how long the loop may wait for the next look.
func (x *expirer) look(now time.Time) time.Duration {
	if !x.replica.leads(x.replica.Shard, x.raft) {
		clear(x.steps)
		x.expire = proposedExpire{}
		return time.Hour // a leader change wakes the loop
	}
	if x.lag.behind(now) {
		x.lag.transferLeadership()
	}
	// The first step of a session that opens meanwhile is over no sooner than this.
	next := x.timeoutMin / 4
	if due, portions := x.replica.dueSessions(); due > 0 {
		if x.expire.portions != portions || !x.expire.pending(now) {
			x.expire = proposedExpire{portions: portions, proposed: x.propose(command.EncodeExpire(now.UnixMilli(), x.replica.Level()), now)}
		}
		next = min(next, PollInterval)
	}
	for _, s := range x.replica.nextSteps(now) {
		if s.wait > 0 {
			next = min(next, s.wait)
			continue
		}
		if p := x.steps[s.step.Member]; p.step != s.step || !p.pending(now) {
			x.steps[s.step.Member] = proposedStep{step: s.step, proposed: x.propose(command.EncodeSilence(s.step, s.duration, now.UnixMilli()), now)}
		}
		next = min(next, PollInterval)
	}
	return next
}

// propose proposes a command that belongs to no stream. If the command is lost, look proposes it
// again.
func (x *expirer) propose(cmd []byte, now time.Time) proposed {
	p, err := x.raft.Propose(x.replica.Shard, cmd)
	if err != nil {
		x.log.Debug("silence or expiry not proposed", "cause", err)
		return proposed{at: now}
	}
	return proposed{at: now, proposal: p}
}

// A nextStep is the next step of an origin's silence. It is proposed when wait is over.
type nextStep struct {
	step     session.Step
	duration time.Duration
	wait     time.Duration
}

// nextSteps returns the next step of every origin that has one. Only the home shard records
// silence.
func (r *Replica) nextSteps(now time.Time) []nextStep {
	if r.Shard != command.HomeShard {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []nextStep
	for step, d := range r.mu.table.NextSteps() {
		out = append(out, nextStep{step: step, duration: d, wait: r.mu.stepStart[step.Member].Add(d).Sub(now)})
	}
	return out
}

// dueSessions returns how many sessions are due, and how many portions of due sessions were ended.
func (r *Replica) dueSessions() (sessions int, portions uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.table.DueLen(), r.mu.portions
}
