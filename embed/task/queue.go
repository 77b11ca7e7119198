package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

var (
	// ErrFull says that the queue has as many tasks as Options.Limit.
	ErrFull = errors.New("the queue is full")
	// ErrExhausted says that the queue has used up its 2,147,483,647 sequence numbers.
	ErrExhausted = errors.New("the queue has used up its sequence numbers: use another path")
)

// Options say how a queue is laid out. The zero value is usable. All that use a queue should give
// the same.
type Options struct {
	// Layout is how the znodes are named. The zero value is Locking.
	Layout Layout
	// LockPath is the znode below which claims are, as for Curator's lockPath. Empty means
	// <path>-locks. The layout Locking has its own: it must be empty there. It must be on the shard of
	// the queue.
	LockPath string
	// Limit is how many tasks the queue may have, those that are claimed included. Zero means no
	// limit.
	Limit int
	// Attempts is how often a task may be claimed. A task that was claimed so often moves to the dead
	// ones when its last claim ends without Finish. Zero means any number.
	Attempts int
}

func (o *Options) check(path string) error {
	switch {
	case o.Layout < 0 || int(o.Layout) >= len(layouts):
		return fmt.Errorf("%w: Options.Layout is %d", embed.ErrInvalidArgument, o.Layout)
	case o.Layout == Locking && o.LockPath != "":
		return fmt.Errorf("%w: Options.LockPath is %s, but the layout Locking has its own",
			embed.ErrInvalidArgument, o.LockPath)
	case o.LockPath != "" && o.LockPath == path:
		return fmt.Errorf("%w: Options.LockPath is the queue itself", embed.ErrInvalidArgument)
	case o.Limit < 0:
		return fmt.Errorf("%w: Options.Limit is %d, but must not be negative", embed.ErrInvalidArgument, o.Limit)
	case o.Attempts < 0:
		return fmt.Errorf("%w: Options.Attempts is %d, but must not be negative", embed.ErrInvalidArgument, o.Attempts)
	}
	return nil
}

// PutOptions say what is particular to a task. The zero value is usable.
type PutOptions struct {
	// Priority orders the tasks: a lower one begins first. Tasks of one priority begin in the order in
	// which they were put. The layouts Locking and Entries have -100 to 899, which are 0 to 999 in
	// kazoo. The layout Priority has 32 bits. The other layouts have none.
	Priority int
	// At is when the task may begin, by the wall clocks of those that claim. It is for the layout
	// Delay only, which has times up to June 2527. Zero means at once.
	At time.Time
}

// A Queue has tasks that wait for somebody. Its methods may be called by any number of goroutines.
// It lasts as long as its session.
type Queue struct {
	session *embed.Session
	path    string
	options Options

	layout                       layout
	entries, locks, tries, grave string
}

// New returns the queue at a path for a session. It sends and reads nothing. What is wrong with the
// options is the error of each call: embed.ErrInvalidArgument.
func New(s *embed.Session, path string, o Options) *Queue {
	q := &Queue{session: s, path: path, options: o}
	if o.check(path) != nil || path == "" {
		return q
	}
	q.layout = layouts[o.Layout]
	q.entries = q.layout.entries(path)
	q.tries, q.grave = q.layout.part(path, "tries"), q.layout.part(path, "dead")
	q.locks = cmp.Or(o.LockPath, q.layout.part(path, "locks"))
	if o.Layout == Locking {
		q.locks = queue.Child(path, "taken")
	}
	return q
}

func (q *Queue) check() error {
	if q.path == "" || q.path == "/" || strings.HasSuffix(q.path, "/") {
		return fmt.Errorf("%w: %q cannot be a queue", embed.ErrInvalidPath, q.path)
	}
	return q.options.check(q.path)
}

// Put puts a task into the queue and returns its name. Missing znodes are created, in commits of
// their own.
//
// Errors: ErrFull; ErrExhausted; embed.ErrInvalidArgument for wrong options; those of
// embed.Session.Create. After embed.ErrUnknownOutcome the task may be in the queue, once.
func (q *Queue) Put(ctx context.Context, data []byte, o PutOptions) (name string, err error) {
	name, err = q.put(ctx, data, o)
	return name, q.wrap("put", err)
}

func (q *Queue) put(ctx context.Context, data []byte, o PutOptions) (string, error) {
	if err := q.check(); err != nil {
		return "", err
	}
	name, err := q.options.Layout.name(o, time.Now())
	if err != nil {
		return "", err
	}
	item := queue.Child(q.entries, name)
	ops := []embed.Op{embed.OpCreate(item, q.layout.encode(data), embed.Sequential)}
	if q.options.Limit > 0 { // after it, so that it counts it
		ops = append(ops, embed.OpCheckChildren(q.entries, q.options.Limit))
	}
	for {
		results, err := q.session.Multi(ctx, ops...)
		switch {
		case err == nil:
			_, name := queue.Split(results[0].Path)
			return name, nil
		case errors.Is(err, embed.ErrTooManyChildren):
			return "", ErrFull
		case errors.Is(err, embed.ErrNodeExists): // the number stands still at its end
			return "", ErrExhausted
		case !errors.Is(err, embed.ErrNoNode):
			return "", err
		}
		if err := ensure(ctx, q.session, q.entries); err != nil {
			return "", err
		}
	}
}

// ensure creates znodes that are missing, as persistent ones: clients of ZooKeeper expect them to
// stay, and so do the numbers of the tasks.
func ensure(ctx context.Context, s *embed.Session, paths ...string) error {
	for _, path := range paths {
		_, ok, err := s.Exists(ctx, path)
		if err == nil && !ok {
			_, _, err = s.CreateWith(ctx, path, nil, embed.CreateOptions{Parents: true})
		}
		if err != nil && !errors.Is(err, embed.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// Take removes the first task that is free from the queue and returns it. It waits for one as long
// as ctx allows. The task is worked on at most once: it is lost if its caller is lost, and after
// embed.ErrUnknownOutcome it may be.
//
// A task that cannot be decoded moves to the dead ones. If a client of Curator has put several
// elements at once, Take returns the first and leaves the others to nobody: use Claim there. Errors
// are those of Claim.
func (q *Queue) Take(ctx context.Context) ([]byte, error) {
	var data []byte
	err := q.wait(ctx, func(name string) (bool, error) {
		item := queue.Child(q.entries, name)
		raw, stat, err := q.session.Get(ctx, item)
		if err != nil {
			return false, err
		}
		items, bad := q.layout.decode(raw)
		if bad != nil {
			t, err := q.claim(ctx, name) // which buries it
			if t != nil {
				err = errors.Join(err, t.giveUp())
			}
			return false, err
		}
		lock := queue.Child(q.locks, name)
		// Nobody has claimed it: its lock can be created.
		err = q.remove(ctx, q.withTries([]embed.Op{
			embed.OpCreate(lock, nil, embed.Ephemeral), embed.OpDelete(lock, embed.AnyVersion),
			embed.OpDelete(item, stat.Version),
		}, name))
		if err == nil {
			data = items[0]
		}
		return err == nil, err
	})
	return data, q.wrap("take", err)
}

// remove applies operations. It waits for the outcome as long as ctx and the session last.
func (q *Queue) remove(ctx context.Context, ops []embed.Op) error {
	p := q.session.Submit(ctx, ops...)
	select {
	case <-p.Done():
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", embed.ErrUnknownOutcome, ctx.Err())
	}
	_, err := p.Result()
	return err
}

// withTries adds the deletion of a task's tries, if it has any.
func (q *Queue) withTries(ops []embed.Op, name string) []embed.Op {
	tries := queue.Child(q.tries, name)
	if _, ok, err := q.session.Exists(context.Background(), tries); ok && err == nil {
		ops = append(ops, embed.OpDelete(tries, embed.AnyVersion))
	}
	return ops
}

// Claim claims the first task that is free, and waits for one as long as ctx allows. The task stays
// in the queue until Task.Finish, so it is worked on at least once. Nobody else has it as long as
// the Task lasts. If its session or its node is lost, the next caller claims it.
//
// Errors: the ctx's; why the session or the node ended; embed.ErrInvalidArgument for wrong options;
// embed.ErrCrossShard if the parts of the queue are on several shards; those of
// embed.Session.Create.
func (q *Queue) Claim(ctx context.Context) (*Task, error) {
	var t *Task
	err := q.wait(ctx, func(name string) (_ bool, err error) {
		t, err = q.claim(ctx, name)
		return t != nil, err
	})
	return t, q.wrap("claim", err)
}

// lookPause is the longest time for which a waiter trusts a timer. Then it looks at the clock
// again, which may have been set meanwhile.
const lookPause = 10 * time.Second

// wait calls try for one task after the other that is free, until it returns true.
func (q *Queue) wait(ctx context.Context, try func(name string) (bool, error)) error {
	if err := q.check(); err != nil {
		return err
	}
	for {
		err := ensure(ctx, q.session, q.entries, q.locks, q.tries)
		if err != nil && !queue.Unanswered(err) {
			return err
		}
		done, err := q.round(ctx, try)
		if done {
			return nil
		}
		if errors.Is(err, embed.ErrUnknownOutcome) {
			return err // of a Take: the task may be removed
		}
		if ended := q.session.Err(); ended != nil {
			return ended
		}
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
	}
}

// round tries all tasks that are free, and then waits until there may be another.
func (q *Queue) round(ctx context.Context, try func(name string) (bool, error)) (bool, error) {
	var watches [2]*embed.Watch
	for i, path := range []string{q.entries, q.locks} {
		w, err := q.session.Watch(ctx, path, embed.WatchOnce)
		if err != nil {
			return false, err
		}
		defer w.Close()
		watches[i] = w
	}
	s := scan{q: q, try: try, pause: lookPause}
	done, err := s.all(ctx)
	if done || err != nil {
		return done, err
	}
	if s.lost {
		sessions.Pause(ctx) // somebody was faster; there may be more, which no event tells
		return false, nil
	}
	select {
	case <-watches[0].Events(): // also when the watch ends: look again
	case <-watches[1].Events():
	case <-time.After(s.pause):
	case <-q.session.Done():
	case <-ctx.Done():
	}
	return false, nil
}

// pageLen is how many names are read at once.
const pageLen = 100

// faster are the errors after which the next task is tried: somebody else was faster, or the
// session or the quorum is not there at this moment.
var faster = []error{
	embed.ErrNoNode, embed.ErrNodeExists, embed.ErrBadVersion,
	embed.ErrSuspended, embed.ErrUnavailable,
}

// A scan goes through the tasks once.
type scan struct {
	q     *Queue
	try   func(name string) (bool, error)
	lost  bool          // somebody else was faster for one
	pause time.Duration // until another is due, or less
}

// all tries the tasks in order, until try returns true.
func (s *scan) all(ctx context.Context) (bool, error) {
	for after := ""; ; {
		names, err := s.q.session.Page(ctx, s.q.entries, after, pageLen)
		if err != nil {
			return false, unless(err, embed.ErrNoNode)
		}
		for _, name := range names {
			if free, over, err := s.free(ctx, name); over || err != nil {
				return false, err
			} else if !free {
				continue
			}
			done, err := s.try(name)
			if done {
				return true, nil
			}
			s.lost = true
			if err := unless(err, faster...); err != nil {
				return false, err
			}
		}
		if len(names) < pageLen {
			return false, nil
		}
		after = names[len(names)-1]
	}
}

// free reports whether a task may be claimed, and whether no later one is due.
func (s *scan) free(ctx context.Context, name string) (free, over bool, err error) {
	at, ok := s.q.options.Layout.due(name)
	if !ok {
		return false, false, nil // not a task
	}
	if s.early(at) {
		return false, true, nil // the names are in the order of the times
	}
	_, taken, err := s.q.session.Exists(ctx, queue.Child(s.q.locks, name))
	if taken || err != nil {
		return false, false, err
	}
	t, _, err := s.q.readTries(ctx, name)
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

// unless returns err unless it is one of some others.
func unless(err error, others ...error) error {
	for _, other := range others {
		if errors.Is(err, other) {
			return nil
		}
	}
	return err
}

func (q *Queue) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, q.path, err)
}
