package outbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// M167: an error names no deadline that the caller's ctx does not have, but it names the caller's own.
func TestLacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for what, c := range map[string]struct {
			ctx                 context.Context
			deadline, cancelled bool
		}{
			"none":         {ctx: t.Context()},
			"the caller's": {ctx: own, deadline: true},
			"cancelled":    {ctx: cancelled, cancelled: true},
		} {
			bounded, done := Bounded(c.ctx, time.Second)
			<-bounded.Done()
			for _, err := range []error{Lacking(bounded, bounded.Err()), Lacking(c.ctx, context.DeadlineExceeded), WhyOver(bounded)} {
				if errors.Is(err, context.DeadlineExceeded) != c.deadline || errors.Is(err, context.Canceled) != c.cancelled {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := Lacking(bounded, bounded.Err()); errors.Is(err, ErrUnavailable) == c.cancelled {
				t.Errorf("%s: %v", what, err)
			}
			done()
		}
	})
}
