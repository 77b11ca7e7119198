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
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// balancePace is how often a process checks whether it leads more than its share.
const balancePace = time.Second

// deafTime is how long a process that did not answer an offer is offered nothing.
const deafTime = time.Minute

// Balance runs many elections, one for each name below dir, and spreads the leaderships evenly over
// the processes. Each process calls it with the same names. A process that leads more than its
// share transfers leaderships, one after the other, to those that lead less. The transfers stop
// when no process leads two more than another.
//
// fn is called for several names at once, each as Run calls it. The ctx of a call also ends when
// its leadership is to be transferred. The transfer happens when that call has returned. Until then
// nobody leads, and the process transfers nothing else.
//
// Balance ends as Run does. It also waits for a transfer that is under way, for at most twice
// embed.Config.RequestTimeout. If fn returns an error for one name, Balance ends for all. Without
// names it returns embed.ErrInvalidArgument.
//
// A process gives leaderships only to processes that stand for all of its names. So while a new
// list of names is rolled out, the processes come to rest, but the shares may be uneven. A process
// that does not answer delays the others for the five seconds of a Transfer and is then left out
// for a minute. Examples are a dead process before it expires, and a client that knows no
// transfers. Nobody takes a leadership from a process that leads too much: it has to give.
func Balance(ctx context.Context, from embed.Opener, dir string, names []string, value []byte, fn func(ctx context.Context, name string, t lock.Token) error) error {
	return BalanceWith(ctx, from, dir, names, value, Options{}, func(ctx context.Context, name string, l *Leadership) error { return fn(ctx, name, l.Token()) })
}

// BalanceWith is Balance with the options of the candidates, and with the Leadership for fn: for its
// Token, Guard, Session and Proclaim. Balance transfers leaderships by itself, so Transfer is
// refused. A Priority decides who leads first when nobody does; the shares become even all the same.
// Errors are those of Balance, and embed.ErrInvalidArgument for Options that are out of range.
func BalanceWith(ctx context.Context, from embed.Opener, dir string, names []string, value []byte, o Options, fn func(ctx context.Context, name string, l *Leadership) error) error {
	b := &balance{dir: dir, names: slices.Compact(slices.Sorted(slices.Values(names))), value: value, options: o, fn: fn}
	if len(b.names) == 0 {
		return fmt.Errorf("election %s: %w: no names given", dir, embed.ErrInvalidArgument)
	}
	return each(ctx, from, dir, b.share)
}

// A balance is one process's part in many elections.
type balance struct {
	// Immutable.
	dir     string
	names   []string
	value   []byte
	options Options
	fn      func(ctx context.Context, name string, l *Leadership) error

	seen map[embed.SessionID]*fellow // owned by evenLoop

	mu struct {
		rank.Mutex[rank.Balance]
		leads map[string]*Leadership // by name
	}
}

// A fellow is a session that stands for names of a balance, which may be this process's own.
type fellow struct {
	stood map[string]bool // the names for which it has been seen to stand
	leads int
	deaf  time.Time // when it last did not answer
}

// share runs all elections with one session, until that session is lost.
func (b *balance) share(ctx context.Context, s *embed.Session) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b.mu.leads = make(map[string]*Leadership)
	var running sync.WaitGroup
	for _, name := range b.names {
		running.Go(func() {
			r := runner{path: queue.Child(b.dir, name), value: b.value, options: b.options, fn: func(ctx context.Context, l *Leadership) error { return b.lead(ctx, name, l) }}
			for s.Err() == nil {
				if err := r.lead(ctx, s); err != nil {
					cancel(&fatal{err})
				}
				if !sessions.Pause(ctx) {
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

// A fatal is an error that ends a Balance.
type fatal struct{ error }

// lead calls fn for the leadership of a name. Until it has returned, no transfer gives the place.
func (b *balance) lead(ctx context.Context, name string, l *Leadership) error {
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
	return b.fn(ctx, name, l)
}

// evenLoop gives leaderships away every balancePace, until ctx ends.
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

// even gives one leadership away if this process has more than its share. It reports whether it
// did.
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
	between := true // whether this process is between two leaderships for every name
	for _, name := range b.names {
		b.mu.Lock()
		l := b.mu.leads[name]
		b.mu.Unlock()
		between = between && l == nil
		i := slices.IndexFunc(standing[name], func(c Standing) bool { return c.Owner == to })
		if l == nil || i < 0 {
			continue
		}
		if err := l.transfer(ctx, standing[name][i].Path); !errors.Is(err, context.DeadlineExceeded) {
			return err == nil
		}
		break
	}
	if !between {
		// It did not answer, or stands for nothing that this process could give.
		b.seen[to].deaf = time.Now()
	}
	return false
}

// look records who stands for each name.
func (b *balance) look(standing map[string][]Standing) {
	seen := make(map[embed.SessionID]*fellow) // without sessions that have gone
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

// receiver returns the session to which this process gives a leadership, if it has too many. Only
// sessions that have stood for all names take part. They need not stand for all at the same time,
// because between two leaderships nobody stands. So if two processes have different names, at most
// one of them gives to the other. Otherwise they would give the same leadership back and forth.
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

// gives returns the session to which own gives a leadership, if own has too many. All processes see
// the same and compute the same. The shares differ by one at most, and the sessions that lead the
// most get the larger ones. The first session with too many gives to the first with too few, and so
// on. So all can give at once, and nobody gets more than its share.
func gives(leads map[embed.SessionID]int, ids []embed.SessionID, own embed.SessionID) (to embed.SessionID, ok bool) {
	total := 0
	for _, id := range ids {
		total += leads[id]
	}
	slices.SortStableFunc(ids, func(a, b embed.SessionID) int { return leads[b] - leads[a] })
	surplus := func(i int) int { // of the i-th; negative if it has too few
		share := total / len(ids)
		if i < total%len(ids) {
			share++
		}
		return leads[ids[i]] - share
	}
	before := 0 // how many those before own give
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
