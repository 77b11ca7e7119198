package embed

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/engine"
)

// A Claim is the ephemeral znodes that one transaction creates for their owner to stand in queues with: locks, elections and other
// recipes are made of it. The node takes charge of them from the moment the transaction is submitted, so whatever happens to the caller,
// nothing is left behind; and while the claim is held it ends on this node before anybody else can take its place. It ends as a whole: when
// one of its znodes is deleted, the node deletes the others.
//
// Its methods may be called by any number of goroutines. The zero Claim is one of nothing, that has ended: ErrNotHeld.
type Claim struct {
	c   *engine.Claim
	txn *txn
}

// Claim submits a transaction, as Submit does, for the ephemerals that it creates, of which there is at least one. It does not wait:
// Created does. ctx bounds admission only.
func (s *Session) Claim(ctx context.Context, ops ...Op) (*Claim, error) {
	t, err := s.plain(ops)
	if err == nil && !t.claims() {
		t.with.Undo()
		err = fmt.Errorf("%w: a claim is of ephemerals", ErrInvalidMode)
	}
	if err != nil {
		return nil, opError("claim", "", err)
	}
	return &Claim{c: s.s.Claim(ctx, t.ops, t.with), txn: t}, nil
}

// Created waits for the transaction and returns one Result per operation. Errors are Multi's. After the ctx's error, and after
// ErrUnknownOutcome while Err is nil, the transaction is still on its way and may be waited for again.
func (c *Claim) Created(ctx context.Context) ([]Result, error) {
	if c.c == nil {
		return nil, ErrNotHeld
	}
	results, err := c.txn.outcome(c.c.Created(ctx))
	return results, opError("claim", "", err)
}

// Hold begins a Turn: the claim is held from now on. It fails if the session is not safe at this moment (ErrSuspended), if the claim has
// ended, and if it is held already or was (ErrNotHeld). With again it may be held anew whenever a turn has ended, each of which must
// say so; then a Turn guards transactions of its own session only, for all have the same znodes.
func (c *Claim) Hold(again bool) (*Turn, error) {
	if c.c == nil {
		return nil, ErrNotHeld
	}
	t, err := c.c.Hold(again)
	if err != nil {
		return nil, err
	}
	return &Turn{t: t}, nil
}

// Settle waits until everything that the claim's session submitted before, of the claim's shard, has been applied here or refused: what
// follows without a commit, a Turn of a claim that is held again, sees it. It waits at most Config.RequestTimeout, and for another one until the
// claim's own outcome is known; it costs nothing if there is nothing. Errors are those of Created and Multi.
func (c *Claim) Settle() error {
	if c.c == nil {
		return nil
	}
	return opError("settle", "", engine.Single(c.c.Settle()))
}

// Done compares the clock and returns a channel that is closed when the claim has ended.
func (c *Claim) Done() <-chan struct{} {
	if c.c == nil {
		return none.Done()
	}
	return c.c.Done()
}

// Err compares the clock and says why the claim ended, nil while it has not: ErrReleased, ErrSuspended, ErrDeleted, why
// the transaction failed, or why the session ended.
func (c *Claim) Err() error {
	if c.c == nil {
		return ErrNotHeld
	}
	return c.c.Err()
}

// Release gives the claim up: its znodes are deleted as soon as the outcome of its transaction is known, ahead of everything
// that this node has still to send but what its session submitted before. For a claim that was held Release waits until they are, at most
// Config.RequestTimeout; after an error the node goes on trying until the session ends. It is idempotent and deletes no znode but the
// claim's own.
func (c *Claim) Release() error {
	if c.c == nil {
		return nil
	}
	return opError("release", "", c.c.Release())
}

// A Turn is a time for which a Claim is held. It ends at the session's local deadline, with the claim, or by End; it does not come back.
//
// What it answers is true at the moment of the question. Its methods may be called by any number of goroutines. The zero Turn has ended:
// ErrNotHeld.
type Turn struct{ t *engine.Turn }

// none is the lifetime of what never was.
var none = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotHeld)
	return ctx
}()

// Context compares the clock and returns a context that ends with the turn; its Cause says why.
func (t *Turn) Context() context.Context {
	if t.t == nil {
		return none
	}
	return t.t.Context()
}

// Done compares the clock and returns a channel that is closed when the turn has ended.
func (t *Turn) Done() <-chan struct{} {
	if t.t == nil {
		return none.Done()
	}
	return t.t.Done()
}

// Err compares the clock and says why the turn ended, nil while it has not: ErrReleased after End, else as of Claim.
func (t *Turn) Err() error {
	if t.t == nil {
		return ErrNotHeld
	}
	return t.t.Err()
}

// End ends the turn. The claim's znodes stay, so nobody else is let in before the claim is given up, by Release or OpRelease. It is
// idempotent.
func (t *Turn) End() {
	if t.t != nil {
		t.t.End()
	}
}
