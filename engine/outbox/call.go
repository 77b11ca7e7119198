package outbox

import (
	"context"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/command"
)

// A Call is one request of this node and whoever waits for its outcome.
type Call struct {
	// Immutable after submit.
	Encoded   []byte        // the request as it travels: the caller's slices are its own again; let go when it is taken out
	owner     *Owner        // nil for requests of the node itself
	end       bool          // has room of its own, ahead of the queue: see pipeline.queueEnd
	OnOutcome func(w *Call) // if set, called on the apply goroutine once the outcome is set, before done is closed
	Then      func()        // if set, called after done is closed
	Terms     Terms         // nil: none

	// The outcome; read after done is closed.
	Done    chan struct{}
	Results []tree.Result
	Zxid    tree.Zxid     // of the transaction that opened or attached a session; of another the newest when it was applied
	Sent    time.Duration // when its batch was first handed to Raft, if it was
	Drift   time.Duration // of the clocks at that moment
	Err     error

	// Guarded by the pipeline's mu.
	place   place
	part    part // of the queue
	counted bool // among what of its session is on its way
}

// Terms are conditions of a request.
type Terms interface {
	Held() error // asked when the request is about to be queued: why it must not be
	Undo()       // called when the request has failed
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

// NewCall returns a call of a session, or of the node itself if o is nil.
func NewCall(o *Owner, r *command.Request) *Call {
	return &Call{Encoded: command.EncodeRequest(r), owner: o, Done: make(chan struct{})}
}

// IsDone reports whether the call has its outcome.
func (w *Call) IsDone() bool {
	select {
	case <-w.Done:
		return true
	default:
		return false
	}
}

// Wait returns w's outcome, or, when ctx ends or the limit passes first, an error that tells whether w can still
// be applied. limit is used only when ctx has no deadline.
func (p *Outbox) Wait(ctx context.Context, w *Call, limit time.Duration) error {
	select {
	case <-w.Done:
		return w.Err
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
	case <-w.Done:
		return w.Err
	case <-ctx.Done():
		cause = ctx.Err()
		if p.Cancel(w, cause) {
			return p.node.Explain(p.Shard, cause)
		}
	case <-expired:
		if p.Cancel(w, errNotSent) {
			return p.node.Explain(p.Shard, errNotSent)
		}
	}
	select {
	case <-w.Done: // it ended while we looked: the true outcome is better than "unknown"
		return w.Err
	default:
	}
	if cause == nil {
		return p.node.Explain(p.Shard, ErrUnknownOutcome)
	}
	return p.node.Explain(p.Shard, &unknownError{cause: cause})
}

// Forever is the limit of a wait that only its ctx ends.
const Forever = time.Duration(math.MaxInt64)

// unknownError is ErrUnknownOutcome when it was the ctx that ended; it matches both.
type unknownError struct{ cause error }

func (e *unknownError) Error() string   { return ErrUnknownOutcome.Error() + ": " + e.cause.Error() }
func (e *unknownError) Unwrap() []error { return []error{ErrUnknownOutcome, e.cause} }
