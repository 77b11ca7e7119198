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
func (o *Outbox) Signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// LeaderChanged is told by replication that the term or the leader is another: what was in flight may be lost.
func (o *Outbox) LeaderChanged() {
	o.mu.Lock()
	o.mu.resendAll = true
	o.mu.Unlock()
	o.Signal()
}

// Loop sends what a leader change, a lost batch or a full window held back. It ends when the pipeline is closed.
func (o *Outbox) Loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-o.stop:
			return
		case <-o.wake:
		case <-timer.C:
		}
		o.resendLost()
		o.Pump()
		if next := o.arm(); next > 0 {
			timer.Reset(next)
		}
	}
}

// arm returns when the loop must look again, zero if it need not.
func (o *Outbox) arm() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.waitLeftLocked()
	waiting := len(o.mu.inflight) > 0 || o.mu.queue.len() > 0 || o.mu.beat || o.mu.registration != registered || left > 0
	o.mu.timerArmed = waiting && o.mu.closed == nil
	switch {
	case !o.mu.timerArmed:
		return 0
	case left > 0:
		return min(left, PollInterval)
	}
	return PollInterval
}

// resendLost sends batches again on evidence of loss: all of them, in order, when the leader changed, one was
// reported dropped or a later one was refused for a gap; otherwise the oldest alone when it took far longer than a
// commit takes, unless this node leads: an entry in its own log cannot be lost without a change of term. (Timers
// that resend everything collapse on a slow disk: each copy is another fsync.)
func (o *Outbox) resendLost() {
	leader, interval := o.raft.Leader(o.Shard), o.beatInterval()
	o.mu.Lock()
	if o.mu.sending || leader.Member == 0 || len(o.mu.inflight) == 0 || o.mu.closed != nil {
		o.mu.resendAll = o.mu.resendAll && len(o.mu.inflight) > 0
		o.mu.Unlock()
		return
	}
	all := o.mu.resendAll
	for _, b := range o.mu.inflight {
		all = all || b.proposal != nil && b.proposal.Dropped()
	}
	var again []*Batch
	oldest := o.mu.inflight[0]
	switch {
	case all:
		again = append(again, o.mu.inflight...)
	case session.MemberID(leader.Member) != o.Origin.Member && time.Since(oldest.lastSent) > oldest.patience:
		oldest.doublePatience(interval)
		again = append(again, oldest)
	}
	o.mu.resendAll = false
	o.mu.sending = true
	o.mu.Unlock()

	var err error
	for _, b := range again {
		if err = o.send(b, false); err != nil {
			break
		}
	}
	o.mu.Lock()
	o.mu.sending = false
	o.mu.resendAll = o.mu.resendAll || err != nil && all
	o.mu.Unlock()
}

// pulse is how often a batch has to reach the shard, zero if it need not.
func (o *Outbox) beatInterval() time.Duration {
	if o.Shard != command.HomeShard {
		return 0
	}
	return o.node.BeatInterval()
}

// again doubles the patience with a batch, but not beyond a pulse: while it is on its way this node sends no beat, so on a link
// that was cut for a while it is what its sessions live by.
func (b *Batch) doublePatience(interval time.Duration) {
	most := resendMax
	if interval > 0 {
		most = min(most, interval)
	}
	b.patience = max(b.patience, min(2*b.patience, most))
}

// GapFound is told that a batch of ours was refused for a gap: an earlier one was lost.
func (o *Outbox) GapFound() {
	o.mu.Lock()
	o.mu.resendAll = len(o.mu.inflight) > 0
	o.mu.Unlock()
	o.Signal()
}

// SkipTo is told that a snapshot carried this node's stream to seq: what the batches up to it answered is lost. prove is to be
// called when the sessions that ended in the gap have been told: what was said after their end proves nothing for them.
func (o *Outbox) SkipTo(seq uint64) (prove func()) {
	prove = func() {}
	for {
		o.mu.Lock()
		if len(o.mu.inflight) == 0 || o.mu.inflight[0].seq > seq {
			o.mu.Unlock()
			return prove
		}
		b := o.mu.inflight[0]
		o.mu.Unlock()
		for i, c := range b.calls {
			err := ErrUnknownOutcome
			if c.end {
				err = nil // which nothing refuses
			}
			o.Complete(b, i, nil, 0, err)
		}
		o.retire(b)
		prove = func() { o.prove(b) }
	}
}
