package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// runPause is the least time between two turns or attempts of Run, so that a quorum that is away, or an fn that returns at
// once, does not make it spin.
const runPause = 100 * time.Millisecond

// Run campaigns for ever: whenever this process leads it calls fn, with a ctx that ends with ctx or with the leadership,
// whichever is first. When fn returns nil Run resigns and campaigns again; when the leadership is lost, whatever fn returns,
// Run campaigns again with a new session. Run returns when ctx ends (its error), when the node does (embed.ErrClosed, embed.ErrFailed), when
// fn returns an error while it still leads (that error), or when no attempt can succeed (embed.ErrInvalidPath,
// embed.ErrTooLarge, embed.ErrNoChildrenForEphemerals, lock.ErrLockExhausted). Before it returns it closes its session, which
// lets the next candidate lead, and waits until the ensemble knows, at most embed.Config.RequestTimeout, also if ctx is over.
func Run(ctx context.Context, n *embed.Node, path string, value []byte, fn func(ctx context.Context, t lock.Token) error) error {
	for {
		if err := lead(ctx, n, path, value, fn); err != nil {
			return fmt.Errorf("election %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(runPause):
		}
	}
}

// lead takes turns with one session until that is lost, and returns an error only if Run must end.
func lead(ctx context.Context, n *embed.Node, path string, value []byte, fn func(ctx context.Context, t lock.Token) error) error {
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return final(err)
	}
	defer s.Close()
	for {
		l, err := New(s, path).Campaign(ctx, value)
		if err != nil {
			return final(err)
		}
		err = take(ctx, l, fn)
		switch {
		case l.Err() != nil:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return nil
		}
		_ = l.Resign() // if it cannot be sent the node goes on trying until the session ends
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(runPause):
		}
	}
}

// take calls fn for one turn.
func take(ctx context.Context, l *Leadership, fn func(ctx context.Context, t lock.Token) error) error {
	turn, cancel := queue.Both(ctx, l.Context())
	defer cancel()
	return fn(turn, l.Token())
}

// final returns err if no further attempt can succeed.
func final(err error) error {
	for _, end := range []error{embed.ErrClosed, embed.ErrFailed, embed.ErrInvalidPath, embed.ErrTooLarge, embed.ErrNoChildrenForEphemerals, lock.ErrLockExhausted} {
		if errors.Is(err, end) {
			return err
		}
	}
	return nil
}
