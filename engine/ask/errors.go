package ask

import (
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// Errors of changes of the members. With them nothing was changed.
var (
	// ErrUnsafe says that the ensemble would lose its quorum.
	ErrUnsafe = errors.New("the ensemble would lose its quorum")
	// ErrConfigChanged says that the members are no longer those of Reconfig.Version.
	ErrConfigChanged = errors.New("the members have changed")
	// ErrReconfiguring says that another change of the members is not finished.
	ErrReconfiguring = errors.New("another change of the members is under way")
)

// ErrLater says that a leader cannot judge a question yet, and has proposed nothing.
var ErrLater = errors.New("the leader cannot say yet: ask again")

// RemovalOf names the removal of a member in errors.
func RemovalOf(m MemberID) string { return fmt.Sprintf("the removal of member %d", m) }

// Unsure is the error of a change that was sent, and of which nobody knows what became.
func Unsure(what string, why error) error {
	return fmt.Errorf("%w: %s may be recorded, and then goes on: %w", outbox.ErrUnknownOutcome, what, why)
}

// Refused is the error of a leader's refusal, or nil. A leader may know nothing of an earlier question
// whose answer was lost. Then the error is none of those with which nothing was changed.
func Refused(err error, before bool, what string) error {
	if err == nil || !before {
		return err
	}
	return Unsure(what, errors.New("asked again: "+err.Error()))
}
