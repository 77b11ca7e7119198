package outbox

import (
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/timers"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Limits of the queue. A call beyond them is refused with ErrUnavailable.
const (
	QueueMax      = 16384    // calls that wait for one shard
	QueueBytesMax = 64 << 20 // their bytes
	// The same for parked calls, whose session the shard does not know yet. They are counted apart.
	parkedMax      = QueueMax / 2
	parkedBytesMax = QueueBytesMax / 2
)

// Raft is what an outbox needs from Raft.
type Raft interface {
	Propose(replication.ShardID, []byte) (Proposal, error)
	Leader(replication.ShardID) replication.Leader
}

// A Proposal is a command on its way. Dropped reports whether it was certainly lost. It is an
// alias, so that package enginetest has a Raft without importing this package, whose tests use it.
type Proposal = interface{ Dropped() bool }

// A registration says how far the stream has come with its Register command. Until Register is
// applied, the ensemble accepts no batch of the stream.
//
//	unregistered ──▶ registering ──▶ registered
//	      ▲               │
//	      └── refused ────┘
type registration uint8

const (
	unregistered registration = iota
	registering               // Register is in flight
	registered                // Register was applied; this state is final
)

// A Node is what an outbox needs from its node.
type Node interface {
	// CheckDeadlines compares the clock with the deadlines of the node's sessions. An outbox calls
	// it before it seals a batch. So what ends by the clock goes into that batch.
	CheckDeadlines()
	// Proved reports that a batch to the home shard was applied. That proves that this node was
	// alive at sent, the time of the batch's first sending. offset is clock.Offset at that
	// time. Proved is called on the apply goroutine.
	Proved(sent, offset time.Duration)
	// BeatInterval returns how often the node must prove itself alive on the home shard. Zero means
	// that it need not.
	BeatInterval() time.Duration
	// AppliedAtHome returns the newest transaction of the home shard that this node has applied.
	AppliedAtHome() tree.Zxid
	// Explain adds to err what the node lacks, if it knows no leader of the shard.
	Explain(replication.ShardID, error) error
}

// An Outbox carries this node's calls to one shard. See the package doc.
//
// Invariants:
//  1. Seqs are given out in order and without gaps. The batches in flight are the newest ones.
//  2. A call that was refused, or cancelled while queued, is in no batch, now or later.
//  3. At most one goroutine seals and proposes at a time. So proposals reach Raft in order of seq.
type Outbox struct {
	// Immutable after New.
	Shard  replication.ShardID
	raft   Raft
	clock  clock.Clock
	Origin session.Origin
	rules  command.Rules // for the ensemble, in force once our Register is applied
	node   Node
	wake   chan struct{} // capacity 1; wakes Loop
	stop   chan struct{} // closed by Close
	Ready  chan struct{} // closed when our Register has been applied

	timers timers.Pool
	Meters Meters

	mu struct {
		rank.Mutex[rank.Outbox]
		queue        queue
		expected     int       // calls that the next batch has if all callers of the last one call again
		waitUntil    time.Time // the next batch waits for them until then; zero: it does not wait
		beat         bool      // an empty batch is wanted
		inflight     []*Batch
		seq          uint64 // of the newest sealed batch
		registration registration
		sending      bool // a goroutine is sealing or proposing
		timerArmed   bool // Loop's timer runs
		resendAll    bool // there is evidence that batches in flight were lost
		// commitTime is the average time from a batch's first sending until it is applied here.
		// Each new batch counts an eighth.
		commitTime time.Duration
		closed     error // why the outbox was closed, or nil
	}
}

// New returns the outbox of a shard. The caller must run Loop, which ends after Close.
func New(shard replication.ShardID, raft Raft, clock clock.Clock, origin session.Origin, rules command.Rules, node Node) *Outbox {
	o := &Outbox{
		Shard: shard, raft: raft, clock: clock, Origin: origin, rules: rules, node: node,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), Ready: make(chan struct{}),
	}
	o.mu.queue.shard = shard
	return o
}

// Submit queues c and sends what can be sent.
//
// If the shard does not know c's session, c is parked until Introduced or NotIntroduced. If
// introduce is true, c is the session's first parked call: the caller must introduce the session.
//
// If Submit returns an error, c has that outcome and is in no batch.
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
	// If the session has ended, its queued calls are being cancelled. Nothing may queue behind
	// them.
	var ended error
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

// Introduced records that the shard knows a session, and queues the session's parked calls in their
// order.
//
// It returns false and changes nothing if the session has ended. By then it may be decided which
// shards get its end, and this one is not among them. The parked calls wait for NotIntroduced.
func (o *Outbox) Introduced(s *Owner) bool {
	o.mu.Lock()
	known := &s.shards[o.Shard-1].known
	known.Store(true)
	// Known is set before Err is read. Whoever ends a session does the reverse: it calls End, and
	// then reads Known to see where to send the end. So one of the two sees the other.
	if s.Err() != nil {
		known.Store(false)
		o.mu.Unlock()
		return false
	}
	o.mu.queue.moveParked(s)
	o.mu.Unlock()
	o.Pump()
	return true
}

// NotIntroduced ends the parked calls of a session with err, because the session could not be
// introduced to the shard.
func (o *Outbox) NotIntroduced(s *Owner, err error) {
	o.mu.Lock()
	out := o.mu.queue.unpark(s)
	for _, c := range out {
		o.markDoneLocked(c)
	}
	o.mu.Unlock()
	for _, c := range out {
		c.Err = err
		o.finish(c, false)
	}
}

// Queue queues c and sends nothing, so it may be called with the keeper's mu held. Unlike Submit it
// does not refuse a call because the queue is full. c has no terms and no hooks, which need that
// mu: if the outbox is closed, they would run here.
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

// QueueIfUsed does what Queue does if c's session has used the shard or has parked calls. Otherwise
// it returns false and does nothing.
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

// Abandon completes c with err at any stage, unless c already has its outcome. A call that was
// still queued is never applied. A call that was sent may be applied, but is not queued again.
func (o *Outbox) Abandon(c *Call, err error) {
	o.mu.Lock()
	was := c.stage
	o.markDoneLocked(c)
	if was == stageQueued {
		o.mu.queue.remove(c)
	}
	o.mu.Unlock()
	if was != stageDone {
		c.Err = err
		o.finish(c, false)
	}
}

// Busy reports whether a session has calls without an outcome, ends not counted.
func (o *Outbox) Busy(s *Owner) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.shards[o.Shard-1].pending > 0
}

// markDoneLocked moves c to its last stage. From then on c does not count as pending.
func (o *Outbox) markDoneLocked(c *Call) {
	c.stage = stageDone
	if c.counted {
		c.counted = false
		c.owner.shards[o.Shard-1].pending--
	}
}

// Refuse completes with err a call that is not queued.
func (o *Outbox) Refuse(c *Call, err error) {
	o.mu.Lock()
	c.stage = stageDone
	o.mu.Unlock()
	c.Err = err
	o.finish(c, false)
}

// QueueEnd queues an end (a release or a session's close) for the next batch, ahead of all other
// calls. It ignores the limits of the queue, because a full queue must not keep a lock held. It
// sends nothing, so it may be called with the keeper's mu held. Pump sends.
func (o *Outbox) QueueEnd(c *Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queueEndLocked(c)
}

// QueueRelease queues an end that the owner of c's session asked for. What the session has queued
// before goes ahead with it, in its order. Otherwise a write of the old holder would be applied
// when the next one already has the lock.
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
		close(c.Done) // an end has no terms and no hooks, as in Queue
		return
	}
	o.mu.queue.addEnd(c)
}

// Beat asks for an empty batch, which shows that this node is alive. Beat does nothing while a
// batch is in flight: a node that cannot see its batches applied must not go on proving itself
// alive.
func (o *Outbox) Beat() {
	o.mu.Lock()
	o.mu.beat = o.mu.closed == nil && len(o.mu.inflight) == 0
	o.mu.Unlock()
	o.Pump()
}

// Cancel completes c with err if c is still queued, and reports whether it did. A cancelled call is
// never applied. Cancel does not touch an end: its caller stopped waiting but still wants the end,
// and nobody else would delete what the end deletes.
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
	o.finish(c, false)
	return true
}

// CancelQueued cancels all queued calls of the sessions, except ends.
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

// AbandonSent completes with err all calls of the sessions that are in flight, except ends. The
// sessions have ended here, and the callers might otherwise wait for ever.
func (o *Outbox) AbandonSent(err error, owners ...*Owner) {
	among := setOf(owners)
	o.mu.Lock()
	var out []*Call
	for _, b := range o.mu.inflight {
		for _, c := range b.calls {
			if among[c.owner] && c.stage == stageSealed && !c.end {
				o.markDoneLocked(c)
				out = append(out, c)
			}
		}
	}
	o.mu.Unlock()
	for _, c := range out {
		c.Err = err
		o.finish(c, false)
	}
}

func setOf(owners []*Owner) map[*Owner]bool {
	set := make(map[*Owner]bool, len(owners))
	for _, s := range owners {
		set[s] = true
	}
	return set
}

// Close completes every call: with err if it was queued and so is never applied, with
// ErrUnknownOutcome if it is in flight. After that the outbox refuses and sends nothing. Loop ends
// by itself.
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
			if c.stage == stageSealed {
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
		o.finish(c, false)
	}
}
