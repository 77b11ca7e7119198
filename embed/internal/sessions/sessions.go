package sessions

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
)

// pauseTime is the shortest time between two attempts. It keeps a loop from spinning while there is
// no quorum, or when its function returns at once.
const pauseTime = 100 * time.Millisecond

// Each calls fn with one session after the other, each of which it closes when fn has returned. It
// ends when fn returns an error, which it returns; when ctx ends, with the error of ctx; and with an
// error of NewSession that is Final.
func Each(ctx context.Context, from embed.Opener, fn func(context.Context, *embed.Session) error) error {
	for {
		if err := once(ctx, from, fn); err != nil {
			return err
		}
		if !Pause(ctx) {
			return ctx.Err()
		}
	}
}

func once(ctx context.Context, from embed.Opener, fn func(context.Context, *embed.Session) error) error {
	s, err := from.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return Final(err)
	}
	defer s.Close()
	return fn(ctx, s)
}

// Pause waits briefly and reports whether ctx goes on.
func Pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pauseTime):
		return true
	}
}

// Pauses are those between the attempts of a loop that no refusal ends. The zero value is usable.
type Pauses struct{ last time.Duration }

// pauseMax is the longest time between two attempts that the ensemble refuses.
const pauseMax = time.Minute

// After waits after an error of an attempt, and reports whether ctx goes on. While a hard quota
// refuses the attempts, the pause doubles up to a minute.
func (p *Pauses) After(ctx context.Context, err error) bool {
	if !errors.Is(err, embed.ErrQuotaExceeded) {
		p.last = 0
	}
	p.last = min(max(2*p.last, pauseTime), pauseMax)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(p.last):
		return true
	}
}

// ends are the errors after which the same call fails again: the node is over, or the caller asks
// for what is impossible or not allowed.
var ends = []error{
	embed.ErrClosed, embed.ErrFailed,
	embed.ErrInvalidPath, embed.ErrInvalidArgument, embed.ErrTooLarge, embed.ErrCrossShard, embed.ErrNoChildrenForEphemerals,
	embed.ErrAuthFailed, embed.ErrNoAuth,
}

// Final returns err if no further attempt can succeed, and otherwise nil. also are the errors of a
// recipe that are final besides those of package embed.
func Final(err error, also ...error) error {
	for _, list := range [][]error{ends, also} {
		for _, end := range list {
			if errors.Is(err, end) {
				return err
			}
		}
	}
	return nil
}

// Log returns the log of a session's node or client, for what no call can tell.
func Log(s *embed.Session) *slog.Logger { return (*inside.Session)(s).Parts().Session.Log() }

// Record calls write, which records at a path what has run already, until it succeeds. So what has
// run is not run again because its record was refused. After a refusal the pause doubles up to a
// minute, and the first one is logged.
//
// Record ends with write's last error when lost is closed: then the record is no longer the
// caller's to write. It also ends when a write is refused and ctx has ended, and at once with an
// error that no time mends: embed.ErrTooLarge, embed.ErrCrossShard, embed.ErrInvalidPath and
// embed.ErrInvalidArgument.
func Record(
	ctx context.Context, s *embed.Session, path string, lost <-chan struct{}, write func() error,
) error {
	pause, told := pauseTime, false
	for {
		err := write()
		if err == nil || isHopeless(err) {
			return err
		}
		over := ctx.Done()
		if errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome) {
			pause, over = pauseTime, nil
		}
		select {
		case <-lost:
			return err
		default:
		}
		if over != nil && !told {
			told = true
			Log(s).Warn("the record of what has run is refused: see why", "path", path, "cause", err)
		}
		select {
		case <-lost:
			return err
		case <-over:
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, pauseMax)
	}
}

func isHopeless(err error) bool {
	return errors.Is(err, embed.ErrTooLarge) || errors.Is(err, embed.ErrCrossShard) || errors.Is(err, embed.ErrInvalidPath) || errors.Is(err, embed.ErrInvalidArgument)
}
