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

// A Contender is somebody who holds a lock, or waits for it. Of one whose znode the session that looks may not read there is the Path only.
type Contender struct {
	Path    string          // of its znode
	Session embed.SessionID // zero: it was lost, and keeps the lock for its Options.Delay
	Member  embed.MemberID  // whose node speaks for the session; zero: the session has ended meanwhile
	Age     time.Duration   // since it entered, by the wall clocks of the members
	Note    string          // of its Options
	Token   Token           // that it has, or will have
}

// Holders returns who holds the lock of a path, as this node's replica has it, in order: at most one of a Mutex, the readers or the writer of a
// RWMutex, each permit that is out of a Semaphore; nobody if there is no such lock. A Multi is the holder of each path where it is the first, which
// is when it keeps the others out, although it may still wait elsewhere. Errors are those of embed.Session.Get on the path, and
// of embed.Session.Member.
func Holders(ctx context.Context, s *embed.Session, path string) ([]Contender, error) {
	holders, _, err := look(ctx, s, path)
	return holders, wrap("holders of", path, err)
}

// Waiters returns who waits for the lock of a path, as this node's replica has it, in order. Errors are those of Holders.
func Waiters(ctx context.Context, s *embed.Session, path string) ([]Contender, error) {
	_, waiters, err := look(ctx, s, path)
	return waiters, wrap("waiters for", path, err)
}

func look(ctx context.Context, s *embed.Session, path string) (holders, waiters []Contender, err error) {
	names, err := children(ctx, s, path)
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(names, "leases") { // a semaphore
		return lookAtSemaphore(ctx, s, path)
	}
	all, err := contenders(ctx, s, path, names)
	if err != nil {
		return nil, nil, err
	}
	crowd, writer := false, false // whether somebody is ahead, and one for whom readers wait
	for _, c := range all {
		_, name := queue.Split(c.Path)
		waits := crowd
		if len(queue.KindOf(name).After) > 0 {
			waits = writer
		}
		if waits {
			waiters = append(waiters, c)
		} else {
			holders = append(holders, c)
		}
		crowd, writer = true, writer || queue.Waits(queue.Read, []string{name})
	}
	return holders, waiters, nil
}

func lookAtSemaphore(ctx context.Context, s *embed.Session, path string) (holders, waiters []Contender, err error) {
	// In this order: who is let in meanwhile is seen twice rather than not at all.
	if waiters, err = below(ctx, s, queue.Child(path, "locks")); err != nil {
		return nil, nil, err
	}
	holders, err = below(ctx, s, queue.Child(path, "leases"))
	return holders, waiters, err
}

// below returns the contenders below a znode, none if there is no such znode.
func below(ctx context.Context, s *embed.Session, parent string) ([]Contender, error) {
	names, err := children(ctx, s, parent)
	if err != nil {
		return nil, err
	}
	return contenders(ctx, s, parent, names)
}

// children returns the names of a znode's children, none if there is no such znode.
func children(ctx context.Context, s *embed.Session, path string) ([]string, error) {
	names, _, err := s.Children(ctx, path)
	if errors.Is(err, embed.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// contenders returns those among a znode's children, in order.
func contenders(ctx context.Context, s *embed.Session, parent string, names []string) (all []Contender, err error) {
	members := make(map[embed.SessionID]embed.MemberID)
	for _, name := range queue.Sorted(names) {
		c := Contender{Path: queue.Child(parent, name)}
		data, stat, err := s.Get(ctx, c.Path)
		switch {
		case errors.Is(err, embed.ErrNoNode):
			continue // it has just left
		case errors.Is(err, embed.ErrNoAuth):
			all = append(all, c) // it is there, and in the way of others
			continue
		case err != nil:
			return nil, err
		}
		c.Session, c.Note, c.Age = stat.EphemeralOwner, string(data), max(0, time.Since(stat.Ctime))
		c.Token.Zxid, c.Token.Local = queue.Order(name, stat.Czxid)
		if m, known := members[c.Session]; known {
			c.Member = m
		} else if c.Session != 0 {
			c.Member, err = s.Member(ctx, c.Session)
			if err != nil && !errors.Is(err, embed.ErrNoSession) {
				return nil, err
			}
			members[c.Session] = c.Member
		}
		all = append(all, c)
	}
	return all, nil
}

// revocation is the data of a contender that was asked to give its lock up; the word is that of Curator's Revoker.
const revocation = "__REVOKE__"

// Revoke asks whoever holds the lock of a path to give it up: Hold.Revoked tells them, and so does Curator's Revocable. They may not
// care. Of a lock that is only kept (Options.Keep) the next Hold is told. It takes the place of their notes. Errors are those of Holders
// and embed.Session.Set; whoever else can be asked is all the same.
func Revoke(ctx context.Context, s *embed.Session, path string) error {
	holders, err := Holders(ctx, s, path)
	if err != nil {
		return err
	}
	for _, h := range holders {
		if _, e := s.Set(ctx, h.Path, []byte(revocation), embed.AnyVersion); err == nil && !errors.Is(e, embed.ErrNoNode) {
			err = wrap("revoke", path, e)
		}
	}
	return err
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
