package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Multi is the locks of several paths, taken and given up as one. Its contenders enter all the queues in one transaction, so of two
// that want some of the same paths one is before the other everywhere: whatever the order of the paths, they cannot wait for one another.
// Each path is that of a Mutex, and both exclude one another; but whoever holds one of the paths and then asks for another of them, such as
// Curator's InterProcessMultiLock, and a Multi that came between wait for one another for ever. It may be copied and used by any number of
// goroutines.
type Multi struct {
	session *embed.Session
	paths   []string
	options Options
}

// NewMulti returns the locks of paths, no two of which are the same, for a session; with several shards all of one. Znodes that are
// missing are created.
func NewMulti(s *embed.Session, paths ...string) *Multi {
	return &Multi{session: s, paths: slices.Clone(paths)}
}

// With returns the same locks with options, of which it knows Note and Delay.
func (m *Multi) With(o Options) *Multi {
	return &Multi{session: m.session, paths: m.paths, options: o}
}

// Lock waits for all of the locks; it has none before it has all. If any of them is lost, so is the Hold. Errors: embed.ErrCrossShard,
// embed.ErrInvalidPath also if none is given or one twice, those of Mutex.Lock.
func (m *Multi) Lock(ctx context.Context) (*Hold, error) {
	h, err := m.lock(ctx)
	return h, wrap("lock", m.name(), err)
}

func (m *Multi) lock(ctx context.Context) (*Hold, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	c, err := queue.Enter(ctx, m.session, m.options.entry(queue.Lock), m.paths...)
	if err != nil {
		return nil, err
	}
	if err := c.Wait(ctx); err != nil {
		return nil, err
	}
	return newHold(ctx, c), nil
}

// TryLock takes all of the locks if they are free, or none: ErrHeld. Other errors are those of Lock and Mutex.TryLock.
func (m *Multi) TryLock(ctx context.Context) (*Hold, error) {
	h, err := m.tryLock(ctx)
	return h, wrap("try lock", m.name(), err)
}

func (m *Multi) tryLock(ctx context.Context) (*Hold, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return try(ctx, m.session, m.paths, m.options.entry(queue.Lock))
}

// name is the lock's for errors: its paths with commas between.
func (m *Multi) name() string { return strings.Join(m.paths, ",") }

func (m *Multi) check() error {
	if len(m.paths) == 0 {
		return fmt.Errorf("%w: none is given", embed.ErrInvalidPath)
	}
	sorted := slices.Sorted(slices.Values(m.paths))
	for i, path := range sorted[1:] {
		if path == sorted[i] {
			return fmt.Errorf("%w: %s is given twice", embed.ErrInvalidPath, path)
		}
	}
	return m.options.check(false, false)
}
