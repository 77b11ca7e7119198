package engine

import (
	"context"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/command"
)

// A waiter is one request of this node and whoever waits for its outcome.
type waiter struct {
	// Immutable after submit.
	wire    []byte          // the request as it travels: the caller's slices are its own again; let go when it is taken out
	session *Session        // nil for requests of the node itself
	end     bool            // has room of its own, ahead of the queue: see pipeline.queueEnd
	applied func(w *waiter) // if set, called on the apply goroutine once the outcome is set, before done is closed
	then    func()          // if set, called after done is closed
	with    *With           // nil: nothing

	// The outcome; read after done is closed.
	done    chan struct{}
	results []tree.Result
	zxid    tree.Zxid     // of the transaction that opened or attached a session; of another the newest when it was applied
	sent    time.Duration // when its batch was first handed to Raft, if it was
	drift   time.Duration // of the clocks at that moment
	err     error

	// Guarded by the pipeline's mu.
	place   place
	part    part // of the queue
	counted bool // among what of its session is on its way
}

// place is where a waiter stands on its way.
type place uint8

const (
	placeNone place = iota // not queued yet
	placeQueued
	placeSent // in a sealed batch: it may be applied
	placeDone
)

// part is where in the queue a waiter is, or was last.
type part uint8

const (
	partRest part = iota
	partFront
	partOutside
)

func newWaiter(s *Session, r *command.Request) *waiter {
	return &waiter{wire: command.EncodeRequest(r), session: s, done: make(chan struct{})}
}

func (w *waiter) isDone() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// wait returns w's outcome, or, when ctx ends or the limit passes first, an error that tells whether w can still
// be applied. limit is used only when ctx has no deadline.
func (p *pipeline) wait(ctx context.Context, w *waiter, limit time.Duration) error {
	select {
	case <-w.done:
		return w.err
	default:
	}
	var expired <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		t := p.timers.Get(limit)
		defer p.timers.Put(t)
		expired = t.C
	}
	var cause error
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		cause = ctx.Err()
		if p.cancel(w, cause) {
			return p.lacking(cause)
		}
	case <-expired:
		if p.cancel(w, errNotSent) {
			return p.lacking(errNotSent)
		}
	}
	select {
	case <-w.done: // it ended while we looked: the true outcome is better than "unknown"
		return w.err
	default:
	}
	if cause == nil {
		return p.lacking(ErrUnknownOutcome)
	}
	return p.lacking(&unknownError{cause: cause})
}

// forever is the limit of a wait that only its ctx ends.
const forever = time.Duration(math.MaxInt64)

// unknownError is ErrUnknownOutcome when it was the ctx that ended; it matches both.
type unknownError struct{ cause error }

func (e *unknownError) Error() string   { return ErrUnknownOutcome.Error() + ": " + e.cause.Error() }
func (e *unknownError) Unwrap() []error { return []error{ErrUnknownOutcome, e.cause} }
