package embed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// SessionOptions are the settings of one session. The zero value is usable.
type SessionOptions struct {
	// Timeout is how long the ensemble waits in silence of this node before it expires the session. It is clamped to
	// Config's bounds; zero means DefaultSessionTimeout.
	Timeout time.Duration
	// Root is what the session knows as "/": all paths of it and of what is made with it are below. It need not exist yet.
	// Only Ephemerals has the tree's own paths. Empty means no other root.
	Root string
	// Auth are the credentials of the session, each of which adds an identity; at most 16. They cannot be changed later.
	Auth []Auth
}

func (o SessionOptions) root() (inside.Root, error) {
	if o.Root == "" || o.Root == "/" {
		return "", nil
	}
	return inside.Root(o.Root), tree.ValidatePath(o.Root)
}

// A Session is a claim to be alive: it owns ephemeral znodes, watches and whatever is held by them, and when it ends
// they go. All methods may be called by any number of goroutines.
//
// This node speaks for all its sessions at once, so an idle session costs nothing of its own. A session is Connected
// while the ensemble cannot have given it up. At its local deadline (its timeout, less a margin, after the newest
// request of this node that was applied had been sent) it is Suspended and everything it held is lost, before anyone
// else can be granted it; it may come back, but nothing that was lost does. It is Expired when the ensemble expired it,
// or when it stayed Suspended for another timeout. An ended session never comes back.
//
// Reads are served from this node's memory. They never go back in time within a session and show every write of the
// session that has returned; Sync makes the next ones show everything that was acknowledged anywhere.
//
// Calls wait no longer than their ctx, or Config.RequestTimeout if it has no deadline. What is made for waiting has no bound but
// its ctx, and outwaits a quorum that is away: Node.Ready, lock.Mutex.Lock, election.Election.Campaign, and Pending.Result,
// which has no ctx either.
type Session inside.Session

// in returns what the session is made of.
func (s *Session) in() *inside.SessionParts { return (*inside.Session)(s).Parts() }

// Create creates a znode that everybody may do everything with, and returns its final path, which differs from path if mode
// is sequential. The parent must exist. Errors: ErrNoNode (the parent), ErrNoAuth (Create on the parent), ErrNodeExists,
// ErrNoChildrenForEphemerals, ErrQuotaExceeded, ErrInvalidPath, ErrInvalidMode, ErrTooLarge, and those of every write: ErrSessionExpired, ErrSessionClosed, ErrClosed, ErrFailed, ErrUnavailable and
// the ctx's error if it was certainly not applied, ErrUnknownOutcome if it may be.
//
// With several shards a session's first write on each but the first one makes that shard know the session: it goes out after a
// commit on the first shard and one there, and is not applied if it cannot wait for them.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode CreateMode) (string, error) {
	r, err := s.one(ctx, "create", OpCreate(path, data, mode))
	return r.Path, err
}

// CreateOptions say what kind of znode CreateWith creates. The zero value is a persistent one that is open to everybody.
type CreateOptions struct {
	Mode CreateMode
	ACL  []ACL // nil means OpenACL; an empty list is refused, and one of more than 100 entries or 64 KiB once "auth" is replaced
	// TTL is of the modes TTL and SequentialTTL, and may be given with Ephemeral and EphemeralSequential: whole milliseconds, from 1 to
	// 2^40-1. With all other modes it is zero.
	//
	// An ephemeral with a TTL lingers when its session is lost, for the TTL at least, so that what its owner has on its way elsewhere has
	// arrived by the time that others see it go. It stays as a TTL znode of nobody: EphemeralOwner is zero, Version, Mzxid and Mtime have
	// moved, watches see NodeDataChanged, the data is as it was, and a guard of its claim fails. Who may delete it may do so sooner.
	//
	// A session is lost when it expires, or its process ends without closing it; what it held by a claim.Tenure also when it is
	// Suspended. What is deleted or released, or belongs to a session that is closed (Session.Close, Node.Shutdown, by a remote
	// client), goes at once; but for what claim.OpInherit says.
	TTL time.Duration
}

// CreateWith is Create with all that can be said of a znode, and returns its Stat too. Errors are Create's, ErrInvalidACL
// and ErrInvalidTTL.
func (s *Session) CreateWith(ctx context.Context, path string, data []byte, o CreateOptions) (string, Stat, error) {
	r, err := s.one(ctx, "create", OpCreateWith(path, data, o))
	return r.Path, r.Stat, err
}

// Set replaces a znode's data if its version is the given one, or any with AnyVersion, and returns the new Stat.
// Errors: ErrNoNode, ErrNoAuth, ErrQuotaExceeded, ErrBadVersion, ErrInvalidPath, ErrTooLarge and those of every write (see
// Create).
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	r, err := s.one(ctx, "set", OpSet(path, data, version))
	return r.Stat, err
}

// Delete deletes a znode without children if its version is the given one, or any with AnyVersion. Errors: ErrNoNode,
// ErrNoAuth (Delete on the parent), ErrBadVersion, ErrNotEmpty, ErrInvalidPath and those of every write (see Create).
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	_, err := s.one(ctx, "delete", OpDelete(path, version))
	return err
}

// SetACL replaces a znode's list if its Aversion is the given one, or any with AnyVersion, and returns the new Stat. No watch
// sees it. Errors: ErrInvalidACL, ErrNoNode, ErrNoAuth (Admin), ErrBadVersion, ErrInvalidPath and those of every write (see
// Create).
func (s *Session) SetACL(ctx context.Context, path string, acl []ACL, version int32) (Stat, error) {
	r, err := s.one(ctx, "set acl", plain(tree.Op{Kind: tree.KindSetACL, Path: path, ACL: acl, Version: version}))
	return r.Stat, err
}

func (s *Session) one(ctx context.Context, name string, op Op) (Result, error) {
	in, plain := s.in(), (*inside.Op)(&op).Plain()
	if err := (*inside.Op)(&op).Validate(in.MaxData); err != nil {
		return Result{}, opError(name, plain.Path, err)
	}
	results, err := in.Session.Submit(ctx, []tree.Op{in.Root.Op(plain)}).Wait(ctx)
	if err != nil {
		err = engine.Single(err)
		if plain.Kind == tree.KindCreate && errors.Is(err, ErrNoNode) {
			err = fmt.Errorf("its parent: %w", err)
		}
		return Result{}, opError(name, plain.Path, err)
	}
	return in.Root.Results(results)[0], nil
}

// Multi carries out the operations as one transaction: all in order, each on what those before it made, or none. It
// returns one Result per operation. If an operation is refused the error is a *MultiError with its index, also of one alone;
// otherwise the errors are those of every write (see Create). If they belong to several shards it is refused with ErrCrossShard
// before anything is sent. A Multi without operations does nothing.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	if len(ops) == 0 {
		return nil, opError("multi", "", s.live(ctx))
	}
	t, err := s.txn(ops)
	if err != nil {
		return nil, opError("multi", refusedPath(ops, err), err)
	}
	results, err := t.Outcome(t.Submit(ctx).Wait(ctx))
	return results, opError("multi", refusedPath(ops, err), err)
}

// refusedPath is that of the operation that an error is about; empty if it is about none, or the operation has none.
func refusedPath(ops []Op, err error) string {
	var refused *MultiError
	if !errors.As(err, &refused) || refused.Index >= len(ops) {
		return ""
	}
	return (*inside.Op)(&ops[refused.Index]).Plain().Path
}

// txn returns the transaction of the operations, not sent yet.
func (s *Session) txn(ops []Op) (*inside.Txn, error) {
	t := (*inside.Session)(s).NewTxn(len(ops))
	for i := range ops {
		if err := t.Add((*inside.Op)(&ops[i])); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Submit is Multi without waiting: transactions of a session on one shard are applied in the order of their Submit calls. ctx
// bounds admission only; the Pending gets the true outcome. The operations' data may be reused when Submit returns.
func (s *Session) Submit(ctx context.Context, ops ...Op) *Pending {
	t, err := s.txn(ops)
	if len(ops) == 0 {
		err = s.live(ctx)
	}
	if err != nil || len(ops) == 0 {
		done := make(chan struct{})
		close(done)
		return &Pending{done: done, err: opError("submit", "", err)}
	}
	p := t.Submit(ctx)
	return &Pending{p: &p, txn: t, done: p.Done()}
}

// A Pending is a transaction on its way. Its methods may be called by any number of goroutines.
type Pending struct {
	p    *engine.Pending
	txn  *inside.Txn
	done <-chan struct{}
	err  error // of one that was refused before it was sent
}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Result waits for the outcome and returns it; the error is Multi's. It waits as long as the node and the session last.
func (p *Pending) Result() ([]Result, error) {
	if p.p == nil {
		return nil, p.err
	}
	results, err := p.txn.Outcome(p.p.Result())
	return results, opError("submit", "", err)
}

// Get returns a znode's data and Stat. The data belongs to the caller; it is nil if it was set to nil. Errors:
// ErrNoNode, ErrNoAuth (Read), ErrInvalidPath, and ErrSessionExpired, ErrSessionClosed, ErrClosed or ErrFailed after the end.
func (s *Session) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("get", path, err)
	}
	in := s.in()
	data, stat, err := in.Session.Get(in.Root.In(path))
	return data, stat, opError("get", path, err)
}

// Exists returns a znode's Stat and whether there is one. Errors as of Get, except ErrNoNode.
func (s *Session) Exists(ctx context.Context, path string) (Stat, bool, error) {
	if err := s.read(ctx, path); err != nil {
		return Stat{}, false, opError("exists", path, err)
	}
	in := s.in()
	stat, ok, err := in.Session.Exists(in.Root.In(path))
	return stat, ok, opError("exists", path, err)
}

// Children returns the names of a znode's children, sorted, and its Stat, both of the same zxid; those of the root with several
// shards are read shard by shard, each at a zxid of its own. Errors as of Get.
func (s *Session) Children(ctx context.Context, path string) ([]string, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("children", path, err)
	}
	in := s.in()
	names, stat, err := in.Session.Children(in.Root.In(path))
	return names, stat, opError("children", path, err)
}

// ACL returns a znode's list and its Stat, both of the same zxid. Without Admin the ids of the scheme digest show the user
// alone. Errors as of Get; Read or Admin is enough.
func (s *Session) ACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("acl", path, err)
	}
	in := s.in()
	acl, stat, err := in.Session.ACL(in.Root.In(path))
	return acl, stat, opError("acl", path, err)
}

// CountDescendants returns the number of znodes below one, at any depth. Errors as of Get.
func (s *Session) CountDescendants(ctx context.Context, path string) (int, error) {
	if err := s.read(ctx, path); err != nil {
		return 0, opError("count descendants", path, err)
	}
	in := s.in()
	n, err := in.Session.Descendants(in.Root.In(path))
	return n, opError("count descendants", path, err)
}

// Ephemerals returns the paths of the session's own ephemerals that begin with prefix, sorted; all of them if it is empty or
// "/". As in ZooKeeper prefix is mere text, and it and the paths are the tree's, whatever the session's Root. It waits for a shard
// that is slow and that the session uses: ErrUnavailable.
func (s *Session) Ephemerals(ctx context.Context, prefix string) ([]string, error) {
	if err := s.live(ctx); err != nil {
		return nil, opError("ephemerals", prefix, err)
	}
	paths, err := s.in().Session.Ephemerals(ctx, prefix)
	return paths, opError("ephemerals", prefix, err)
}

// Member returns the member whose node speaks for a session: the one on which it was opened or, of a remote client's, the one that its
// client came to last. So it tells who holds what is a session's, by the Stat's EphemeralOwner. It says what this node knows; after Sync of "/"
// that is what was so when Sync was called, or later. It waits for the first shard if that is slow: ErrUnavailable.
//
// Errors: ErrNoSession if no such session is open (any more), the ctx's error, and those of an ended session or node.
func (s *Session) Member(ctx context.Context, id SessionID) (MemberID, error) {
	if err := s.live(ctx); err != nil {
		return 0, opError("member", "", err)
	}
	m, err := s.in().Session.Member(ctx, id)
	return m, opError("member", "", err)
}

func (s *Session) read(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return tree.ValidatePath(path)
}

func (s *Session) live(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.in().Session.Err()
}

// Sync waits until this node has applied everything that was acknowledged anywhere before the call, and returns the
// zxid that reads show at least from now on. (ZooKeeper's sync does not promise this across a change of leader.) path need not
// exist. With several shards the promise is for those of its own; "/" is on every one, waits for the slowest, and returns zero, for
// their zxids do not compare. Errors: ErrInvalidPath, ErrUnavailable if no quorum answers in time, the ctx's
// error, and those of an ended session or node.
func (s *Session) Sync(ctx context.Context, path string) (Zxid, error) {
	if err := s.read(ctx, path); err != nil {
		return 0, opError("sync", path, err)
	}
	in := s.in()
	z, err := in.Session.Sync(ctx, in.Root.In(path))
	return z, opError("sync", path, err)
}

// Root returns what the session knows as "/", as a path of the tree: "/" if it has no other root.
func (s *Session) Root() string { return s.in().Root.In("/") }

// ID returns the session's id.
func (s *Session) ID() SessionID { return s.in().Session.ID() }

// Timeout returns how long the ensemble waits in silence before it expires the session.
func (s *Session) Timeout() time.Duration { return s.in().Session.Timeout() }

// State compares the clock and returns the state, with a channel that is closed when it is another one.
func (s *Session) State() (now State, changed <-chan struct{}) { return s.in().Session.State() }

// Context compares the clock and returns a context that ends with the session, not before; its Cause says why.
func (s *Session) Context() context.Context { return s.in().Session.Context() }

// Done compares the clock and returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.in().Session.Done() }

// Err says why the session ended, nil while it has not: ErrSessionExpired, ErrSessionClosed, ErrClosed or ErrFailed.
func (s *Session) Err() error { return s.in().Session.Err() }

// Close ends the session: on this node at once, in the ensemble with the next batch. It waits until its ephemerals are
// gone, at most Config.RequestTimeout; after an error the ensemble ends the session at its timeout, if it has not yet: with several
// shards only one may be late. It is idempotent.
//
// If more than 10,000 ephemerals must go at once, of this session and others that close with it,
// the call waits only until their end is decided. They then go in transactions of about 10,000
// each, some 30 ms apart.
func (s *Session) Close() error { return opError("close", "", s.in().Session.Close()) }
