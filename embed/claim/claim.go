package claim

import (
	"context"
	"errors"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
)

// A Claim is the ephemeral znodes that a transaction creates so that their owner can stand in
// queues.
//
// The node is responsible for them from the moment the transaction is submitted. Whatever happens
// to the caller, nothing is left behind. While the claim is held, it ends on this node before
// anyone else can take its place. It ends as a whole: when one of its znodes is deleted, the node
// deletes the others.
//
// Its methods may be called by any number of goroutines. The zero Claim has ended:
// embed.ErrNotHeld.
type Claim struct {
	c   inside.Claim
	txn *inside.Txn
}

// New submits a transaction, as Session.Submit does, and claims the ephemerals that it creates.
// There must be at least one: embed.ErrInvalidMode. If ctx has ended, nothing is sent. New does not
// wait; Created does.
func New(ctx context.Context, s *embed.Session, ops ...embed.Op) (*Claim, error) {
	t := (*inside.Session)(s).NewTxn(len(ops))
	for i := range ops {
		if err := t.Add((*inside.Op)(&ops[i])); err != nil {
			return nil, opError("claim", "", err)
		}
	}
	c, err := t.Claim(ctx)
	if err != nil {
		return nil, opError("claim", "", err)
	}
	return &Claim{c: c, txn: t}, nil
}

// Created waits for the transaction and returns one Result per operation. Errors are those of
// Session.Multi. After the ctx's error, and after embed.ErrUnknownOutcome while Err is nil, the
// transaction still has no outcome. Await goes on waiting.
func (c *Claim) Created(ctx context.Context) ([]embed.Result, error) {
	if c.c == nil {
		return nil, embed.ErrNotHeld
	}
	results, err := c.txn.Outcome(c.c.Created(ctx))
	return results, opError("claim", "", err)
}

// Await is Created, but waits as long as ctx allows. Config.RequestTimeout does not bound it. After
// embed.ErrUnknownOutcome nobody will know the outcome.
func (c *Claim) Await(ctx context.Context) ([]embed.Result, error) {
	for over := false; ; {
		results, err := c.Created(ctx)
		if over || !errors.Is(err, embed.ErrUnknownOutcome) || ctx.Err() != nil {
			return results, err
		}
		over = c.Err() != nil // the outcome may have come meanwhile, so ask once more
	}
}

// Hold begins a Tenure: from now on the claim is held. It fails with embed.ErrSuspended if the
// session is not safe at this moment, and with embed.ErrNotHeld if the claim is held already or
// was. If the claim has ended, it fails with the error of Err.
//
// With again, the claim may be held again after a Tenure has ended; every such Hold needs again.
// Then a Tenure guards only transactions of its own session, because all Tenures of the claim have
// the same znodes.
func (c *Claim) Hold(again bool) (*Tenure, error) {
	if c.c == nil {
		return nil, embed.ErrNotHeld
	}
	t, err := c.c.Hold(again)
	if err != nil {
		return nil, err
	}
	return &Tenure{t: t}, nil
}

// Flush waits until everything that the claim's session submitted before, on the claim's shard, has
// been applied or refused here. So the next Tenure of a claim that is held again sees it, although
// nothing is committed between two Tenures.
//
// Flush waits at most Config.RequestTimeout, after at most as long for the claim's own outcome. If
// there is nothing to wait for, it costs nothing. Errors are those of Created and Session.Multi.
func (c *Claim) Flush() error {
	if c.c == nil {
		return nil
	}
	return opError("flush", "", engine.Single(c.c.Flush()))
}

// Done compares the clock and returns a channel that is closed when the claim has ended.
func (c *Claim) Done() <-chan struct{} {
	if c.c == nil {
		return none.Done()
	}
	return c.c.Done()
}

// Err compares the clock and returns why the claim ended, or nil while it has not:
// embed.ErrReleased, embed.ErrSuspended, embed.ErrDeleted, why the transaction failed, or why the
// session ended.
func (c *Claim) Err() error {
	if c.c == nil {
		return embed.ErrNotHeld
	}
	return c.c.Err()
}

// Release gives the claim up. Its znodes are deleted as soon as the outcome of its transaction is
// known. The deletion overtakes everything that this node has still to send, except what the
// claim's session submitted before.
//
// If the claim was held, Release waits until the znodes are deleted, at most Config.RequestTimeout.
// After an error the node keeps trying until the session ends. Release is idempotent and deletes
// only the claim's own znodes.
func (c *Claim) Release() error {
	if c.c == nil {
		return nil
	}
	return opError("release", "", c.c.Release())
}

// opError wraps an error as package embed does.
func opError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &embed.OpError{Op: op, Path: path, Err: err}
}
