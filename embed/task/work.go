package task

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// retryMax is the longest time before Work lets a task be claimed again.
const retryMax = time.Minute

// Work claims tasks for ever and calls fn for one after the other. It outlives sessions. The ctx of
// fn ends when ctx ends, or when the claim is lost; context.Cause says why. When fn returns nil,
// Work finishes the task, unless fn has called Finish or Retry. When fn returns an error, the task
// is claimed again after a second, which doubles with each attempt up to a minute. If ctx has
// ended, it may be claimed at once.
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
		q := New(s, path, o)
		for s.Err() == nil && ctx.Err() == nil {
			err := q.work(ctx, fn)
			if err := sessions.Final(err); err != nil {
				return err
			}
			if err != nil && !sessions.Pause(ctx) {
				return nil
			}
		}
		return nil
	})
	if err == ctx.Err() {
		return err
	}
	return fmt.Errorf("work: %w", err)
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
		_ = t.Finish() // if it fails, the task is claimed again
	case ctx.Err() != nil:
		_ = t.Retry(0)
	default:
		_ = t.Retry(min(time.Second<<min(t.attempt-1, 6), retryMax))
	}
	return nil
}
