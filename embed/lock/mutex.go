package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// ErrHeld says that somebody holds the lock, or waits for it already.
var ErrHeld = errors.New("lock is held")

// ErrLockExhausted says that the path has used up its 2,147,483,647 sequence numbers. Those who wait
// already are served. Nobody else can acquire a lock on the path while its znode exists. If the
// znode is a container, as this package creates it, the ensemble removes it soon after the last
// contender has left. Then the numbers start from zero again.
var ErrLockExhausted = queue.ErrExhausted

// A Mutex is a fair lock on a path. Contenders are served in the order in which they arrived, and a
// release wakes one of them. Every call of Lock is a contender of its own, so goroutines that share
// a session, or even a Mutex, exclude one another as processes do. A caller that already holds the
// lock waits for itself; Held helps against that. A Mutex may be copied and used by any number of
// goroutines.
type Mutex struct {
	session *embed.Session
	path    string
	options Options
	kept    *kept // with Options.Keep
}

// NewMutex returns the lock on a path for a session. If the znode or those above it are missing,
// the first call that needs them creates them.
func NewMutex(s *embed.Session, path string) *Mutex { return &Mutex{session: s, path: path} }

// With returns the same lock with other options. If it has Options.Keep, it and its copies share
// the lock that they keep.
func (m *Mutex) With(o Options) *Mutex {
	with := &Mutex{session: m.session, path: m.path, options: o}
	if o.Keep > 0 {
		with.kept = newKept(with)
	}
	return with
}

// Lock waits for the lock, and for a quorum, as long as ctx allows. Config.RequestTimeout does not
// bound it, and embed.ErrUnavailable does not end it. After an error nothing stays in the queue: if Lock cannot delete its znode at once, the
// node does so as soon as it can.
//
// Errors: the ctx's; why the session or the node ended, which a waiter learns at once; those of
// embed.Session.Create. ErrLockExhausted; embed.ErrDeleted if somebody deleted the contender;
// embed.ErrInvalidArgument for wrong Options.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	if m.kept != nil {
		return m.kept.lock(ctx)
	}
	h, err := m.commit(ctx)
	return h, wrap("lock", m.path, err)
}

// commit acquires the lock with a new contender.
func (m *Mutex) commit(ctx context.Context) (*Hold, error) {
	if err := m.options.check(true, true); err != nil {
		return nil, err
	}
	return acquire(ctx, m.session, m.path, m.entry(ctx))
}

func (m *Mutex) entry(ctx context.Context) queue.Entry {
	e := m.options.entry(ctx, queue.Lock)
	e.Again = m.kept != nil
	return e
}

// acquire enters a contender of a kind and waits until it holds the lock.
func acquire(ctx context.Context, s *embed.Session, path string, e queue.Entry) (*Hold, error) {
	c, err := enter(ctx, s, path, e)
	if err != nil {
		return nil, err
	}
	if c, err = c.WaitAs(ctx, e); err != nil {
		return nil, err
	}
	return newHold(ctx, c), nil
}

func enter(ctx context.Context, s *embed.Session, path string, e queue.Entry) (*queue.Contender, error) {
	if c, err := queue.Reenter(ctx, s, e, path); c != nil || err != nil {
		return c, err
	}
	return queue.Enter(ctx, s, e, path)
}

// TryLock acquires the lock if it is free, and otherwise returns ErrHeld at once. It returns
// embed.ErrSuspended if the session cannot safely hold anything now. It returns
// embed.ErrUnavailable if ctx has no deadline and no quorum answers within Config.RequestTimeout;
// then nothing stays in the queue, as after Lock. Other errors are those of Lock.
//
// TryLock looks at this node's replica, which may not know yet that another node has released the
// lock. After embed.Session.Sync it does.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	if m.kept != nil {
		return m.kept.try(ctx)
	}
	h, err := m.tryCommit(ctx)
	return h, wrap("try lock", m.path, err)
}

func (m *Mutex) tryCommit(ctx context.Context) (*Hold, error) {
	if err := m.options.check(true, true); err != nil {
		return nil, err
	}
	return try(ctx, m.session, []string{m.path}, m.entry(ctx))
}

// try acquires a Hold of a kind at once, or not at all.
func try(ctx context.Context, s *embed.Session, paths []string, e queue.Entry) (*Hold, error) {
	e.Prompt = true
	if state, _ := s.State(); state == embed.Suspended {
		return nil, embed.ErrSuspended // nothing is certain at once without a quorum
	}
	c, err := tryEnter(ctx, s, paths, e)
	if err != nil {
		return nil, err
	}
	first, err := c.Try(ctx)
	if first && err == nil {
		return newHold(ctx, c), nil
	}
	if err == nil {
		err = ErrHeld
	}
	return nil, errors.Join(err, c.Claim.Release())
}

// tryEnter looks before it enters, so that callers that only try leave no znodes under a held lock.
func tryEnter(ctx context.Context, s *embed.Session, paths []string, e queue.Entry) (*queue.Contender, error) {
	if c, err := queue.Reenter(ctx, s, e, paths[0]); c != nil || err != nil {
		return c, err
	}
	for _, path := range paths {
		stat, ok, err := s.Exists(ctx, path)
		if err != nil {
			return nil, err
		}
		if !ok || stat.NumChildren == 0 {
			continue
		}
		names, _, err := s.Children(ctx, path)
		if err != nil && !errors.Is(err, embed.ErrNoNode) {
			return nil, err
		}
		if queue.Waits(e.Kind, names) {
			return nil, ErrHeld
		}
	}
	return queue.Enter(ctx, s, e, paths...)
}

// Forget gives up the lock that the Mutex keeps by Options.Keep: at once, or when the present Hold
// is released. If a Lock that began earlier is granted the lock afterwards, the Mutex keeps that
// again. After an error the node keeps trying. Errors are those of Hold.Release.
func (m *Mutex) Forget() error {
	if m.kept == nil {
		return nil
	}
	return wrap("forget", m.path, m.kept.forget())
}

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}
