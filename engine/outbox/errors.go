package outbox

import (
	"context"
	"errors"
	"fmt"
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

// Lacking returns the error for a call that was cancelled, or that got no answer in time.
func Lacking(ctx context.Context, err error) error {
	if ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
