package keeper

import (
	"fmt"

	"github.com/vivarium-go/vivarium/engine/claim"
	"github.com/vivarium-go/vivarium/tree"
)

// With says how a transaction is related to claims. The zero value and nil mean not at all.
type With struct {
	// Inherits says that a claim of the transaction takes the place of something lost. Such a claim
	// lingers in the same way when it ends, unless it has been held.
	Inherits bool
	// Kind is what a claim of the transaction is for.
	Kind ClaimKind

	guards claim.Guards // the tenures that guard the transaction
	leaves []*Claim     // whose znodes the transaction deletes
}

// Guard returns operations that make a transaction of session s fail unless the tenure lasts when
// the transaction is submitted, and the claim's znodes are still its session's ephemerals when it
// is applied. If the tenure has ended at this moment, Guard fails with ErrNotHeld and the cause.
func (w *With) Guard(s *Session, t *Tenure) ([]tree.Op, error) {
	if t == nil {
		return nil, fmt.Errorf("%w: there is no tenure", tree.ErrNotHeld)
	}
	o, ok := t.Owner().(*owner)
	if !ok {
		return nil, fmt.Errorf("%w: a tenure of a client's session guards nothing of a member's", tree.ErrNotHeld)
	}
	ops, err := t.Guard(o.session == s)
	if err == nil {
		w.guards = append(w.guards, t)
	}
	return ops, err
}

// Release returns operations that delete the znodes of a claim of session s. The tenure ends now,
// and the claim ends when the operations are applied. If the transaction is not submitted, call
// Undo.
func (w *With) Release(s *Session, c *Claim) ([]tree.Op, error) {
	switch {
	case c == nil:
		return nil, fmt.Errorf("%w: there is no claim", tree.ErrNotHeld)
	case c.session != s:
		return nil, fmt.Errorf("%w: a claim is given up by its own session", tree.ErrNotHeld)
	}
	ops, err := c.Leave()
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
func (w *With) Held() error { return w.guards.Held() }
