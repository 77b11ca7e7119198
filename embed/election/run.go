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
// embed.ErrTooLarge, embed.ErrNoChildrenForEphemerals, lock.ErrLockExhausted, embed.ErrCrossShard for the root of an ensemble with several
// shards). Before it returns it closes its session, which lets the next candidate lead, and waits until the ensemble knows, at most
// embed.Config.RequestTimeout, also if ctx is over.
func Run(ctx context.Context, n *embed.Node, path string, value []byte, fn func(ctx context.Context, t lock.Token) error) error {
	r := runner{path: path, value: value, turn: func(ctx context.Context, l *Leadership) error { return fn(ctx, l.Token()) }}
	return r.run(ctx, n)
}

// A runner campaigns for ever.
type runner struct {
	path    string
	value   []byte
	options Options
	turn    func(ctx context.Context, l *Leadership) error
}

// run is Run.
func (r *runner) run(ctx context.Context, n *embed.Node) error {
	return sessions(ctx, n, r.path, r.lead)
}

// sessions has fn run with one session after the other, until it returns an error or ctx ends.
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

// pause lets some time pass and reports whether ctx goes on.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(runPause):
		return true
	}
}

// lead takes turns with one session until that is lost, and returns an error only if Run must end.
func (r *runner) lead(ctx context.Context, s *embed.Session) error {
	for {
		l, err := r.campaign(ctx, s)
		if err != nil {
			return final(err)
		}
		err = r.take(ctx, l)
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

// resign gives a leadership up whose turn is over. If it ended because it is being transferred, the place is for the candidate who was named. If
// ctx ends first nobody waits for that: the session is closed next.
func (l *Leadership) resign(ctx context.Context) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.transferring <- struct{}{}
		defer func() { <-l.transferring }()
		_ = l.Resign() // if it cannot be sent the node goes on trying until the session ends
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// lost reports whether a leadership has ended otherwise than by its leader's will.
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

// take has one turn.
func (r *runner) take(ctx context.Context, l *Leadership) error {
	turn, cancel := queue.Both(ctx, l.Context())
	defer cancel()
	return r.turn(turn, l)
}

// final returns err if no further attempt can succeed.
func final(err error) error {
	for _, end := range []error{embed.ErrClosed, embed.ErrFailed, embed.ErrInvalidPath, embed.ErrTooLarge, embed.ErrNoChildrenForEphemerals, lock.ErrLockExhausted, embed.ErrInvalidArgument, embed.ErrCrossShard} {
		if errors.Is(err, end) {
			return err
		}
	}
	return nil
}
