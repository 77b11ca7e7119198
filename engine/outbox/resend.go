package outbox

import (
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
)

const (
	PollInterval   = 20 * time.Millisecond // how often batches in flight are asked whether they were dropped
	resendFirstMin = 50 * time.Millisecond // shortest patience with the oldest batch before it is sent again
	resendMax      = 2 * time.Second       // longest, if no session needs it sooner: see batch.again
)

// Signal wakes Loop. It does not block.
func (p *Outbox) Signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// LeaderChanged is told by replication that the term or the leader is another: what was in flight may be lost.
func (p *Outbox) LeaderChanged() {
	p.mu.Lock()
	p.mu.resend = true
	p.mu.Unlock()
	p.Signal()
}

// Loop sends what a leader change, a lost batch or a full window held back. It ends when the pipeline is closed.
func (p *Outbox) Loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.wake:
		case <-timer.C:
		}
		p.resendLost()
		p.Pump()
		if next := p.arm(); next > 0 {
			timer.Reset(next)
		}
	}
}

// arm returns when the loop must look again, zero if it need not.
func (p *Outbox) arm() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.heldLocked()
	waiting := len(p.mu.inflight) > 0 || p.mu.queue.len() > 0 || p.mu.beat || p.mu.standing != registered || held > 0
	p.mu.armed = waiting && p.mu.closed == nil
	switch {
	case !p.mu.armed:
		return 0
	case held > 0:
		return min(held, PollInterval)
	}
	return PollInterval
}

// resendLost sends batches again on evidence of loss: all of them, in order, when the leader changed, one was
// reported dropped or a later one was refused for a gap; otherwise the oldest alone when it took far longer than a
// commit takes, unless this node leads: an entry in its own log cannot be lost without a change of term. (Timers
// that resend everything collapse on a slow disk: each copy is another fsync.)
func (p *Outbox) resendLost() {
	leader, pulse := p.raft.Leader(p.Shard), p.pulse()
	p.mu.Lock()
	if p.mu.sending || leader.Member == 0 || len(p.mu.inflight) == 0 || p.mu.closed != nil {
		p.mu.resend = p.mu.resend && len(p.mu.inflight) > 0
		p.mu.Unlock()
		return
	}
	all := p.mu.resend
	for _, b := range p.mu.inflight {
		all = all || b.proposal != nil && b.proposal.Dropped()
	}
	var again []*Batch
	oldest := p.mu.inflight[0]
	switch {
	case all:
		again = append(again, p.mu.inflight...)
	case session.MemberID(leader.Member) != p.Origin.Member && time.Since(oldest.lastSent) > oldest.patience:
		oldest.again(pulse)
		again = append(again, oldest)
	}
	p.mu.resend = false
	p.mu.sending = true
	p.mu.Unlock()

	var err error
	for _, b := range again {
		if err = p.send(b, false); err != nil {
			break
		}
	}
	p.mu.Lock()
	p.mu.sending = false
	p.mu.resend = p.mu.resend || err != nil && all
	p.mu.Unlock()
}

// pulse is how often a batch has to reach the shard, zero if it need not.
func (p *Outbox) pulse() time.Duration {
	if p.Shard != command.HomeShard {
		return 0
	}
	return p.node.BeatInterval()
}

// again doubles the patience with a batch, but not beyond a pulse: while it is on its way this node sends no beat, so on a link
// that was cut for a while it is what its sessions live by.
func (b *Batch) again(pulse time.Duration) {
	most := resendMax
	if pulse > 0 {
		most = min(most, pulse)
	}
	b.patience = max(b.patience, min(2*b.patience, most))
}

// GapFound is told that a batch of ours was refused for a gap: an earlier one was lost.
func (p *Outbox) GapFound() {
	p.mu.Lock()
	p.mu.resend = len(p.mu.inflight) > 0
	p.mu.Unlock()
	p.Signal()
}

// SkipTo is told that a snapshot carried this node's stream to seq: what the batches up to it answered is lost. prove is to be
// called when the sessions that ended in the gap have been told: what was said after their end proves nothing for them.
func (p *Outbox) SkipTo(seq uint64) (prove func()) {
	prove = func() {}
	for {
		p.mu.Lock()
		if len(p.mu.inflight) == 0 || p.mu.inflight[0].seq > seq {
			p.mu.Unlock()
			return prove
		}
		b := p.mu.inflight[0]
		p.mu.Unlock()
		for i, w := range b.waiters {
			err := ErrUnknownOutcome
			if w.end {
				err = nil // which nothing refuses
			}
			p.Complete(b, i, nil, 0, err)
		}
		p.land(b)
		prove = func() { p.prove(b) }
	}
}
