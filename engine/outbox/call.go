package outbox

import (
	"context"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// A Call is one request of this node, with its outcome.
type Call struct {
	// Immutable once the call is queued or refused, but a cancelled call drops Encoded.
	Encoded   []byte        // the request as it travels, in memory of its own
	owner     *Owner        // nil for calls of the node itself
	OnOutcome func(c *Call) // optional; called once the outcome is set, before Done is closed
	Then      func()        // optional; called after Done is closed
	Terms     Terms         // optional

	// The outcome. Read it after Done is closed.
	Done    chan struct{}
	Results []tree.Result
	// Zxid names the transaction that opened or attached a session. For a transaction of operations
	// it is the newest one when the call was applied. Otherwise it is zero.
	Zxid   tree.Zxid
	Sent   time.Duration // boot clock, when its batch was first handed to Raft; zero if it was not
	Offset time.Duration // clock.Offset at that moment
	Err    error

	// Guarded by the outbox's mu.
	stage   stage
	lane    lane // where in the queue it is, or was last
	counted bool // it counts as pending for its session
	givenUp bool // its caller was told that the outcome is unknown, and the meters count it so

	// end says that the call goes ahead of other calls and has no limit: see QueueEnd. Immutable
	// once the call is queued. It stands beside the other bytes because that saves 16 a call.
	end bool
}

// Terms are conditions of a call.
type Terms interface {
	Held() error // asked under the outbox's mu before the call is queued: why it must not be, or nil
	Undo()       // called when the call has failed
}

// A stage is where a call is on its way.
type stage uint8

const (
	stageNew stage = iota // not queued yet
	stageQueued
	stageSealed // in a sealed batch, so it may be applied
	stageDone   // it has its outcome
)

// A lane is a part of the queue.
type lane uint8

const (
	laneBack lane = iota
	laneFront
	laneParked
)

// NewCall returns a call of a session, or of the node itself if s is nil.
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

// Wait waits for c and returns its error. If ctx ends or the limit passes first, Wait cancels c. It
// then returns an error that says whether c can still be applied. The limit counts only if ctx has
// no deadline.
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
	case <-c.Done: // completed just now: the true outcome is better than "unknown"
		return c.Err
	default:
	}
	o.noteGivenUp(c)
	if cause == nil {
		return o.node.Explain(o.Shard, ErrUnknownOutcome)
	}
	return o.node.Explain(o.Shard, &unknownError{cause: cause})
}

// Forever is the limit of a wait that only its ctx ends.
const Forever = time.Duration(math.MaxInt64)

// unknownError is ErrUnknownOutcome after a ctx ended. It matches both errors.
type unknownError struct{ cause error }

func (e *unknownError) Error() string   { return ErrUnknownOutcome.Error() + ": " + e.cause.Error() }
func (e *unknownError) Unwrap() []error { return []error{ErrUnknownOutcome, e.cause} }
