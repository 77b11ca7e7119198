package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// balancePace is how often a process looks whether it leads more than its share.
const balancePace = time.Second

// Balance runs many elections as Run does, one for each name below dir, and spreads the leaderships evenly over the processes that do the same
// with the same names: who leads at least two more than another transfers one to it, until nobody does. fn is called for several names
// at once, with a ctx that also ends when its leadership is handed on. Balance ends as Run, and waits for a transfer
// that is under way besides, at most embed.Config.RequestTimeout; if fn returns an error for one name it ends for all. Without
// names it returns embed.ErrInvalidArgument.
func Balance(ctx context.Context, n *embed.Node, dir string, names []string, value []byte, fn func(ctx context.Context, name string, t lock.Token) error) error {
	b := &balance{dir: dir, names: slices.Compact(slices.Sorted(slices.Values(names))), value: value, fn: fn}
	if len(b.names) == 0 {
		return fmt.Errorf("election %s: %w: no names are given", dir, embed.ErrInvalidArgument)
	}
	return sessions(ctx, n, dir, b.share)
}

// A balance is what one process has of many elections.
type balance struct {
	// Immutable.
	dir   string
	names []string
	value []byte
	fn    func(ctx context.Context, name string, t lock.Token) error

	mu struct {
		sync.Mutex
		leads map[string]*Leadership // by name
	}
}

// share runs all elections with one session, until that is lost.
func (b *balance) share(ctx context.Context, s *embed.Session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b.mu.leads = make(map[string]*Leadership)
	var running sync.WaitGroup
	for _, name := range b.names {
		running.Go(func() {
			r := runner{path: queue.Child(b.dir, name), value: b.value, turn: func(ctx context.Context, l *Leadership) error { return b.turn(ctx, name, l) }}
			for s.Err() == nil {
				if err := r.lead(ctx, s); err != nil {
					cancel(&fatal{err})
				}
				if !pause(ctx) {
					return
				}
			}
			cancel(nil)
		})
	}
	b.evenLoop(ctx, s)
	running.Wait()
	var f *fatal
	if errors.As(context.Cause(ctx), &f) {
		return f.error
	}
	return nil
}

// fatal is an error that ends a Balance.
type fatal struct{ error }

func (b *balance) turn(ctx context.Context, name string, l *Leadership) error {
	b.mu.Lock()
	b.mu.leads[name] = l
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.mu.leads, name)
		b.mu.Unlock()
	}()
	return b.fn(ctx, name, l.Token())
}

// evenLoop ends with ctx.
func (b *balance) evenLoop(ctx context.Context, s *embed.Session) {
	ticker := time.NewTicker(balancePace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for ctx.Err() == nil && b.even(ctx, s) {
		}
	}
}

// even gives one leadership to whoever has the fewest, if this process has the most and two more than that one. It reports whether it did.
func (b *balance) even(ctx context.Context, s *embed.Session) bool {
	own := s.ID()
	counts, stands := make(map[embed.SessionID]int), make(map[embed.SessionID]int)
	standing := make(map[string][]Standing)
	for _, name := range b.names {
		list, err := New(s, queue.Child(b.dir, name)).Candidates(ctx)
		if err != nil {
			return false
		}
		for i, c := range list {
			stands[c.Owner]++
			counts[c.Owner] += 0
			if i == 0 {
				counts[c.Owner]++
			}
		}
		standing[name] = list
	}
	least := own
	for id, n := range counts {
		if stands[id] < len(b.names) {
			continue // it shares in something else
		}
		if n > counts[own] || n == counts[own] && id < own {
			return false // that one's turn to give, or nobody's
		}
		if n < counts[least] || n == counts[least] && id < least {
			least = id
		}
	}
	if least == 0 || counts[own]-counts[least] < 2 {
		return false
	}
	for _, name := range b.names {
		b.mu.Lock()
		l := b.mu.leads[name]
		b.mu.Unlock()
		i := slices.IndexFunc(standing[name], func(c Standing) bool { return c.Owner == least })
		if l == nil || i < 0 || standing[name][0].Owner != own {
			continue
		}
		return l.Transfer(ctx, standing[name][i].Path) == nil
	}
	return false
}
