package task

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// sweepPause is the mean time between two sweeps of a Queue.
const sweepPause = time.Minute

// A sweep deletes the tries of tasks that are no longer there. A task and its tries go together,
// unless a client of ZooKeeper has removed the task: it does not know of the tries. Whoever looks
// for tasks sweeps now and then.
type sweep struct {
	next  time.Time // when it goes on
	after string    // how far it has come
}

func newSweep() sweep {
	// Not all Queues of a process at once.
	return sweep{next: time.Now().Add(rand.N(2 * sweepPause))}
}

// sweep goes on with the sweep if it is time. It stops after a page from which it deletes
// something, and sends that without waiting for the outcome: so it never holds up the callers.
func (q *Queue) sweep(ctx context.Context) error {
	s := &q.look.sweep
	for !time.Now().Before(s.next) {
		names, err := q.session.Page(ctx, q.tries, s.after, pageLen)
		if err != nil && !errors.Is(err, embed.ErrNoNode) { // nothing there: no names
			return err
		}
		deleted := false
		for _, name := range names {
			gone, err := q.forget(ctx, name)
			if err != nil {
				return err
			}
			deleted = deleted || gone
		}
		switch {
		case len(names) < pageLen:
			*s = newSweep()
		case deleted:
			*s = sweep{time.Now().Add(lostPause), names[len(names)-1]}
		default:
			s.after = names[len(names)-1]
		}
	}
	return nil
}

// forget deletes the tries of a task that is no longer there, without waiting. It reports whether
// there are such tries.
func (q *Queue) forget(ctx context.Context, name string) (bool, error) {
	if _, ok := q.options.Layout.due(name); !ok {
		return false, nil // foreign
	}
	tries := queue.Child(q.tries, name)
	stat, ok, err := q.session.Exists(ctx, tries)
	if !ok || err != nil {
		return false, unless(err, embed.ErrNoAuth) // what may not be read is foreign
	}
	// Tries are written only while their task is there. So a task that is not there now was removed
	// later. Whoever claims another one of its name writes the tries.
	if _, ok, err := q.session.Exists(ctx, queue.Child(q.entries, name)); ok || err != nil {
		return false, unless(err, embed.ErrNoAuth) // then it is there
	}
	_ = q.session.Submit(ctx, q.asRead(name, &stat), embed.OpDelete(tries, embed.AnyVersion))
	return true, nil
}
