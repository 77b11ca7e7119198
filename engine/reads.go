package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A Session is an in-process session of this node, or a remote session while it is attached to this
// node. The keeper manages its life; its reads are here. Its methods are safe for concurrent use.
type Session struct {
	*keeper.Session
	engine *Engine

	watcher atomic.Pointer[watch.Watcher] // of its newest watch
}

// reader returns this node's replicas, as the session may see them.
func (s *Session) reader() forest.Reader {
	return forest.Reader{Forest: s.engine.shards, Who: s.Identities()}
}

// Log returns the node's log.
func (s *Session) Log() *slog.Logger { return s.engine.log }

// view returns the shard of a path, as the session may see it.
func (s *Session) view(path string) tree.View { return s.reader().View(path) }

// mayRead runs under the lock of a registry.
func (s *Session) mayRead(acl []tree.ACL) bool { return s.engine.home().MayRead(s.Identities(), acl) }

// Get returns a copy of the data and the Stat of a znode, from this node's replica.
func (s *Session) Get(path string) ([]byte, tree.Stat, error) {
	data, stat, err := s.reader().Get(path)
	if err := s.Live(); err != nil {
		return nil, tree.Stat{}, err
	}
	return data, stat, err
}

// Exists returns the Stat of a znode, and whether the znode exists.
func (s *Session) Exists(path string) (tree.Stat, bool, error) {
	stat, ok, err := s.reader().Exists(path)
	if err := s.Live(); err != nil {
		return tree.Stat{}, false, err
	}
	return stat, ok, err
}

// ACL returns a znode's ACL and its Stat, both of the same version.
func (s *Session) ACL(path string) ([]tree.ACL, tree.Stat, error) {
	acl, stat, err := s.reader().ACL(path)
	if err := s.Live(); err != nil {
		return nil, tree.Stat{}, err
	}
	return acl, stat, err
}

// Children returns the sorted names of a znode's children and its Stat, both of the same version.
func (s *Session) Children(path string) (names []string, stat tree.Stat, err error) {
	names, stat, err = s.reader().Children(path)
	if err := s.Live(); err != nil {
		return nil, tree.Stat{}, err
	}
	return names, stat, err
}

// Descendants returns how many znodes are below path.
func (s *Session) Descendants(path string) (n int, err error) {
	n, err = s.reader().Descendants(path)
	if err := s.Live(); err != nil {
		return 0, err
	}
	return n, err
}

// Ephemerals returns the paths of the session's ephemerals that begin with prefix, in byte order.
// It waits while a replica applies an entry.
func (s *Session) Ephemerals(ctx context.Context, prefix string) ([]string, error) {
	if err := s.Live(); err != nil {
		return nil, err // without waiting
	}
	var all []string
	for _, r := range s.engine.shards {
		if s.Owner.Known(r.Shard) { // other shards have nothing of the session
			err := s.engine.Tables.Inspect(ctx, r, func(table *session.Table) { all = append(all, table.Owned(s.ID())...) })
			if err != nil {
				return nil, err
			}
		}
	}
	if err := s.Live(); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(path string) bool { return !strings.HasPrefix(path, prefix) })
	slices.Sort(all)
	return all, nil
}

// Member returns the member whose node speaks for a session of the ensemble, as far as this node
// has applied. For an in-process session it is the member that opened it; for a remote session, the
// member to which it is attached. Member returns ErrNoSession if the session does not exist or its
// end is decided. It waits while a replica applies an entry.
func (s *Session) Member(ctx context.Context, id tree.SessionID) (MemberID, error) {
	if err := s.Live(); err != nil {
		return 0, err // without waiting
	}
	var m MemberID
	err := s.engine.Tables.Inspect(ctx, s.engine.home(), func(table *session.Table) {
		if r, _ := table.Get(id); table.Usable(id, r.Origin) == nil {
			m = MemberID(r.Origin)
		}
	})
	if err == nil && m == 0 {
		err = ErrNoSession
	}
	if err := s.Live(); err != nil {
		return 0, err
	}
	return m, err
}

// Meets reports whether the session may know of a session: its own, or one with an ephemeral that it
// may read. It waits while a replica applies an entry.
func (s *Session) Meets(ctx context.Context, id tree.SessionID) (bool, error) {
	if id == s.ID() {
		return true, nil
	}
	for _, r := range s.engine.shards {
		var owned []string
		if err := s.engine.Tables.Inspect(ctx, r, func(table *session.Table) { owned = table.Owned(id) }); err != nil {
			return false, err
		}
		for _, path := range owned {
			if stat, ok, _ := s.view(path).Exists(path); ok && stat.EphemeralOwner == id {
				return true, nil
			}
		}
	}
	return false, nil
}

// Before returns the sibling with the next lower sequence number; see tree.Tree.Before. Before
// refuses children of a znode that is on several shards. Each shard numbers its own, so a contender
// there would be first on every shard.
func (s *Session) Before(path string, match ...string) (string, bool, error) {
	if path != command.RootPath && s.engine.shards.Spans(tree.Parent(path)) {
		return "", false, fmt.Errorf("%w: the children of %s are on several, each of which numbers its own", ErrCrossShard, tree.Parent(path))
	}
	name, ok, err := s.view(path).Before(path, match...)
	if err := s.Live(); err != nil {
		return "", false, err
	}
	return name, ok, err
}

// Sync waits until this node has applied everything that any node had acknowledged on the path's
// shard before the call. It returns a zxid: later reads show at least this. If the znode is on all
// shards, Sync waits for all of them and returns zero.
func (s *Session) Sync(ctx context.Context, path string) (tree.Zxid, error) {
	if err := s.Live(); err != nil {
		return 0, err
	}
	wait := func(r *replica.Replica) error { return s.engine.barrier(ctx, r.Shard) }
	if s.engine.shards.Spans(path) {
		if err := s.engine.shards.Each(wait); err != nil {
			return 0, err
		}
		return 0, s.Live()
	}
	r := s.engine.shards.At(path)
	if err := wait(r); err != nil {
		return 0, err
	}
	z := r.Visible()
	return z, s.Live()
}

// Await waits until this node shows transaction z of the path's shard, or a later one. A path that
// is on all shards is refused: their zxids do not compare.
func (s *Session) Await(ctx context.Context, path string, z tree.Zxid) error {
	if s.engine.shards.Spans(path) {
		return fmt.Errorf("%w: %s is on each, and their zxids do not compare", ErrCrossShard, path)
	}
	bounded, cancel := s.engine.bounded(ctx)
	defer cancel()
	r := s.engine.shards.At(path)
	reached, stop := r.Watches.Reached(z)
	defer stop()
	select {
	case <-reached:
	case <-s.Done():
	case <-bounded.Done():
		if !isDone(reached) {
			return s.engine.health.ExplainOn(r.Shard, outbox.Lacking(bounded, bounded.Err()))
		}
	}
	return s.Live()
}

// Page returns up to n names of a znode's children after the given one, in byte order.
func (s *Session) Page(path, after string, n int) (names []string, err error) {
	names, err = s.reader().Page(path, after, n)
	if err := s.Live(); err != nil {
		return nil, err
	}
	return names, err
}

// Walk calls fn with a znode and what is below it that the session may read, depth levels or all
// with zero, as they were at one zxid, until fn returns false. Walk returns the zxid. A znode that
// has others of several shards below it is refused.
func (s *Session) Walk(ctx context.Context, path string, depth int, fn func(z tree.Zxid, path string, f tree.Found) bool) (tree.Zxid, error) {
	if err := s.Live(); err != nil {
		return 0, err
	}
	z, err := s.reader().Walk(ctx, path, depth, fn)
	return z, cmp.Or(s.Live(), err)
}

// Watch arms a watch, which ends with the session. Its events have paths below root.
func (s *Session) Watch(path string, mode watch.Mode, o watch.Options, root string) (*keeper.Watch, error) {
	if err := s.Live(); err != nil {
		return nil, err
	}
	// Without the keeper's mu: this waits for a shard that is sending events or comparing its
	// watches with a snapshot.
	return s.AddWatch(s.engine.shards.Watch(&s.engine.registries, path, mode, o, s.watcherBelow(root)))
}

// watcherBelow returns the receiver of the session's watches with a root. Watches with the same
// root share one, and most have the same root.
func (s *Session) watcherBelow(root string) *watch.Watcher {
	who := s.watcher.Load()
	if who == nil || who.Root != root {
		who = &watch.Watcher{MayRead: s.mayRead, Root: root}
		s.watcher.Store(who)
	}
	return who
}

// OpenSession opens an in-process session with the given identities. The timeout is clamped to the
// configured bounds; zero is the configured default.
func (e *Engine) OpenSession(ctx context.Context, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	return e.openSession(ctx, e.cfg.timeoutWithin(cmp.Or(timeout, e.cfg.SessionTimeout)), false, who)
}

// OpenRemote opens a session for a remote client. The timeout is clamped to the configured bounds.
// The session outlives this node: anyone who knows its id and password may Reattach it to this
// node or another. The session ends unless Heard is called in time.
func (e *Engine) OpenRemote(ctx context.Context, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	return e.openSession(ctx, e.cfg.timeoutWithin(timeout), true, who)
}

// openSession opens a session of either kind, unless the ensemble is still to be loaded from a
// backup.
func (e *Engine) openSession(ctx context.Context, timeout time.Duration, isRemote bool, who []tree.Identity) (*Session, error) {
	if e.seeding.Pending() {
		return nil, e.health.Explain(ErrUnavailable)
	}
	return e.session(e.keeper.Open(ctx, timeout, isRemote, who))
}

// session adds the reads to a session of the keeper.
func (e *Engine) session(k *keeper.Session, err error) (*Session, error) {
	if err != nil {
		return nil, err
	}
	return &Session{Session: k, engine: e}, nil
}

// Reattach attaches a remote session to this node, even if it is attached here already. It sets the
// timeout, within the configured bounds, and the identities. The Session that it had before ends
// with ErrSessionMoved. When Reattach returns, all shards that the session uses know of the
// attachment.
//
// Reattach returns ErrSessionExpired if the session does not exist, is an in-process session, or
// has another password. While the outcome is unknown, it asks again: until ctx ends, or until the
// request timeout if ctx has no deadline. After any error but ErrSessionExpired the session may be
// attached here while no Session speaks for it. Then its client must try again.
func (e *Engine) Reattach(ctx context.Context, id tree.SessionID, password [16]byte, timeout time.Duration, who ...tree.Identity) (*Session, error) {
	bounded, cancel := e.bounded(ctx)
	defer cancel()
	if err := e.mayReattach(bounded, id, password); err != nil {
		return nil, err
	}
	given, err := e.reattachTimeout(bounded, id, timeout)
	if err != nil {
		return nil, err
	}
	for {
		s, err := e.session(e.keeper.Reattach(bounded, id, password, given, who))
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, ErrUnknownOutcome // not err: it names a ctx that the caller does not know
		case !errors.Is(err, ErrUnknownOutcome) || bounded.Err() != nil:
			return nil, err
		}
	}
}

// mayReattach returns ErrSessionExpired to who names no remote session, or not its password. Anybody
// can ask, so that must cost no entry of the log. A password never changes, so what this member knows
// of it is final. If it does not know the session, it asks for what is committed. While it cannot,
// the log has to tell.
func (e *Engine) mayReattach(ctx context.Context, id tree.SessionID, password [16]byte) error {
	known, right, err := e.Tables.HasPassword(ctx, id, password)
	if err == nil && !known {
		if e.barrier(ctx, e.home().Shard) != nil {
			return nil
		}
		_, right, err = e.Tables.HasPassword(ctx, id, password)
	}
	if err == nil && !right {
		return ErrSessionExpired
	}
	return err
}

// reattachTimeout returns the timeout that a session gets which asks for one as it comes back. A
// member whose bound is lower than those of others does not shorten a session: the answer may be
// lost, and its client would trust the session for too long.
func (e *Engine) reattachTimeout(ctx context.Context, id tree.SessionID, asked time.Duration) (time.Duration, error) {
	given := e.cfg.timeoutWithin(asked)
	if given >= asked {
		return given, nil
	}
	// Without a barrier this member may not know of the session yet.
	if err := e.barrier(ctx, e.home().Shard); err != nil {
		return 0, err
	}
	r, err := e.Tables.Usable(ctx, id)
	switch {
	case errors.Is(err, ErrNoSession): // it has ended
		return given, nil
	case err != nil:
		return 0, err
	}
	return max(given, min(asked, r.Timeout)), nil
}

// Peek returns a Peek with the given identities.
func (e *Engine) Peek(who ...tree.Identity) Peek { return forest.NewPeek(e.shards, e.above, who) }

// WatchRemotely returns the watches of a connection with these identities. There are none yet.
// limit bounds the events that may wait; see watch.NewClient.
func (e *Engine) WatchRemotely(limit int, who ...tree.Identity) *RemoteWatches {
	return forest.NewRemoteWatches(e.shards, &e.registries, limit, e.over, who)
}
