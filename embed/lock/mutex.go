package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// ErrHeld says that the lock is taken, or that others wait for it already.
var ErrHeld = errors.New("lock is held")

// ErrLockExhausted says that the path has used up its 2,147,483,647 sequence numbers and can lock nothing more.
var ErrLockExhausted = queue.ErrExhausted

// A Mutex is a fair lock on a path: contenders are served in the order they arrived, and a release wakes one of them.
// Every call of Lock is a contender of its own, so goroutines that share a session, or a Mutex, exclude one another like
// strangers. It may be copied and used by any number of goroutines.
type Mutex struct {
	session *embed.Session
	path    string
	options Options
	kept    *kept // with Options.Keep
}

// NewMutex returns the lock of a path for a session. The znode is created, with those above it, when it is missing.
func NewMutex(s *embed.Session, path string) *Mutex { return &Mutex{session: s, path: path} }

// With returns the same lock with options. What it keeps by Options.Keep is its own and its copies'.
func (m *Mutex) With(o Options) *Mutex {
	with := &Mutex{session: m.session, path: m.path, options: o}
	if o.Keep > 0 {
		with.kept = newKept(with)
	}
	return with
}

// Lock waits for the lock, and for a quorum, as long as ctx lets it; Config.RequestTimeout does not bound it. If it returns
// an error nothing is left in the queue, or what is left goes as soon as that can be sent. Errors: the ctx's, those of an
// ended session or node (a waiter whose session ends learns it at once), embed.ErrDeleted if somebody deleted the
// contender, ErrLockExhausted, those of embed.Session.Create, and embed.ErrInvalidArgument of Options.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	if m.kept != nil {
		return m.kept.lock(ctx)
	}
	h, err := m.commit(ctx)
	return h, wrap("lock", m.path, err)
}

// commit takes the lock with a contender of its own.
func (m *Mutex) commit(ctx context.Context) (*Hold, error) {
	if err := m.options.check(true, true); err != nil {
		return nil, err
	}
	return take(ctx, m.session, m.path, m.entry())
}

func (m *Mutex) entry() queue.Entry {
	e := m.options.entry(queue.Lock)
	e.Again = m.kept != nil
	return e
}

// take waits for a Hold of a kind.
func take(ctx context.Context, s *embed.Session, path string, e queue.Entry) (*Hold, error) {
	c, err := enter(ctx, s, path, e)
	if err != nil {
		return nil, err
	}
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	return newHold(ctx, c), nil
}

func enter(ctx context.Context, s *embed.Session, path string, e queue.Entry) (*queue.Contender, error) {
	if c, err := queue.Return(ctx, s, e, path); c != nil || err != nil {
		return c, err
	}
	return queue.Enter(ctx, s, e, path)
}

// TryLock takes the lock if it is free, and returns ErrHeld at once if it is not, embed.ErrSuspended if the session is not
// safe to hold anything now, embed.ErrUnavailable if ctx has no deadline and no quorum answers within Config.RequestTimeout:
// then nothing is left in the queue, or what is left goes as soon as that can be sent. Other errors as of Lock. It looks at
// this node's replica, which may not know yet of a release elsewhere; after embed.Session.Sync it does.
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
	return try(ctx, m.session, []string{m.path}, m.entry())
}

// try takes a Hold of a kind at once or not at all.
func try(ctx context.Context, s *embed.Session, paths []string, e queue.Entry) (*Hold, error) {
	e.Prompt = true
	if state, _ := s.State(); state == embed.Suspended {
		return nil, embed.ErrSuspended // "at once" cannot be had without a quorum
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

// tryEnter asks first, which keeps a taken lock free of the znodes of those who only ask.
func tryEnter(ctx context.Context, s *embed.Session, paths []string, e queue.Entry) (*queue.Contender, error) {
	if c, err := queue.Return(ctx, s, e, paths[0]); c != nil || err != nil {
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

// Forget gives up what the Mutex keeps by Options.Keep: at once, or if somebody holds it with the release of that Hold. What a Lock that has
// begun before gets is kept again. After an error the node goes on trying. Errors are those of Hold.Release.
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

// Do runs fn under the lock of a path, with a session of its own that ends with the call. fn's ctx ends with ctx or with
// the Hold, whichever is first, and compares the clock as Hold.Context does; context.Cause says why it ended.
//
// Do returns fn's error. If fn returned nil and the Hold had been lost before, Do returns why: fn ran, but perhaps not alone.
// Errors of Node.NewSession and Mutex.Lock mean that fn was not called.
//
// At the end Do closes the session, which lets the next contender in, and waits until the ensemble knows, at most
// Config.RequestTimeout, also if ctx is over. If it does not learn of it in that time the node goes on trying; what fn did
// under the lock is done all the same, so Do's outcome is the same.
func Do(ctx context.Context, n *embed.Node, path string, fn func(ctx context.Context, t Token) error) error {
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	hold, err := NewMutex(s, path).Lock(ctx)
	if err != nil {
		return err
	}
	inner, cancel := queue.Both(ctx, hold.Context())
	defer cancel()
	if err := fn(inner, hold.Token()); err != nil {
		return err
	}
	if err := hold.Err(); err != nil {
		return fmt.Errorf("lock %s was lost: %w", path, err)
	}
	return nil
}
