package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// ErrUpgrade says that another reader of the path waits to become its writer. One of the two must
// release its read Hold, or both would wait for ever.
var ErrUpgrade = errors.New("another reader waits to become the writer")

// A RWMutex is a fair lock on a path for one writer or many readers. A contender that comes later
// than a writer waits behind it. So a writer waits for the readers that were there before it, and
// for no others. A RWMutex may be copied and used by any number of goroutines. As with a Mutex,
// each call is a contender of its own. A caller that holds the read lock and calls Lock waits for
// itself; it needs Upgrade.
//
// Readers that hold the lock together have different tokens, and their order means nothing. The
// protected resource should refuse a token that is smaller than the greatest token of a writer.
type RWMutex struct {
	session *embed.Session
	path    string
	options Options
}

// NewRWMutex returns the read-write lock on a path for a session. If the znode or those above it
// are missing, the first call that needs them creates them.
func NewRWMutex(s *embed.Session, path string) *RWMutex { return &RWMutex{session: s, path: path} }

// With returns the same lock with other options. It supports all of them but Keep.
func (m *RWMutex) With(o Options) *RWMutex {
	return &RWMutex{session: m.session, path: m.path, options: o}
}

// Lock waits for the write lock. Errors are those of Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) {
	h, err := m.acquire(ctx, queue.Write)
	return h, wrap("lock", m.path, err)
}

// RLock waits for the read lock. Errors are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) {
	h, err := m.acquire(ctx, queue.Read)
	return h, wrap("read lock", m.path, err)
}

func (m *RWMutex) acquire(ctx context.Context, k queue.Kind) (*Hold, error) {
	if err := m.options.check(true, false); err != nil {
		return nil, err
	}
	return acquire(ctx, m.session, m.path, m.options.entry(ctx, k))
}

// TryLock acquires the write lock if nobody holds the lock or waits for it. Errors are those of
// Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	h, err := m.try(ctx, queue.Write)
	return h, wrap("try lock", m.path, err)
}

// TryRLock acquires the read lock if no writer holds the lock or waits for it. Errors are those of
// Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) {
	h, err := m.try(ctx, queue.Read)
	return h, wrap("try read lock", m.path, err)
}

func (m *RWMutex) try(ctx context.Context, k queue.Kind) (*Hold, error) {
	if err := m.options.check(true, false); err != nil {
		return nil, err
	}
	return try(ctx, m.session, []string{m.path}, m.options.entry(ctx, k))
}

// Downgrade turns a write Hold of this lock into a read Hold at the same place in the queue. No
// writer comes in between, and the readers next in line join. The token grows. The write Hold has
// ended whatever Downgrade returns; after an error there is no Hold at all. ctx may be that of the
// write Hold. Errors: those of Mutex.Lock, and embed.ErrNotHeld if h is not a live write Hold of this
// lock.
func (m *RWMutex) Downgrade(ctx context.Context, h *Hold) (*Hold, error) {
	if err := m.owns(h, queue.Write); err != nil {
		return nil, wrap("downgrade", m.path, err)
	}
	beyond, cancel := queue.Beyond(ctx, h.tenure)
	defer cancel()
	// Others may see the write lock gone before this node does, so the write Hold ends first.
	h.tenure.End()
	c, err := queue.EnterAt(beyond, m.session, m.options.entry(ctx, queue.Read), h.contender.Place(), claim.OpRelease(h.contender.Claim))
	if err != nil {
		go h.Release() // which may wait
		return nil, wrap("downgrade", m.path, err)
	}
	if err := c.Wait(beyond); err != nil { // at once: nobody was ahead of the writer
		return nil, wrap("downgrade", m.path, err)
	}
	return newHold(ctx, c), nil
}

// Upgrade turns a read Hold of this lock into a write Hold. It waits for the other readers that
// hold the lock, ahead of all waiting writers. If two readers ask, the later one is refused with
// ErrUpgrade. The read Hold ends when the write Hold has begun, and the token grows. After an error
// the read Hold continues. The exception: if the quorum or the session was lost just when the read
// Hold was to end, there is no Hold at all. Other errors: those of Mutex.Lock, and embed.ErrNotHeld
// if h is not a live read Hold of this lock.
func (m *RWMutex) Upgrade(ctx context.Context, h *Hold) (*Hold, error) {
	if err := m.owns(h, queue.Read); err != nil {
		return nil, wrap("upgrade", m.path, err)
	}
	e := m.options.entry(ctx, queue.Write)
	e.Words = append(e.Words, queue.Upgrading)
	c, err := queue.Enter(ctx, m.session, e, m.path)
	for ahead := ""; err == nil; {
		if ahead, err = m.writer(ctx, c); err != nil || ahead == "" {
			break
		}
		c, err = m.overtake(ctx, e, c, ahead, h)
	}
	if err == nil {
		c.Ignore(h.Path())
		// If the read Hold ends, waiting on would only keep others out.
		while, cancel := queue.Both(ctx, h.Context())
		err = c.Wait(while)
		cancel()
	}
	if lost := m.owns(h, queue.Read); lost != nil { // others may have held the lock since
		if err == nil {
			_ = c.Claim.Release()
		}
		err = lost
	} else if errors.Is(err, embed.ErrNotHeld) || errors.Is(err, embed.ErrNoNode) {
		err = embed.ErrDeleted // somebody deleted the contender when it was about to move
	}
	if err != nil {
		return nil, wrap("upgrade", m.path, err)
	}
	write := newHold(ctx, c)
	if err := m.leave(ctx, h, write); err != nil {
		_ = write.Release()
		return nil, wrap("upgrade", m.path, err)
	}
	return write, nil
}

// leave releases the read Hold of the new writer and waits until the ensemble knows. Until then
// Options.Identity may take over the reader's place again, with a smaller token than the writer's.
// So nobody may see the writer's token before that.
func (m *RWMutex) leave(ctx context.Context, read, write *Hold) error {
	ctx, cancel := queue.Beyond(ctx, read.tenure)
	defer cancel()
	for {
		err := read.Release()
		switch {
		case write.Err() != nil:
			// As if the read Hold had been lost a moment before.
			return fmt.Errorf("%w: %w", embed.ErrNotHeld, write.Err())
		case !queue.Unanswered(err):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// owns returns an error unless h is a live Hold of this lock and of kind k.
func (m *RWMutex) owns(h *Hold, k queue.Kind) error {
	if h == nil || h.contender == nil {
		return fmt.Errorf("%w: the Hold is nil or zero", embed.ErrNotHeld)
	}
	if path, _ := queue.Split(h.Path()); !h.contender.Is(k) || h.contender.Session != m.session || path != m.path || h.outer != nil {
		return fmt.Errorf("%w: %s belongs to another session or is not this kind of lock, or the Hold comes from Held", embed.ErrNotHeld, h.Path())
	}
	if err := h.Err(); err != nil {
		return fmt.Errorf("%w: %w", embed.ErrNotHeld, err)
	}
	return nil
}

// writer returns the path of the first writer that is ahead of c, a reader that upgrades, or
// nothing. Such a writer waits for c. After an error c has left.
func (m *RWMutex) writer(ctx context.Context, c *queue.Contender) (first string, err error) {
	at := c.Path()
	for {
		name, ok, err := claim.Before(ctx, m.session, at, queue.Read.After...)
		if err == nil && ok && queue.IsUpgrading(name) {
			err = ErrUpgrade
		}
		switch {
		case errors.Is(err, embed.ErrNoNode) && at != c.Path():
			at, first = c.Path(), "" // a writer has gone meanwhile: look again
			continue
		case err != nil:
			_ = c.Claim.Release()
			return "", err
		case !ok:
			return first, nil
		}
		first = queue.Child(m.path, name)
		at = first
	}
}

// overtake moves c, a reader that upgrades, right before a writer, which is behind all readers that
// can hold the lock. If the writer has gone meanwhile, c stays where it is, because others may hold
// the lock now. The read Hold guards the move: without it the writer may hold the lock. After an
// error c has left.
func (m *RWMutex) overtake(ctx context.Context, e queue.Entry, c *queue.Contender, writer string, read *Hold) (*queue.Contender, error) {
	stat, ok, err := m.session.Exists(ctx, writer)
	if err != nil {
		_ = c.Claim.Release()
		return nil, err
	}
	if !ok {
		return c, nil
	}
	moved, err := queue.EnterAt(ctx, m.session, e, queue.InFrontOf(writer, stat.Czxid), Guard(read), embed.OpCheck(writer, embed.AnyVersion), claim.OpRelease(c.Claim))
	switch {
	case errors.Is(err, embed.ErrNoNode) && c.Claim.Err() == nil:
		return c, nil
	case err != nil:
		_ = c.Claim.Release()
		return nil, err
	}
	return moved, nil
}
