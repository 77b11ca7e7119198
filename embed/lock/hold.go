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
// still, is what Token and Guard are for. All methods may be called by any number of goroutines. The zero
// Hold has ended: embed.ErrNotHeld.
type Hold struct {
	// Immutable. The first two are nil of the zero Hold.
	contender *queue.Contender
	turn      *embed.Turn
	token     Token
	values    context.Context // Lock's
	kept      *kept           // where it goes when it is released; nil: to the next contender
	outer     *Hold           // of what Held returned: the Hold itself

	revoke revoke
}

// newHold returns the Hold of a contender that holds its claim.
func newHold(ctx context.Context, c *queue.Contender) *Hold {
	zxid, local := c.Order()
	return &Hold{contender: c, turn: c.Turn, token: Token{zxid, local}, values: ctx}
}

// Token returns the fencing token of this acquisition.
func (h *Hold) Token() Token { return h.token }

// Guard makes a Multi happen only while the Hold is the granted one: it is refused with embed.ErrNotHeld, and nothing of it is
// applied, if the Hold has ended by the clock of its node when the Multi is issued, or if its znode is gone when it is applied,
// which it is before anybody else is granted. The Multi may be of any session of the ensemble; with Options.Keep of the Mutex's own.
//
//	_, err := session.Multi(ctx, lock.Guard(hold), embed.OpSet("/report", data, embed.AnyVersion))
func Guard(h *Hold) embed.Op {
	if h == nil {
		return embed.OpGuard(nil) // which is refused
	}
	return embed.OpGuard(h.turn)
}

// life is the Hold's turn, or one that has ended.
func (h *Hold) life() *embed.Turn {
	if h.turn == nil {
		return new(embed.Turn)
	}
	return h.turn
}

// Path returns the path of the Hold's znode; of a Multi, or of several permits, that of the first.
func (h *Hold) Path() string {
	if h.contender == nil {
		return ""
	}
	return h.contender.Path()
}

// Context has the values of Lock's ctx and the lifetime of the Hold; context.Cause says why it ended, and Held finds the Hold in it. Its Err
// and Done compare the clock when they are called, so after a pause they are right before any timer has run. A context derived from
// it ends with it and compares nothing: who works with one asks Err of the Hold before acting.
func (h *Hold) Context() context.Context {
	if h.contender == nil {
		return h.life().Context()
	}
	values := h.values
	for _, key := range h.keys() {
		values = context.WithValue(values, key, h)
	}
	return queue.Context(h.turn, values)
}

// Done compares the clock and returns a channel that is closed when the Hold has ended. A channel kept from before is closed
// once a timer or any other question has noticed the end.
func (h *Hold) Done() <-chan struct{} { return h.life().Done() }

// Err compares the clock and says why the Hold ended, nil while it has not: embed.ErrReleased, embed.ErrSuspended (the
// session's local deadline passed), embed.ErrDeleted, or why the session ended.
func (h *Hold) Err() error { return h.life().Err() }

// Release gives the Hold up and lets the next contender in. It is idempotent and can free nothing but this Hold. It
// waits until the ensemble knows, at most Config.RequestTimeout; after an error the node goes on trying until the
// session ends, and the Hold has ended all the same. With Options.Keep it waits
// for nothing but what the session has on its way, unless somebody else wants the lock.
func (h *Hold) Release() error {
	switch {
	case h.outer != nil, h.contender == nil:
		return nil
	case h.kept != nil:
		return h.kept.release(h)
	}
	return h.contender.Claim.Release()
}

// A heldKey is a lock among the values of a context.
type heldKey struct {
	kind string // the word of queue.Write is that of all who are alone
	path string // as the ensemble has it
}

// keys are those that a Hold is found by: one for each path of a Multi.
func (h *Hold) keys() []heldKey {
	kind, paths, root := queue.Write.Word, h.contender.Paths, h.contender.Session.Root()
	switch {
	case h.contender.Is(queue.Read):
		kind = queue.Read.Word
	case h.contender.Is(queue.Lease):
		kind, paths = queue.Lease.Word, paths[:1]
	}
	keys := make([]heldKey, len(paths))
	for i, path := range paths {
		path, _ = queue.Split(path)
		if kind == queue.Lease.Word {
			path, _ = queue.Split(path) // of the leases
		}
		keys[i] = heldKey{kind, queue.Below(root, path)}
	}
	return keys
}

// Held returns the Hold of a path that a context carries, which Hold.Context and the ctx of Do's fn do, so that code that is called under a
// lock takes no second contender, which would wait for the first for ever. It is one that is alone: of a Mutex, of the writer of a RWMutex, of a
// Multi with that path among its own. It is false if there is none, or if it has ended. path is the ensemble's: for a session that may have a
// Root it is path.Join(session.Root(), the session's own). The Release of what it returns does nothing: a lock is given up by who took it.
//
//	hold, ok := lock.Held(ctx, path)
//	if !ok {
//		hold, err = lock.NewMutex(session, path).Lock(ctx)
//	}
//	defer hold.Release()
func Held(ctx context.Context, path string) (*Hold, bool) { return carried(ctx, queue.Write, path) }

// HeldRead is Held for who only reads: also of a reader of a RWMutex.
func HeldRead(ctx context.Context, path string) (*Hold, bool) {
	if h, ok := carried(ctx, queue.Write, path); ok {
		return h, true
	}
	return carried(ctx, queue.Read, path)
}

// HeldPermits is Held for permits of a Semaphore, however many they are.
func HeldPermits(ctx context.Context, path string) (*Hold, bool) {
	return carried(ctx, queue.Lease, path)
}

func carried(ctx context.Context, k queue.Kind, path string) (*Hold, bool) {
	h, ok := ctx.Value(heldKey{k.Word, path}).(*Hold)
	if !ok || h.Err() != nil {
		return nil, false
	}
	return &Hold{contender: h.contender, turn: h.turn, token: h.token, values: h.values, outer: h}, true
}
