package native

import (
	"errors"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// failures are the errors that a client tells apart, by the numbers that they have on the wire. A
// number is never given to another error. The first that matches counts.
var failures = []struct {
	number int32
	err    error
}{
	{1, tree.ErrNoNode},
	{2, tree.ErrNodeExists},
	{3, tree.ErrBadVersion},
	{4, tree.ErrNotEmpty},
	{5, tree.ErrNoChildrenForEphemerals},
	{6, tree.ErrNoAuth},
	{7, tree.ErrInvalidACL},
	{8, tree.ErrQuotaExceeded},
	{9, tree.ErrTooManyChildren},
	{10, tree.ErrNotNumber},
	{11, tree.ErrOverflow},
	{12, tree.ErrInvalidPath},
	{13, tree.ErrInvalidMode},
	{14, tree.ErrInvalidTTL},
	{15, inside.ErrInvalidArgument},
	{16, engine.ErrCrossShard},
	{17, engine.ErrTooLarge},
	{18, engine.ErrLevel},
	{19, tree.ErrNotHeld},
	{20, engine.ErrSessionExpired},
	{21, engine.ErrSessionClosed},
	{22, engine.ErrNoSession},
	{23, engine.ErrUnknownOutcome},
	{24, engine.ErrUnavailable},
	{25, watch.ErrTooHeavy},
	{26, tree.ErrInvalidKind},
}

// Unnumbered is the number of every other error. The client cannot tell whether the request was
// applied.
const Unnumbered = 255

// Number returns the number of an error, and zero for nil.
func Number(err error) int32 {
	if err == nil {
		return 0
	}
	for i := range failures {
		if errors.Is(err, failures[i].err) {
			return failures[i].number
		}
	}
	return Unnumbered
}

// Failure returns the error of a number, with the text that the server gave it. It returns nil for
// zero. Numbers that this build does not know are engine.ErrUnknownOutcome.
func Failure(number int32, text string) error {
	if number == 0 {
		return nil
	}
	err := engine.ErrUnknownOutcome
	for i := range failures {
		if failures[i].number == number {
			err = failures[i].err
		}
	}
	if text == "" || text == err.Error() {
		return err
	}
	return &failure{err, text}
}

// A failure is an error of a server.
type failure struct {
	err  error
	text string
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }
