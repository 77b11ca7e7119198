package task

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// A lookout is where the callers of one Queue look for tasks. One looks at a time, and then tries
// a task that is free and that no other of them tries. If each looked by itself, all would try the
// same task, and all but one would lose.
//
// The callers of other Queues try the same tasks. So they spread: each tries one of the first width
// tasks, at random. The width doubles when another was faster, and falls by a quarter when not. So
// it is about as large as the number of callers that compete, and it is 1 without any: then the
// tasks begin in order.
type lookout struct {
	whole atomic.Bool   // the parts of the queue are on one shard
	ends  atomic.Bool   // the session may remove tasks
	turn  chan struct{} // holds a value while somebody looks
	again chan struct{} // a try has failed, so its task may be free; of length one
	sweep sweep         // owned by the one that looks

	mu struct {
		rank.Mutex[rank.Lookout]
		trying map[string]bool // names
		width  int             // from 1 to widthMax
		passed map[string]pass // by name
	}
}

// A pass says how long callers pass over a task that troubles them.
type pass struct {
	until time.Time
	pause time.Duration
}

// A trouble is an error that concerns one task alone. It ends no call: callers pass over the task.
type trouble struct{ error }

// ofTask returns a trouble if the error is one of some, and otherwise the error.
func ofTask(err error, those ...error) error {
	if err != nil && unless(err, those...) == nil {
		return trouble{err}
	}
	return err
}

const (
	// passMin and passMax bound how long a task is passed over. The time doubles with each trouble.
	passMin = time.Second
	passMax = time.Minute
	// passedMax is how many such tasks are remembered. Callers try others again and again.
	passedMax = 1000
)

// pass notes that a task is in trouble, and reports whether that is new.
func (l *lookout) pass(name string) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, known := l.mu.passed[name]
	if !known && len(l.mu.passed) >= passedMax {
		maps.DeleteFunc(l.mu.passed, func(_ string, p pass) bool { return time.Since(p.until) > passMax })
		if len(l.mu.passed) >= passedMax {
			return false
		}
	}
	pause := min(max(2*was.pause, passMin), passMax)
	l.mu.passed[name] = pass{time.Now().Add(pause), pause}
	return !known
}

// passes returns how long a task is still passed over.
func (l *lookout) passes(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.mu.passed[name].until)
}

// widthMax bounds the width, and so how far a task may begin out of order.
const widthMax = 128

func newLookout() *lookout {
	l := &lookout{turn: make(chan struct{}, 1), again: make(chan struct{}, 1),
		sweep: newSweep()}
	l.mu.trying, l.mu.width, l.mu.passed = make(map[string]bool), 1, make(map[string]pass)
	return l
}

// tries reports whether a caller tries a task.
func (l *lookout) tries(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.trying[name]
}

// begin notes that a caller tries a task.
func (l *lookout) begin(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.trying[name] = true
}

// slot returns at random a number below the width: which of the first tasks to try.
func (l *lookout) slot() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return rand.N(l.mu.width)
}

// compete notes whether another was faster.
func (l *lookout) compete(lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost {
		l.mu.width = min(2*l.mu.width, widthMax)
	} else {
		l.mu.width = max(l.mu.width*3/4, 1)
	}
}

// end notes that a caller has tried a task. If it has not got it, the others may.
func (l *lookout) end(name string, got bool) {
	l.mu.Lock()
	delete(l.mu.trying, name)
	l.mu.Unlock()
	if got {
		return
	}
	select {
	case l.again <- struct{}{}:
	default: // whoever looks will look again anyway
	}
}

const (
	// lookPause is the longest time for which a waiter trusts a timer. Then it looks at the clock
	// again, which may have been set meanwhile.
	lookPause = 10 * time.Second
	// lostPause is how long a caller passes over a task that it could not get. As a rule the task is
	// another's by then.
	lostPause = 100 * time.Millisecond
)

var (
	// faster are the errors after which another task is tried, because somebody else was faster.
	faster = []error{
		embed.ErrNoNode, embed.ErrNodeExists, embed.ErrBadVersion, embed.ErrTooManyChildren,
	}
	// away are those after which any task is tried again, because the session or the quorum is not
	// there at this moment.
	away = []error{embed.ErrSuspended, embed.ErrUnavailable}
)

// wait calls try for one task after the other that is free, until it returns true.
func (q *Queue) wait(ctx context.Context, try func(name string) (bool, error)) error {
	if err := q.check(); err != nil {
		return err
	}
	if err := q.isWhole(ctx); err != nil {
		return err
	}
	for lost := make(losses); ; {
		name, err := q.next(ctx, lost)
		if err == nil {
			var got bool
			got, err = try(name)
			q.look.end(name, got)
			if got {
				q.look.compete(false)
				return nil
			}
			if errors.Is(err, embed.ErrUnknownOutcome) {
				return err // of a Take: the task may be removed
			}
			if of, ok := err.(trouble); ok {
				if q.look.pass(name) {
					path := queue.Child(q.entries, name)
					sessions.Log(q.session).Warn("a task is passed over: see why", "path", path, "cause", of.error)
				}
				err = nil
			}
			if errors.Is(err, embed.ErrQuotaExceeded) && q.makeRoom(ctx) {
				continue
			}
			other := unless(err, faster...)
			if err != nil && other == nil {
				q.look.compete(true)
			}
			if err = other; err == nil {
				lost.add(name)
			}
			if err != nil && unless(err, away...) == nil && sessions.Pause(ctx) {
				err = nil
			}
		}
		if ended := q.session.Err(); ended != nil {
			return ended
		}
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
	}
}

// losses are the tasks that a caller could not get, and when that was.
type losses map[string]time.Time

func (l losses) add(name string) {
	maps.DeleteFunc(l, func(name string, _ time.Time) bool { return !l.has(name) })
	l[name] = time.Now()
}

// has reports whether the caller passes over a task.
func (l losses) has(name string) bool { return time.Since(l[name]) < lostPause }

// next waits until a task is free, and notes that the caller tries it. It passes over those that
// the caller could not get.
func (q *Queue) next(ctx context.Context, lost losses) (string, error) {
	select {
	case q.look.turn <- struct{}{}:
	case <-q.session.Done():
		return "", q.session.Err()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-q.look.turn }()
	for {
		err := ensure(ctx, q.session, q.entries, q.locks)
		if err != nil && !queue.Unanswered(err) {
			return "", err
		}
		if err := q.sweep(ctx); err != nil {
			return "", err
		}
		s := scan{q: q, lost: lost, slot: q.look.slot()}
		name, err := s.pick(ctx)
		if name == "" && err == nil {
			name, err = q.watch(ctx, s)
		}
		if name != "" {
			q.look.begin(name)
		}
		if name != "" || err != nil {
			return name, err
		}
		if err := cmp.Or(q.session.Err(), ctx.Err()); err != nil {
			return "", err
		}
	}
}

// watch returns a task that is free, or waits until there may be one.
func (q *Queue) watch(ctx context.Context, s scan) (string, error) {
	var watches [2]*embed.Watch
	for i, path := range []string{q.entries, q.locks} {
		w, err := q.session.Watch(ctx, path, embed.WatchOnce)
		if err != nil {
			return "", err
		}
		defer w.Close()
		watches[i] = w
	}
	s.pause = min(lookPause, time.Until(q.look.sweep.next))
	name, err := s.pick(ctx)
	if name != "" || err != nil {
		return name, err
	}
	pause := time.NewTimer(s.pause)
	defer pause.Stop()
	select {
	case <-watches[0].Events(): // also when the watch ends: look again
	case <-watches[1].Events():
	case <-q.look.again:
	case <-pause.C:
	case <-q.session.Done():
	case <-ctx.Done():
	}
	return "", nil
}

// pageLen is how many names are read at once.
const pageLen = 100

// A scan goes through the tasks once.
type scan struct {
	q     *Queue
	lost  losses
	slot  int
	pause time.Duration // until another is due, or less
}

// pick returns a task that is free and that no caller tries, or nothing if there is none. It is the
// one of the slot among the first of the same rank, or another if there are not so many.
func (s *scan) pick(ctx context.Context) (string, error) {
	var found []string
	for after := ""; ; {
		names, err := s.q.session.Page(ctx, s.q.entries, after, pageLen)
		if err != nil {
			return "", unless(err, embed.ErrNoNode)
		}
		for _, name := range names {
			free, over, err := s.free(ctx, name)
			if err != nil {
				return "", err
			}
			rank := s.q.options.Layout.rank
			if over || free && len(found) > 0 && rank(name) != rank(found[0]) {
				return s.among(found), nil
			}
			if free {
				found = append(found, name)
			}
			if len(found) > s.slot {
				return name, nil
			}
		}
		if len(names) < pageLen {
			return s.among(found), nil
		}
		after = names[len(names)-1]
	}
}

func (s *scan) among(found []string) string {
	if len(found) == 0 {
		return ""
	}
	return found[s.slot%len(found)]
}

// free reports whether a task may be claimed, and whether no later one is due.
func (s *scan) free(ctx context.Context, name string) (free, over bool, err error) {
	if s.q.look.tries(name) {
		return false, false, nil // whoever tries it tells when it is free after all
	}
	if s.lost.has(name) {
		s.pause = min(s.pause, lostPause)
		return false, false, nil
	}
	if left := s.q.look.passes(name); left > 0 {
		s.pause = min(s.pause, left)
		return false, false, nil
	}
	at, ok := s.q.options.Layout.due(name)
	if !ok {
		return false, false, nil // not a task
	}
	if s.early(at) {
		return false, true, nil // the names are in the order of the times
	}
	_, taken, err := s.q.session.Exists(ctx, queue.Child(s.q.locks, name))
	if taken || err != nil {
		return false, false, unless(err, embed.ErrNoAuth) // then it is there
	}
	t, _, err := s.q.readTries(ctx, name)
	if errors.Is(err, embed.ErrNoAuth) {
		return true, false, nil // whoever tries it passes over it, and says so
	}
	return err == nil && !s.early(t.Next), false, err
}

// early reports whether a time is yet to come.
func (s *scan) early(at time.Time) bool {
	left := time.Until(at)
	if left > 0 {
		s.pause = min(s.pause, left)
	}
	return left > 0
}
