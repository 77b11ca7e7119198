package task

import "context"

// Wait is what Claim and Take wait with.
func (q *Queue) Wait(ctx context.Context, try func(name string) (bool, error)) error {
	return q.wait(ctx, try)
}
