package embed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// SessionOptions are the settings of one session. The zero value is usable.
type SessionOptions struct {
	// Timeout is how long this node may be silent before the ensemble expires the session. Zero
	// means Config.SessionTimeout. A value outside Config.MinSessionTimeout, 3.6 s by default, and
	// Config.MaxSessionTimeout is no error: the session gets the nearest one allowed. Then
	// Session.Timeout differs.
	Timeout time.Duration
	// Root is the znode that the session knows as "/". All paths of the session, and of what is
	// made with it, are below Root; only Ephemerals returns paths of the whole tree. Root need not
	// exist yet. Empty means the root of the tree.
	Root string
	// Auth are the credentials of the session, at most 16. Each adds an identity. They cannot be
	// changed later.
	Auth []Auth
}

func (o SessionOptions) root() (inside.Root, error) {
	if o.Root == "" || o.Root == "/" {
		return "", nil
	}
	return inside.Root(o.Root), tree.ValidatePath(o.Root)
}

// A Session tells the ensemble that its owner is alive. It owns ephemeral znodes, watches, and the
// locks and leaderships that it holds by them; when it ends, they go. Its methods may be called by
// any number of goroutines.
//
// A session is Connected while the ensemble cannot have expired it. The node speaks for all its
// sessions at once, so an idle session costs nothing of its own.
//
// A session has a local deadline: its timeout, less a margin, after this node sent the newest of
// its writes or beats that was applied. At that deadline the session becomes Suspended and loses
// everything that it held, before anyone else can be granted it. The session may become Connected
// again, but what it lost does not come back. It is Expired when the ensemble expires it, or when
// it has stayed Suspended for another timeout. An ended session never comes back.
//
// Reads are served from this node's memory. Within a session they never go back in time, and they
// show every write of the session that has returned. After Sync they show everything that was
// acknowledged anywhere before the Sync.
//
// A call waits no longer than its ctx, or Config.RequestTimeout if the ctx has no deadline. Calls
// that are meant to wait are bounded by their ctx alone, and outlast the lack of a quorum:
// Node.Ready, lock.Mutex.Lock, election.Election.Campaign. So does Pending.Result, which has no
// ctx. A read waits for nothing, but that of a client's session needs a connection: see
// client.Config.
type Session inside.Session

// in returns what the session is made of.
func (s *Session) in() *inside.SessionParts { return (*inside.Session)(s).Parts() }

// Create creates a znode that anyone may do anything with. It returns the final path, which differs
// from path if mode is sequential. The parent must exist.
//
// Errors: ErrNoNode (the parent), ErrNoAuth (Create on the parent), ErrNodeExists,
// ErrNoChildrenForEphemerals, ErrQuotaExceeded, ErrInvalidPath, ErrInvalidMode, ErrTooLarge, and
// the errors of every write. Those are ErrSessionExpired, ErrSessionClosed, ErrClosed, ErrFailed,
// ErrUnavailable and the ctx's error if the write was certainly not applied, and ErrUnknownOutcome
// if it may have been.
//
// With several shards, each shard except the first has to learn of a session before the session's
// first write there. That write is sent after one commit on the first shard and one on its own. It
// is not applied if it cannot wait for them.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode CreateMode) (string, error) {
	r, err := s.one(ctx, "create", OpCreate(path, data, mode))
	return r.Path, err
}

// CreateOptions say what kind of znode CreateWith creates. The zero value is a persistent znode
// that anyone may do anything with.
type CreateOptions struct {
	Mode CreateMode
	// ACL says who may do what; nil means OpenACL. An empty list is refused. So is a list of more
	// than 100 entries or 64 KiB, counted after "auth" is replaced by identities.
	ACL []ACL
	// TTL is how long an unused znode of mode TTL or SequentialTTL lives, in whole milliseconds
	// from 1 to 2^40-1. It may also be given with Ephemeral and EphemeralSequential. With every
	// other mode it must be zero.
	//
	// An ephemeral with a TTL lingers for at least the TTL when its session is lost. So what its
	// owner has on its way elsewhere arrives before others see the ephemeral go. While it lingers,
	// the znode is a TTL znode without an owner: EphemeralOwner is zero, the data is unchanged, and
	// Version, Mzxid and Mtime have advanced. Watches see NodeDataChanged, and a guard of its claim
	// fails. Anyone who may delete the znode can delete it sooner.
	//
	// A session is lost when it expires, or when its process ends without closing it. A znode that
	// the session held by a claim.Tenure also lingers when the session becomes Suspended. A znode
	// goes at once if it is deleted or released, or if its session is closed by Session.Close, by
	// Node.Shutdown or by a remote client. claim.OpInherit is an exception.
	TTL time.Duration
	// Parents creates what is missing above the znode, what is above the session's Root included, as
	// containers with an OpenACL. Then ErrNoNode cannot happen. The parents cost no commit of their
	// own.
	Parents bool
}

// CreateWith is Create with all options of a znode. It returns the Stat too. Errors: those of
// Create, ErrInvalidACL and ErrInvalidTTL.
func (s *Session) CreateWith(ctx context.Context, path string, data []byte, o CreateOptions) (string, Stat, error) {
	op, create := OpCreateWith(path, data, o), s.one
	if o.Parents {
		create = s.oneWithParents
	}
	r, err := create(ctx, "create", op)
	return r.Path, r.Stat, err
}

// Put sets the data of a znode, whatever its version. If the znode is missing, Put creates it as a
// persistent znode that anyone may do anything with, and what is missing above it as
// CreateOptions.Parents does. It returns the new Stat, whose Version is zero if Put created the
// znode. It costs one commit, or more if others create or delete the same znodes meanwhile.
//
// Errors: those of Set and of CreateWith, except ErrNoNode, ErrNodeExists and ErrBadVersion.
func (s *Session) Put(ctx context.Context, path string, data []byte) (Stat, error) {
	for {
		_, there, err := s.Exists(ctx, path)
		if err != nil && !errors.Is(err, ErrNoAuth) {
			return Stat{}, renamed("put", err)
		}
		put, op, other := s.one, OpSet(path, data, AnyVersion), ErrNoNode
		if !there && err == nil {
			put, op, other = s.oneWithParents, OpCreate(path, data, Persistent), ErrNodeExists
		}
		r, err := put(ctx, "put", op)
		if !errors.Is(err, other) {
			return r.Stat, err
		}
		// Somebody else has created or deleted it meanwhile, which this node shows by now.
	}
}

// Set replaces the data of a znode and returns the new Stat. The znode must have the given version;
// AnyVersion matches every version.
//
// Errors: ErrNoNode, ErrNoAuth, ErrQuotaExceeded, ErrBadVersion, ErrInvalidPath, ErrTooLarge and
// those of every write (see Create).
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	r, err := s.one(ctx, "set", OpSet(path, data, version))
	return r.Stat, err
}

// Delete deletes a znode without children. The znode must have the given version; AnyVersion
// matches every version.
//
// Errors: ErrNoNode, ErrNoAuth (Delete on the parent), ErrBadVersion, ErrNotEmpty, ErrInvalidPath
// and those of every write (see Create).
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	_, err := s.one(ctx, "delete", OpDelete(path, version))
	return err
}

// SetACL replaces the ACL of a znode and returns the new Stat. The znode must have the given
// Aversion; AnyVersion matches every one. No watch sees the change.
//
// Errors: ErrInvalidACL, ErrNoNode, ErrNoAuth (Admin), ErrBadVersion, ErrInvalidPath and those of
// every write (see Create).
func (s *Session) SetACL(ctx context.Context, path string, acl []ACL, version int32) (Stat, error) {
	r, err := s.one(ctx, "set acl", plain(tree.Op{Kind: tree.KindSetACL, Path: path, ACL: acl, Version: version}))
	return r.Stat, err
}

func (s *Session) one(ctx context.Context, name string, op Op) (Result, error) {
	in, plain := s.in(), (*inside.Op)(&op).Plain()
	if err := (*inside.Op)(&op).Validate(in.MaxData); err != nil {
		return Result{}, opError(name, plain.Path, err)
	}
	results, err := in.Session.Do(ctx, []tree.Op{in.Root.Op(plain)}, nil)
	if err != nil {
		err = engine.Single(err)
		if plain.Kind == tree.KindCreate && errors.Is(err, ErrNoNode) {
			err = fmt.Errorf("its parent: %w", err)
		}
		return Result{}, opError(name, plain.Path, err)
	}
	return in.Root.Results(results)[0], nil
}

// Multi applies the operations as one transaction, in order: each sees the effects of those before
// it. Either all are applied or none. Multi returns one Result per operation. A Multi without
// operations does nothing.
//
// If an operation is refused, the error is a *MultiError with its index, even for a single
// operation. If the operations belong to several shards, Multi fails with ErrCrossShard before
// anything is sent. Other errors are those of every write (see Create).
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	if len(ops) == 0 {
		return nil, opError("multi", "", s.live(ctx))
	}
	t, err := s.txn(ops)
	if err != nil {
		return nil, opError("multi", refusedPath(ops, err), err)
	}
	results, err := t.Do(ctx)
	return results, opError("multi", refusedPath(ops, err), err)
}

// refusedPath returns the path of the operation that an error is about. It is empty if the error is
// about none, or if the operation has no path.
func refusedPath(ops []Op, err error) string {
	var refused *MultiError
	if !errors.As(err, &refused) || refused.Index >= len(ops) {
		return ""
	}
	return (*inside.Op)(&ops[refused.Index]).Plain().Path
}

// txn returns the transaction of the operations. It is not sent yet.
func (s *Session) txn(ops []Op) (*inside.Txn, error) {
	t := (*inside.Session)(s).NewTxn(len(ops))
	for i := range ops {
		if err := t.Add((*inside.Op)(&ops[i])); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Submit is Multi without waiting. The transactions of a session on one shard are applied in the
// order of their Submit calls. If ctx has ended, nothing is sent; later its end changes nothing.
// When Submit returns, the caller may reuse the operations' data.
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
	return &Pending{p: p, txn: t, done: p.Done()}
}

// A Pending is a submitted transaction. Its methods may be called by any number of goroutines.
type Pending struct {
	p    inside.Pending
	txn  *inside.Txn
	done <-chan struct{}
	err  error // why it was refused before it was sent; then p is nil
}

// Done returns a channel that is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Result waits for the outcome and returns it. Errors are those of Multi. Result waits as long as
// the node and the session last.
func (p *Pending) Result() ([]Result, error) {
	if p.p == nil {
		return nil, p.err
	}
	results, err := p.txn.Outcome(p.p.Result())
	return results, opError("submit", "", err)
}

// Get returns the data and Stat of a znode. The data belongs to the caller. It is nil if it was set
// to nil.
//
// Errors: ErrNoNode, ErrNoAuth (Read), ErrInvalidPath; after the end of the session or node
// ErrSessionExpired, ErrSessionClosed, ErrClosed or ErrFailed.
func (s *Session) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("get", path, err)
	}
	data, stat, err := s.in().Get(ctx, path)
	return data, stat, opError("get", path, err)
}

// Exists returns the Stat of a znode, and whether the znode exists. Errors are those of Get, except
// ErrNoNode.
func (s *Session) Exists(ctx context.Context, path string) (Stat, bool, error) {
	if err := s.read(ctx, path); err != nil {
		return Stat{}, false, opError("exists", path, err)
	}
	stat, ok, err := s.in().Exists(ctx, path)
	return stat, ok, opError("exists", path, err)
}

// Children returns the sorted names of a znode's children and the znode's Stat, both at the same
// zxid. With several shards, the root's children are read shard by shard, each at its own zxid.
// Errors are those of Get.
func (s *Session) Children(ctx context.Context, path string) ([]string, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("children", path, err)
	}
	in := s.in()
	names, stat, err := in.Session.Children(ctx, in.Root.In(path))
	return names, stat, opError("children", path, err)
}

// Page returns up to n names of a znode's children, in order and after the given one. An empty
// after begins with the first. The cost does not grow with the number of children, except for the
// root with several shards. Each call reads the present state. Errors are those of Get, and
// ErrInvalidArgument if n is not positive.
func (s *Session) Page(ctx context.Context, path, after string, n int) ([]string, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, opError("page", path, err)
	}
	if n <= 0 {
		return nil, opError("page", path, fmt.Errorf("%w: a page of %d names", ErrInvalidArgument, n))
	}
	in := s.in()
	names, err := in.Session.Page(ctx, in.Root.In(path), after, n)
	return names, opError("page", path, err)
}

// A Znode is one element of a Walk.
type Znode struct {
	Path string // below the session's Root
	Data []byte // it belongs to the caller; nil if it was set to nil
	Stat Stat
	Zxid Zxid // of the state that the Walk shows, the same for all its znodes
}

// WalkOptions say how far a Walk goes. The zero value goes all the way.
type WalkOptions struct {
	// Depth is how many levels below the path the Walk shows: with one, the znode and its children.
	// What is deeper costs nothing. Zero means all levels.
	Depth int
}

// Walk yields a znode and all below it, each before its children, in byte order, and all as they
// were at one zxid. Writes go on meanwhile, and this node keeps in memory what they replace until
// the loop ends: on each shard as much again as the shard has, and 64 MiB. If they replace more, the
// oldest Walk ends with ErrUnavailable, and may begin again. Walk passes over what the session may not
// read.
//
// After an error the sequence ends. Errors are those of Get, ErrNoAuth for the first znode, and
// ErrCrossShard for a znode whose descendants are on several shards: the root, and
// /zookeeper/quota. With ErrNoNode and ErrNoAuth the Znode's Zxid tells of which zxid that is true.
func (s *Session) Walk(ctx context.Context, path string) iter.Seq2[Znode, error] {
	return s.WalkWith(ctx, path, WalkOptions{})
}

// WalkWith is Walk with all options. Other errors: ErrInvalidArgument if Depth is negative.
func (s *Session) WalkWith(ctx context.Context, path string, o WalkOptions) iter.Seq2[Znode, error] {
	in := s.in()
	return walk("walk", path, func(fn func(Zxid, string, tree.Found) bool) (Zxid, error) {
		if err := s.read(ctx, path); err != nil {
			return 0, err
		}
		if o.Depth < 0 {
			return 0, fmt.Errorf("%w: WalkOptions.Depth is %d", ErrInvalidArgument, o.Depth)
		}
		return in.Session.Walk(ctx, in.Root.In(path), o.Depth, func(at Zxid, path string, f tree.Found) bool {
			return fn(at, in.Root.Out(path), f)
		})
	})
}

// walk returns the sequence of a walk of the tree. run calls its argument with each znode.
func walk(op, path string, run func(fn func(Zxid, string, tree.Found) bool) (Zxid, error)) iter.Seq2[Znode, error] {
	return func(yield func(Znode, error) bool) {
		stopped := false
		at, err := run(func(at Zxid, path string, f tree.Found) bool {
			stopped = !yield(Znode{path, f.Data(), f.Stat(), at}, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Znode{Zxid: at}, opError(op, path, err))
		}
	}
}

// Await waits until this node shows a zxid of the path's shard, or a later one. So a zxid that
// another process tells, from a Stat or a token, makes this node's reads as new, without a commit.
//
// Errors: those of Sync, and ErrCrossShard for a path that is on all shards.
func (s *Session) Await(ctx context.Context, path string, z Zxid) error {
	if err := s.read(ctx, path); err != nil {
		return opError("await", path, err)
	}
	in := s.in()
	return opError("await", path, in.Session.Await(ctx, in.Root.In(path), z))
}

// ACL returns the ACL of a znode and its Stat, both at the same zxid. Without the permission Admin,
// ids of the scheme digest show only the user. Errors are those of Get; either Read or Admin is
// enough.
func (s *Session) ACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("acl", path, err)
	}
	in := s.in()
	acl, stat, err := in.Session.ACL(ctx, in.Root.In(path))
	return acl, stat, opError("acl", path, err)
}

// CountDescendants returns the number of znodes below a znode, at any depth. Errors are those of
// Get.
func (s *Session) CountDescendants(ctx context.Context, path string) (int, error) {
	if err := s.read(ctx, path); err != nil {
		return 0, opError("count descendants", path, err)
	}
	in := s.in()
	n, err := in.Session.Descendants(ctx, in.Root.In(path))
	return n, opError("count descendants", path, err)
}

// Ephemerals returns the sorted paths of the session's own ephemerals that begin with prefix. It
// returns all of them if prefix is empty or "/". As in ZooKeeper, prefix is plain text, and both
// prefix and the paths are those of the whole tree even if the session has a Root. Ephemerals waits
// for a slow shard that the session uses, and may fail with ErrUnavailable.
func (s *Session) Ephemerals(ctx context.Context, prefix string) ([]string, error) {
	if err := s.live(ctx); err != nil {
		return nil, opError("ephemerals", prefix, err)
	}
	paths, err := s.in().Session.Ephemerals(ctx, prefix)
	return paths, opError("ephemerals", prefix, err)
}

// Member returns the member whose node speaks for a session. That is the member on which the
// session was opened or, for a remote session, the member that its client attached to last. With a
// Stat's EphemeralOwner, Member tells where the holder of a znode runs. Over a gateway it tells that of
// the session itself and of owners of ephemerals that the session may read, and of no others.
//
// Member answers from what this node knows. After a Sync of "/" the answer is as new as that Sync,
// or newer. Member waits for the first shard if that shard is slow, and may fail with
// ErrUnavailable. Other errors: ErrNoSession if no session of that id is open, the ctx's error, and
// those of an ended session or node.
func (s *Session) Member(ctx context.Context, id SessionID) (MemberID, error) {
	if err := s.live(ctx); err != nil {
		return 0, opError("member", "", err)
	}
	m, err := s.in().Session.Member(ctx, id)
	return m, opError("member", "", err)
}

// read checks what every call with a path checks before it reads.
func (s *Session) read(ctx context.Context, path string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return tree.ValidatePath(path)
}

// live fails if the ctx or the session has ended.
func (s *Session) live(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.in().Session.Err()
}

// Sync waits until this node has applied everything that was acknowledged anywhere before the call.
// It returns the least zxid that reads show from now on. (ZooKeeper's sync does not promise this
// across a change of leader.) path need not exist.
//
// With several shards, the promise holds for the shards of path. "/" is on every shard: Sync waits
// for the slowest, and returns zero because their zxids do not compare.
//
// Errors: ErrInvalidPath, ErrUnavailable if no quorum answers in time, the ctx's error, and those
// of an ended session or node.
func (s *Session) Sync(ctx context.Context, path string) (Zxid, error) {
	if err := s.read(ctx, path); err != nil {
		return 0, opError("sync", path, err)
	}
	in := s.in()
	z, err := in.Session.Sync(ctx, in.Root.In(path))
	return z, opError("sync", path, err)
}

// Root returns what the session knows as "/", as a path of the whole tree. It is "/" without
// SessionOptions.Root.
func (s *Session) Root() string { return s.in().Root.In("/") }

// ID returns the session's id.
func (s *Session) ID() SessionID { return s.in().Session.ID() }

// Timeout returns how long this node may be silent before the ensemble expires the session.
func (s *Session) Timeout() time.Duration { return s.in().Session.Timeout() }

// State compares the clock and returns the state, with a channel that is closed when the state
// changes.
func (s *Session) State() (now State, changed <-chan struct{}) { return s.in().Session.State() }

// Context compares the clock and returns a context that ends with the session, not earlier. Its
// Cause says why.
func (s *Session) Context() context.Context { return s.in().Session.Context() }

// Done compares the clock and returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.in().Session.Done() }

// Err compares the clock and returns why the session ended, or nil while it has not:
// ErrSessionExpired, ErrSessionClosed, ErrClosed or ErrFailed.
func (s *Session) Err() error { return s.in().Session.Err() }

// Close ends the session: on this node at once, and in the ensemble with the next batch. It waits
// until the session's ephemerals are gone, at most Config.RequestTimeout. After an error, the
// ensemble ends the session at its timeout at the latest. With several shards, an error may mean
// that only one of them is late. Close is idempotent.
//
// If more than 10,000 ephemerals must go at once, of this session and others that close with it,
// Close waits only until their end is decided. They then go in transactions of about 10,000 each,
// some 30 ms apart.
func (s *Session) Close() error { return opError("close", "", s.in().Session.Close()) }
