package keeper

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
	claim *Claim

	// over is set with err, under the keeper's mu, so before the claim's next tenure begins. It is
	// read without the lock when a guarded transaction is queued.
	over atomic.Bool

	// Guarded by the keeper's mu. done, ctx and cancel are created on first use; most tenures never
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
	k := t.claim.session.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
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
	k := t.claim.session.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	if t.done == nil {
		if t.done = closedChan; t.err == nil {
			t.done = make(chan struct{})
		}
	}
	return t.done
}

// Err compares the clock and returns why the tenure ended, or nil while it has not.
func (t *Tenure) Err() error {
	k := t.claim.session.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return t.err
}

// End ends the tenure with ErrReleased, unless it has ended. It compares the clock first: a tenure
// that was lost before is not given up.
func (t *Tenure) End() {
	k := t.claim.session.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	t.endLocked(ErrReleased)
}

func (t *Tenure) endLocked(why error) {
	if t.err != nil {
		return
	}
	t.err = why
	t.claim.session.keeper.Meters.noteLoss(why)
	t.over.Store(true)
	t.claim.tenure = nil
	if t.claim.state == claimHeld {
		t.claim.goToLocked(claimStanding)
	}
	if t.done != nil {
		close(t.done)
	}
	if t.cancel != nil {
		t.cancel(why)
	}
}

// guard returns operations that make a transaction of session s fail unless the claim's znodes are
// still its session's ephemerals when it is applied. If the tenure has ended, guard fails with
// ErrNotHeld and the cause.
//
// guard also refuses another session if the claim may be held again. The znodes are the same in
// every tenure of a claim, so a guard cannot tell tenures apart. Calls of one session keep their
// order, but another session's transaction could be applied after those of a later tenure.
func (t *Tenure) guard(s *Session) ([]tree.Op, error) {
	if t == nil {
		return nil, fmt.Errorf("%w: there is no tenure", tree.ErrNotHeld)
	}
	c := t.claim
	k := c.session.keeper // not that of s, which may be a session of another node
	k.lookAndLock()
	defer k.mu.Unlock()
	switch {
	case t.err != nil:
		return nil, fmt.Errorf("%w: %w", tree.ErrNotHeld, t.err)
	case c.again && c.session != s:
		return nil, fmt.Errorf("%w: a claim that may be held again guards transactions of its own session only", tree.ErrNotHeld)
	}
	ops := make([]tree.Op, len(c.paths))
	for i, path := range c.paths {
		ops[i] = tree.Op{Kind: tree.KindGuard, Path: path, Czxid: c.czxid}
	}
	return ops, nil
}

// With says how a transaction is related to claims. The zero value and nil mean not at all.
type With struct {
	// Inherits says that a claim of the transaction takes the place of something lost. Such a claim
	// lingers in the same way when it ends, unless it has been held.
	Inherits bool
	// Kind is what a claim of the transaction is for.
	Kind ClaimKind

	tenures []*Tenure // that guard the transaction
	leaves  []*Claim  // whose znodes the transaction deletes
}

// Guard returns operations that make a transaction of session s fail unless the tenure lasts when
// the transaction is submitted, and the claim's znodes are still its session's ephemerals when it
// is applied. If the tenure has ended at this moment, Guard fails with ErrNotHeld and the cause.
func (w *With) Guard(s *Session, t *Tenure) ([]tree.Op, error) {
	ops, err := t.guard(s)
	if err == nil {
		w.tenures = append(w.tenures, t)
	}
	return ops, err
}

// Release returns operations that delete the znodes of a claim of session s. The tenure ends now,
// and the claim ends when the operations are applied. If the transaction is not submitted, call
// Undo.
func (w *With) Release(s *Session, c *Claim) ([]tree.Op, error) {
	ops, err := c.leave(s)
	if err == nil {
		w.leaves = append(w.leaves, c)
	}
	return ops, err
}

// Undo implements outbox.Terms: the transaction failed, or was never submitted.
func (w *With) Undo() {
	if w == nil {
		return
	}
	for _, c := range w.leaves {
		c.stay()
	}
}

// Held implements outbox.Terms: it fails if a tenure has ended since its guard was made. The outbox
// asks when it queues the transaction. Whatever a later tenure guards is queued later, and so
// applied later.
func (w *With) Held() error {
	for _, t := range w.tenures {
		if t.over.Load() {
			return tree.ErrNotHeld
		}
	}
	return nil
}
