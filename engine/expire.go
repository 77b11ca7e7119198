package engine

import (
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// silenceRetry is how long the leader waits for a Silence or Expire of its own to be applied before it proposes it
// again. Both are safe to repeat.
const silenceRetry = time.Second

// A measure is a step of silence that this node has proposed.
type measure struct {
	step session.Step
	at   time.Time
}

// expiryLoop measures the silence of every origin while this node leads, and proposes each step when it is over. What
// counts is decided in the log, so two leaders, a late leader or a repeated step can do no harm.
func (e *Engine) expiryLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	proposed := make(map[session.MemberID]measure)
	var expire time.Time
	for {
		select {
		case <-e.stop:
			return
		case <-e.done:
			return
		case <-e.wakeExpiry:
		case <-timer.C:
		}
		if e.Leader(theShard).Member != e.cfg.Member {
			clear(proposed)
			timer.Reset(time.Hour) // leaderChanged wakes us
			continue
		}
		now := time.Now()
		if e.shard.due() && now.Sub(expire) >= silenceRetry {
			expire = now
			e.proposeOnce(encodeExpire())
		}
		// A session that is opened meanwhile is due for its first step no sooner than this.
		next := e.cfg.MinSessionTimeout / 4
		for _, s := range e.shard.silences(now) {
			if s.wait > 0 {
				next = min(next, s.wait)
				continue
			}
			p := proposed[s.step.Member]
			if p.step == s.step && now.Sub(p.at) < silenceRetry {
				next = min(next, silenceRetry-now.Sub(p.at))
				continue
			}
			proposed[s.step.Member] = measure{step: s.step, at: now}
			e.proposeOnce(encodeSilence(s.step, s.duration))
		}
		timer.Reset(max(next, time.Millisecond))
	}
}

// proposeOnce hands a command to Raft that needs no stream. If it is lost, the loop proposes it again.
func (e *Engine) proposeOnce(cmd []byte) {
	if _, err := e.Propose(theShard, cmd); err != nil {
		e.log.Debug("silence not proposed", "error", err)
	}
}

func (e *Engine) signalExpiry() {
	select {
	case e.wakeExpiry <- struct{}{}:
	default:
	}
}

// A silence is the next step of an origin: proposed once wait is over.
type silence struct {
	step     session.Step
	duration time.Duration
	wait     time.Duration
}

// silences returns the next step of every origin that has one.
func (m *machine) silences(now time.Time) []silence {
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

// due reports whether sessions wait for their turn to expire.
func (m *machine) due() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.table.DueLen() > 0
}
