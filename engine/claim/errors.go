package claim

import (
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/tree"
)

// Errors of claims.
var (
	// ErrSuspended: the session passed its local deadline, or the wall clock jumped by more than
	// the margin. So nothing that depends on the session can be granted now.
	ErrSuspended = errors.New("session suspended")
	// ErrDeleted: somebody else deleted the claimed znode.
	ErrDeleted = errors.New("claimed znode was deleted")
	// ErrReleased: the claim or tenure was given up by its owner.
	ErrReleased = errors.New("released")
)

// notHeld returns an ErrNotHeld that says why.
func notHeld(why error) error { return fmt.Errorf("%w: %w", tree.ErrNotHeld, why) }
