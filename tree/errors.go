package tree

import (
	"errors"
	"fmt"
)

// The errors of transactions and reads; test with errors.Is. Wrapped errors add the path and the
// reason.
var (
	// ErrNoNode says that the znode, or the parent of one to be created, does not exist.
	ErrNoNode = errors.New("znode does not exist")
	// ErrNodeExists says that the path already has a znode.
	ErrNodeExists = errors.New("znode already exists")
	// ErrBadVersion says that the znode's version is not the expected one.
	ErrBadVersion = errors.New("version does not match")
	// ErrNotEmpty says that a znode with children cannot be deleted.
	ErrNotEmpty = errors.New("znode has children")
	// ErrNoChildrenForEphemerals says that the parent is an ephemeral, which cannot have children.
	ErrNoChildrenForEphemerals = errors.New("ephemeral znodes cannot have children")
	// ErrInvalidPath says that the path breaks a rule of ValidatePath, or names a znode that cannot
	// be deleted.
	ErrInvalidPath = errors.New("invalid path")
	// ErrInvalidMode says that the create mode is unknown, or that an ephemeral has no session.
	ErrInvalidMode = errors.New("invalid mode")
	// ErrInvalidTTL says that the TTL is out of the range that Op.TTL allows for the mode.
	ErrInvalidTTL = errors.New("invalid TTL")
	// ErrInvalidACL says that a list is empty or too long, that an entry has an unknown scheme or
	// an id that its scheme refuses, or that "auth" stands for nobody.
	ErrInvalidACL = errors.New("invalid ACL")
	// ErrNoAuth says that the ACL of the znode, or of its parent, permits this to none of the
	// requester's identities.
	ErrNoAuth = errors.New("not permitted")
	// ErrNotHeld is the error of a guard, or of a delete that names the creation: the znode is
	// gone, or the path has a znode of another creation. For a guard it also means that the znode
	// has no owner.
	ErrNotHeld = errors.New("no longer held")
	// ErrTooManyChildren says that the znode has more children than a check of children allows.
	ErrTooManyChildren = errors.New("znode has too many children")
	// ErrNotNumber says that a znode's data is no number in the form that an add expects.
	ErrNotNumber = errors.New("data is not a number")
	// ErrOverflow says that the sum of an add does not fit into its form.
	ErrOverflow = errors.New("number overflows")
	// ErrQuotaExceeded says that a transaction would exceed a hard limit.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrInvalidKind says that an Op's kind is unknown, as in the zero Op, or is not allowed here.
	// Some kinds must be alone in their transaction, and some are only for the ensemble.
	ErrInvalidKind = errors.New("invalid kind of operation")
	// ErrPinLost says that more was written than may be kept for the reader of a pin.
	ErrPinLost = errors.New("too much was written meanwhile")
	// ErrCorrupt says that a Loader received a tree that no Drain or Walk can have produced.
	ErrCorrupt = errors.New("corrupt tree")
)

// A MultiError says which operation of a transaction failed. None of the operations was applied.
type MultiError struct {
	Index int   // of the first operation that failed, from 0
	Err   error // the error of that operation
}

// Error returns the operation's position and error text.
func (e *MultiError) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns the operation's error.
func (e *MultiError) Unwrap() error { return e.Err }

func invalidPath(path, reason string) error {
	return fmt.Errorf("%w %q: %s", ErrInvalidPath, path, reason)
}

func corrupt(path, reason string) error {
	return fmt.Errorf("%w: znode %q %s", ErrCorrupt, path, reason)
}
