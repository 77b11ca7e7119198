package outbox

import (
	"errors"
	"fmt"
)

// How a call ends that was not applied. A call ends in one of three ways that never mix: applied (nil, or an error of the data
// such as tree.ErrNoNode, which is an answer), certainly not applied, or unknown.
var (
	// ErrUnavailable: the request was never handed to Raft. It is not applied and never will be; trying again is safe.
	ErrUnavailable = errors.New("unavailable: not applied, and safe to try again")
	// ErrUnknownOutcome: the request was handed to Raft and its caller stopped waiting before it was known
	// whether it was applied. It may still be applied later, at most once.
	ErrUnknownOutcome = errors.New("unknown outcome: the request may or may not be applied")
	// ErrSessionExpired: the session has ended because it was silent for its timeout. A request that is applied after the end
	// of its session is told the same whatever ended it.
	ErrSessionExpired = errors.New("session expired")
	// ErrSessionClosed: the session was closed by its owner.
	ErrSessionClosed = errors.New("session closed")
	// ErrSessionMoved: the session of a remote client is attached elsewhere, or anew here, and goes on there.
	ErrSessionMoved = errors.New("session moved to another connection")
	// ErrClosed: the node was closed; the request was not applied.
	ErrClosed = errors.New("node closed")
)

// Why a request is ErrUnavailable.
var (
	errQueueFull = fmt.Errorf("%w: too many requests wait on this node", ErrUnavailable)
	errNotSent   = fmt.Errorf("%w: no quorum took it in time", ErrUnavailable)
)
