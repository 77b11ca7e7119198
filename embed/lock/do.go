package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// Do runs fn under the lock on a path, with a session of its own that ends with the call. The ctx
// of fn ends when ctx or the Hold ends, whichever is first, and context.Cause says why. It compares
// the clock as Hold.Context does.
//
// Do returns fn's error. If fn returned nil but the Hold was lost before that, Do returns why it
// was lost: fn ran, but perhaps not alone. If fn stops because its ctx ended, it should return
// context.Cause(ctx), because ctx.Err is context.Canceled for a lost Hold and for a cancelled ctx.
// After an error of Opener.NewSession or Mutex.Lock, fn was not called.
//
// At the end Do closes the session, which lets the next contender in. It waits until the ensemble
// knows, for at most Config.RequestTimeout, even if ctx is over. If that is too short, the node
// keeps trying. Do's result is the same, because what fn did under the lock is done.
//
// The session has the timeout Config.SessionTimeout, which says how long the others wait for a
// process that died. embed.OpenerWith sets another timeout, credentials or a root.
func Do(ctx context.Context, from embed.Opener, path string, fn func(ctx context.Context, t Token) error) error {
	return DoWith(ctx, from, path, Options{}, func(ctx context.Context, h *Hold) error { return fn(ctx, h.Token()) })
}

// DoWith is Do with the options of a lock, and with the Hold for fn: for its Token, Guard, Session
// and Revoked. It supports Note, Delay and Identity. fn may Release the Hold before it returns,
// which loses nothing; its ctx ends then. Errors are those of Do, and embed.ErrInvalidArgument for
// wrong Options.
func DoWith(ctx context.Context, from embed.Opener, path string, o Options, fn func(ctx context.Context, h *Hold) error) error {
	if err := o.check(true, false); err != nil {
		return wrap("lock", path, err)
	}
	s, err := from.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	hold, err := NewMutex(s, path).With(o).Lock(ctx)
	if err != nil {
		return err
	}
	inner, cancel := queue.Both(ctx, hold.Context())
	defer cancel()
	if err := fn(inner, hold); err != nil {
		return err
	}
	if err := hold.Err(); err != nil && !errors.Is(err, embed.ErrReleased) {
		return fmt.Errorf("lock %s was lost: %w", path, err)
	}
	return nil
}
