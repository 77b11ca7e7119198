package election

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// ErrNoLeader says that nobody leads at the moment.
var ErrNoLeader = errors.New("no leader")

// An Election is a path on which candidates queue for leadership. It holds no state. It may be
// copied and used by any number of goroutines.
type Election struct {
	session *embed.Session
	path    string
}

// New returns the election on a path for a session. If the znode or those above it are missing, the
// first call that needs them creates them.
func New(s *embed.Session, path string) *Election { return &Election{session: s, path: path} }

// A Leader is the leader of an election as others see it. Token grows with every leader of an
// election. If the session may not read the leader's znode, only Path is set.
type Leader struct {
	Path  string // of its znode
	Value []byte
	Token lock.Token
	Owner embed.SessionID
}

// Campaign waits until this candidate leads, and for a quorum, as long as ctx allows.
// Config.RequestTimeout does not bound it. Every call is a candidate of its own, and publishes
// value as long as it stands. After an error nothing stays in the queue: if Campaign cannot delete
// its znode at once, the node does so as soon as it can. Errors are those of lock.Mutex.Lock.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	c, err := e.enter(ctx, value, Options{})
	if err != nil {
		return nil, e.wrap("campaign", err)
	}
	l, err := c.wait(ctx)
	return l, e.wrap("campaign", err)
}

// Leader returns the current leader, as this node's replica knows it, or ErrNoLeader.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	now, err := e.look(ctx)
	if err != nil {
		return Leader{}, e.wrap("leader", err)
	}
	return now.Leader, nil
}

// A sight is a leader as it was seen, with the zxid of its newest change.
type sight struct {
	Leader
	mzxid embed.Zxid
}

// look returns the current leader.
func (e *Election) look(ctx context.Context) (sight, error) {
	for {
		names, _, err := e.session.Children(ctx, e.path)
		if err != nil && !errors.Is(err, embed.ErrNoNode) {
			return sight{}, err
		}
		name, ok := queue.First(names)
		if !ok || queue.NeedsGrant(name) {
			return sight{}, ErrNoLeader
		}
		path := queue.Child(e.path, name)
		value, stat, err := e.session.Get(ctx, path)
		if errors.Is(err, embed.ErrNoNode) {
			continue // it has just left
		}
		if errors.Is(err, embed.ErrNoAuth) {
			return sight{Leader: Leader{Path: path}}, nil
		}
		if err != nil {
			return sight{}, err
		}
		l := Leader{Path: path, Value: value, Owner: stat.EphemeralOwner}
		l.Token.Zxid, l.Token.Local = queue.Order(name, stat.Czxid)
		return sight{Leader: l, mzxid: stat.Mzxid}, nil
	}
}

// Observe yields the leader that this node's replica shows, if there is one. Then it yields every
// new leader, and every value that a leader proclaims, in the order of their tokens. It yields a leader
// again when the session may no longer read its znode, and when it may again. If they follow
// faster than the loop consumes them, it may skip some, but never the newest: a leader that was
// skipped leads no longer. When ctx, the session or the node ends, it yields the error and stops.
// Another range over the result begins anew.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		var seen sight
		for {
			now, err := e.next(ctx, seen)
			if err != nil {
				yield(Leader{}, e.wrap("observe", err))
				return
			}
			if !yield(now.Leader, nil) {
				return
			}
			seen = now
		}
	}
}

// next waits until the leader or its value differs from seen.
func (e *Election) next(ctx context.Context, seen sight) (sight, error) {
	for {
		now, err := e.step(ctx, seen)
		switch {
		case errors.Is(err, ErrNoLeader):
			seen = sight{} // the next leader appears below the election's path
		case err != nil || !now.same(seen):
			return now, err
		}
	}
}

func (s sight) same(other sight) bool { return s.Path == other.Path && s.mzxid == other.mzxid }

// step returns what next waits for if it is there. Otherwise it waits until it may be, and returns
// seen. If the leader of seen has gone and there is no other, it returns ErrNoLeader.
func (e *Election) step(ctx context.Context, seen sight) (sight, error) {
	watched := e.path
	if seen.mzxid != 0 {
		watched = seen.Path
	}
	watch, err := e.session.Watch(ctx, watched, embed.WatchOnce)
	if err != nil {
		return sight{}, err
	}
	defer watch.Close()
	var shown <-chan embed.Event
	if seen.Path != "" && seen.mzxid == 0 { // it may not be read: this watch ends when it may
		w, err := e.session.Watch(ctx, seen.Path, embed.WatchPersistent)
		if err != nil {
			return sight{}, err
		}
		defer w.Close()
		shown = w.Events()
	}
	// Look after the watch is armed: a change that this look misses fires the watch.
	now, err := e.look(ctx)
	none := errors.Is(err, ErrNoLeader)
	if err != nil && !none || none && seen.Path != "" || !none && !now.same(seen) {
		return now, err
	}
	return seen, wait(ctx, e.session, watch, shown)
}

// wait waits for an event of a watch or of other, or for the end of either.
func wait(ctx context.Context, s *embed.Session, w *embed.Watch, other <-chan embed.Event) error {
	select {
	case <-w.Events():
		return s.Err()
	case <-other:
		return s.Err()
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A Standing is a candidate as others see it. If the session may not read the candidate's znode,
// only Path and Priority are set.
type Standing struct {
	Path  string          // of its znode; Leadership.Transfer wants it
	Value []byte          // which the candidate publishes
	Owner embed.SessionID // zero: its session was lost
	// Priority is also zero after a grant, because the znode's new name does not have it.
	Priority int
}

// Candidates returns the candidates in the queue, in order, as this node's replica knows them. The
// first one leads or is about to. Errors are those of embed.Session.Get.
func (e *Election) Candidates(ctx context.Context) ([]Standing, error) {
	names, _, err := e.session.Children(ctx, e.path)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return nil, e.wrap("candidates of", err)
	}
	var all []Standing
	for _, name := range queue.Sorted(names) {
		path := queue.Child(e.path, name)
		value, stat, err := e.session.Get(ctx, path)
		if errors.Is(err, embed.ErrNoNode) {
			continue // it has just left
		}
		if err != nil && !errors.Is(err, embed.ErrNoAuth) {
			return nil, e.wrap("candidates of", err)
		}
		all = append(all, Standing{Path: path, Value: value, Owner: stat.EphemeralOwner, Priority: queue.Priority(name)})
	}
	return all, nil
}

func (e *Election) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, e.path, err)
}
