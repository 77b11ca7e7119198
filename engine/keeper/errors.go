package keeper

import "errors"

// Errors of sessions and claims.
var (
	// ErrSuspended: the session passed its local deadline, or the wall clock jumped by more than
	// the margin. So nothing that depends on the session can be granted now.
	ErrSuspended = errors.New("session suspended")
	// ErrDeleted: somebody else deleted the claimed znode.
	ErrDeleted = errors.New("claimed znode was deleted")
	// ErrReleased: the claim or tenure was given up by its owner.
	ErrReleased = errors.New("released")
	// ErrTooLarge: data or request over the configured limit, or a path over 64 KiB.
	ErrTooLarge = errors.New("too large")
)

// PathMax bounds the bytes of a path. A path is a key of every member's image. If an image refused
// a path, every member would stop at the entry that holds the path, and again after every restart.
const PathMax = 64 << 10
