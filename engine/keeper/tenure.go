package keeper

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/tree"
)

// A Tenure is one time for which a claim is held. It ends with the claim, or before it by End; then the claim's znodes stay, so that
// nobody else is let in, until the claim is released, given up in a transaction, or held again.
type Tenure struct {
	claim *Claim

	// over is set with err, under the keeper's mu and so before another turn of the claim begins; read without it when what the turn
	// guards is queued.
	over atomic.Bool

	// Guarded by the keeper's mu. What is not made before it is asked for a turn without a commit never has.
	err    error
	done   chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// closedChan is for whoever asks late.
var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Context compares the clock and returns a context that ends with the turn; its cause says why.
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

// Done compares the clock and returns a channel that is closed when the turn has ended.
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

// Err compares the clock and says why the turn ended; nil while it has not.
func (t *Tenure) Err() error {
	k := t.claim.session.keeper
	k.lookAndLock()
	defer k.mu.Unlock()
	return t.err
}

// End ends the turn with ErrReleased, unless it has ended. It compares the clock first: what was lost before was not given up.
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

// guard returns operations that make a transaction of a session fail unless the claim's znodes are there when it is applied. It fails with
// ErrNotHeld, and says why, if the turn has ended at this moment, or if the transaction could come behind what a later turn of the claim
// guards: those of one session keep their order, and the znodes do not tell the turns apart.
func (t *Tenure) guard(s *Session) ([]tree.Op, error) {
	if t == nil {
		return nil, fmt.Errorf("%w: there is no turn", tree.ErrNotHeld)
	}
	c := t.claim
	k := c.session.keeper // not that of s: the transaction may be of another node of the ensemble
	k.lookAndLock()
	defer k.mu.Unlock()
	switch {
	case t.err != nil:
		return nil, fmt.Errorf("%w: %w", tree.ErrNotHeld, t.err)
	case c.again && c.session != s:
		return nil, fmt.Errorf("%w: what is held without a commit guards transactions of its own session only", tree.ErrNotHeld)
	}
	ops := make([]tree.Op, len(c.paths))
	for i, path := range c.paths {
		ops[i] = tree.Op{Kind: tree.KindGuard, Path: path, Czxid: c.czxid}
	}
	return ops, nil
}

// With says what a transaction has to do with claims. The zero value, and nil, is nothing.
type With struct {
	// Inherits: a claim of the transaction takes the place of what was lost, and lingers likewise unless it has been held.
	Inherits bool

	tenures []*Tenure // that guard it
	leaves  []*Claim  // whose znodes it deletes
}

// Guard returns operations that make a transaction of a session fail unless the turn's claim is held, when the transaction is submitted
// and when it is applied. It fails with ErrNotHeld, and says why, if it is not at this moment.
func (w *With) Guard(s *Session, t *Tenure) ([]tree.Op, error) {
	ops, err := t.guard(s)
	if err == nil {
		w.tenures = append(w.tenures, t)
	}
	return ops, err
}

// Release returns operations that delete the znodes of a claim of the session, which ends when they are applied; its turn ends now. If the
// transaction is not submitted, Undo must be called.
func (w *With) Release(s *Session, c *Claim) ([]tree.Op, error) {
	ops, err := c.leave(s)
	if err == nil {
		w.leaves = append(w.leaves, c)
	}
	return ops, err
}

// Undo is told that nothing came of the transaction.
func (w *With) Undo() {
	if w == nil {
		return
	}
	for _, c := range w.leaves {
		c.stay()
	}
}

// Held implements terms: it fails if a turn has ended since its guard was made. It is asked when the transaction is queued: what a later turn guards is queued
// later, and so applied later.
func (w *With) Held() error {
	for _, t := range w.tenures {
		if t.over.Load() {
			return tree.ErrNotHeld
		}
	}
	return nil
}
