package lock

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Hold is one acquisition. It ends by Release, with its session's local deadline, or when somebody deletes its znode;
// never silently, and before anyone else can be granted it (except by such a deletion). An ended Hold does not come back.
//
// What a Hold answers is true at the moment of the question. A call already in flight, or a machine whose clocks stood
// still, is what Token and Guard are for. All methods may be called by any number of goroutines.
type Hold struct {
	contender *queue.Contender
	ctx       context.Context
}

func newHold(ctx context.Context, c *queue.Contender) *Hold {
	return &Hold{contender: c, ctx: c.Context(ctx)}
}

// Token returns the fencing token of this acquisition.
func (h *Hold) Token() Token { return Token{Zxid: h.contender.Zxid} }

// Guard makes a Multi happen only while the Hold is the granted one: it is refused with embed.ErrNotHeld, and nothing of it is
// applied, if the Hold has ended by the clock of its node when the Multi is issued, or if its znode is gone when it is applied,
// which it is before anybody else is granted. The Multi may be of any session of the ensemble.
//
//	_, err := session.Multi(ctx, lock.Guard(hold), embed.OpSet("/report", data, embed.AnyVersion))
func Guard(h *Hold) embed.Op { return embed.OpGuard(h.contender.Claim) }

// Path returns the path of the Hold's znode.
func (h *Hold) Path() string { return h.contender.Path }

// Context has the values of Lock's ctx and the lifetime of the Hold; context.Cause says why it ended. Its Err and Done
// compare the clock when they are called, so after a pause they are right before any timer has run. A context derived from
// it ends with it and compares nothing: who works with one asks Err of the Hold before acting.
func (h *Hold) Context() context.Context { return h.ctx }

// Done compares the clock and returns a channel that is closed when the Hold has ended. A channel kept from before is closed
// once a timer or any other question has noticed the end.
func (h *Hold) Done() <-chan struct{} { return h.contender.Claim.Done() }

// Err compares the clock and says why the Hold ended, nil while it has not: embed.ErrReleased, embed.ErrSuspended (the
// session's local deadline passed), embed.ErrDeleted, or why the session ended.
func (h *Hold) Err() error { return h.contender.Claim.Err() }

// Release gives the Hold up and lets the next contender in. It is idempotent and can free nothing but this Hold. It
// waits until the ensemble knows, at most Config.RequestTimeout; after an error the node goes on trying until the
// session ends, and the Hold has ended all the same.
func (h *Hold) Release() error { return h.contender.Claim.Release() }
