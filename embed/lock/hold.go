package lock

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Hold is one acquisition of a lock. It ends when it is released, at its session's local
// deadline, when its session or node ends, or when somebody deletes its znode. The package
// documentation says what its owner must do then. A Hold ends on its own node before anybody else
// can be granted the lock, except after such a deletion. An ended Hold does not come back.
//
// Every answer of a Hold is true at the moment of the question. For a call that is already in
// flight, or a machine whose clocks stood still, use Token and Guard. All methods may be called by
// any number of goroutines. The zero Hold has ended with embed.ErrNotHeld.
type Hold struct {
	// Immutable. The first two are nil in the zero Hold.
	contender *queue.Contender
	tenure    *claim.Tenure
	token     Token
	values    context.Context // of Lock's ctx
	kept      *kept           // gets the lock back at the release; nil: the claim is released
	outer     *Hold           // in a copy that Held returned: the original

	revoke revoke
}

// newHold returns the Hold of a contender whose claim is held.
func newHold(ctx context.Context, c *queue.Contender) *Hold {
	zxid, local := c.Order()
	return &Hold{contender: c, tenure: c.Tenure, token: Token{zxid, local}, values: ctx}
}

// Token returns the fencing token of this acquisition.
func (h *Hold) Token() Token { return h.token }

// Guard lets a Multi be applied only while nobody else can have been granted the lock since the
// Hold began. A Multi that is issued after the Hold ended fails with embed.ErrNotHeld, and nothing
// of it is applied. The Hold's node compares its clock when the Multi is issued. When the Multi is
// applied, the ensemble checks that the Hold's znode is still the ephemeral that its session
// created. One that lingers because of Options.Delay fails. A Multi that is in flight when the Hold
// ends may still be applied, while that znode is there. The Multi may belong to any session of the
// ensemble that may read that znode. With Options.Keep it must belong to the Mutex's session.
//
//	_, err := session.Multi(ctx, lock.Guard(hold), embed.OpSet("/report", data, embed.AnyVersion))
func Guard(h *Hold) embed.Op {
	if h == nil {
		return claim.OpGuard(nil) // which is refused
	}
	return claim.OpGuard(h.tenure)
}

// life returns the Hold's tenure, or an ended one for the zero Hold.
func (h *Hold) life() *claim.Tenure {
	if h.tenure == nil {
		return new(claim.Tenure)
	}
	return h.tenure
}

// Path returns the path of the Hold's znode. For a Multi, or for several permits, it is the path of
// the first one.
func (h *Hold) Path() string {
	if h.contender == nil {
		return ""
	}
	return h.contender.Path()
}

// Session returns the session that holds the lock, for reads and for a Multi with the Hold's Guard.
// It belongs to whoever opened it; in Do that is Do. The zero Hold has none: nil.
func (h *Hold) Session() *embed.Session {
	if h.contender == nil {
		return nil
	}
	return h.contender.Session
}

// Context returns a context with the values of Lock's ctx and the lifetime of the Hold.
// context.Cause says why it ended, and Held finds the Hold in it. Its Err and Done compare the
// clock when they are called, so after a pause they are right before any timer has run. A derived
// context ends with it, but does not compare the clock. Code that works with a derived one asks
// Hold.Err before it acts.
func (h *Hold) Context() context.Context {
	if h.contender == nil {
		return h.life().Context()
	}
	values := h.values
	for _, key := range h.keys() {
		values = context.WithValue(values, key, h)
	}
	return queue.Context(h.tenure, values, h.places()...)
}

// Done compares the clock and returns a channel that is closed when the Hold has ended. A channel
// from an earlier call is closed once a timer or another question has noticed the end.
func (h *Hold) Done() <-chan struct{} { return h.life().Done() }

// Err compares the clock and returns why the Hold ended, or nil while it lasts. The reasons are
// embed.ErrReleased, embed.ErrSuspended (the session's local deadline passed, or the wall clock
// jumped), embed.ErrDeleted, and those for which a session or a node ends.
func (h *Hold) Err() error { return h.life().Err() }

// Release gives the Hold up and lets the next contender in. It is idempotent and frees nothing but
// this Hold. It waits until the ensemble knows, for at most Config.RequestTimeout. After an error
// the Hold has ended all the same, and the node keeps trying until the session ends. With
// Options.Keep, Release waits only until what the session submitted before is applied, unless
// somebody else wants the lock.
func (h *Hold) Release() error {
	switch {
	case h.outer != nil, h.contender == nil:
		return nil
	case h.kept != nil:
		return h.kept.release(h)
	}
	return h.contender.Claim.Release()
}

// places returns the paths of the Hold's znodes as the ensemble knows them.
func (h *Hold) places() []string {
	paths := make([]string, len(h.contender.Paths))
	for i, path := range h.contender.Paths {
		paths[i] = queue.Below(h.contender.Session.Root(), path)
	}
	return paths
}

// A heldKey names a lock among the values of a context.
type heldKey struct {
	kind string // queue.Write's word stands for all exclusive locks
	path string // as the ensemble knows it
}

// keys returns the keys under which a context carries the Hold: one for each path of a Multi.
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
			path, _ = queue.Split(path) // up from the leases znode
		}
		keys[i] = heldKey{kind, queue.Below(root, path)}
	}
	return keys
}

// Held returns the exclusive Hold on a path that a context carries: that of a Mutex, of a RWMutex's
// writer, or of a Multi with that path. Hold.Context and the ctx of Do's fn carry one. A function
// that may be called under a lock asks Held first. Otherwise it would enter a second contender,
// which would wait for the first for ever. Held reports false if there is no such Hold or if it has
// ended.
//
// path is the ensemble's. For a session that may have a Root it is path.Join(session.Root(), p),
// where p is the session's path. Release of the returned Hold does nothing, because only the caller
// that acquired the lock gives it up.
//
//	hold, ok := lock.Held(ctx, path)
//	if !ok {
//		hold, err = lock.NewMutex(session, path).Lock(ctx)
//	}
//	defer hold.Release()
func Held(ctx context.Context, path string) (*Hold, bool) { return carried(ctx, queue.Write, path) }

// HeldRead is Held for a caller that only reads: it also finds the Hold of a RWMutex's reader.
func HeldRead(ctx context.Context, path string) (*Hold, bool) {
	if h, ok := carried(ctx, queue.Write, path); ok {
		return h, true
	}
	return carried(ctx, queue.Read, path)
}

// HeldPermits is Held for permits of a Semaphore, however many the Hold has.
func HeldPermits(ctx context.Context, path string) (*Hold, bool) {
	return carried(ctx, queue.Lease, path)
}

func carried(ctx context.Context, k queue.Kind, path string) (*Hold, bool) {
	h, ok := ctx.Value(heldKey{k.Word, path}).(*Hold)
	if !ok || h.Err() != nil {
		return nil, false
	}
	return &Hold{contender: h.contender, tenure: h.tenure, token: h.token, values: h.values, outer: h}, true
}
