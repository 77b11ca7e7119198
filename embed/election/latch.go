package election

import (
	"context"
	"iter"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// A Latch keeps a process standing for election in the background. It campaigns again whenever it
// has lost the leadership, until it is closed. All methods may be called by any number of
// goroutines. A Latch that NewLatch has not made has ended.
type Latch struct {
	// Immutable.
	cancel context.CancelFunc
	done   chan struct{}

	mu struct {
		rank.Mutex[rank.Latch]
		leads   *Leadership // the newest leadership, which may be over
		changed chan struct{}
		err     error
	}
}

// NewLatch begins to campaign in the election on a path, with a session of its own. It does not
// wait. The candidate publishes value. As with Run, the sessions have the timeout
// embed.Config.SessionTimeout unless from is an embed.OpenerWith.
func NewLatch(from embed.Opener, path string, value []byte, o Options) *Latch {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Latch{cancel: cancel, done: make(chan struct{})}
	l.mu.changed = make(chan struct{})
	go l.loop(ctx, from, &runner{path: path, value: value, options: o, fn: l.lead})
	return l
}

// loop campaigns until Close, or until its candidate is refused.
func (l *Latch) loop(ctx context.Context, from embed.Opener, r *runner) {
	defer close(l.done)
	err := r.run(ctx, from)
	if ctx.Err() != nil {
		err = embed.ErrReleased
	}
	l.set(nil, err)
}

// lead leads until the leadership ends.
func (l *Latch) lead(ctx context.Context, leads *Leadership) error {
	l.set(leads, nil)
	<-ctx.Done()
	l.set(nil, nil)
	return nil
}

func (l *Latch) set(leads *Leadership, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.leads, l.mu.err = leads, err
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

// IsLeader compares the clock and reports whether this process leads.
func (l *Latch) IsLeader() bool {
	_, ok := l.Leadership()
	return ok
}

// Leadership compares the clock and returns this process's leadership, or false if it does not
// lead. Use it for its Token, Context, Guard, Session, Proclaim and Transfer. After Resign the next
// candidate leads, and the Latch queues again by itself; Requeue is refused.
func (l *Latch) Leadership() (*Leadership, bool) {
	l.mu.Lock()
	leads := l.mu.leads
	l.mu.Unlock()
	if leads == nil || leads.Err() != nil {
		return nil, false
	}
	return leads, true
}

// Changes yields this process's Leadership, or nil while it does not lead: now, and whenever that
// changes. It may skip leaderships that are already over, but never the newest. It ends when ctx or
// the Latch ends. Another range over the result begins anew.
func (l *Latch) Changes(ctx context.Context) iter.Seq[*Leadership] {
	return func(yield func(*Leadership) bool) {
		var seen *Leadership
		for first := true; ctx.Err() == nil; first = false {
			l.mu.Lock()
			changed, err := l.mu.changed, l.errLocked()
			l.mu.Unlock()
			now, _ := l.Leadership()
			if (first || now != seen) && !yield(now) || err != nil {
				return
			}
			seen = now
			var over <-chan struct{}
			if now != nil {
				over = now.Done()
			}
			select {
			case <-changed:
			case <-over:
			case <-ctx.Done():
			}
		}
	}
}

// Done returns a channel that is closed when the Latch has ended: by Close, with its node, or
// because the ensemble refuses its candidate; see Run.
func (l *Latch) Done() <-chan struct{} {
	if l.done == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return l.done
}

// Err returns why the Latch ended, or nil while it lasts. It is embed.ErrReleased after Close,
// embed.ErrInvalidArgument for Options that are out of range, or else an error of Run.
func (l *Latch) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errLocked()
}

func (l *Latch) errLocked() error {
	if l.done == nil {
		return embed.ErrReleased
	}
	return l.mu.err
}

// Close gives up the leadership or the place in the queue, and ends the Latch. It waits until the
// ensemble knows, for at most embed.Config.RequestTimeout. It is idempotent and always returns nil.
func (l *Latch) Close() error {
	if l.done != nil {
		l.cancel()
		<-l.done
	}
	return nil
}
