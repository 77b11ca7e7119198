package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// ErrUpgrade says that another reader of the path is waiting to become its writer: one of the two must give its read Hold up, or both
// would wait for ever.
var ErrUpgrade = errors.New("another reader is being upgraded")

// A RWMutex is a fair lock on a path for one writer or many readers. Who comes later than a writer waits behind it, so a writer
// waits for the readers who were there before it and for no others. It may be copied and used by any number of goroutines; as with a Mutex
// each call is a contender of its own, and whoever asks for the write lock while it holds the read lock waits for itself: that is what Upgrade
// is for.
//
// Tokens of readers who are in together differ, and mean nothing to one another: what the lock protects is to refuse a token that is
// smaller than the greatest one of a writer.
type RWMutex struct {
	session *embed.Session
	path    string
	options Options
}

// NewRWMutex returns the read-write lock of a path for a session. The znode is created, with those above it, when it is missing.
func NewRWMutex(s *embed.Session, path string) *RWMutex { return &RWMutex{session: s, path: path} }

// With returns the same lock with options.
func (m *RWMutex) With(o Options) *RWMutex {
	return &RWMutex{session: m.session, path: m.path, options: o}
}

// Lock waits for the write lock. Errors are those of Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Hold, error) {
	h, err := m.take(ctx, queue.Write)
	return h, wrap("lock", m.path, err)
}

// RLock waits for the read lock. Errors are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Hold, error) {
	h, err := m.take(ctx, queue.Read)
	return h, wrap("read lock", m.path, err)
}

func (m *RWMutex) take(ctx context.Context, k queue.Kind) (*Hold, error) {
	if err := m.options.check(true, false); err != nil {
		return nil, err
	}
	return take(ctx, m.session, m.path, m.options.entry(k))
}

// TryLock takes the write lock if nobody is in or waits. Errors are those of Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Hold, error) {
	h, err := m.try(ctx, queue.Write)
	return h, wrap("try lock", m.path, err)
}

// TryRLock takes the read lock if no writer is in or waits. Errors are those of Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Hold, error) {
	h, err := m.try(ctx, queue.Read)
	return h, wrap("try read lock", m.path, err)
}

func (m *RWMutex) try(ctx context.Context, k queue.Kind) (*Hold, error) {
	if err := m.options.check(true, false); err != nil {
		return nil, err
	}
	return try(ctx, m.session, []string{m.path}, m.options.entry(k))
}

// Downgrade ends a write Hold of this lock and begins a read Hold in its place: the readers next in line join, and no writer comes in
// between. The write Hold has ended whatever Downgrade returns; after an error there is no Hold at all. The token grows. Errors: those of
// Mutex.Lock, and embed.ErrNotHeld if the Hold is no live write Hold of this lock.
func (m *RWMutex) Downgrade(ctx context.Context, h *Hold) (*Hold, error) {
	if err := m.owns(h, queue.Write); err != nil {
		return nil, wrap("downgrade", m.path, err)
	}
	// Others may see the write lock gone before this node does, so its Hold ends first.
	h.turn.End()
	c, err := queue.Take(ctx, m.session, m.options.entry(queue.Read), h.contender.Place(), embed.OpRelease(h.contender.Claim))
	if err != nil {
		go h.Release() // which may wait
		return nil, wrap("downgrade", m.path, err)
	}
	if err := c.Wait(ctx); err != nil { // nobody was ahead of the writer
		return nil, wrap("downgrade", m.path, err)
	}
	return newHold(ctx, c), nil
}

// Upgrade turns a read Hold of this lock into a write Hold: it waits for the other readers who are in, ahead of the writers who wait. Of two
// readers who ask the later one is refused with ErrUpgrade. The read Hold ends when the write Hold has begun; after an error it goes on, unless
// the quorum or the session was lost just when it was to end: then there is no Hold at all.
// The token grows. Other errors: those of Mutex.Lock, and embed.ErrNotHeld if the Hold is no live read Hold of this lock.
func (m *RWMutex) Upgrade(ctx context.Context, h *Hold) (*Hold, error) {
	if err := m.owns(h, queue.Read); err != nil {
		return nil, wrap("upgrade", m.path, err)
	}
	e := m.options.entry(queue.Write)
	e.Words = append(e.Words, queue.Upgrading)
	c, err := queue.Enter(ctx, m.session, e, m.path)
	for ahead := ""; err == nil; {
		if ahead, err = m.writer(ctx, c); err != nil || ahead == "" {
			break
		}
		c, err = m.overtake(ctx, e, c, ahead, h)
	}
	if err == nil {
		c.Past(h.Path())
		while, cancel := queue.Both(ctx, h.Context()) // without it there is nothing to wait for, and this one would keep others out
		err = c.Wait(while)
		cancel()
	}
	if lost := m.owns(h, queue.Read); lost != nil { // others may have been in since
		if err == nil {
			_ = c.Claim.Release()
		}
		err = lost
	} else if errors.Is(err, embed.ErrNotHeld) {
		err = embed.ErrDeleted // the contender, when it was about to move
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

// leave gives the read Hold of the writer up, and waits until the ensemble knows: before that the place of the reader may be taken again
// (Options.Identity), by somebody with a smaller token than the writer's, of which therefore nobody may have been told.
func (m *RWMutex) leave(ctx context.Context, read, write *Hold) error {
	for {
		err := read.Release()
		switch {
		case write.Err() != nil:
			return fmt.Errorf("%w: %w", embed.ErrNotHeld, write.Err()) // as if the read Hold had been lost a moment before
		case !queue.Unanswered(err):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// owns returns why a Hold is none of this lock's of a kind.
func (m *RWMutex) owns(h *Hold, k queue.Kind) error {
	if h == nil || h.contender == nil {
		return fmt.Errorf("%w: there is no Hold", embed.ErrNotHeld)
	}
	if path, _ := queue.Split(h.Path()); !h.contender.Is(k) || h.contender.Session != m.session || path != m.path || h.outer != nil {
		return fmt.Errorf("%w: %s is not this session's, or not such a lock, or what Held returned", embed.ErrNotHeld, h.Path())
	}
	if err := h.Err(); err != nil {
		return fmt.Errorf("%w: %w", embed.ErrNotHeld, err)
	}
	return nil
}

// writer returns the path of the first writer in the queue if it is ahead of a reader who upgrades: one who waits for that reader. After an
// error the contender has left.
func (m *RWMutex) writer(ctx context.Context, c *queue.Contender) (first string, err error) {
	at := c.Path()
	for {
		name, ok, err := m.session.Before(ctx, at, queue.Read.After...)
		if err == nil && ok && queue.IsUpgrading(name) {
			err = ErrUpgrade
		}
		switch {
		case errors.Is(err, embed.ErrNoNode) && at != c.Path():
			at, first = c.Path(), "" // one went while this looked
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

// overtake moves a reader who upgrades to right before a writer, behind all readers who can be in. If the writer has gone meanwhile
// it stays where it is, since others may be in now. The read Hold guards the move: without it the writer may be in. After an error it has
// left.
func (m *RWMutex) overtake(ctx context.Context, e queue.Entry, c *queue.Contender, writer string, read *Hold) (*queue.Contender, error) {
	stat, ok, err := m.session.Exists(ctx, writer)
	if err != nil {
		_ = c.Claim.Release()
		return nil, err
	}
	if !ok {
		return c, nil
	}
	moved, err := queue.Take(ctx, m.session, e, queue.InFrontOf(writer, stat.Czxid), Guard(read), embed.OpCheck(writer, embed.AnyVersion), embed.OpRelease(c.Claim))
	switch {
	case errors.Is(err, embed.ErrNoNode) && c.Claim.Err() == nil:
		return c, nil
	case err != nil:
		_ = c.Claim.Release()
		return nil, err
	}
	return moved, nil
}
