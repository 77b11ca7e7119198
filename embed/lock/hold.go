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
	// Immutable.
	contender *queue.Contender
	turn      *embed.Turn
	token     Token
	lock      string          // its path, as its taker named it
	values    context.Context // Lock's
	kept      *kept           // where it goes when it is released; nil: to the next contender
	outer     *Hold           // of what Held returned: the Hold itself

	revoke revoke
}

// newHold returns the Hold of a contender that holds its claim.
func newHold(ctx context.Context, lock string, c *queue.Contender) *Hold {
	zxid, local := c.Order()
	return &Hold{contender: c, turn: c.Turn, token: Token{zxid, local}, lock: lock, values: ctx}
}

// Token returns the fencing token of this acquisition.
func (h *Hold) Token() Token { return h.token }

// Guard makes a Multi happen only while the Hold is the granted one: it is refused with embed.ErrNotHeld, and nothing of it is
// applied, if the Hold has ended by the clock of its node when the Multi is issued, or if its znode is gone when it is applied,
// which it is before anybody else is granted. The Multi may be of any session of the ensemble; with Options.Keep of the Mutex's own.
//
//	_, err := session.Multi(ctx, lock.Guard(hold), embed.OpSet("/report", data, embed.AnyVersion))
func Guard(h *Hold) embed.Op { return embed.OpGuard(h.turn) }

// Path returns the path of the Hold's znode; of a Multi, or of several permits, that of the first.
func (h *Hold) Path() string { return h.contender.Path() }

// Context has the values of Lock's ctx and the lifetime of the Hold; context.Cause says why it ended, and Held finds the Hold in it. Its Err
// and Done compare the clock when they are called, so after a pause they are right before any timer has run. A context derived from
// it ends with it and compares nothing: who works with one asks Err of the Hold before acting.
func (h *Hold) Context() context.Context {
	return queue.Context(h.turn, context.WithValue(h.values, heldKey(h.lock), h))
}

// Done compares the clock and returns a channel that is closed when the Hold has ended. A channel kept from before is closed
// once a timer or any other question has noticed the end.
func (h *Hold) Done() <-chan struct{} { return h.turn.Done() }

// Err compares the clock and says why the Hold ended, nil while it has not: embed.ErrReleased, embed.ErrSuspended (the
// session's local deadline passed), embed.ErrDeleted, or why the session ended.
func (h *Hold) Err() error { return h.turn.Err() }

// Release gives the Hold up and lets the next contender in. It is idempotent and can free nothing but this Hold. It
// waits until the ensemble knows, at most Config.RequestTimeout; after an error the node goes on trying until the
// session ends, and the Hold has ended all the same. With Options.Keep it waits
// for nothing but what the session has on its way.
func (h *Hold) Release() error {
	switch {
	case h.outer != nil:
		return nil
	case h.kept != nil:
		return h.kept.release(h)
	}
	return h.contender.Claim.Release()
}

// heldKey is a lock's path among the values of a context.
type heldKey string

// Held returns the Hold of a path that a context carries, which Hold.Context and the ctx of Do's fn do, so that code that is called under a
// lock takes no second contender, which would wait for the first for ever. It is false if there is none, or if it has ended. path is as it
// was when the lock was taken, by whatever session and of whatever kind: of a
// reader, of permits; of a Multi, all with commas between. The Release of what it returns does nothing: a lock is given up by who
// took it.
//
//	hold, ok := lock.Held(ctx, path)
//	if !ok {
//		hold, err = lock.NewMutex(session, path).Lock(ctx)
//	}
//	defer hold.Release()
func Held(ctx context.Context, path string) (*Hold, bool) {
	h, ok := ctx.Value(heldKey(path)).(*Hold)
	if !ok || h.Err() != nil {
		return nil, false
	}
	return &Hold{contender: h.contender, turn: h.turn, token: h.token, lock: h.lock, values: h.values, outer: h}, true
}
