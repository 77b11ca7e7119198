package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Contender is somebody who holds a lock, or waits for it.
type Contender struct {
	Path    string          // of its znode
	Session embed.SessionID // zero: it was lost, and keeps the lock for its Options.Delay
	Member  embed.MemberID  // whose node speaks for the session; zero: the session has ended meanwhile
	Age     time.Duration   // since it entered, by the wall clocks of the members
	Note    string          // of its Options
	Token   Token           // that it has, or will have
}

// Holders returns who holds the lock of a path, as this node's replica has it, in order: at most one of a Mutex, the readers or the writer of a
// RWMutex, each permit that is out of a Semaphore; nobody if there is no such lock. Errors are those of embed.Session.Get.
func Holders(ctx context.Context, s *embed.Session, path string) ([]Contender, error) {
	holders, _, err := look(ctx, s, path)
	return holders, wrap("holders of", path, err)
}

// Waiters returns who waits for the lock of a path, as this node's replica has it, in order. Errors are those of embed.Session.Get.
func Waiters(ctx context.Context, s *embed.Session, path string) ([]Contender, error) {
	_, waiters, err := look(ctx, s, path)
	return waiters, wrap("waiters for", path, err)
}

func look(ctx context.Context, s *embed.Session, path string) (holders, waiters []Contender, err error) {
	names, _, err := s.Children(ctx, path)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return nil, nil, err
	}
	if slices.Contains(names, "leases") { // a semaphore
		if holders, err = contenders(ctx, s, queue.Child(path, "leases")); err == nil {
			waiters, err = contenders(ctx, s, queue.Child(path, "locks"))
		}
		return holders, waiters, err
	}
	all, err := contenders(ctx, s, path)
	names = names[:0]
	for _, c := range all {
		_, name := queue.Split(c.Path)
		if queue.Waits(queue.KindOf(name), names) {
			waiters = append(waiters, c)
		} else {
			holders = append(holders, c)
		}
		names = append(names, name)
	}
	return holders, waiters, err
}

// contenders returns those below a znode, in order.
func contenders(ctx context.Context, s *embed.Session, parent string) (all []Contender, err error) {
	names, _, err := s.Children(ctx, parent)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return nil, err
	}
	for _, name := range queue.Sorted(names) {
		path := queue.Child(parent, name)
		data, stat, err := s.Get(ctx, path)
		if errors.Is(err, embed.ErrNoNode) {
			continue // it has just left
		}
		if err != nil {
			return nil, err
		}
		c := Contender{Path: path, Session: stat.EphemeralOwner, Note: string(data), Age: max(0, time.Since(stat.Ctime))}
		c.Token.Zxid, c.Token.Local = queue.Order(name, stat.Czxid)
		if c.Session != 0 {
			c.Member, err = s.Member(ctx, c.Session)
			if err != nil && !errors.Is(err, embed.ErrNoSession) {
				return nil, err
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// revocation is the data of a contender that was asked to give its lock up; the word is that of Curator's Revoker.
const revocation = "__REVOKE__"

// Revoke asks whoever holds the lock of a path to give it up: Hold.Revoked tells them, and so does Curator's Revocable. They may not
// care. It takes the place of their notes. Errors are those of Holders and embed.Session.Set.
func Revoke(ctx context.Context, s *embed.Session, path string) error {
	holders, err := Holders(ctx, s, path)
	if err != nil {
		return err
	}
	for _, h := range holders {
		if _, err := s.Set(ctx, h.Path, []byte(revocation), embed.AnyVersion); err != nil && !errors.Is(err, embed.ErrNoNode) {
			return wrap("revoke", path, err)
		}
	}
	return nil
}

// A revoke is whether somebody has asked for a Hold to be given up.
type revoke struct {
	watching sync.Once
	once     sync.Once
	asked    chan struct{}
}

// Revoked returns a channel that is closed when somebody has asked by Revoke for the Hold to be given up. It does not end it. Asked for it,
// a Hold has a goroutine for each of its znodes until it ends.
func (h *Hold) Revoked() <-chan struct{} {
	h.revoke.watching.Do(func() {
		h.revoke.asked = make(chan struct{})
		if h.contender == nil {
			return // nobody asks
		}
		for _, path := range h.contender.Paths {
			go h.revokeLoop(path)
		}
	})
	return h.revoke.asked
}

// wasAsked reports whether who watches for it has been asked for the Hold.
func (h *Hold) wasAsked() bool {
	asked := false
	h.revoke.watching.Do(func() {}) // nobody begins to watch any more
	if h.revoke.asked != nil {
		select {
		case <-h.revoke.asked:
			asked = true
		default:
		}
	}
	return asked
}

// revokeLoop ends when somebody has asked, or with the Hold.
func (h *Hold) revokeLoop(path string) {
	for {
		w, err := h.contender.Session.Watch(context.Background(), path, embed.WatchOnce)
		if err != nil {
			return // with the session
		}
		data, _, err := h.contender.Session.Get(context.Background(), path)
		asked := string(data) == revocation
		if err == nil && !asked {
			select {
			case <-w.Events():
			case <-h.turn.Done():
				err = embed.ErrReleased
			}
		}
		_ = w.Close()
		if asked {
			h.revoke.once.Do(func() { close(h.revoke.asked) })
		}
		if asked || err != nil {
			return
		}
	}
}
