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

// kind is the word in the names of a lock's contenders, as Curator writes it.
const kind = "lock"

// A Mutex is a fair lock on a path: contenders are served in the order they arrived, and a release wakes one of them.
// Every call of Lock is a contender of its own, so goroutines that share a session, or a Mutex, exclude one another like
// strangers. A Mutex holds no state; it may be copied and used by any number of goroutines.
type Mutex struct {
	session *embed.Session
	path    string
}

// NewMutex returns the lock of a path for a session. The znode is created, with those above it, when it is missing.
func NewMutex(s *embed.Session, path string) *Mutex { return &Mutex{session: s, path: path} }

// Lock waits for the lock, and for a quorum, as long as ctx lets it; Config.RequestTimeout does not bound it. If it returns
// an error nothing is left in the queue, or what is left goes as soon as that can be sent. Errors: the ctx's, those of an
// ended session or node (a waiter whose session ends learns it at once), embed.ErrDeleted if somebody deleted the
// contender, ErrLockExhausted, and those of embed.Session.Create.
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	c, err := queue.Enter(ctx, m.session, m.path, kind, nil)
	if err != nil {
		return nil, m.wrap("lock", err)
	}
	if err := c.Wait(ctx); err != nil {
		return nil, m.wrap("lock", err)
	}
	return newHold(ctx, c), nil
}

// TryLock takes the lock if it is free, and returns ErrHeld at once if it is not, embed.ErrSuspended if the session is not
// safe to hold anything now, embed.ErrUnavailable if ctx has no deadline and no quorum answers within Config.RequestTimeout:
// then nothing is left in the queue, or what is left goes as soon as that can be sent. Other errors as of Lock. It looks at
// this node's replica, which may not know yet of a release elsewhere; after embed.Session.Sync it does.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	if state, _ := m.session.State(); state == embed.Suspended {
		return nil, m.wrap("try lock", embed.ErrSuspended) // "at once" cannot be had without a quorum
	}
	// Asking first keeps a taken lock free of the znodes of those who only ask.
	names, _, err := m.session.Children(ctx, m.path)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return nil, m.wrap("try lock", err)
	}
	if _, taken := queue.First(names); taken {
		return nil, m.wrap("try lock", ErrHeld)
	}
	c, err := queue.TryEnter(ctx, m.session, m.path, kind)
	if err != nil {
		return nil, m.wrap("try lock", err)
	}
	first, err := c.Try(ctx)
	if first && err == nil {
		return newHold(ctx, c), nil
	}
	if err == nil {
		err = ErrHeld
	}
	return nil, m.wrap("try lock", errors.Join(err, c.Claim.Release()))
}

func (m *Mutex) wrap(op string, err error) error { return fmt.Errorf("%s %s: %w", op, m.path, err) }

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
