package barrier

import (
	"context"
	"errors"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// waitingMax is how many changes may wait while a follower looks at earlier ones. A follower that is
// slower looks at the present state instead.
const waitingMax = 1 << 12

// A sight is a znode as one transaction left it.
type sight struct {
	data []byte
	stat embed.Stat // zero: there is none
	gap  bool       // states since the sight before were not seen
}

// take makes the sight that of an event. It returns false if the event does not show its znode as the
// transaction left it; then another event does.
func (n *sight) take(e embed.Event) bool {
	stat, there := e.Stat()
	switch {
	case e.Type == embed.NodeDeleted:
		n.data, n.stat = nil, embed.Stat{}
	case !there:
		return false // the transaction has left none
	case e.Type != embed.NodeChildrenChanged:
		n.data, n.stat = e.Data(), stat
	case stat.Mzxid != n.stat.Mzxid:
		return false // the transaction has set the data too
	default:
		n.stat = stat
	}
	return true
}

// A follower follows the states of one znode.
type follower struct {
	session *embed.Session
	path    string
	look    func(sight) (bool, error)
	seen    bool // look was called
}

// follow calls look with the state that the ensemble has when it is asked, and then with each state
// that a transaction leaves, until look returns true or an error. It outlasts whatever passes.
func follow(ctx context.Context, s *embed.Session, path string, look func(sight) (bool, error)) error {
	f := follower{session: s, path: path, look: look}
	for {
		if over, err := f.once(ctx); over || err != nil {
			return err
		}
	}
}

// once is follow with one watch. It returns false if the watch ends before.
func (f *follower) once(ctx context.Context) (bool, error) {
	from, err := queue.Follow(ctx, f.session, f.path, waitingMax)
	if err != nil {
		return false, err
	}
	w := from.Watch
	defer w.Close()
	now := sight{from.Data, from.Stat, f.seen}
	e, ok, ends := poll(w.Events())
	for ; ok && e.Zxid <= from.Since; e, ok, ends = poll(w.Events()) {
		now.take(e)
	}
	switch {
	case ends: // perhaps without an event that belongs to the first state
		return false, ended(f.session, w.Err())
	case errors.Is(from.Err, embed.ErrNoAuth):
		return false, from.Err
	}
	for isNew := true; ; ok = false {
		if isNew {
			if over, err := f.look(now); over || err != nil {
				return over, err
			}
			f.seen, now.gap = true, false
		}
		if !ok {
			select {
			case e, ok = <-w.Events():
			case <-ctx.Done():
				return false, ctx.Err()
			}
			if !ok {
				return false, ended(f.session, w.Err())
			}
		}
		isNew = now.take(e)
	}
}

// ended returns why a wait cannot go on after its watch has ended, or nil if it looks again.
func ended(s *embed.Session, why error) error {
	if !errors.Is(why, embed.ErrWatchGap) && !errors.Is(why, embed.ErrWatchOverflow) {
		return why
	}
	return s.Err()
}

// poll returns an event that waits, if there is one.
func poll(events <-chan embed.Event) (e embed.Event, ok, over bool) {
	select {
	case e, ok = <-events:
		over = !ok
	default:
	}
	return e, ok, over
}
