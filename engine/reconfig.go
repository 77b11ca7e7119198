package engine

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/governor"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/tree"
)

// MayReconfig returns ErrNoAuth unless somebody may ask for a Reconfig.
func (e *Engine) MayReconfig(who []tree.Identity) error {
	return e.home().Tree().As(who).CheckWrite(tree.ConfigPath)
}

// Config returns what tree.ConfigPath says; empty until all members have said where they are.
func (e *Engine) Config() string {
	data, _, _ := e.home().Tree().Get(tree.ConfigPath) // every tree has it
	return string(data)
}

// Reconfig makes a change of the members, and waits until it is so on all shards. ErrUnsafe says
// that those who would vote then are no quorum now, or that a learner is not fit to vote.
// ErrUnknownOutcome says that it was asked for, and that nobody knows what is recorded of it: that
// goes on.
func (e *Engine) Reconfig(ctx context.Context, c Reconfig) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	if err := e.over(); err != nil {
		return err
	}
	var recorded, sent bool
	var asked time.Time
	const what = "the change of the members"
	for {
		switch {
		case recorded && governor.IsMade(&c, e.roster.Table()):
			return nil
		case !recorded && time.Since(asked) > replica.RetryAfter:
			asked = time.Now()
			var err error
			if recorded, err = e.askLeader(ctx, ask.Question{Reconfig: &c}, what, &sent); err != nil {
				return err
			}
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-e.done:
			return e.gaveUp(ctx, sent, what)
		case <-ctx.Done():
			return e.gaveUp(ctx, sent, what)
		}
	}
}
