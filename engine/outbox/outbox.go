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
	parkedMax      = QueueMax / 2
	parkedBytesMax = QueueBytesMax / 2
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
		queue        queue
		expected     int       // requests there will be for the next batch if all who were in the last one ask again
		waitUntil    time.Time // until when the next batch waits for them; zero: it does not
		beat         bool      // an empty batch is wanted
		inflight     []*Batch
		seq          uint64 // of the newest sealed batch
		registration registration
		sending      bool // a goroutine is sealing or proposing
		timerArmed   bool // the loop's timer runs
		resendAll    bool // evidence that batches in flight were lost
		commitTime   time.Duration
		closed       error
	}
}

// New returns the outbox of a shard. Loop must run until Close.
func New(shard replication.ShardID, raft Raft, clock clock.Clock, origin session.Origin, rules command.Rules, node Node) *Outbox {
	o := &Outbox{
		Shard: shard, raft: raft, clock: clock, Origin: origin, rules: rules, node: node,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), Ready: make(chan struct{}),
	}
	o.mu.queue.shard = shard
	return o
}

// Submit queues w and sends what can be sent; what is of a session that the shard does not know stays queued until letIn. It
// reports whether w is the first of these: then the caller has to introduce the session. On an error w is refused: it has that
// outcome and is in no batch.
func (o *Outbox) Submit(c *Call) (introduce bool, err error) {
	o.mu.Lock()
	parked := c.owner != nil && !c.owner.Known(o.Shard)
	if err := o.refusalLocked(c, parked); err != nil {
		o.mu.Unlock()
		o.Refuse(c, err)
		return false, err
	}
	if parked {
		first := o.mu.queue.park(c)
		o.mu.Unlock()
		return first, nil
	}
	o.mu.queue.add(c)
	o.mu.Unlock()
	o.Pump()
	return false, nil
}

// refusalLocked returns why c must not be queued, or nil.
func (o *Outbox) refusalLocked(c *Call, parked bool) error {
	if o.mu.closed != nil {
		return o.mu.closed
	}
	var ended error // what of the session was queued is being taken out, and nothing may come behind that
	if c.owner != nil {
		ended = c.owner.Err()
	}
	if ended == nil && o.mu.queue.full(len(c.Encoded), parked) {
		return errQueueFull
	}
	if c.Terms != nil {
		if err := c.Terms.Held(); err != nil {
			return err
		}
	}
	return ended
}

// Introduced is told that the shard knows a session. Its requests go on, in their order. It reports false if the session has ended:
// whoever ended it may have looked already where it is known, and sends no end here.
func (o *Outbox) Introduced(s *Owner) bool {
	o.mu.Lock()
	known := &s.shards[o.Shard-1].known
	known.Store(true)
	if s.Err() != nil { // looked at after known is set, and set before known is looked at: see keeper.queueCloseLocked
		known.Store(false)
		o.mu.Unlock()
		return false
	}
	o.mu.queue.moveParked(s)
	o.mu.Unlock()
	o.Pump()
	return true
}

// NotIntroduced refuses the requests of a session that the shard cannot be made to know.
func (o *Outbox) NotIntroduced(s *Owner, err error) {
	o.mu.Lock()
	out := o.mu.queue.unpark(s)
	for _, c := range out {
		o.markDoneLocked(c)
	}
	o.mu.Unlock()
	for _, c := range out {
		c.Err = err
		o.finish(c)
	}
}

// Queue is submit for who holds the keeper's mu: it sends nothing, and refuses nothing for want of room.
func (o *Outbox) Queue(c *Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.mu.closed; err != nil {
		c.stage, c.Err = stageDone, err
		close(c.Done)
		return
	}
	o.mu.queue.add(c)
}

// QueueIfUsed is queueBehind for w if its session has used the shard, or has something waiting to; otherwise it returns false.
func (o *Outbox) QueueIfUsed(c *Call) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, waits := o.mu.queue.parked[c.owner]
	switch {
	case o.mu.closed != nil:
		return false
	case c.owner.Known(o.Shard):
		o.mu.queue.add(c)
	case waits:
		o.mu.queue.park(c)
	default:
		return false
	}
	return true
}

// Abandon completes w with err, wherever it is on its way. If it is queued it is not applied and never will be; if it was sent it
// may be, but it is not queued again.
func (o *Outbox) Abandon(c *Call, err error) {
	o.mu.Lock()
	done := c.stage == stageDone
	if c.stage == stageQueued {
		o.mu.queue.remove(c)
	}
	o.markDoneLocked(c)
	o.mu.Unlock()
	if !done {
		c.Err = err
		o.finish(c)
	}
}

// Busy reports whether a session has requests, ends aside, that have no outcome yet.
func (o *Outbox) Busy(s *Owner) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.shards[o.Shard-1].pending > 0
}

// overLocked is told that w is on its way no more.
func (o *Outbox) markDoneLocked(c *Call) {
	c.stage = stageDone
	if c.counted {
		c.counted = false
		c.owner.shards[o.Shard-1].pending--
	}
}

// Refuse completes a waiter that is not queued.
func (o *Outbox) Refuse(c *Call, err error) {
	o.mu.Lock()
	c.stage = stageDone
	o.mu.Unlock()
	c.Err = err
	o.finish(c)
}

// QueueEnd queues an end (a release, a session's close) for the next batch, ahead of everything else and whatever the
// queue holds: a full queue must not keep a lock taken. It sends nothing, so it may be called with the keeper's mu held;
// pump does.
func (o *Outbox) QueueEnd(c *Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queueEndLocked(c)
}

// QueueRelease queues an end that the owner of w's session asks for. It goes ahead of all but what the session has queued
// itself: that comes along, in its order, or a write of a holder would be applied when the next one has the lock.
func (o *Outbox) QueueRelease(c *Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.queue.bringForward(c.owner)
	o.queueEndLocked(c)
}

func (o *Outbox) queueEndLocked(c *Call) {
	c.end = true
	if err := o.mu.closed; err != nil {
		c.stage, c.Err = stageDone, err
		close(c.Done) // an end has no applied hook
		return
	}
	o.mu.queue.addEnd(c)
}

// Beat asks for an empty batch, to show that this node is alive. It is sent only when nothing is in flight: a node
// that cannot see its batches applied must not go on proving itself alive.
func (o *Outbox) Beat() {
	o.mu.Lock()
	o.mu.beat = o.mu.closed == nil && len(o.mu.inflight) == 0
	o.mu.Unlock()
	o.Pump()
}

// Cancel takes w out if it is still queued and completes it with err. It reports whether it was: then w is not
// applied and never will be. An end is never taken out: who stops waiting for it still wants it to happen, and nobody
// else would delete what it is to delete.
func (o *Outbox) Cancel(c *Call, err error) bool {
	o.mu.Lock()
	if c.stage != stageQueued || c.end {
		o.mu.Unlock()
		return false
	}
	o.markDoneLocked(c)
	o.mu.queue.remove(c)
	o.mu.Unlock()
	c.Err = err
	o.finish(c)
	return true
}

// CancelQueued takes every queued request of the sessions out, their ends excepted.
func (o *Outbox) CancelQueued(err error, owners ...*Owner) {
	among := setOf(owners)
	o.mu.Lock()
	var out []*Call
	o.mu.queue.each(func(c *Call) {
		if among[c.owner] {
			out = append(out, c)
		}
	})
	o.mu.Unlock()
	for _, c := range out {
		o.Cancel(c, err)
	}
}

// AbandonSent completes the requests of the sessions that were sent, their ends excepted: the sessions have ended here, and who
// still waits for their requests might wait for ever.
func (o *Outbox) AbandonSent(err error, owners ...*Owner) {
	among := setOf(owners)
	o.mu.Lock()
	var out []*Call
	for _, b := range o.mu.inflight {
		for _, c := range b.calls {
			if among[c.owner] && c.stage == stageSent && !c.end {
				o.markDoneLocked(c)
				out = append(out, c)
			}
		}
	}
	o.mu.Unlock()
	for _, c := range out {
		c.Err = err
		o.finish(c)
	}
}

func setOf(owners []*Owner) map[*Owner]bool {
	set := make(map[*Owner]bool, len(owners))
	for _, s := range owners {
		set[s] = true
	}
	return set
}

// Close ends every waiter: those queued with err (not applied), those in flight with ErrUnknownOutcome. Nothing is
// taken or sent afterwards. The loop ends by itself.
func (o *Outbox) Close(err error) {
	o.mu.Lock()
	if o.mu.closed != nil {
		o.mu.Unlock()
		return
	}
	o.mu.closed = err
	ended := make(map[*Call]error)
	o.mu.queue.each(func(c *Call) { ended[c] = err })
	for _, b := range o.mu.inflight {
		for _, c := range b.calls {
			if c.stage == stageSent {
				ended[c] = ErrUnknownOutcome
			}
		}
	}
	for c := range ended {
		o.markDoneLocked(c)
	}
	o.mu.queue = queue{shard: o.Shard}
	o.mu.Unlock()
	close(o.stop)
	for c, err := range ended {
		c.Err = err
		o.finish(c)
	}
}
