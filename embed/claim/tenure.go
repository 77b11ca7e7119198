package claim

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
)

// A Tenure is one period for which a Claim is held. It ends by End, with the claim, or at the
// session's local deadline. An ended Tenure does not come back.
//
// Its answers are true at the moment of the call. Its methods may be called by any number of
// goroutines. The zero Tenure has ended: embed.ErrNotHeld.
type Tenure struct{ t *engine.Tenure }

// none is the lifetime of a zero Claim or Tenure.
var none = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(embed.ErrNotHeld)
	return ctx
}()

// Context compares the clock and returns a context that ends with the tenure. Its Cause says why.
func (t *Tenure) Context() context.Context {
	if t.t == nil {
		return none
	}
	return t.t.Context()
}

// Done compares the clock and returns a channel that is closed when the tenure has ended.
func (t *Tenure) Done() <-chan struct{} {
	if t.t == nil {
		return none.Done()
	}
	return t.t.Done()
}

// Err compares the clock and returns why the tenure ended, or nil while it has not:
// embed.ErrReleased after End, else an error of Claim.Err.
func (t *Tenure) Err() error {
	if t.t == nil {
		return embed.ErrNotHeld
	}
	return t.t.Err()
}

// End ends the tenure. The claim's znodes stay, so nobody else is let in before the claim is given
// up by Release or OpRelease. End is idempotent.
func (t *Tenure) End() {
	if t.t != nil {
		t.t.End()
	}
}
