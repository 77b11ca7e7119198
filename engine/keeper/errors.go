package keeper

import "errors"

// Errors of sessions and claims.
var (
	// ErrSuspended: the session is past its local deadline, so what depends on it cannot be granted now.
	ErrSuspended = errors.New("session suspended")
	// ErrDeleted: the claimed znode was deleted by somebody else.
	ErrDeleted = errors.New("claimed znode was deleted")
	// ErrReleased: the claim was given back by its owner.
	ErrReleased = errors.New("released")
	// ErrTooLarge: data or request over the configured limit, or a path over 64 KiB.
	ErrTooLarge = errors.New("too large")
)

// PathMax bounds the bytes of a path. A path is a key of every member's image, and a path that an image refuses would stop
// them all at the entry that holds it, after every restart again.
const PathMax = 64 << 10
