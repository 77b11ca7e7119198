package client

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/wire"
	life "github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A session is a remote session of the ensemble, and what its owner knows of it. It goes from
// connection to connection, and from member to member, as long as the ensemble has it.
//
// # When it is safe
//
// A member answers a ping only while its own newest proof of life is at most a third of the
// session's timeout old. The ensemble cannot end the session before a whole timeout has passed since
// that proof, or since the client was last heard. So a ping that was sent at t proves, once it is
// answered, that the session lives until t plus two thirds of its timeout. The session's life is
// judged by that, with the margin of every session, and by this process's clock alone.
//
// # Goroutines
//
// run connects, pings and connects again. Each connection has a reader and a writer. keepTime wakes
// at the deadline. All end with the session.
type session struct {
	// Immutable.
	client *Client
	asked  time.Duration
	auth   []embed.Auth
	ready  chan struct{}   // closed when the session is open, or never will be
	alive  context.Context // ends when nothing more is to be done for it
	halt   context.CancelFunc
	wake   chan struct{} // of keepTime
	write  chan struct{} // of the writer
	await  chan struct{} // holds a token while the server waits for a caller of Await
	walk   chan struct{} // holds a token while one Walk is gathered

	awaiting atomic.Int64 // callers of Await

	mu struct {
		rank.Mutex[rank.ClientSession]

		// Set when the session is open.
		id       tree.SessionID
		password []byte
		timeout  time.Duration
		data     int // the most bytes of a znode's data
		frame    int // the most bytes of a request, of the newest server

		life    *life.Life    // nil until the session is open
		lost    uint64        // suspensions that were dealt with
		offset  time.Duration // of the clocks, at the newest proof or suspension
		anchor  clock.Anchor  // of the newest look at all clocks
		changed chan struct{} // closed when the state changes; nil until asked for
		ctx     context.Context
		cancel  context.CancelCauseFunc
		end     error    // why it ended
		closing *closing // nil unless Close ended it

		link  *link     // nil while there is no connection
		lacks error     // why there is none
		queue list.List // of calls to be sent, in order
		sent  []*call   // on the link, in order; none without a link
		// waiting has the patient calls for which there is no room, in order.
		waiting list.List
		reads   room   // of the patient calls in queue and sent
		others  room   // of the other calls there
		writes  int    // among those
		cuts    uint64 // writes that broken connections took along
		xid     int32
		zxid    int64 // the newest in an answer

		claims  map[string]*claim // standing, held or leaving, by each of their paths
		unknown []*claim          // whose outcome a broken connection took along
		looks   int               // for what heirs among them may have created
		made    made
		pruneAt int  // the number of made at which it is pruned
		defect  bool // one was found
		watches watches
	}
}

func newSession(k *Client, o embed.SessionOptions) *session {
	s := &session{client: k, asked: o.Timeout, auth: o.Auth, ready: make(chan struct{}),
		wake: make(chan struct{}, 1), write: make(chan struct{}, 1), await: make(chan struct{}, 1), walk: make(chan struct{}, 1)}
	s.alive, s.halt = context.WithCancel(context.Background())
	s.mu.ctx, s.mu.cancel = context.WithCancelCause(context.Background())
	s.mu.claims = make(map[string]*claim)
	s.mu.watches.init()
	return s
}

// opened waits until the session is open.
func (s *session) opened(ctx context.Context) error {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	select {
	case <-s.ready:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mu.end
	case <-s.client.done:
		return engine.ErrClosed
	case <-bounded.Done():
	}
	return s.late(ctx)
}

// bounded returns ctx with the request timeout as its deadline, or ctx itself if it has a deadline.
func (s *session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.client.config.RequestTimeout)
}

// late is the error of a wait whose bounded ctx has ended. It matches no deadline that the caller's
// ctx does not have: a recipe would take that for its own end.
func (s *session) late(ctx context.Context) error {
	err := ctx.Err()
	switch err {
	case nil:
		err = fmt.Errorf("%w: not in time", engine.ErrUnavailable)
	case context.DeadlineExceeded:
		err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return s.explain(err)
}

// abandon gives up a session that nobody has.
func (s *session) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishLocked(life.Closed, engine.ErrSessionClosed)
	s.halt()
}

func (s *session) maxData() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.data
}

// ID returns the session's id.
func (s *session) ID() tree.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.id
}

// Timeout returns how long the ensemble waits in silence before it ends the session.
func (s *session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.timeout
}

// State compares the clock and returns the state.
func (s *session) State() (life.State, <-chan struct{}) {
	s.lookAndLock()
	defer s.mu.Unlock()
	if s.mu.changed == nil {
		s.mu.changed = make(chan struct{})
	}
	return s.mu.life.State(), s.mu.changed
}

// Context returns a context that ends with the session.
func (s *session) Context() context.Context {
	s.lookAndLock()
	defer s.mu.Unlock()
	return s.mu.ctx
}

// Done returns a channel that is closed when the session has ended.
func (s *session) Done() <-chan struct{} { return s.Context().Done() }

// Err compares the clock and returns why the session ended, or nil.
func (s *session) Err() error {
	s.lookAndLock()
	defer s.mu.Unlock()
	return s.mu.end
}

// Queued counts callers of this process's client.
func (s *session) Queued() *meter.Gauge { return &s.client.queued }

func (s *session) Log() *slog.Logger { return s.client.log }

// Close ends the session: here at once, in the ensemble as soon as the member hears of it. Further
// calls wait for the first one and return the same.
func (s *session) Close() error {
	c := newCall(wire.Request{Operation: wire.Operation{Op: wire.OpCloseSession}})
	c.write = true
	s.lookAndLock()
	if s.mu.end != nil {
		closing := s.mu.closing
		s.mu.Unlock()
		if closing == nil {
			return nil // it ended before
		}
		<-closing.done
		return closing.err
	}
	closing := &closing{done: make(chan struct{})}
	s.mu.closing = closing
	defer close(closing.done)
	unsure := s.mu.looks > 0 || slices.ContainsFunc(s.mu.unknown, func(c *claim) bool { return c.LingersLocked() })
	ends := s.endsLocked()
	s.finishLocked(life.Closed, engine.ErrSessionClosed)
	if s.mu.life == nil { // nobody knows of it
		s.mu.Unlock()
		s.halt()
		return nil
	}
	for _, c := range ends {
		c.at = s.mu.queue.PushBack(c)
	}
	s.wakeWriter()
	entering := s.enteringLocked()
	s.mu.Unlock()
	s.settle(entering)
	s.mu.Lock()
	if s.alive.Err() != nil { // it has expired meanwhile
		s.mu.Unlock()
		return nil
	}
	for _, c := range entering {
		unsure = unsure || c.stage != callDone || errors.Is(c.err, engine.ErrUnknownOutcome)
	}
	if unsure {
		s.mu.Unlock()
		s.halt()
		closing.err = errHeir
		return closing.err
	}
	s.queueLocked(c)
	s.mu.Unlock()
	err := s.wait(context.Background(), c)
	s.halt()
	if !errors.Is(err, engine.ErrSessionExpired) { // which ends it all the same
		closing.err = err
	}
	return closing.err
}

// errHeir says that a session is left to expire. What an heir may have created would go at once with
// a session that is closed, but lingers after one that expires.
var errHeir = fmt.Errorf("%w: the outcome of a claim that inherits is not known, so the session ends at its timeout", engine.ErrUnknownOutcome)

// A closing is the first call of Close. Read err after done.
type closing struct {
	done chan struct{}
	err  error
}

// endsLocked ends the claims that stand in the place of something lost: the end of a session lets
// nothing linger by itself. It takes the calls that end ephemerals off the queue, and returns them.
func (s *session) endsLocked() (ends []*call) {
	for _, c := range s.mu.claims {
		if c.LingersLocked() {
			c.removeLocked(c.EndLocked(engine.ErrSessionClosed))
		}
	}
	for at := s.mu.queue.Front(); at != nil; {
		c, next := at.Value.(*call), at.Next()
		if c.request.Native.Kind == wire.NativeRelease {
			s.mu.queue.Remove(at)
			ends = append(ends, c)
		}
		at = next
	}
	return ends
}

// enteringLocked returns the transactions on their way that create what heirs have.
func (s *session) enteringLocked() (calls []*call) {
	for _, c := range s.mu.sent {
		if c.terms != nil && c.terms.inherits {
			calls = append(calls, c)
		}
	}
	return calls
}

// settle waits until calls have an outcome, or at most for the request timeout.
func (s *session) settle(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), s.client.config.RequestTimeout)
	defer cancel()
	for _, c := range calls {
		_ = s.wait(ctx, c) // which tells the claim
	}
}

// lookAndLock compares the clock and locks the session. While the session is connected by the quick
// clock, that takes no system call, instead of three. A request looks twice.
func (s *session) lookAndLock() {
	s.mu.Lock()
	if !s.calmLocked() {
		s.lookLocked()
	}
}

// calmLocked reports whether the quick clock shows that a look would change nothing.
func (s *session) calmLocked() bool {
	l := s.mu.life
	if l == nil || l.State() != life.Connected {
		return false
	}
	now, offset, ok := s.client.config.Inside.Clock.Glance(s.mu.anchor)
	return ok && now < l.Deadline() && !s.jumpedLocked(offset)
}

// jumpedLocked reports whether the clocks have moved against each other by more than the margin.
func (s *session) jumpedLocked(offset time.Duration) bool {
	m := life.Margin(s.mu.timeout)
	return offset-s.mu.offset > m || s.mu.offset-offset > m
}

// lookLocked compares all clocks. The proofs and keepTime do that without a quick look first, so
// that there is a new anchor from time to time.
func (s *session) lookLocked() {
	l := s.mu.life
	if l == nil || s.mu.end != nil {
		return
	}
	clock := &s.client.config.Inside.Clock
	now, offset := clock.Boot(), clock.Offset()
	s.mu.anchor = clock.Mark(now, offset)
	if l.State() == life.Suspended {
		if s.jumpedLocked(offset) {
			l.Suspend(now) // what was sent before this jump proves nothing
			s.mu.offset = offset
		}
		l.Look(now)
	} else {
		l.Jump(now, offset-s.mu.offset)
	}
	s.judgeLocked(offset)
}

// judgeLocked draws the consequences of what the life has become.
func (s *session) judgeLocked(offset time.Duration) {
	l := s.mu.life
	if n := l.Suspensions(); n != s.mu.lost {
		s.mu.lost, s.mu.offset = n, offset
		s.changedLocked()
		for _, c := range s.mu.claims {
			if r, ended := c.SuspendedLocked(); ended {
				c.removeLocked(r)
			}
		}
	}
	if l.State() == life.Expired {
		s.finishLocked(life.Expired, engine.ErrSessionExpired)
		s.halt()
	}
}

// provedLocked records that a member has answered what was sent at a moment, when the clocks had
// that offset.
func (s *session) provedLocked(sent, offset time.Duration) {
	s.lookLocked()
	l := s.mu.life
	if s.mu.end != nil {
		return
	}
	was := l.State()
	now := s.client.config.Inside.Clock.Boot()
	l.Proved(now, sent-s.mu.timeout/proofParts)
	if l.State() == life.Connected {
		s.mu.offset = offset
		s.lookLocked() // with the offset of the proof
	}
	if s.mu.end == nil && l.State() != was {
		s.changedLocked()
	}
	s.wakeKeeper()
}

// proofParts says how old a member's own proof may be when it answers a ping: see
// keeper.SuspendedParts.
const proofParts = 3

func (s *session) changedLocked() {
	if s.mu.changed != nil {
		close(s.mu.changed)
		s.mu.changed = nil
	}
}

// finishLocked ends the session on this side.
func (s *session) finishLocked(state life.State, why error) {
	if s.mu.end != nil {
		return
	}
	s.mu.end = why
	if l := s.mu.life; l != nil && state == life.Expired {
		l.Expire()
	} else if l != nil {
		l.Close()
	}
	s.changedLocked()
	for _, c := range s.mu.claims {
		c.FinishLocked(why)
	}
	s.mu.watches.endAll(why)
	s.mu.cancel(why)
	s.dropQueueLocked(why)
	if state == life.Expired {
		s.dropSentLocked(why)
	}
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
}

// dropQueueLocked ends the calls that were not sent.
func (s *session) dropQueueLocked(why error) {
	for s.mu.waiting.Len() > 0 { // before there is room for them
		s.finishCallLocked(pop(&s.mu.waiting), why)
	}
	for s.mu.queue.Len() > 0 {
		c := pop(&s.mu.queue)
		s.uncountLocked(c)
		s.finishCallLocked(c, why)
	}
}

// dropSentLocked ends the calls that have no answer, and never will.
func (s *session) dropSentLocked(why error) {
	for _, c := range s.mu.sent {
		s.uncountLocked(c)
		if c.write {
			s.finishCallLocked(c, engine.ErrUnknownOutcome)
		} else {
			s.finishCallLocked(c, why)
		}
	}
	s.mu.sent = nil
}

func (s *session) wakeKeeper() { signal(s.wake) }
func (s *session) wakeWriter() { signal(s.write) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keepTime wakes at the next deadline, so that channels are closed even if nobody asks.
func (s *session) keepTime() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		s.mu.Lock()
		s.lookLocked()
		after := time.Hour
		if next, ok := s.mu.life.Next(); ok {
			after = max(next-s.client.config.Inside.Clock.Boot(), 0)
		}
		s.mu.Unlock()
		timer.Reset(after)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.alive.Done():
			return
		}
	}
}

var _ inside.Backend = (*session)(nil)
