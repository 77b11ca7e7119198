package task

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
)

// Wait is what Claim and Take wait with.
func (q *Queue) Wait(ctx context.Context, try func(name string) (bool, error)) error {
	return q.wait(ctx, try)
}

// Try tries to claim a task, as Claim does. It returns nil if somebody else was faster.
func (q *Queue) Try(ctx context.Context, name string) (*Task, error) { return q.claim(ctx, name) }

func (q *Queue) Session() *embed.Session { return q.session }
