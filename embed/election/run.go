package election

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// Run campaigns for ever and calls fn whenever this process leads. The ctx of fn ends when ctx or
// the leadership ends, whichever is first. When fn returns nil, Run resigns and campaigns again.
// When the leadership is lost, Run campaigns again with a new session, whatever fn returns.
//
// Run returns in four cases:
//
//   - ctx ends: its error.
//   - The node ends: embed.ErrClosed or embed.ErrFailed.
//   - fn returns an error while it still leads: that error.
//   - The ensemble refuses the candidate: embed.ErrInvalidPath, embed.ErrTooLarge,
//     embed.ErrQuotaExceeded, embed.ErrNoChildrenForEphemerals, embed.ErrAuthFailed,
//     embed.ErrNoAuth, lock.ErrLockExhausted, or embed.ErrCrossShard (on the root, in an ensemble with
//     several shards).
//
// Before it returns, Run closes its session, which lets the next candidate lead. It waits until the
// ensemble knows, for at most embed.Config.RequestTimeout, even if ctx is over.
//
// The sessions have the timeout embed.Config.SessionTimeout, which says how long the others wait for
// a leader that died. embed.OpenerWith sets another timeout, credentials or a root.
func Run(ctx context.Context, from embed.Opener, path string, value []byte, fn func(ctx context.Context, t lock.Token) error) error {
	return RunWith(ctx, from, path, value, Options{}, func(ctx context.Context, l *Leadership) error { return fn(ctx, l.Token()) })
}

// RunWith is Run with the options of a candidate, and with the Leadership for fn: for its Token,
// Guard, Session, Proclaim and Transfer. After Resign or Transfer, Run campaigns again when fn has
// returned, whatever it returns. Errors are those of Run, and embed.ErrInvalidArgument for Options
// that are out of range.
func RunWith(ctx context.Context, from embed.Opener, path string, value []byte, o Options, fn func(ctx context.Context, l *Leadership) error) error {
	r := runner{path: path, value: value, options: o, fn: fn}
	return r.run(ctx, from)
}

// A runner campaigns for ever and calls fn for each leadership.
type runner struct {
	path    string
	value   []byte
	options Options
	fn      func(ctx context.Context, l *Leadership) error
}

// run does what Run says.
func (r *runner) run(ctx context.Context, from embed.Opener) error {
	return each(ctx, from, r.path, r.lead)
}

// each is sessions.Each. Its errors, except that of ctx, name the path.
func each(ctx context.Context, from embed.Opener, path string, fn func(context.Context, *embed.Session) error) error {
	err := sessions.Each(ctx, from, fn)
	if err == ctx.Err() {
		return err
	}
	return fmt.Errorf("election %s: %w", path, err)
}

// final returns err if no further attempt can succeed, and otherwise nil.
func final(err error) error {
	return sessions.Final(err, lock.ErrLockExhausted, embed.ErrQuotaExceeded)
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
		if !sessions.Pause(ctx) {
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
	l, err := c.Wait(ctx)
	if err == nil {
		l.runs = true
	}
	return l, err
}

// serve calls fn for one leadership.
func (r *runner) serve(ctx context.Context, l *Leadership) error {
	both, cancel := queue.Both(ctx, l.Context())
	defer cancel()
	return r.fn(both, l)
}
