package keeper

import (
	"errors"

	"github.com/vivarium-go/vivarium/engine/claim"
)

// Errors of sessions and claims.
var (
	ErrSuspended = claim.ErrSuspended
	ErrDeleted   = claim.ErrDeleted
	ErrReleased  = claim.ErrReleased
	// ErrTooLarge: data or request over the configured limit, or a path over 64 KiB.
	ErrTooLarge = errors.New("too large")
)

// PathMax bounds the bytes of a path. A path is a key of every member's image. If an image refused
// a path, every member would stop at the entry that holds the path, and again after every restart.
const PathMax = 64 << 10
