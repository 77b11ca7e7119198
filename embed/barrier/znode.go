package barrier

import (
	"context"
	"errors"

	"github.com/vivarium-go/vivarium/embed"
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

// follow calls look with the present state of a znode, and then with each state that a transaction
// leaves, until look returns true or an error.
func follow(ctx context.Context, s *embed.Session, path string, look func(sight) (bool, error)) error {
	for gap := false; ; gap = true {
		over, err := followOnce(ctx, s, path, gap, look)
		if over || err != nil {
			return err
		}
	}
}

// followOnce is follow with one watch. It returns false if the watch ends before.
func followOnce(ctx context.Context, s *embed.Session, path string, gap bool, look func(sight) (bool, error)) (bool, error) {
	w, err := s.WatchWith(ctx, path, embed.WatchPersistent, embed.WatchOptions{Buffer: waitingMax, Values: true})
	if err != nil {
		return false, err
	}
	defer w.Close()
	data, stat, err := s.Get(ctx, path)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return false, err
	}
	now, seen := sight{data, stat, gap}, true
	for {
		if seen {
			if over, err := look(now); over || err != nil {
				return over, err
			}
		}
		select {
		case e, open := <-w.Events():
			if !open {
				return false, ended(s, w)
			}
			stat, seen = e.Stat()
			seen = seen || e.Type == embed.NodeDeleted // else its transaction has left none
			now = sight{data: e.Data(), stat: stat}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// ended returns why a wait cannot go on after its watch has ended, or nil if it looks again.
func ended(s *embed.Session, w *embed.Watch) error {
	if err := w.Err(); !errors.Is(err, embed.ErrWatchGap) && !errors.Is(err, embed.ErrWatchOverflow) {
		return err
	}
	return s.Err()
}
