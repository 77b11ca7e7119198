package claim

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/tree"
)

// A Tenure is one period for which a claim is held. It ends with the claim, or before that by End.
// After End the claim's znodes stay and keep others out, until the claim is released, given up in a
// transaction, or held again.
type Tenure struct {
	life *Life

	// over is set after err, under the owner's lock, so before the claim's next tenure begins. Guards
	// read it without the lock.
	over atomic.Bool

	// Guarded by the owner's lock. done, ctx and cancel are created on first use; most tenures never
	// need them.
	err    error
	done   chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// closedChan is the channel of tenures that ended before anyone asked for it.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Context compares the clock and returns a context that ends with the tenure. Its cause is why the
// tenure ended.
func (t *Tenure) Context() context.Context {
	t.life.owner.LookAndLock()
	defer t.life.owner.Unlock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancelCause(context.Background())
		if t.err != nil {
			t.cancel(t.err)
		}
	}
	return t.ctx
}

// Done compares the clock and returns a channel that is closed when the tenure has ended.
func (t *Tenure) Done() <-chan struct{} {
	t.life.owner.LookAndLock()
	defer t.life.owner.Unlock()
	if t.done == nil {
		if t.done = closedChan; t.err == nil {
			t.done = make(chan struct{})
		}
	}
	return t.done
}

// Err compares the clock and returns why the tenure ended, or nil while it has not.
func (t *Tenure) Err() error {
	t.life.owner.LookAndLock()
	defer t.life.owner.Unlock()
	return t.err
}

// End ends the tenure with ErrReleased, unless it has ended. It compares the clock first: a tenure
// that was lost before is not given up.
func (t *Tenure) End() {
	t.life.owner.LookAndLock()
	defer t.life.owner.Unlock()
	t.endLocked(ErrReleased)
}

func (t *Tenure) endLocked(why error) {
	if t.err != nil {
		return
	}
	t.err = why
	t.over.Store(true)
	t.life.tenure = nil
	if t.life.state == Held {
		t.life.goToLocked(Standing, why)
	}
	if t.done != nil {
		close(t.done)
	}
	if t.cancel != nil {
		t.cancel(why)
	}
}

// Owner returns the owner of the tenure's claim.
func (t *Tenure) Owner() Owner { return t.life.owner }

// Guard returns operations that make a transaction fail unless the claim's znodes are still its
// session's ephemerals when it is applied; own says that the transaction is of that session. If the
// tenure has ended, Guard fails with ErrNotHeld and the cause.
//
// Guard also refuses another session if the claim may be held again. The znodes are the same in
// every tenure of a claim, so a guard cannot tell tenures apart. Calls of one session keep their
// order, but another session's transaction could be applied after those of a later tenure.
func (t *Tenure) Guard(own bool) ([]tree.Op, error) {
	l := t.life
	l.owner.LookAndLock()
	defer l.owner.Unlock()
	switch {
	case t.err != nil:
		return nil, notHeld(t.err)
	case l.again && !own:
		return nil, fmt.Errorf("%w: a claim that may be held again guards transactions of its own session only", tree.ErrNotHeld)
	}
	return l.OpsLocked(tree.KindGuard), nil
}

// Guards are the tenures that guard a transaction. Their methods take no lock.
type Guards []*Tenure

// Held fails if a tenure has ended. Ask it when the transaction is queued: whatever a later tenure
// guards is queued later.
func (g Guards) Held() error { return g.check(nil) }

// Kept fails if a tenure was lost. What the owner queued before it gave a tenure up is sent all the
// same.
func (g Guards) Kept() error { return g.check(ErrReleased) }

// check fails if a tenure has ended, unless it ended with but.
func (g Guards) check(but error) error {
	for _, t := range g {
		if t.over.Load() && t.err != but {
			return notHeld(t.err)
		}
	}
	return nil
}
