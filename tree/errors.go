package tree

import (
	"errors"
	"fmt"
)

// What a transaction or a read can end with; test with errors.Is. Texts of wrapped errors add the path and the reason.
var (
	// ErrNoNode says that the znode, or the parent of one to be created, does not exist.
	ErrNoNode = errors.New("znode does not exist")
	// ErrNodeExists says that a znode of that path exists already.
	ErrNodeExists = errors.New("znode exists already")
	// ErrBadVersion says that the znode's data version is not the expected one.
	ErrBadVersion = errors.New("version does not match")
	// ErrNotEmpty says that a znode with children cannot be deleted.
	ErrNotEmpty = errors.New("znode has children")
	// ErrNoChildrenForEphemerals says that the parent is an ephemeral, which can have no children.
	ErrNoChildrenForEphemerals = errors.New("ephemeral znodes cannot have children")
	// ErrInvalidPath says that the path breaks a rule of ValidatePath, or names a znode that cannot be deleted.
	ErrInvalidPath = errors.New("invalid path")
	// ErrInvalidMode says that the create mode is unknown, or that an ephemeral has no session to belong to.
	ErrInvalidMode = errors.New("invalid mode")
	// ErrInvalidTTL says that the TTL is not from 1 to MaxTTL, or 0 of an ephemeral, or that a mode without one was given one.
	ErrInvalidTTL = errors.New("invalid TTL")
	// ErrInvalidACL says that a list is empty, has an entry of a scheme that is not known or an id the scheme refuses, or
	// asks for the creator's identities where there are none.
	ErrInvalidACL = errors.New("invalid ACL")
	// ErrNoAuth says that no identity of who asks is allowed it by the ACL of the znode, or of its parent.
	ErrNoAuth = errors.New("not permitted")
	// ErrNotHeld says that the znode of a guard, or of a delete that names its creation, is gone, or that it is another one of
	// the same path; of a guard also that it is nobody's (any more).
	ErrNotHeld = errors.New("not held any more")
	// ErrTooManyChildren says that the znode has more children than a check allows it.
	ErrTooManyChildren = errors.New("znode has too many children")
	// ErrQuotaExceeded says that a hard limit on the subtree would be passed.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrInvalidKind says that an Op is of no kind this package knows, as the zero Op is, or that its kind must be alone in
	// a transaction and is not.
	ErrInvalidKind = errors.New("invalid kind of operation")
	// ErrCorrupt says that what a Loader was given is not a tree that Drain or Walk can have produced.
	ErrCorrupt = errors.New("corrupt tree")
)

// A MultiError says which operation made a transaction of several fail. None of them was applied.
type MultiError struct {
	Index int   // of the first operation that failed, from 0
	Err   error // what it failed with
}

// Error returns the position and the text of the operation's error.
func (e *MultiError) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns the operation's error.
func (e *MultiError) Unwrap() error { return e.Err }

func invalidPath(path, reason string) error {
	return fmt.Errorf("%w %q: %s", ErrInvalidPath, path, reason)
}

func corrupt(path, reason string) error {
	return fmt.Errorf("%w: znode %q %s", ErrCorrupt, path, reason)
}
