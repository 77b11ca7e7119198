package governor

import (
	"context"
	"errors"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/session"
)

// Change does what a member asks where the home shard is led. It returns ask.ErrLater if this node does
// not lead it, or not for long enough. It returns false without an error if it cannot say what
// becomes of what it has proposed. A node that is over cannot say anything.
func (g *Governor) Change(ctx context.Context, q *ask.Question) (answered bool, err error) {
	if answered, err = g.changeOrRefuse(ctx, q); g.Node.Over() != nil {
		return false, nil
	}
	return answered, err
}

func (g *Governor) changeOrRefuse(ctx context.Context, q *ask.Question) (answered bool, err error) {
	switch {
	case !g.settled(ctx):
		return false, ask.ErrLater
	case q.Remove != 0:
		return g.recordDeparture(ctx, q.Remove, session.Removed)
	case q.Reconfig != nil:
		return g.recordReconfig(ctx, q.Reconfig)
	}
	return g.letLeave(ctx, q.Leave)
}

// letLeave records that a member leaves, where the home shard is led. If nobody else stays that
// votes, and somebody comes who can vote in its place, that takes until then.
func (g *Governor) letLeave(ctx context.Context, m MemberID) (answered bool, err error) {
	for {
		answered, err := g.recordDeparture(ctx, m, session.Left)
		if !errors.Is(err, ask.ErrUnsafe) || !g.isAlone(m) || !g.wishHeir(ctx, m) {
			return answered, err
		}
		select {
		case <-time.After(g.Election / 2):
		case <-g.Done:
			return true, g.Node.Over()
		case <-ctx.Done():
			return true, err
		}
	}
}
