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
	"github.com/vivarium-go/vivarium/internal/rank"
)

// balancePace is how often a process looks whether it leads more than its share.
const balancePace = time.Second

// deafTime is how long nothing is offered to who has not answered.
const deafTime = time.Minute

// Balance runs many elections as Run does, one for each name below dir, and spreads the leaderships evenly over the processes that do the same
// with the same names: who leads more than its share transfers them, one after the other, to those who lead less, until nobody leads two more than
// another. Who does not stand for all names of a process gets nothing from it, so while some have other names, as in a change of the list
// from one process to the next, they come to rest, and not always to even shares. Who does not answer, as the dead before they expire and
// clients that know no transfers, holds that up for the five seconds of a Transfer, and is counted out for a minute then; but who leads is
// expected to give by itself.
//
// fn is called for several names at once, with a ctx that also ends when its leadership is to be handed on. That happens when fn has returned:
// until then nobody leads, and the process hands on nothing else. Balance ends as Run, and waits for a transfer that is under way besides, at
// most twice embed.Config.RequestTimeout; if fn returns an error for one name it ends for all. Without names it returns
// embed.ErrInvalidArgument.
func Balance(ctx context.Context, n *embed.Node, dir string, names []string, value []byte, fn func(ctx context.Context, name string, t lock.Token) error) error {
	b := &balance{dir: dir, names: slices.Compact(slices.Sorted(slices.Values(names))), value: value, fn: fn}
	if len(b.names) == 0 {
		return fmt.Errorf("election %s: %w: no names given", dir, embed.ErrInvalidArgument)
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

	seen map[embed.SessionID]*fellow // evenLoop's

	mu struct {
		rank.Mutex[rank.Balance]
		leads map[string]*Leadership // by name
	}
}

// A fellow is a session that stands for names of a balance, its own included.
type fellow struct {
	stood map[string]bool // the names for which it has been seen to stand
	leads int
	deaf  time.Time // when it has not answered
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
	l.busy = make(chan struct{})
	defer close(l.busy)
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

// even gives one leadership away, if this process has more than its share. It reports whether it did.
func (b *balance) even(ctx context.Context, s *embed.Session) bool {
	standing := make(map[string][]Standing)
	for _, name := range b.names {
		list, err := New(s, queue.Child(b.dir, name)).Candidates(ctx)
		if err != nil {
			return false
		}
		standing[name] = list
	}
	b.look(standing)
	to, ok := b.receiver(s.ID(), time.Now())
	if !ok {
		return false
	}
	between := true // the turns of all that this process leads
	for _, name := range b.names {
		b.mu.Lock()
		l := b.mu.leads[name]
		b.mu.Unlock()
		between = between && l == nil
		i := slices.IndexFunc(standing[name], func(c Standing) bool { return c.Owner == to })
		if l == nil || i < 0 {
			continue
		}
		if err := l.Transfer(ctx, standing[name][i].Path); !errors.Is(err, context.DeadlineExceeded) {
			return err == nil
		}
		break
	}
	if !between {
		b.seen[to].deaf = time.Now() // or it stands for nothing that this process could give
	}
	return false
}

// look takes in who stands for each name.
func (b *balance) look(standing map[string][]Standing) {
	seen := make(map[embed.SessionID]*fellow) // without those who have gone
	for name, list := range standing {
		for i, c := range list {
			f := seen[c.Owner]
			if f == nil {
				f = &fellow{stood: make(map[string]bool)}
				if known := b.seen[c.Owner]; known != nil {
					f.stood, f.deaf = known.stood, known.deaf
				}
				seen[c.Owner] = f
			}
			f.stood[name] = true
			if i == 0 {
				f.leads++
			}
		}
	}
	b.seen = seen
}

// receiver returns to whom one gives a leadership, if it has too many. Those share who have stood for all names, be it not at once: between two
// turns nobody stands. So of two with different names one at most gives to the other, or they would give the same back and forth.
func (b *balance) receiver(own embed.SessionID, now time.Time) (to embed.SessionID, ok bool) {
	var ids []embed.SessionID
	leads := make(map[embed.SessionID]int)
	for id, f := range b.seen {
		if len(f.stood) == len(b.names) && now.Sub(f.deaf) >= deafTime {
			ids, leads[id] = append(ids, id), f.leads
		}
	}
	slices.Sort(ids)
	return gives(leads, ids, own)
}

// gives returns to whom one gives a leadership, if it has too many. All see the same and come to the same: the shares differ by one at most, the
// greater ones are of those who have the most, and the first who has too many gives to the first who has too few. So all can give at
// once, and nobody gets more than its share.
func gives(leads map[embed.SessionID]int, ids []embed.SessionID, own embed.SessionID) (to embed.SessionID, ok bool) {
	total := 0
	for _, id := range ids {
		total += leads[id]
	}
	slices.SortStableFunc(ids, func(a, b embed.SessionID) int { return leads[b] - leads[a] })
	surplus := func(i int) int { // of the i-th, below zero if it has too few
		share := total / len(ids)
		if i < total%len(ids) {
			share++
		}
		return leads[ids[i]] - share
	}
	before := 0 // what is given by those before own
	for i, id := range ids {
		n := max(surplus(i), 0)
		if id == own {
			ok = n > 0
			break
		}
		before += n
	}
	for i, id := range ids {
		if before += min(surplus(i), 0); before < 0 {
			return id, ok
		}
	}
	return 0, false
}
