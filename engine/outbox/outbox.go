package outbox

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
	QueueMax      = 16384    // requests waiting on one shard; one more is refused with ErrUnavailable
	QueueBytesMax = 64 << 20 // their bytes; likewise
	// Requests of sessions that the shard does not know yet, counted apart; likewise.
	outsideMax      = QueueMax / 2
	outsideBytesMax = QueueBytesMax / 2
)

// Raft is what the request path asks of a Raft group.
type Raft interface {
	Propose(replication.ShardID, []byte) (Proposal, error)
	Leader(replication.ShardID) replication.Leader
}

// A Proposal is a command on its way; Dropped says that it was certainly lost.
type Proposal = interface{ Dropped() bool }

// A registration is how far a stream has come with its Register, without which the ensemble accepts no batch of it:
//
//	unregistered ──▶ registering ──▶ registered
//	      ▲               │
//	      └── refused ────┘
type registration uint8

const (
	unregistered registration = iota
	registering               // Register is in flight
	registered                // it was applied: for good
)

// A Node is what a pipeline asks of its node.
type Node interface {
	// CheckDeadlines compares the clock with the deadlines of the node's sessions. It is called before a batch is sealed, so that
	// what ends by that goes into the batch.
	CheckDeadlines()
	// Proved is called on the apply goroutine when a batch to the home shard was applied that was first sent at sent, when
	// the clocks differed by drift.
	Proved(sent, drift time.Duration)
	// BeatInterval is how often the node has to prove itself alive on the home shard; zero: it need not.
	BeatInterval() time.Duration
	// AppliedAtHome is the newest transaction of the home shard that the node has applied.
	AppliedAtHome() tree.Zxid
	// Explain adds to an error what the node lacks, if it knows of no leader of the shard.
	Explain(replication.ShardID, error) error
}

// An Outbox carries the requests of this node to one shard: it coalesces what waits into batches, numbers and
// proposes them in order, sends a batch again when there is evidence that it was lost, and completes the waiters
// when the machine of this node has applied them.
//
// Invariants:
//  1. seqs are sealed in order and without gaps, and the batches in flight are the newest ones;
//  2. a waiter that was refused or taken out while queued is in no batch, now or later;
//  3. at most one goroutine seals and proposes at a time, so proposals reach Raft in order of seq.
type Outbox struct {
	// Immutable after newPipeline.
	Shard  replication.ShardID
	raft   Raft
	clock  clock.Clock
	Origin session.Origin
	rules  command.Rules // of the ensemble, once our Register is applied
	node   Node
	wake   chan struct{} // capacity 1: the loop has something to look at
	stop   chan struct{} // closed by close
	Ready  chan struct{} // closed when our Register was applied

	timers timers.Pool

	mu struct {
		rank.Mutex[rank.Outbox]
		queue    queue
		wanted   int       // requests there will be for the next batch if all who were in the last one ask again
		hold     time.Time // until when the next batch waits for them; zero: it does not
		beat     bool      // an empty batch is wanted
		inflight []*Batch
		seq      uint64 // of the newest sealed batch
		standing registration
		sending  bool // a goroutine is sealing or proposing
		armed    bool // the loop's timer runs
		resend   bool // evidence that batches in flight were lost
		commit   time.Duration
		closed   error
	}
}

// New returns the outbox of a shard. Loop must run until Close.
func New(shard replication.ShardID, raft Raft, clock clock.Clock, origin session.Origin, rules command.Rules, node Node) *Outbox {
	p := &Outbox{
		Shard: shard, raft: raft, clock: clock, Origin: origin, rules: rules, node: node,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), Ready: make(chan struct{}),
	}
	p.mu.queue.shard = shard
	return p
}

// Submit queues w and sends what can be sent; what is of a session that the shard does not know stays queued until letIn. It
// reports whether w is the first of these: then the caller has to introduce the session. On an error w is refused: it has that
// outcome and is in no batch.
func (p *Outbox) Submit(w *Call) (introduce bool, err error) {
	p.mu.Lock()
	err = p.mu.closed
	outside := w.owner != nil && !w.owner.Known(p.Shard)
	var over error // what of the session was queued is being taken out, and nothing may come behind that
	if w.owner != nil {
		over = w.owner.Err()
	}
	if err == nil && over == nil && p.mu.queue.full(len(w.Encoded), outside) {
		err = errQueueFull
	}
	if err == nil && w.Terms != nil {
		err = w.Terms.Held()
	}
	if err == nil {
		err = over
	}
	if err != nil {
		p.mu.Unlock()
		p.Refuse(w, err)
		return false, err
	}
	if outside {
		first := p.mu.queue.addOutside(w)
		p.mu.Unlock()
		return first, nil
	}
	p.mu.queue.add(w)
	p.mu.Unlock()
	p.Pump()
	return false, nil
}

// Introduced is told that the shard knows a session. Its requests go on, in their order. It reports false if the session has ended:
// whoever ended it may have looked already where it is known, and sends no end here.
func (p *Outbox) Introduced(o *Owner) bool {
	p.mu.Lock()
	known := &o.at[p.Shard-1].known
	known.Store(true)
	if o.Err() != nil { // looked at after known is set, and set before known is looked at: see keeper.queueCloseLocked
		known.Store(false)
		p.mu.Unlock()
		return false
	}
	p.mu.queue.letIn(o)
	p.mu.Unlock()
	p.Pump()
	return true
}

// NotIntroduced refuses the requests of a session that the shard cannot be made to know.
func (p *Outbox) NotIntroduced(o *Owner, err error) {
	p.mu.Lock()
	out := p.mu.queue.takeIn(o)
	for _, w := range out {
		p.overLocked(w)
	}
	p.mu.Unlock()
	for _, w := range out {
		w.Err = err
		p.finish(w)
	}
}

// Queue is submit for who holds the keeper's mu: it sends nothing, and refuses nothing for want of room.
func (p *Outbox) Queue(w *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mu.closed; err != nil {
		w.place, w.Err = placeDone, err
		close(w.Done)
		return
	}
	p.mu.queue.add(w)
}

// QueueIfUsed is queueBehind for w if its session has used the shard, or has something waiting to; otherwise it returns false.
func (p *Outbox) QueueIfUsed(w *Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, waits := p.mu.queue.outside[w.owner]
	switch {
	case p.mu.closed != nil:
		return false
	case w.owner.Known(p.Shard):
		p.mu.queue.add(w)
	case waits:
		p.mu.queue.addOutside(w)
	default:
		return false
	}
	return true
}

// Abandon completes w with err, wherever it is on its way. If it is queued it is not applied and never will be; if it was sent it
// may be, but it is not queued again.
func (p *Outbox) Abandon(w *Call, err error) {
	p.mu.Lock()
	over := w.place == placeDone
	if w.place == placeQueued {
		p.mu.queue.takeOut(w)
	}
	p.overLocked(w)
	p.mu.Unlock()
	if !over {
		w.Err = err
		p.finish(w)
	}
}

// Busy reports whether a session has requests, ends aside, that have no outcome yet.
func (p *Outbox) Busy(o *Owner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return o.at[p.Shard-1].onWay > 0
}

// overLocked is told that w is on its way no more.
func (p *Outbox) overLocked(w *Call) {
	w.place = placeDone
	if w.counted {
		w.counted = false
		w.owner.at[p.Shard-1].onWay--
	}
}

// Refuse completes a waiter that is not queued.
func (p *Outbox) Refuse(w *Call, err error) {
	p.mu.Lock()
	w.place = placeDone
	p.mu.Unlock()
	w.Err = err
	p.finish(w)
}

// QueueEnd queues an end (a release, a session's close) for the next batch, ahead of everything else and whatever the
// queue holds: a full queue must not keep a lock taken. It sends nothing, so it may be called with the keeper's mu held;
// pump does.
func (p *Outbox) QueueEnd(w *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queueEndLocked(w)
}

// QueueRelease queues an end that the owner of w's session asks for. It goes ahead of all but what the session has queued
// itself: that comes along, in its order, or a write of a holder would be applied when the next one has the lock.
func (p *Outbox) QueueRelease(w *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.queue.bringForward(w.owner)
	p.queueEndLocked(w)
}

func (p *Outbox) queueEndLocked(w *Call) {
	w.end = true
	if err := p.mu.closed; err != nil {
		w.place, w.Err = placeDone, err
		close(w.Done) // an end has no applied hook
		return
	}
	p.mu.queue.addEnd(w)
}

// Beat asks for an empty batch, to show that this node is alive. It is sent only when nothing is in flight: a node
// that cannot see its batches applied must not go on proving itself alive.
func (p *Outbox) Beat() {
	p.mu.Lock()
	p.mu.beat = p.mu.closed == nil && len(p.mu.inflight) == 0
	p.mu.Unlock()
	p.Pump()
}

// Cancel takes w out if it is still queued and completes it with err. It reports whether it was: then w is not
// applied and never will be. An end is never taken out: who stops waiting for it still wants it to happen, and nobody
// else would delete what it is to delete.
func (p *Outbox) Cancel(w *Call, err error) bool {
	p.mu.Lock()
	if w.place != placeQueued || w.end {
		p.mu.Unlock()
		return false
	}
	p.overLocked(w)
	p.mu.queue.takeOut(w)
	p.mu.Unlock()
	w.Err = err
	p.finish(w)
	return true
}

// CancelQueued takes every queued request of the sessions out, their ends excepted.
func (p *Outbox) CancelQueued(err error, owners ...*Owner) {
	among := setOf(owners)
	p.mu.Lock()
	var out []*Call
	p.mu.queue.each(func(w *Call) {
		if among[w.owner] {
			out = append(out, w)
		}
	})
	p.mu.Unlock()
	for _, w := range out {
		p.Cancel(w, err)
	}
}

// AbandonSent completes the requests of the sessions that were sent, their ends excepted: the sessions have ended here, and who
// still waits for their requests might wait for ever.
func (p *Outbox) AbandonSent(err error, owners ...*Owner) {
	among := setOf(owners)
	p.mu.Lock()
	var out []*Call
	for _, b := range p.mu.inflight {
		for _, w := range b.waiters {
			if among[w.owner] && w.place == placeSent && !w.end {
				p.overLocked(w)
				out = append(out, w)
			}
		}
	}
	p.mu.Unlock()
	for _, w := range out {
		w.Err = err
		p.finish(w)
	}
}

func setOf(owners []*Owner) map[*Owner]bool {
	set := make(map[*Owner]bool, len(owners))
	for _, o := range owners {
		set[o] = true
	}
	return set
}

// Close ends every waiter: those queued with err (not applied), those in flight with ErrUnknownOutcome. Nothing is
// taken or sent afterwards. The loop ends by itself.
func (p *Outbox) Close(err error) {
	p.mu.Lock()
	if p.mu.closed != nil {
		p.mu.Unlock()
		return
	}
	p.mu.closed = err
	ended := make(map[*Call]error)
	p.mu.queue.each(func(w *Call) { ended[w] = err })
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
	p.mu.queue = queue{shard: p.Shard}
	p.mu.Unlock()
	close(p.stop)
	for w, err := range ended {
		w.Err = err
		p.finish(w)
	}
}
