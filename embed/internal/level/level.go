package level

import (
	"context"
	"errors"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// patience bounds how long a call waits for a new ensemble to rise to the level of its operations.
// Then the ensemble is probably held lower.
const patience = 5 * time.Second

// pause is the time between two attempts meanwhile.
const pause = 50 * time.Millisecond

// Await calls fn, and again while it fails with embed.ErrLevel, for five seconds at most.
func Await(ctx context.Context, fn func() error) error {
	for begun := time.Now(); ; {
		err := fn()
		if !errors.Is(err, embed.ErrLevel) || time.Since(begun) > patience {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
