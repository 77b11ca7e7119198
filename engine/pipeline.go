package engine

import (
	"runtime"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/timers"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Limits of the pipeline and what happens at them.
const (
	queueMax      = 16384    // requests waiting on one shard; one more is refused with ErrUnavailable
	queueBytesMax = 64 << 20 // their bytes; likewise
	// Requests of sessions that the shard does not know yet, counted apart; likewise.
	outsideMax      = queueMax / 2
	outsideBytesMax = queueBytesMax / 2
	batchMax        = 1024    // requests in one batch; the rest wait for the next
	batchBytesMax   = 1 << 20 // bytes in one batch; a larger request travels alone
	inflightMax     = 2       // batches proposed and not yet applied
	// A second batch goes out beside the first only when this many requests wait. One at a time coalesces
	// best for a few dozen callers; with a thousand the second one hides the first one's fsync.
	secondBatchMin = 256

	// How long a batch waits for one more of those who were in the last one, in yields and in time.
	gatherYields = 32
	gatherMax    = 20 * time.Microsecond
	// How long after the last one it waits, while clients elsewhere may be about to ask again: this part of what a commit takes, and no longer
	// than the other.
	holdParts = 2
	holdMax   = 5 * time.Millisecond

	droppedPoll    = 20 * time.Millisecond // how often batches in flight are asked whether they were dropped
	resendFirstMin = 50 * time.Millisecond // shortest patience with the oldest batch before it is sent again
	resendMax      = 2 * time.Second       // longest, if no session needs it sooner: see batch.again
)

// A replicator is what the request path asks of a Raft group.
type replicator interface {
	Propose(ShardID, []byte) (proposal, error)
	Leader(ShardID) replication.Leader
}

// A proposal is a command on its way; Dropped says that it was certainly lost.
type proposal interface{ Dropped() bool }

// A batch is what one log entry carries. A resend is byte for byte the same batch.
type batch struct {
	seq      uint64
	home     tree.Zxid // what this node had applied of the home shard
	cmd      []byte
	waiters  []*waiter
	bytes    int           // of the waiters' requests
	remote   bool          // some are of clients elsewhere
	sent     time.Duration // on the boot clock, first time it was handed to Raft; a resend does not move it
	drift    time.Duration // of the clocks at that moment
	lastSent time.Time
	patience time.Duration // until the oldest batch is sent again
	proposal proposal
}

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
	shard    ShardID
	raft     replicator
	clock    Clock
	register session.Origin
	schemes  []string                        // names, that the ensemble judges ACLs by once our Register is applied
	invite   func(*Session)                  // called when a session that the shard does not know has requests for it
	before   func()                          // called before a batch is sealed: ends of sessions go into it
	home     func() tree.Zxid                // what this node has applied of the home shard
	proved   func(sent, drift time.Duration) // called on the apply goroutine when a batch of ours was applied
	pulse    func() time.Duration            // how often this node has to prove itself alive; zero: it need not
	wake     chan struct{}                   // capacity 1: the loop has something to look at
	stop     chan struct{}                   // closed by close
	ready    chan struct{}                   // closed when our Register was applied

	timers timers.Pool

	mu struct {
		sync.Mutex
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

func newPipeline(shard ShardID, raft replicator, clock Clock, origin session.Origin) *pipeline {
	p := &pipeline{
		shard: shard, raft: raft, clock: clock, register: origin,
		before: func() {}, invite: func(*Session) {}, proved: func(_, _ time.Duration) {},
		pulse: func() time.Duration { return 0 }, home: func() tree.Zxid { return 0 },
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
	over := s != nil && s.over.Load() // what of it was queued is being taken out, and nothing may come behind that
	if err == nil && !over && p.mu.queue.full(len(w.wire), outside) {
		err = ErrUnavailable
	}
	if err == nil {
		err = w.with.held()
	}
	if err != nil || over {
		p.mu.Unlock()
		if err == nil {
			err = s.Err()
		}
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
	if s.over.Load() { // looked at after known is set, and set before known is looked at: see keeper.queueCloseLocked
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

// pump seals and proposes batches while the window allows.
func (p *pipeline) pump() {
	for {
		p.mu.Lock()
		if p.mu.sending || !p.readyLocked() {
			p.mu.Unlock()
			return
		}
		p.mu.sending = true
		p.mu.Unlock()

		p.gather()
		p.before()

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
			p.signal()
		}
		if err != nil {
			return // the loop tries again when a leader is known
		}
	}
}

// gather lets those queue first who were woken by the last batch and are about to ask again, or they would wait for the batch
// after the next one: it raised the average batch of 64 callers from 44 to 61, and their writes by a third. A lone caller pays for one
// yield, and callers who do not come back cost what they are waited for.
func (p *pipeline) gather() {
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
func (p *pipeline) readyLocked() bool {
	if p.mu.closed != nil || p.raft.Leader(p.shard).Member == 0 {
		return false
	}
	if !p.mu.registered {
		return !p.mu.sealedReg
	}
	switch len(p.mu.inflight) {
	case 0:
		return p.mu.queue.len() > 0 && p.heldLocked() == 0 || p.mu.beat
	case inflightMax:
		return false
	default:
		return p.mu.queue.len() >= secondBatchMin
	}
}

// heldLocked is how long the next batch is still to wait for those who were in the last one and are clients elsewhere. They come back
// later than gather waits. The first who did would travel alone, and the rest wait for its batch and then for their own: two commits, where
// now it is one and the wait. With 64 clients, 21 on a member, the average batch was 11, and is 18. It is counted from when the last batch
// was applied, so that who comes later waits for nobody; an end waits for nobody either.
func (p *pipeline) heldLocked() time.Duration {
	if p.mu.hold.IsZero() || p.mu.queue.len() >= p.mu.wanted || p.mu.queue.ends > 0 {
		return 0
	}
	return max(0, time.Until(p.mu.hold))
}

// sealLocked makes the next batch, or Register if that is still to be made.
func (p *pipeline) sealLocked() *batch {
	b := &batch{}
	if !p.mu.registered {
		p.mu.sealedReg = true
		p.mu.inflight = append(p.mu.inflight, b)
		return b
	}
	p.mu.seq++
	p.mu.hold = time.Time{}
	b.seq = p.mu.seq
	b.home = p.home() // before the queue is emptied: of a session that has ended by then nothing is in it
	p.mu.beat = false
	p.mu.queue.fill(b)
	p.mu.inflight = append(p.mu.inflight, b)
	return b
}

// unsealLocked puts a batch that Raft did not take back; it was never proposed, so its seq is free again.
func (p *pipeline) unsealLocked(b *batch) {
	if p.mu.closed != nil {
		return // which has ended its waiters
	}
	p.mu.inflight = p.mu.inflight[:len(p.mu.inflight)-1] // the newest: nothing is sealed while one is being sent
	if !p.mu.registered {
		p.mu.sealedReg = false
		return
	}
	p.mu.seq--
	var back []*waiter
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
func (p *pipeline) send(b *batch, first bool) error {
	if first {
		wall := p.clock.Wall().UnixMilli()
		if b.seq == 0 {
			b.cmd = encodeRegister(p.register, wall, p.schemes)
		} else {
			b.cmd = encodeBatch(p.register.Member, p.register.Start, b.seq, wall, b.home, b.waiters)
		}
		b.drift = p.clock.drift()
		b.sent = p.clock.Boot() // after drift: time that is lost in between must show as a jump
		b.patience = min(max(4*p.commitTime(), resendFirstMin), resendMax)
	}
	now := time.Now()
	proposal, err := p.raft.Propose(p.shard, b.cmd)
	if err != nil {
		return err
	}
	p.mu.Lock()
	b.proposal, b.lastSent = proposal, now
	p.mu.Unlock()
	return nil
}

func (p *pipeline) commitTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.commit
}

func (p *pipeline) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// leaderChanged is told by replication that the term or the leader is another: what was in flight may be lost.
func (p *pipeline) leaderChanged() {
	p.mu.Lock()
	p.mu.resend = true
	p.mu.Unlock()
	p.signal()
}

// loop sends what a leader change, a lost batch or a full window held back. It ends when the pipeline is closed.
func (p *pipeline) loop() {
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
		p.pump()
		if next := p.arm(); next > 0 {
			timer.Reset(next)
		}
	}
}

// arm returns when the loop must look again, zero if it need not.
func (p *pipeline) arm() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.heldLocked()
	waiting := len(p.mu.inflight) > 0 || p.mu.queue.len() > 0 || p.mu.beat || !p.mu.registered || held > 0
	p.mu.armed = waiting && p.mu.closed == nil
	switch {
	case !p.mu.armed:
		return 0
	case held > 0:
		return min(held, droppedPoll)
	}
	return droppedPoll
}

// resendLost sends batches again on evidence of loss: all of them, in order, when the leader changed, one was
// reported dropped or a later one was refused for a gap; otherwise the oldest alone when it took far longer than a
// commit takes, unless this node leads: an entry in its own log cannot be lost without a change of term. (Timers
// that resend everything collapse on a slow disk: each copy is another fsync.)
func (p *pipeline) resendLost() {
	leader, pulse := p.raft.Leader(p.shard), p.pulse()
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
	var again []*batch
	oldest := p.mu.inflight[0]
	switch {
	case all:
		again = append(again, p.mu.inflight...)
	case session.MemberID(leader.Member) != p.register.Member && time.Since(oldest.lastSent) > oldest.patience:
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

// again doubles the patience with a batch, but not beyond a pulse: while it is on its way this node sends no beat, so on a link
// that was cut for a while it is what its sessions live by.
func (b *batch) again(pulse time.Duration) {
	most := resendMax
	if pulse > 0 {
		most = min(most, pulse)
	}
	b.patience = max(b.patience, min(2*b.patience, most))
}

// head returns the batch in flight with this seq, which is the oldest, or nil. Called on the apply goroutine when a
// batch of this node's stream was accepted.
func (p *pipeline) head(seq uint64) *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.inflight) == 0 || p.mu.inflight[0].seq != seq {
		return nil
	}
	return p.mu.inflight[0]
}

// complete sets the outcome of the i-th request of b. Called on the apply goroutine.
func (p *pipeline) complete(b *batch, i int, results []tree.Result, zxid tree.Zxid, err error) {
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
	w.results, w.zxid, w.sent, w.drift, w.err = results, zxid, b.sent, b.drift, err
	p.finish(w)
}

func (p *pipeline) finish(w *waiter) {
	if w.err != nil {
		w.with.Undo()
	}
	if w.applied != nil {
		w.applied(w)
	}
	close(w.done)
	if w.then != nil {
		w.then()
	}
}

// done takes b, all of whose requests are complete, out of flight. Called on the apply goroutine.
func (p *pipeline) done(b *batch) {
	if b == nil {
		return
	}
	p.land(b)
	p.proved(b.sent, b.drift)
}

// land is done without what b proves.
func (p *pipeline) land(b *batch) {
	p.mu.Lock()
	if len(p.mu.inflight) > 0 && p.mu.inflight[0] == b {
		p.mu.inflight = p.mu.inflight[1:]
	}
	if b.seq == 0 && !p.mu.registered {
		p.mu.registered = true
		close(p.ready)
	}
	p.mu.wanted = min(len(b.waiters)+p.mu.queue.len(), batchMax)
	took := p.clock.Boot() - b.sent
	p.mu.commit += (took - p.mu.commit) / 8
	if b.remote && p.mu.wanted > 1 {
		p.mu.hold = time.Now().Add(min(p.mu.commit/holdParts, holdMax))
	}
	more := p.mu.queue.len() > 0 || b.seq == 0 || !p.mu.hold.IsZero() // also the hold has an end
	p.mu.Unlock()
	if more {
		p.signal()
	}
}

// refused is told that a batch of ours was refused for a gap: an earlier one was lost.
func (p *pipeline) refused() {
	p.mu.Lock()
	p.mu.resend = len(p.mu.inflight) > 0
	p.mu.Unlock()
	p.signal()
}

// jumped is told that a snapshot carried this node's stream to seq: what the batches up to it answered is lost. prove is to be
// called when the sessions that ended in the gap have been told: what was said after their end proves nothing for them.
func (p *pipeline) jumped(seq uint64) (prove func()) {
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
			p.complete(b, i, nil, 0, err)
		}
		p.land(b)
		prove = func() { p.proved(b.sent, b.drift) }
	}
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
