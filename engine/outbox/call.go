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
	OnOutcome func(c *Call) // if set, called on the apply goroutine once the outcome is set, before done is closed
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
	stage   stage
	lane    lane // of the queue
	counted bool // among what of its session is on its way
}

// Terms are conditions of a request.
type Terms interface {
	Held() error // asked when the request is about to be queued: why it must not be
	Undo()       // called when the request has failed
}

// place is where a waiter stands on its way.
type stage uint8

const (
	stageNew stage = iota // not queued yet
	stageQueued
	stageSent // in a sealed batch: it may be applied
	stageDone
)

// part is where in the queue a waiter is, or was last.
type lane uint8

const (
	laneBack lane = iota
	laneFront
	laneParked
)

// NewCall returns a call of a session, or of the node itself if o is nil.
func NewCall(s *Owner, r *command.Request) *Call {
	return &Call{Encoded: command.EncodeRequest(r), owner: s, Done: make(chan struct{})}
}

// IsDone reports whether the call has its outcome.
func (c *Call) IsDone() bool {
	select {
	case <-c.Done:
		return true
	default:
		return false
	}
}

// Wait returns w's outcome, or, when ctx ends or the limit passes first, an error that tells whether w can still
// be applied. limit is used only when ctx has no deadline.
func (o *Outbox) Wait(ctx context.Context, c *Call, limit time.Duration) error {
	select {
	case <-c.Done:
		return c.Err
	default:
	}
	var expired <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		t := o.timers.Get(limit)
		defer o.timers.Put(t)
		expired = t.C
	}
	var cause error
	select {
	case <-c.Done:
		return c.Err
	case <-ctx.Done():
		cause = ctx.Err()
		if o.Cancel(c, cause) {
			return o.node.Explain(o.Shard, cause)
		}
	case <-expired:
		if o.Cancel(c, errNotSent) {
			return o.node.Explain(o.Shard, errNotSent)
		}
	}
	select {
	case <-c.Done: // it ended while we looked: the true outcome is better than "unknown"
		return c.Err
	default:
	}
	if cause == nil {
		return o.node.Explain(o.Shard, ErrUnknownOutcome)
	}
	return o.node.Explain(o.Shard, &unknownError{cause: cause})
}

// Forever is the limit of a wait that only its ctx ends.
const Forever = time.Duration(math.MaxInt64)

// unknownError is ErrUnknownOutcome when it was the ctx that ended; it matches both.
type unknownError struct{ cause error }

func (e *unknownError) Error() string   { return ErrUnknownOutcome.Error() + ": " + e.cause.Error() }
func (e *unknownError) Unwrap() []error { return []error{ErrUnknownOutcome, e.cause} }
