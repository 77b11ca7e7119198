package outbox

import (
	"iter"
	"runtime"
	"time"

	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/command"
)

const (
	InflightMax = 2 // batches proposed and not yet applied
	// A second batch goes out beside the first only when this many requests wait. One at a time coalesces
	// best for a few dozen callers; with a thousand the second one hides the first one's fsync.
	SecondBatchMin = 256

	// How long a batch waits for one more of those who were in the last one, in yields and in time.
	gatherYields = 32
	gatherMax    = 20 * time.Microsecond
	// How long after the last one it waits, while clients elsewhere may be about to ask again: this part of what a commit takes, and no longer
	// than the other.
	holdParts = 2
	holdMax   = 5 * time.Millisecond
)

// A Batch is what one log entry carries. A resend is byte for byte the same batch.
type Batch struct {
	seq      uint64
	home     tree.Zxid // what this node had applied of the home shard
	cmd      []byte
	waiters  []*Call
	bytes    int           // of the waiters' requests
	remote   bool          // some are of clients elsewhere
	sent     time.Duration // on the boot clock, first time it was handed to Raft; a resend does not move it
	drift    time.Duration // of the clocks at that moment
	lastSent time.Time
	patience time.Duration // until the oldest batch is sent again
	proposal Proposal
}

// requests yields the encoded requests of the batch.
func (b *Batch) requests() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, w := range b.waiters {
			if !yield(w.Encoded) {
				return
			}
		}
	}
}

// Pump seals and proposes batches while the window allows.
func (p *Outbox) Pump() {
	for {
		p.mu.Lock()
		if p.mu.sending || !p.readyLocked() {
			p.mu.Unlock()
			return
		}
		p.mu.sending = true
		p.mu.Unlock()

		p.gather()
		p.node.CheckDeadlines()

		p.mu.Lock()
		if !p.readyLocked() { // closed, or what waited was taken out
			p.mu.sending = false
			p.mu.Unlock()
			return
		}
		b := p.sealLocked()
		p.mu.Unlock()
		err := p.send(b, true)

		p.mu.Lock()
		p.mu.sending = false
		if err != nil {
			p.unsealLocked(b)
		}
		arm := !p.mu.armed
		p.mu.armed = true
		p.mu.Unlock()
		if arm {
			p.Signal()
		}
		if err != nil {
			return // the loop tries again when a leader is known
		}
	}
}

// gather lets those queue first who were woken by the last batch and are about to ask again, or they would wait for the batch
// after the next one: it raised the average batch of 64 callers from 44 to 61, and their writes by a third. A lone caller pays for one
// yield, and callers who do not come back cost what they are waited for.
func (p *Outbox) gather() {
	queued, since := 0, time.Now()
	for idle := 0; idle < gatherYields; idle++ {
		runtime.Gosched()
		p.mu.Lock()
		n, wanted := p.mu.queue.len(), p.mu.wanted
		p.mu.Unlock()
		switch {
		case n >= wanted:
			return
		case n > queued:
			queued, since, idle = n, time.Now(), 0
		case time.Since(since) > gatherMax: // others use the processors
			return
		}
	}
}

// readyLocked reports whether a batch can be sealed now.
func (p *Outbox) readyLocked() bool {
	if p.mu.closed != nil || p.raft.Leader(p.Shard).Member == 0 {
		return false
	}
	if p.mu.standing != registered {
		return p.mu.standing == unregistered
	}
	switch len(p.mu.inflight) {
	case 0:
		return p.mu.queue.len() > 0 && p.heldLocked() == 0 || p.mu.beat
	case InflightMax:
		return false
	default:
		return p.mu.queue.len() >= SecondBatchMin
	}
}

// heldLocked is how long the next batch is still to wait for those who were in the last one and are clients elsewhere. They come back
// later than gather waits. The first who did would travel alone, and the rest wait for its batch and then for their own: two commits, where
// now it is one and the wait. With 64 clients, 21 on a member, the average batch was 11, and is 18. It is counted from when the last batch
// was applied, so that who comes later waits for nobody; an end waits for nobody either.
func (p *Outbox) heldLocked() time.Duration {
	if p.mu.hold.IsZero() || p.mu.queue.len() >= p.mu.wanted || p.mu.queue.ends > 0 {
		return 0
	}
	return max(0, time.Until(p.mu.hold))
}

// sealLocked makes the next batch, or Register if that is still to be made.
func (p *Outbox) sealLocked() *Batch {
	b := &Batch{}
	if p.mu.standing == unregistered {
		p.mu.standing = registering
		p.mu.inflight = append(p.mu.inflight, b)
		return b
	}
	p.mu.seq++
	p.mu.hold = time.Time{}
	b.seq = p.mu.seq
	if p.Shard != command.HomeShard {
		b.home = p.node.AppliedAtHome() // before the queue is emptied: of a session that has ended by then nothing is in it
	}
	p.mu.beat = false
	p.mu.queue.fill(b)
	p.mu.inflight = append(p.mu.inflight, b)
	return b
}

// unsealLocked puts a batch that Raft did not take back; it was never proposed, so its seq is free again.
func (p *Outbox) unsealLocked(b *Batch) {
	if p.mu.closed != nil {
		return // which has ended its waiters
	}
	p.mu.inflight = p.mu.inflight[:len(p.mu.inflight)-1] // the newest: nothing is sealed while one is being sent
	if p.mu.standing == registering {
		p.mu.standing = unregistered // Raft has refused it
		return
	}
	p.mu.seq--
	var back []*Call
	for _, w := range b.waiters {
		if w.place == placeSent { // and not given up
			w.place = placeQueued
			back = append(back, w)
		}
	}
	p.mu.queue.putBack(back)
	p.mu.beat = p.mu.beat || len(b.waiters) == 0
}

// send hands b to Raft, for the first time or again. Only the goroutine that set sending calls it.
func (p *Outbox) send(b *Batch, first bool) error {
	if first {
		wall := p.clock.Wall().UnixMilli()
		if b.seq == 0 {
			b.cmd = command.EncodeRegister(p.Origin, wall, p.rules)
		} else {
			b.cmd = command.EncodeBatch(p.Origin.Member, p.Origin.Start, b.seq, wall, b.home, len(b.waiters), b.requests())
		}
		b.drift = p.clock.Drift()
		b.sent = p.clock.Boot() // after drift: time that is lost in between must show as a jump
		b.patience = min(max(4*p.commitTime(), resendFirstMin), resendMax)
	}
	now := time.Now()
	proposal, err := p.raft.Propose(p.Shard, b.cmd)
	if err != nil {
		return err
	}
	p.mu.Lock()
	b.proposal, b.lastSent = proposal, now
	p.mu.Unlock()
	return nil
}

func (p *Outbox) commitTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.commit
}

// Oldest returns the batch in flight with this seq, which is the oldest, or nil. Called on the apply goroutine when a
// batch of this node's stream was accepted.
func (p *Outbox) Oldest(seq uint64) *Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.inflight) == 0 || p.mu.inflight[0].seq != seq {
		return nil
	}
	return p.mu.inflight[0]
}

// Complete sets the outcome of the i-th request of b. Called on the apply goroutine.
func (p *Outbox) Complete(b *Batch, i int, results []tree.Result, zxid tree.Zxid, err error) {
	if b == nil || i >= len(b.waiters) {
		return
	}
	w := b.waiters[i]
	p.mu.Lock()
	late := w.place == placeDone // ended by close or giveUp
	p.overLocked(w)
	p.mu.Unlock()
	if late {
		return
	}
	w.Results, w.Zxid, w.Sent, w.Drift, w.Err = results, zxid, b.sent, b.drift, err
	p.finish(w)
}

func (p *Outbox) finish(w *Call) {
	if w.Err != nil {
		if w.Terms != nil {
			w.Terms.Undo()
		}
	}
	if w.OnOutcome != nil {
		w.OnOutcome(w)
	}
	close(w.Done)
	if w.Then != nil {
		w.Then()
	}
}

// BatchApplied takes b, all of whose requests are complete, out of flight. Called on the apply goroutine.
func (p *Outbox) BatchApplied(b *Batch) {
	if b == nil {
		return
	}
	p.land(b)
	p.prove(b)
}

// prove tells the node what b proves: that the node was alive when it sent b.
func (p *Outbox) prove(b *Batch) {
	if p.Shard == command.HomeShard {
		p.node.Proved(b.sent, b.drift)
	}
}

// land is done without what b proves.
func (p *Outbox) land(b *Batch) {
	p.mu.Lock()
	if len(p.mu.inflight) > 0 && p.mu.inflight[0] == b {
		p.mu.inflight = p.mu.inflight[1:]
	}
	if b.seq == 0 && p.mu.standing == registering {
		p.mu.standing = registered
		close(p.Ready)
	}
	p.mu.wanted = min(len(b.waiters)+p.mu.queue.len(), command.BatchMax)
	took := p.clock.Boot() - b.sent
	p.mu.commit += (took - p.mu.commit) / 8
	if b.remote && p.mu.wanted > 1 {
		p.mu.hold = time.Now().Add(min(p.mu.commit/holdParts, holdMax))
	}
	more := p.mu.queue.len() > 0 || b.seq == 0 || !p.mu.hold.IsZero() // also the hold has an end
	p.mu.Unlock()
	if more {
		p.Signal()
	}
}
