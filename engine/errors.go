package engine

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
)

// Errors of the engine.
var (
	// ErrNoSession: no session of that id is open, as far as this node has applied.
	ErrNoSession = errors.New("no such session")
	// ErrCrossShard: the operations of one transaction belong to several shards; none was applied.
	ErrCrossShard = errors.New("more than one shard")
	// ErrFailed: the node has failed and takes no requests; its Err says why.
	ErrFailed = errors.New("node failed")
)

// Errors of the rooms below, under the names by which package embed knows them.
var (
	ErrUnavailable    = outbox.ErrUnavailable
	ErrUnknownOutcome = outbox.ErrUnknownOutcome
	ErrSessionExpired = outbox.ErrSessionExpired
	ErrSessionClosed  = outbox.ErrSessionClosed
	ErrSessionMoved   = outbox.ErrSessionMoved
	ErrClosed         = outbox.ErrClosed
	ErrSuspended      = keeper.ErrSuspended
	ErrDeleted        = keeper.ErrDeleted
	ErrReleased       = keeper.ErrReleased
	ErrTooLarge       = keeper.ErrTooLarge
)
