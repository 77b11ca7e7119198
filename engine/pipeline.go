package engine

import (
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/timers"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
)

// Limits of the pipeline and what happens at them.
const (
	queueMax      = 16384    // requests waiting on one shard; one more is refused with ErrUnavailable
	queueBytesMax = 64 << 20 // their bytes; likewise
	// Requests of sessions that the shard does not know yet, counted apart; likewise.
	outsideMax      = queueMax / 2
	outsideBytesMax = queueBytesMax / 2
)

// A replicator is what the request path asks of a Raft group.
type replicator interface {
	Propose(replication.ShardID, []byte) (proposal, error)
	Leader(replication.ShardID) replication.Leader
}

// A proposal is a command on its way; Dropped says that it was certainly lost.
type proposal interface{ Dropped() bool }

// A pipeline carries the requests of this node to one shard: it coalesces what waits into batches, numbers and
// proposes them in order, sends a batch again when there is evidence that it was lost, and completes the waiters
// when the machine of this node has applied them.
//
// Invariants:
//  1. seqs are sealed in order and without gaps, and the batches in flight are the newest ones;
//  2. a waiter that was refused or taken out while queued is in no batch, now or later;
//  3. at most one goroutine seals and proposes at a time, so proposals reach Raft in order of seq.
type pipeline struct {
	// Immutable after newPipeline.
	shard    replication.ShardID
	raft     replicator
	clock    clock.Clock
	register session.Origin
	rules    command.Rules                   // of the ensemble, once our Register is applied
	invite   func(*Session)                  // called when a session that the shard does not know has requests for it
	before   func()                          // called before a batch is sealed: ends of sessions go into it
	home     func() tree.Zxid                // what this node has applied of the home shard
	proved   func(sent, drift time.Duration) // called on the apply goroutine when a batch of ours was applied
	pulse    func() time.Duration            // how often this node has to prove itself alive; zero: it need not
	lacking  func(error) error               // adds to an error what this node lacks, if it knows of no leader
	wake     chan struct{}                   // capacity 1: the loop has something to look at
	stop     chan struct{}                   // closed by close
	ready    chan struct{}                   // closed when our Register was applied

	timers timers.Pool

	mu struct {
		rank.Mutex[rank.Pipeline]
		queue      queue
		wanted     int       // requests there will be for the next batch if all who were in the last one ask again
		hold       time.Time // until when the next batch waits for them; zero: it does not
		beat       bool      // an empty batch is wanted
		inflight   []*batch
		seq        uint64 // of the newest sealed batch
		registered bool   // our Register was applied
		sealedReg  bool   // our Register is in flight
		sending    bool   // a goroutine is sealing or proposing
		armed      bool   // the loop's timer runs
		resend     bool   // evidence that batches in flight were lost
		commit     time.Duration
		closed     error
	}
}

func newPipeline(shard replication.ShardID, raft replicator, clock clock.Clock, origin session.Origin) *pipeline {
	p := &pipeline{
		shard: shard, raft: raft, clock: clock, register: origin,
		before: func() {}, invite: func(*Session) {}, proved: func(_, _ time.Duration) {},
		lacking: func(err error) error { return err },
		pulse:   func() time.Duration { return 0 }, home: func() tree.Zxid { return 0 },
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ready: make(chan struct{}),
	}
	p.mu.queue.shard = shard
	return p
}

// submit queues w and sends what can be sent; what is of a session that the shard does not know stays queued until letIn. On
// an error w is refused: it has that outcome and is in no batch.
func (p *pipeline) submit(w *waiter) error {
	p.mu.Lock()
	err := p.mu.closed
	s := w.session
	outside := s != nil && !s.known(p.shard)
	var over error // what of the session was queued is being taken out, and nothing may come behind that
	if s != nil {
		over = s.live()
	}
	if err == nil && over == nil && p.mu.queue.full(len(w.wire), outside) {
		err = errQueueFull
	}
	if err == nil {
		err = w.with.held()
	}
	if err == nil {
		err = over
	}
	if err != nil {
		p.mu.Unlock()
		p.refuse(w, err)
		return err
	}
	if outside {
		first := p.mu.queue.addOutside(w)
		p.mu.Unlock()
		if first {
			p.invite(s)
		}
		return nil
	}
	p.mu.queue.add(w)
	p.mu.Unlock()
	p.pump()
	return nil
}

// take is submit, or refuse if err is not nil.
func (p *pipeline) take(w *waiter, err error) {
	if err != nil {
		p.refuse(w, err)
	} else {
		_ = p.submit(w) // an error is w's outcome
	}
}

// letIn is told that the shard knows a session. Its requests go on, in their order. It reports false if the session has ended:
// whoever ended it may have looked already where it is known, and sends no end here.
func (p *pipeline) letIn(s *Session) bool {
	p.mu.Lock()
	known := &s.at[p.shard-1].known
	known.Store(true)
	if s.live() != nil { // looked at after known is set, and set before known is looked at: see keeper.queueCloseLocked
		known.Store(false)
		p.mu.Unlock()
		return false
	}
	p.mu.queue.letIn(s)
	p.mu.Unlock()
	p.pump()
	return true
}

// turnAway refuses the requests of a session that the shard cannot be made to know.
func (p *pipeline) turnAway(s *Session, err error) {
	p.mu.Lock()
	out := p.mu.queue.takeIn(s)
	for _, w := range out {
		p.overLocked(w)
	}
	p.mu.Unlock()
	for _, w := range out {
		w.err = err
		p.finish(w)
	}
}

// queueBehind is submit for who holds the keeper's mu: it sends nothing, and refuses nothing for want of room.
func (p *pipeline) queueBehind(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mu.closed; err != nil {
		w.place, w.err = placeDone, err
		close(w.done)
		return
	}
	p.mu.queue.add(w)
}

// queueIfUsed is queueBehind for w if its session has used the shard, or has something waiting to; otherwise it returns false.
func (p *pipeline) queueIfUsed(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, waits := p.mu.queue.outside[w.session]
	switch {
	case p.mu.closed != nil:
		return false
	case w.session.known(p.shard):
		p.mu.queue.add(w)
	case waits:
		p.mu.queue.addOutside(w)
	default:
		return false
	}
	return true
}

// drop completes w with err, wherever it is on its way. If it is queued it is not applied and never will be; if it was sent it
// may be, but it is not queued again.
func (p *pipeline) drop(w *waiter, err error) {
	p.mu.Lock()
	over := w.place == placeDone
	if w.place == placeQueued {
		p.mu.queue.takeOut(w)
	}
	p.overLocked(w)
	p.mu.Unlock()
	if !over {
		w.err = err
		p.finish(w)
	}
}

// busy reports whether a session has requests, ends aside, that have no outcome yet.
func (p *pipeline) busy(s *Session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return s.at[p.shard-1].onWay > 0
}

// overLocked is told that w is on its way no more.
func (p *pipeline) overLocked(w *waiter) {
	w.place = placeDone
	if w.counted {
		w.counted = false
		w.session.at[p.shard-1].onWay--
	}
}

// refuse completes a waiter that is not queued.
func (p *pipeline) refuse(w *waiter, err error) {
	p.mu.Lock()
	w.place = placeDone
	p.mu.Unlock()
	w.err = err
	p.finish(w)
}

// queueEnd queues an end (a release, a session's close) for the next batch, ahead of everything else and whatever the
// queue holds: a full queue must not keep a lock taken. It sends nothing, so it may be called with the keeper's mu held;
// pump does.
func (p *pipeline) queueEnd(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queueEndLocked(w)
}

// queueRelease queues an end that the owner of w's session asks for. It goes ahead of all but what the session has queued
// itself: that comes along, in its order, or a write of a holder would be applied when the next one has the lock.
func (p *pipeline) queueRelease(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.queue.bringForward(w.session)
	p.queueEndLocked(w)
}

func (p *pipeline) queueEndLocked(w *waiter) {
	w.end = true
	if err := p.mu.closed; err != nil {
		w.place, w.err = placeDone, err
		close(w.done) // an end has no applied hook
		return
	}
	p.mu.queue.addEnd(w)
}

// beat asks for an empty batch, to show that this node is alive. It is sent only when nothing is in flight: a node
// that cannot see its batches applied must not go on proving itself alive.
func (p *pipeline) beat() {
	p.mu.Lock()
	p.mu.beat = p.mu.closed == nil && len(p.mu.inflight) == 0
	p.mu.Unlock()
	p.pump()
}

// cancel takes w out if it is still queued and completes it with err. It reports whether it was: then w is not
// applied and never will be. An end is never taken out: who stops waiting for it still wants it to happen, and nobody
// else would delete what it is to delete.
func (p *pipeline) cancel(w *waiter, err error) bool {
	p.mu.Lock()
	if w.place != placeQueued || w.end {
		p.mu.Unlock()
		return false
	}
	p.overLocked(w)
	p.mu.queue.takeOut(w)
	p.mu.Unlock()
	w.err = err
	p.finish(w)
	return true
}

// cancelSessions takes every queued request of the sessions out, their ends excepted.
func (p *pipeline) cancelSessions(err error, sessions ...*Session) {
	among := setOf(sessions)
	p.mu.Lock()
	var out []*waiter
	p.mu.queue.each(func(w *waiter) {
		if among[w.session] {
			out = append(out, w)
		}
	})
	p.mu.Unlock()
	for _, w := range out {
		p.cancel(w, err)
	}
}

// giveUp completes the requests of the sessions that were sent, their ends excepted: the sessions have ended here, and who
// still waits for their requests might wait for ever.
func (p *pipeline) giveUp(err error, sessions ...*Session) {
	among := setOf(sessions)
	p.mu.Lock()
	var out []*waiter
	for _, b := range p.mu.inflight {
		for _, w := range b.waiters {
			if among[w.session] && w.place == placeSent && !w.end {
				p.overLocked(w)
				out = append(out, w)
			}
		}
	}
	p.mu.Unlock()
	for _, w := range out {
		w.err = err
		p.finish(w)
	}
}

func setOf(sessions []*Session) map[*Session]bool {
	set := make(map[*Session]bool, len(sessions))
	for _, s := range sessions {
		set[s] = true
	}
	return set
}

// close ends every waiter: those queued with err (not applied), those in flight with ErrUnknownOutcome. Nothing is
// taken or sent afterwards. The loop ends by itself.
func (p *pipeline) close(err error) {
	p.mu.Lock()
	if p.mu.closed != nil {
		p.mu.Unlock()
		return
	}
	p.mu.closed = err
	ended := make(map[*waiter]error)
	p.mu.queue.each(func(w *waiter) { ended[w] = err })
	for _, b := range p.mu.inflight {
		for _, w := range b.waiters {
			if w.place == placeSent {
				ended[w] = ErrUnknownOutcome
			}
		}
	}
	for w := range ended {
		p.overLocked(w)
	}
	p.mu.queue = queue{shard: p.shard}
	p.mu.Unlock()
	close(p.stop)
	for w, err := range ended {
		w.err = err
		p.finish(w)
	}
}
