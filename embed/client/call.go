package client

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// Bounds of a room, and the largest answer.
const (
	callsMax = 10_000   // calls that are queued or sent; beyond them reads wait, and others are refused
	bytesMax = 64 << 20 // their data
	frameMax = 64 << 20
)

var (
	errNotSent = fmt.Errorf("%w: no connection in time, not sent", engine.ErrUnavailable)
	errPoison  = fmt.Errorf("%w: connections break when it is asked for", engine.ErrUnavailable)
	errNames   = fmt.Errorf("%w: these names are more than a client can be shown at once, read them in pages", engine.ErrTooLarge)
	errFull    = fmt.Errorf("%w: too many requests of this session wait", engine.ErrUnavailable)
)

// An unknownError is ErrUnknownOutcome after a ctx ended. It matches both errors.
type unknownError struct{ cause error }

func (e *unknownError) Error() string {
	return engine.ErrUnknownOutcome.Error() + ": " + e.cause.Error()
}
func (e *unknownError) Unwrap() []error { return []error{engine.ErrUnknownOutcome, e.cause} }

// A room counts calls of one kind that are queued or sent. Patient calls have one room, and all
// others have another: whatever callers do, reads keep no write out, and writes keep no read out.
type room struct{ calls, bytes int }

// A call is one request and its answer.
//
//	waiting ──▶ queued ──▶ sent ──▶ done
//	  └───────────▶ └────────┼───────▶ cancelled, or the session ended
//	                ▲────────┘ its connection broke, and it only reads or is owed
//
// A patient call waits if there is no room for it. No other call waits.
type call struct {
	// Immutable.
	request wire.Request
	bytes   int
	// write says that the call may have taken effect once it is sent. If its connection breaks
	// then, its outcome is unknown.
	write bool
	// owed says that the call is sent until a member has carried it out, also when its caller has
	// given up. To do it twice does no harm.
	owed bool
	// patient says that its caller waits as long as the session lasts, if ctx has no deadline. Then it
	// also waits for room in the queue: a refusal that passes must not end what lasts, as a recipe's
	// wait.
	patient bool
	terms   *terms // of a transaction; may be nil
	// then runs when the outcome is known, under the session's mu, before anyone gets it.
	then func(*call)

	done chan struct{}
	// The outcome. Read it after done.
	reply wire.Reply
	err   error

	// Guarded by the session's mu.
	stage        callStage
	at           *list.Element // where it waits or is queued, so that it can go without a search
	dropped      bool          // nobody waits for it: it ends with its connection
	breaks       int           // connections that broke while it was sent
	sent, offset time.Duration // of a ping: when it was sent, by the clocks
}

type callStage uint8

const (
	callNew callStage = iota
	callWaiting
	callQueued
	callSent
	callDone
)

func newCall(q wire.Request) *call {
	n := len(q.Path) + len(q.Data) + 64
	for i := range q.Native.Ops {
		n += len(q.Native.Ops[i].Path) + len(q.Native.Ops[i].Data) + 128
	}
	return &call{request: q, bytes: n, done: make(chan struct{})}
}

// nativeCall returns a call of a request beyond ZooKeeper's protocol.
func nativeCall(n wire.Native) *call {
	return newCall(wire.Request{Operation: wire.Operation{Op: wire.OpNative}, Native: n})
}

// pathCall returns a call of one of ZooKeeper's requests about a path.
func pathCall(op wire.Op, path string) *call {
	return newCall(wire.Request{Operation: wire.Operation{Op: op, Path: path}})
}

// codes are ZooKeeper's codes of the requests that a session makes by its protocol.
var codes = map[wire.Code]error{
	wire.NoNode:         tree.ErrNoNode,
	wire.NoAuth:         tree.ErrNoAuth,
	wire.BadArguments:   tree.ErrInvalidPath,
	wire.SessionExpired: engine.ErrSessionExpired,
	wire.QuotaExceeded:  errNames,
}

// answered returns what the answer says went wrong, or nil.
func answered(r *wire.Reply) error {
	if r.Err != wire.OK {
		if err := codes[r.Err]; err != nil {
			return err
		}
		return fmt.Errorf("%w: the server answered code %d", engine.ErrUnknownOutcome, r.Err)
	}
	err := native.Failure(r.Native.Failure, r.Native.Text)
	if err != nil && r.Native.Index >= 0 {
		err = &tree.MultiError{Index: int(r.Native.Index), Err: err}
	}
	return err
}

// unsettled reports whether a call with an outcome may still have to be made, at another member or
// later.
func unsettled(err error) bool {
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrUnknownOutcome) || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrFailed)
}

// enqueue queues a call, unless ctx has ended, there is no room, or the session has ended. A patient
// call waits for room.
func (s *session) enqueue(ctx context.Context, c *call) {
	err := ctx.Err() // it may ask a tenure of this session
	s.lookAndLock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
	case s.mu.end != nil:
		err = s.mu.end
	case !c.patient && !s.hasRoomLocked(c):
		err = errFull
	default:
		err = cmp.Or(c.terms.tenures().Held(), s.fitsLocked(c))
	}
	if err != nil {
		s.finishCallLocked(c, err)
		return
	}
	if !c.patient {
		s.queueLocked(c)
		return
	}
	c.stage, c.at = callWaiting, s.mu.waiting.PushBack(c)
	s.admitLocked()
}

func (s *session) roomLocked(c *call) *room {
	if c.patient {
		return &s.mu.reads
	}
	return &s.mu.others
}

func (s *session) hasRoomLocked(c *call) bool {
	r := s.roomLocked(c)
	return r.calls < callsMax && r.bytes+c.bytes <= bytesMax
}

// admitLocked queues the calls that wait, in order, as far as there is room. Behind each of them
// waits its caller, so there are no more than those.
func (s *session) admitLocked() {
	for s.mu.waiting.Len() > 0 && s.hasRoomLocked(s.mu.waiting.Front().Value.(*call)) {
		s.queueLocked(pop(&s.mu.waiting))
	}
}

// pop takes the first call off a list.
func pop(calls *list.List) *call { return calls.Remove(calls.Front()).(*call) }

// fitsLocked returns an error if a request is longer than the server reads.
func (s *session) fitsLocked(c *call) error {
	if c.bytes < s.mu.frame/2 {
		return nil // bytes is about right
	}
	if n := len(c.request.AppendFrame(nil)) - 4; n > s.mu.frame {
		return fmt.Errorf("%w: a request of %d bytes, the limit is %d: see gateway.Config.FrameSize", engine.ErrTooLarge, n, s.mu.frame)
	}
	return nil
}

func (s *session) queueLocked(c *call) {
	s.countLocked(c, 1)
	c.stage, c.at = callQueued, s.mu.queue.PushBack(c)
	s.wakeWriter()
}

// urgeLocked puts a call that is counted at the head of the queue.
func (s *session) urgeLocked(c *call) {
	c.stage, c.at = callQueued, s.mu.queue.PushFront(c)
}

// countLocked counts a call in its room, or no longer.
func (s *session) countLocked(c *call, n int) {
	r := s.roomLocked(c)
	r.calls += n
	r.bytes += n * c.bytes
	if c.write {
		s.mu.writes += n
	}
}

// finishCallLocked gives a call its outcome.
func (s *session) finishCallLocked(c *call, err error) {
	if c.stage == callDone {
		return
	}
	c.stage, c.err = callDone, err
	if err != nil && c.terms != nil {
		c.terms.undoLocked()
	}
	if c.then != nil {
		c.then(c)
	}
	close(c.done)
}

// uncountLocked takes a call that was queued out of the bounds, which makes room for others.
func (s *session) uncountLocked(c *call) {
	s.countLocked(c, -1)
	s.admitLocked()
}

// giveUp ends a call that was not sent yet, and reports whether it could. A read that was sent is not
// sent again.
func (s *session) giveUp(c *call, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.dropped = c.reads()
	return s.cancelLocked(c, why)
}

// reads reports whether it makes no difference whether the call is carried out.
func (c *call) reads() bool { return !c.write && !c.owed }

func (s *session) cancelLocked(c *call, why error) bool {
	switch {
	case c.owed:
		return false
	case c.stage == callWaiting:
		s.mu.waiting.Remove(c.at)
		s.admitLocked() // it may have been in the way
	case c.stage == callQueued:
		s.mu.queue.Remove(c.at)
		s.uncountLocked(c)
	default:
		return false
	}
	s.finishCallLocked(c, why)
	return true
}

// wait waits for a call until ctx ends. If ctx has no deadline and the call is not patient, it waits
// at most for the request timeout. The error says whether a write can still take effect.
func (s *session) wait(ctx context.Context, c *call) error {
	var expired <-chan time.Time
	if _, ok := ctx.Deadline(); !ok && !c.patient {
		t := time.NewTimer(s.client.config.RequestTimeout)
		defer t.Stop()
		expired = t.C
	}
	var cause error
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if cause = ctx.Err(); s.giveUp(c, cause) {
			return s.explain(cause)
		}
	case <-expired:
		if s.giveUp(c, errNotSent) {
			return s.explain(errNotSent)
		}
	}
	select {
	case <-c.done: // just now: the true outcome is better than "unknown"
		return c.err
	default:
	}
	switch {
	case c.reads() && cause == context.DeadlineExceeded:
		return s.explain(fmt.Errorf("%w: %w", engine.ErrUnavailable, cause))
	case c.reads() && cause != nil:
		return s.explain(cause)
	case c.reads():
		return s.explain(fmt.Errorf("%w: no answer in time", engine.ErrUnavailable))
	case cause != nil:
		return s.explain(&unknownError{cause})
	}
	return s.explain(engine.ErrUnknownOutcome)
}

// explain adds to an error why there is no connection, if there is none.
func (s *session) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.link != nil || s.mu.lacks == nil {
		return err
	}
	return fmt.Errorf("%w (%v)", err, s.mu.lacks)
}

// look is ask for what a member reads from its own memory. It is patient: a member's read never
// lacks a quorum, and recipes that wait rely on that.
func (s *session) look(ctx context.Context, c *call) (*wire.Reply, error) {
	c.patient = true
	return s.ask(ctx, c)
}

// ask makes a request that only reads, and waits for its answer.
func (s *session) ask(ctx context.Context, c *call) (*wire.Reply, error) {
	s.enqueue(ctx, c)
	return s.answer(ctx, c)
}

// answer waits for the answer to a request that only reads.
func (s *session) answer(ctx context.Context, c *call) (*wire.Reply, error) {
	if err := s.wait(ctx, c); err != nil {
		return nil, err
	}
	if err := answered(&c.reply); err != nil {
		var multi *tree.MultiError
		if errors.As(err, &multi) {
			err = multi.Err
		}
		return nil, err
	}
	if err := s.Err(); err != nil {
		return nil, err // what an ended session reads is not to be trusted
	}
	return &c.reply, nil
}
