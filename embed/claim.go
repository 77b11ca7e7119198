package embed

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/engine"
)

// A Claim is an ephemeral znode that stands for its owner in a queue: locks, elections and other recipes are made of
// it. The node takes charge of the znode from the moment its create is submitted, so whatever happens to the caller,
// nothing is left behind; and while the claim is held it ends on this node before anybody else can take its place.
//
// Its methods may be called by any number of goroutines.
type Claim struct {
	c    *engine.Claim
	root chroot
}

// Claim submits the creation of an ephemeral znode; mode is Ephemeral or EphemeralSequential. It does not wait: Created
// does. ctx bounds admission only.
func (s *Session) Claim(ctx context.Context, path string, data []byte, mode CreateMode) (*Claim, error) {
	if !mode.IsEphemeral() {
		return nil, opError("claim", path, fmt.Errorf("%w: a claim is ephemeral", ErrInvalidMode))
	}
	op := OpCreate(path, data, mode)
	if err := op.validate(s.dataMax); err != nil {
		return nil, opError("claim", path, err)
	}
	return &Claim{c: s.s.Claim(ctx, s.root.created(path, mode), data, mode), root: s.root}, nil
}

// Created waits for the znode and returns its final path and Stat. Errors are Create's. After the ctx's error, and after
// ErrUnknownOutcome while Err is nil, the creation is still on its way and may be waited for again.
func (c *Claim) Created(ctx context.Context) (string, Stat, error) {
	r, err := c.c.Created(ctx)
	return c.root.out(r.Path), r.Stat, opError("claim", "", err)
}

// Hold makes the claim held from now on. It fails if the session is not safe at this moment (ErrSuspended) or the claim
// has ended. A held claim ends at the session's local deadline and does not come back with the session.
func (c *Claim) Hold() error { return c.c.Hold() }

// Context ends with the held claim, and its Cause says why. It looks at what has ended already; Err and Done of the Claim
// compare the clock. It is nil before Hold.
func (c *Claim) Context() context.Context { return c.c.Context() }

// Done compares the clock and returns a channel that is closed when the claim has ended.
func (c *Claim) Done() <-chan struct{} { return c.c.Done() }

// Err compares the clock and says why the claim ended, nil while it has not: ErrReleased, ErrSuspended, ErrDeleted, why
// the creation failed, or why the session ended.
func (c *Claim) Err() error { return c.c.Err() }

// Release gives the claim up: its znode is deleted as soon as the outcome of its creation is known, ahead of everything
// that this node has still to send but what its session submitted before. For a claim that was held Release waits until it is, at most Config.RequestTimeout; after an
// error the node goes on trying until the session ends. It is idempotent and deletes no znode but the claim's own.
func (c *Claim) Release() error { return opError("release", "", c.c.Release()) }
