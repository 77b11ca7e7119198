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

// runPause is the shortest time between two leaderships or attempts of Run. It keeps Run from
// spinning while there is no quorum, or when fn returns at once.
const runPause = 100 * time.Millisecond

// Run campaigns for ever and calls fn whenever this process leads. The ctx of fn ends when ctx or
// the leadership ends, whichever is first. When fn returns nil, Run resigns and campaigns again.
// When the leadership is lost, Run campaigns again with a new session, whatever fn returns.
//
// Run returns in four cases:
//
//   - ctx ends: its error.
//   - The node ends: embed.ErrClosed or embed.ErrFailed.
//   - fn returns an error while it still leads: that error.
//   - No attempt can succeed: embed.ErrInvalidPath, embed.ErrTooLarge,
//     embed.ErrNoChildrenForEphemerals, lock.ErrLockExhausted, or embed.ErrCrossShard (on the root,
//     in an ensemble with several shards).
//
// Before it returns, Run closes its session, which lets the next candidate lead. It waits until the
// ensemble knows, for at most embed.Config.RequestTimeout, even if ctx is over.
func Run(ctx context.Context, n *embed.Node, path string, value []byte, fn func(ctx context.Context, t lock.Token) error) error {
	r := runner{path: path, value: value, fn: func(ctx context.Context, l *Leadership) error { return fn(ctx, l.Token()) }}
	return r.run(ctx, n)
}

// A runner campaigns for ever and calls fn for each leadership.
type runner struct {
	path    string
	value   []byte
	options Options
	fn      func(ctx context.Context, l *Leadership) error
}

// run does what Run says.
func (r *runner) run(ctx context.Context, n *embed.Node) error {
	return sessions(ctx, n, r.path, r.lead)
}

// sessions calls fn with one session after the other, until fn returns an error or ctx ends.
func sessions(ctx context.Context, n *embed.Node, path string, fn func(context.Context, *embed.Session) error) error {
	for {
		if err := session(ctx, n, fn); err != nil {
			return fmt.Errorf("election %s: %w", path, err)
		}
		if !pause(ctx) {
			return ctx.Err()
		}
	}
}

func session(ctx context.Context, n *embed.Node, fn func(context.Context, *embed.Session) error) error {
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return final(err)
	}
	defer s.Close()
	return fn(ctx, s)
}

// pause waits briefly and reports whether ctx goes on.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(runPause):
		return true
	}
}

// lead campaigns and leads with one session until the session is lost. It returns an error only if
// Run must end.
func (r *runner) lead(ctx context.Context, s *embed.Session) error {
	for {
		l, err := r.campaign(ctx, s)
		if err != nil {
			return final(err)
		}
		err = r.serve(ctx, l)
		switch {
		case s.Err() != nil || lost(l):
			return nil
		case l.Err() == nil && err != nil:
			return err
		case ctx.Err() != nil:
			return nil
		}
		l.resign(ctx)
		if !pause(ctx) {
			return nil
		}
	}
}

// resign gives a leadership up after fn has returned. If the leadership is being transferred, it
// first waits for the transfer, because the place is for the named candidate. If ctx ends, it does
// not wait: its caller closes the session next.
func (l *Leadership) resign(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.transferring <- struct{}{}
		defer func() { <-l.transferring }()
		_ = l.Resign() // if it cannot be sent the node keeps trying until the session ends
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// lost reports whether a leadership ended against its leader's will.
func lost(l *Leadership) bool {
	err := l.Err()
	return err != nil && !errors.Is(err, embed.ErrReleased)
}

func (r *runner) campaign(ctx context.Context, s *embed.Session) (*Leadership, error) {
	c, err := New(s, r.path).Enter(ctx, r.value, r.options)
	if err != nil {
		return nil, err
	}
	return c.Wait(ctx)
}

// serve calls fn for one leadership.
func (r *runner) serve(ctx context.Context, l *Leadership) error {
	both, cancel := queue.Both(ctx, l.Context())
	defer cancel()
	return r.fn(both, l)
}

// final returns err if no further attempt can succeed, and else nil.
func final(err error) error {
	for _, end := range []error{embed.ErrClosed, embed.ErrFailed, embed.ErrInvalidPath, embed.ErrTooLarge, embed.ErrNoChildrenForEphemerals, lock.ErrLockExhausted, embed.ErrInvalidArgument, embed.ErrCrossShard} {
		if errors.Is(err, end) {
			return err
		}
	}
	return nil
}
