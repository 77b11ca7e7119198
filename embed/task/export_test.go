package task

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// Wait is what Claim and Take wait with.
func (q *Queue) Wait(ctx context.Context, try func(name string) (bool, error)) error {
	return q.wait(ctx, try)
}

// Try tries to claim a task, as Claim does. It returns nil if somebody else was faster.
func (q *Queue) Try(ctx context.Context, name string) (*Task, error) { return q.claim(ctx, name) }

func (q *Queue) Session() *embed.Session { return q.session }

// Sweep begins a sweep, and returns after how long the next one comes.
func (q *Queue) Sweep(ctx context.Context) (time.Duration, error) {
	q.look.sweep = sweep{}
	err := q.sweep(ctx)
	return time.Until(q.look.sweep.next), err
}
