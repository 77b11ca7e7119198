package embed

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// SessionOptions are the settings of one session. The zero value is usable.
type SessionOptions struct {
	// Timeout is how long the ensemble waits in silence of this node before it expires the session. It is clamped to
	// Config's bounds; zero means DefaultSessionTimeout.
	Timeout time.Duration
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
type Session struct {
	s        *engine.Session
	dataMax  int
	patience time.Duration // Config.RequestTimeout
}

// Create creates a znode and returns its final path, which differs from path if mode is sequential. The parent must
// exist. Errors: ErrNoNode (the parent), ErrNodeExists, ErrNoChildrenForEphemerals, ErrInvalidPath, ErrInvalidMode,
// ErrTooLarge, and those of every write: ErrSessionExpired, ErrSessionClosed, ErrClosed, ErrFailed, ErrUnavailable and
// the ctx's error if it was certainly not applied, ErrUnknownOutcome if it may be.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode CreateMode) (string, error) {
	r, err := s.one(ctx, "create", OpCreate(path, data, mode))
	return r.Path, err
}

// Set replaces a znode's data if its version is the given one, or any with AnyVersion, and returns the new Stat.
// Errors: ErrNoNode, ErrBadVersion, ErrInvalidPath, ErrTooLarge and those of every write (see Create).
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	r, err := s.one(ctx, "set", OpSet(path, data, version))
	return r.Stat, err
}

// Delete deletes a znode without children if its version is the given one, or any with AnyVersion. Errors: ErrNoNode,
// ErrBadVersion, ErrNotEmpty, ErrInvalidPath and those of every write (see Create).
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	_, err := s.one(ctx, "delete", OpDelete(path, version))
	return err
}

func (s *Session) one(ctx context.Context, name string, op Op) (Result, error) {
	err := op.validate(s.dataMax)
	if err != nil {
		return Result{}, opError(name, op.op.Path, err)
	}
	results, err := s.s.Submit(ctx, []tree.Op{op.op}).Wait(ctx)
	if err != nil {
		return Result{}, opError(name, op.op.Path, engine.Single(err))
	}
	return results[0], nil
}

// Multi carries out the operations as one transaction: all in order, each on what those before it made, or none. It
// returns one Result per operation. If an operation is refused the error is a *MultiError with its index, also of one alone;
// otherwise the errors are those of every write (see Create). A Multi without operations does nothing.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	if len(ops) == 0 {
		return nil, opError("multi", "", s.live(ctx))
	}
	plain, err := plain(ops, s.dataMax)
	if err != nil {
		return nil, opError("multi", "", err)
	}
	results, err := s.s.Submit(ctx, plain).Wait(ctx)
	return results, opError("multi", "", err)
}

// Submit is Multi without waiting: transactions of a session are applied in the order of their Submit calls. ctx bounds
// admission only; the Pending gets the true outcome. The operations' data may be reused when Submit returns.
func (s *Session) Submit(ctx context.Context, ops ...Op) *Pending {
	plain, err := plain(ops, s.dataMax)
	if len(ops) == 0 {
		err = s.live(ctx)
	}
	if err != nil || len(ops) == 0 {
		done := make(chan struct{})
		close(done)
		return &Pending{done: done, err: opError("submit", "", err)}
	}
	p := s.s.Submit(ctx, plain)
	return &Pending{p: p, done: p.Done()}
}

// A Pending is a transaction on its way. Its methods may be called by any number of goroutines.
type Pending struct {
	p    *engine.Pending
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
	results, err := p.p.Result()
	return results, opError("submit", "", err)
}

// Get returns a znode's data and Stat. The data belongs to the caller; it is nil if it was set to nil. Errors:
// ErrNoNode, ErrInvalidPath, and ErrSessionExpired, ErrSessionClosed, ErrClosed or ErrFailed after the end.
func (s *Session) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("get", path, err)
	}
	data, stat, err := s.s.Get(path)
	return data, stat, opError("get", path, err)
}

// Exists returns a znode's Stat and whether there is one. Errors as of Get, except ErrNoNode.
func (s *Session) Exists(ctx context.Context, path string) (Stat, bool, error) {
	if err := s.read(ctx, path); err != nil {
		return Stat{}, false, opError("exists", path, err)
	}
	stat, ok, err := s.s.Exists(path)
	return stat, ok, opError("exists", path, err)
}

// Children returns the names of a znode's children, sorted, and its Stat, both of the same zxid. Errors as of Get.
func (s *Session) Children(ctx context.Context, path string) ([]string, Stat, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, Stat{}, opError("children", path, err)
	}
	names, stat, err := s.s.Children(path)
	return names, stat, opError("children", path, err)
}

// Before returns the name of the sibling with the next lower sequence number, the last ten characters of a name if they
// are digits. With match given, siblings whose name contains none of its strings are passed over. It is false if there
// is none. The cost does not grow with the number of siblings, so a contender finds its predecessor in a queue of any
// length. Errors as of Get; ErrNoNode if path itself does not exist.
func (s *Session) Before(ctx context.Context, path string, match ...string) (name string, ok bool, err error) {
	if err := s.read(ctx, path); err != nil {
		return "", false, opError("before", path, err)
	}
	name, ok, err = s.s.Before(path, match...)
	return name, ok, opError("before", path, err)
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
	return s.s.Err()
}

// Sync waits until this node has applied everything that was acknowledged anywhere before the call, and returns the
// zxid that reads show at least from now on. (ZooKeeper's sync does not promise this across a change of leader.) path
// chooses the shard and need not exist. Errors: ErrInvalidPath, ErrUnavailable if no quorum answers in time, the ctx's
// error, and those of an ended session or node.
func (s *Session) Sync(ctx context.Context, path string) (Zxid, error) {
	if err := s.read(ctx, path); err != nil {
		return 0, opError("sync", path, err)
	}
	z, err := s.s.Sync(ctx)
	return z, opError("sync", path, err)
}

// ID returns the session's id.
func (s *Session) ID() SessionID { return s.s.ID() }

// Timeout returns how long the ensemble waits in silence before it expires the session.
func (s *Session) Timeout() time.Duration { return s.s.Timeout() }

// State compares the clock and returns the state, with a channel that is closed when it is another one.
func (s *Session) State() (now State, changed <-chan struct{}) { return s.s.State() }

// Context ends with the session, not before; its Cause says why.
func (s *Session) Context() context.Context { return s.s.Context() }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.s.Done() }

// Err says why the session ended, nil while it has not: ErrSessionExpired, ErrSessionClosed, ErrClosed or ErrFailed.
func (s *Session) Err() error { return s.s.Err() }

// Close ends the session: on this node at once, in the ensemble with the next batch. It waits until its ephemerals are
// gone, at most Config.RequestTimeout; after an error the ensemble ends the session at its timeout. It is idempotent.
func (s *Session) Close() error { return opError("close", "", s.s.Close()) }
