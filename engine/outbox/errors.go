package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of a call. A call ends in one of three ways: it was applied, it certainly was not and
// will not be, or its outcome is unknown. A call that was applied has no error, or an answer about
// the data such as tree.ErrNoNode. If its session has ended, the error says how: see package
// session.
var (
	// ErrUnavailable: the request was never handed to Raft. It will not be applied, so it is safe
	// to try again.
	ErrUnavailable = errors.New("unavailable: not applied, and safe to try again")
	// ErrUnknownOutcome: the request was sealed into a batch, and this node cannot tell its
	// outcome. The caller stopped waiting, the node or the session ended, or a snapshot replaced
	// the log. The request may still be applied later, at most once.
	ErrUnknownOutcome = errors.New("unknown outcome: the request may or may not be applied")
	// ErrClosed: the node was closed, and the request was not applied.
	ErrClosed = errors.New("node closed")
)

// The reasons for ErrUnavailable.
var (
	errQueueFull = fmt.Errorf("%w: too many requests wait on this node", ErrUnavailable)
	errNotSent   = fmt.Errorf("%w: it could not be proposed in time", ErrUnavailable)
)

// errLate is why a ctx of Bounded has ended whose caller gave it no deadline.
var errLate = errors.New("not in time")

// Bounded returns ctx with a timeout, or ctx itself if it has a deadline.
func Bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, errLate)
}

// WhyOver returns the error of a ctx that has ended. It matches no deadline that the caller has not set:
// who waits longer would take that for its own end.
func WhyOver(ctx context.Context) error {
	if context.Cause(ctx) == errLate {
		return errLate
	}
	return ctx.Err()
}

// Lacking returns the error for a call that was cancelled, or that got no answer in time.
func Lacking(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	lives := cause == nil || cause == errLate // the caller's ctx
	switch {
	case lives && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrUnavailable, errLate)
	case !lives && cause != context.DeadlineExceeded:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
