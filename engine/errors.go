package engine

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/backups"
	"github.com/vivarium-go/vivarium/engine/census"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/engine/seeding"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// Errors of the engine.
var (
	// ErrFailed means that the node has failed and refuses requests. Err says why it failed.
	ErrFailed = errors.New("node failed")
)

// Errors of the rooms below. Package embed knows them by these names.
var (
	ErrCrossShard     = forest.ErrCrossShard
	ErrSlowBackup     = backups.ErrSlow
	ErrNoSession      = census.ErrNoSession
	ErrUnsafe         = ask.ErrUnsafe
	ErrConfigChanged  = ask.ErrConfigChanged
	ErrReconfiguring  = ask.ErrReconfiguring
	ErrUnavailable    = outbox.ErrUnavailable
	ErrUnknownOutcome = outbox.ErrUnknownOutcome
	ErrSessionExpired = session.ErrExpired
	ErrSessionClosed  = session.ErrClosed
	ErrSessionMoved   = session.ErrMoved
	ErrClosed         = outbox.ErrClosed
	ErrSuspended      = keeper.ErrSuspended
	ErrDeleted        = keeper.ErrDeleted
	ErrReleased       = keeper.ErrReleased
	ErrTooLarge       = keeper.ErrTooLarge
	ErrNotMember      = session.ErrNotMember
	ErrObserver       = session.ErrObserver
	ErrNotSeeded      = seeding.ErrNotSeeded
	ErrJoining        = roster.ErrJoining
	ErrRemoved        = roster.ErrRemoved
	ErrSuperseded     = roster.ErrSuperseded
)

// errEmpty means that the directory is empty, and must be one that a node has used before.
var errEmpty = errors.New("is empty instead of the directory that the node had")

// Mendable reports whether a node that failed with err, or could not start for it, may be started
// again as soon as somebody has mended the disk. Config.Directory is to be set then: a volume that
// is being mended may not be mounted.
func Mendable(err error) bool { return disk.Mendable(err) || errors.Is(err, errEmpty) }
