package outbox

import (
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
)

const (
	PollInterval   = 20 * time.Millisecond // how often Loop looks for dropped batches
	resendFirstMin = 50 * time.Millisecond // shortest patience with the oldest batch
	resendMax      = 2 * time.Second       // longest, unless beats are needed more often: see doublePatience
)

// Signal wakes Loop. It does not block.
func (o *Outbox) Signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// LeaderChanged records that the term or the leader has changed. Batches in flight may be lost.
func (o *Outbox) LeaderChanged() {
	o.mu.Lock()
	o.mu.resendAll = true
	o.mu.Unlock()
	o.Signal()
}

// Loop sends what was held back by a leader change, a lost batch or a full window. It returns after
// Close.
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

// arm returns when Loop must look again, or zero if it need not.
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

// resendLost sends batches again that were lost or are overdue.
//
// It sends all of them, in order, if the leader changed, Raft dropped one, or the shard refused one
// for a gap. Otherwise it sends the oldest batch alone, once that has taken far longer than a
// commit takes. It does not do so on the leader: an entry in the leader's own log cannot be lost
// without a change of term.
//
// No timer sends all batches again. On a slow disk each copy costs one more fsync, and the node
// would collapse.
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
		o.Meters.Resends.Inc()
	}
	o.mu.Lock()
	o.mu.sending = false
	o.mu.resendAll = o.mu.resendAll || err != nil && all
	o.mu.Unlock()
}

// beatInterval returns how often a batch must reach the shard, or zero if none must.
func (o *Outbox) beatInterval() time.Duration {
	if o.Shard != command.HomeShard {
		return 0
	}
	return o.node.BeatInterval()
}

// doublePatience doubles the patience with b, up to the beat interval. While b is in flight the
// node sends no beats, so b alone keeps its sessions alive. After a link was cut for a while, the
// next copy of b must not come too late for them.
func (b *Batch) doublePatience(interval time.Duration) {
	most := resendMax
	if interval > 0 {
		most = min(most, interval)
	}
	b.patience = max(b.patience, min(2*b.patience, most))
}

// GapFound records that the shard refused a batch of ours for a gap: an earlier batch was lost.
func (o *Outbox) GapFound() {
	o.mu.Lock()
	o.mu.resendAll = len(o.mu.inflight) > 0
	o.mu.Unlock()
	o.Signal()
}

// SkipTo records that a snapshot carried this node's stream to seq. Nobody knows what the batches
// up to seq answered. So their calls end with ErrUnknownOutcome, except their ends, which succeed.
//
// The caller must call finish after it has ended the sessions that ended in the gap, and after
// readers can see the received state. For those sessions a batch that was sent after their end
// proves nothing. Finish tells who waits for an end, who may then look whether it shows.
func (o *Outbox) SkipTo(seq uint64) (finish func()) {
	skipped := o.inflightTo(seq)
	o.completeSkipped(skipped, false, ErrUnknownOutcome)
	return func() {
		o.completeSkipped(skipped, true, nil) // nothing refuses an end
		for i, b := range skipped {
			if o.retire(b); i == len(skipped)-1 {
				o.prove(b)
			}
		}
	}
}

func (o *Outbox) inflightTo(seq uint64) []*Batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for n < len(o.mu.inflight) && o.mu.inflight[n].seq <= seq {
		n++
	}
	return slices.Clone(o.mu.inflight[:n])
}

// completeSkipped sets the outcome of those calls that are ends, or of those that are not.
func (o *Outbox) completeSkipped(skipped []*Batch, ends bool, err error) {
	for _, b := range skipped {
		for i, c := range b.calls {
			if c.end == ends {
				o.Complete(b, i, nil, 0, err)
			}
		}
	}
}
