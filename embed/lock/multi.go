package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Multi is the locks on several paths, acquired and released as one. Its contenders enter all
// queues in one transaction. So if two Multis want some of the same paths, one is ahead of the
// other in all their queues. They cannot wait for each other, whatever the order of their paths.
//
// A Multi and a Mutex on one of its paths exclude each other. But a caller that holds one path and
// then asks for another can deadlock with a Multi that came in between. Curator's
// InterProcessMultiLock is such a caller. A Multi may be copied and used by any number of
// goroutines.
type Multi struct {
	session *embed.Session
	paths   []string
	options Options
}

// NewMulti returns the locks on several paths for a session. No path may be given twice, and with
// several shards all must be on one. Missing znodes are created.
func NewMulti(s *embed.Session, paths ...string) *Multi {
	return &Multi{session: s, paths: slices.Clone(paths)}
}

// With returns the same locks with other options. It supports Note and Delay.
func (m *Multi) With(o Options) *Multi {
	return &Multi{session: m.session, paths: m.paths, options: o}
}

// Lock waits until it holds all of the locks; before that it holds none. If one of them is lost,
// the whole Hold ends. Errors: embed.ErrCrossShard; embed.ErrInvalidPath, also if no path is given
// or one is given twice; and those of Mutex.Lock.
func (m *Multi) Lock(ctx context.Context) (*Hold, error) {
	h, err := m.lock(ctx)
	return h, wrap("lock", m.name(), err)
}

func (m *Multi) lock(ctx context.Context) (*Hold, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	c, err := queue.Enter(ctx, m.session, m.options.entry(ctx, queue.Lock), m.paths...)
	if err != nil {
		return nil, err
	}
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	return newHold(ctx, c), nil
}

// TryLock acquires all of the locks if they are free. Otherwise it acquires none and returns
// ErrHeld. Other errors are those of Lock and Mutex.TryLock.
func (m *Multi) TryLock(ctx context.Context) (*Hold, error) {
	h, err := m.tryLock(ctx)
	return h, wrap("try lock", m.name(), err)
}

func (m *Multi) tryLock(ctx context.Context) (*Hold, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return try(ctx, m.session, m.paths, m.options.entry(ctx, queue.Lock))
}

// name returns the lock's name for errors: its paths, separated by commas.
func (m *Multi) name() string { return strings.Join(m.paths, ",") }

func (m *Multi) check() error {
	if len(m.paths) == 0 {
		return fmt.Errorf("%w: no path given", embed.ErrInvalidPath)
	}
	sorted := slices.Sorted(slices.Values(m.paths))
	for i, path := range sorted[1:] {
		if path == sorted[i] {
			return fmt.Errorf("%w: %s is given twice", embed.ErrInvalidPath, path)
		}
	}
	return m.options.check(false, false)
}
