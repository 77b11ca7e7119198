package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// Work claims tasks for ever and calls fn for one after the other. It outlives sessions. The ctx of
// fn ends when ctx ends, or when the claim is lost; context.Cause says why. When fn returns nil,
// Work finishes the task, unless fn has called Finish or Retry. When fn returns an error, the task
// is claimed again after a second, which doubles with each attempt up to a minute. If ctx has
// ended, it may be claimed at once.
//
// If the ensemble refuses what Work writes when fn has returned nil, Work logs that, keeps the claim,
// and tries again after pauses of up to a minute, until ctx ends or the claim is lost. If fn has
// failed and that cannot be written, Work logs that too, and passes over the task for up to a minute.
// If the ensemble refuses a claim because of a hard quota, Work logs that, and claims again after such pauses.
//
// Work returns when ctx ends, with its error; when the node ends; with embed.ErrInvalidArgument for
// wrong options; and if no attempt can succeed: embed.ErrInvalidPath, embed.ErrCrossShard,
// embed.ErrAuthFailed, embed.ErrNoAuth. Before that it closes its session, so what it had claimed
// is free. Call Work several times to work on several tasks at once.
func Work(
	ctx context.Context, from embed.Opener, path string, o Options,
	fn func(ctx context.Context, t *Task) error,
) error {
	err := sessions.Each(ctx, from, func(ctx context.Context, s *embed.Session) error {
		return New(s, path, o).workLoop(ctx, fn)
	})
	if err == ctx.Err() {
		return err
	}
	return fmt.Errorf("work: %w", err)
}

// workLoop works until the session or ctx ends, or until no attempt can succeed.
func (q *Queue) workLoop(ctx context.Context, fn func(ctx context.Context, t *Task) error) error {
	var pauses sessions.Pauses
	told := false
	for q.session.Err() == nil && ctx.Err() == nil {
		err := q.work(ctx, fn)
		if err := sessions.Final(err); err != nil {
			return err
		}
		full := errors.Is(err, embed.ErrQuotaExceeded)
		if full && !told {
			sessions.Log(q.session).Warn("no task can be claimed: see why", "path", q.path, "cause", err)
		}
		if told = full; err == nil {
			pauses = sessions.Pauses{}
		} else if !pauses.After(ctx, err) {
			return nil
		}
	}
	return nil
}

// work works on one task. An error is never that of fn.
func (q *Queue) work(ctx context.Context, fn func(ctx context.Context, t *Task) error) error {
	t, err := q.Claim(ctx)
	if err != nil {
		return err
	}
	life, cancel := queue.Both(ctx, t.Context())
	defer cancel()
	switch err := fn(life, t); {
	case t.Err() != nil: // it is finished, or lost
	case err == nil:
		if t.record(ctx) != nil {
			_ = t.giveUp() // so that somebody claims it again
		}
	case ctx.Err() != nil:
		t.putBack(0)
	default:
		t.putBack(t.pause())
	}
	return nil
}

// putBack lets a task that has failed be claimed again. If the ensemble refuses to write that, nothing
// was done that could be done twice: the task is passed over for a while, so that it stops no other.
func (t *Task) putBack(after time.Duration) {
	q := t.queue
	err := queue.Retry(t.Context(), q.session, func() error { return t.retry(context.Background(), after) })
	if err == nil || t.Err() != nil {
		return
	}
	_ = t.giveUp()
	if q.look.pass(t.name) {
		sessions.Log(q.session).Warn("a task is passed over: see why", "path", t.item(), "cause", err)
	}
}

// record removes a task whose work is done. While the ensemble refuses that, the claim stays, so the
// work is not done again.
func (t *Task) record(ctx context.Context) error {
	s := t.queue.session
	return sessions.Record(ctx, s, t.item(), t.claim.Done(), func() error {
		err := t.finish()
		if !errors.Is(err, embed.ErrNoNode) {
			return err
		}
		if _, ok, err := s.Exists(context.Background(), t.item()); ok || err != nil {
			return embed.ErrNoNode
		}
		return t.giveUp() // somebody has removed it
	})
}
