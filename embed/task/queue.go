package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

var (
	// ErrFull says that the queue has as many tasks as Options.Limit.
	ErrFull = errors.New("the queue is full")
	// ErrExhausted says that the queue has used up its 2,147,483,647 sequence numbers, and that a
	// task with the last one is still there.
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
		return fmt.Errorf("%w: Options.Limit is %d, but must not be negative", embed.ErrInvalidArgument,
			o.Limit)
	case o.Attempts < 0:
		return fmt.Errorf("%w: Options.Attempts is %d, but must not be negative",
			embed.ErrInvalidArgument, o.Attempts)
	}
	return nil
}

// PutOptions say what is particular to a task. The zero value is usable.
type PutOptions struct {
	// Priority orders the tasks: a lower one begins first. Tasks of one priority begin in the order in
	// which they were put, or about so if callers of several Queues compete. The layouts Locking and
	// Entries have -100 to 899, which are 0 to 999 in kazoo. The layout Priority has 32 bits. The
	// other layouts have none.
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
	look                         *lookout
}

// New returns the queue at a path for a session. It sends and reads nothing. What is wrong with the
// options is the error of each call: embed.ErrInvalidArgument.
func New(s *embed.Session, path string, o Options) *Queue {
	q := &Queue{session: s, path: path, options: o, look: newLookout()}
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

// isWhole refuses a queue whose parts are on several shards, before any of them is made and a task is
// worked on. What is below one first component is on one shard. Otherwise the ensemble knows: it
// refuses such a transaction before it looks at any znode.
func (q *Queue) isWhole(ctx context.Context) error {
	if q.look.whole.Load() {
		return nil
	}
	var ops []embed.Op
	first := make(map[string]bool)
	for _, path := range []string{q.entries, q.locks, q.tries, q.grave} {
		name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		first[name] = true
		ops = append(ops, embed.OpCheck(path, embed.AnyVersion))
	}
	var err error
	if len(first) > 1 {
		_, err = q.session.Multi(ctx, ops...)
	}
	if errors.Is(err, embed.ErrCrossShard) {
		return err
	}
	q.look.whole.Store(!queue.Unanswered(err) && ctx.Err() == nil && q.session.Err() == nil)
	return nil
}

// Put puts a task into the queue and returns its name. Missing znodes are created, in commits of
// their own.
//
// Errors: ErrFull; ErrExhausted; embed.ErrQuotaExceeded; embed.ErrInvalidArgument for wrong options;
// those of embed.Session.Create. After embed.ErrUnknownOutcome the task may be in the queue, once.
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
		// A queue that is filled up to a quota could not be given these. Who may only put goes on.
		_ = ensure(ctx, q.session, q.locks, q.tries)
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

// Take removes a task that is free from the queue and returns it. It chooses and waits as Claim
// does. The task is worked on at most once: it is lost if its caller is lost, and after
// embed.ErrUnknownOutcome it may be.
//
// A task that cannot be decoded, or has no attempts left, moves to the dead ones. If a client of
// Curator has put several elements at once, Take returns the first and leaves the others to nobody:
// use Claim there. Errors are those of Claim.
func (q *Queue) Take(ctx context.Context) ([]byte, error) {
	var data []byte
	err := q.wait(ctx, func(name string) (ok bool, err error) {
		data, ok, err = q.take(ctx, name)
		return ok, err
	})
	return data, q.wrap("take", err)
}

// take takes a task. It returns false if somebody else was faster, with an error or without.
func (q *Queue) take(ctx context.Context, name string) ([]byte, bool, error) {
	item, lock := queue.Child(q.entries, name), queue.Child(q.locks, name)
	raw, stat, err := q.session.Get(ctx, item)
	if err != nil {
		return nil, false, ofTask(err, embed.ErrNoAuth)
	}
	had, triesStat, err := q.readTries(ctx, name)
	if err != nil || time.Now().Before(had.Next) {
		return nil, false, ofTask(err, embed.ErrNoAuth)
	}
	items, bad := q.layout.decode(raw)
	if bad != nil || q.isSpent(had.Attempts) {
		t, err := q.claim(ctx, name) // which buries it
		if t != nil {
			_ = t.giveUp()
		}
		return nil, false, err
	}
	tries := queue.Child(q.tries, name)
	ops := []embed.Op{
		// Nobody has claimed it: its lock can be created.
		embed.OpCreate(lock, nil, embed.Ephemeral), embed.OpDelete(lock, embed.AnyVersion),
		// It is the one that was read: another may have its name.
		embed.OpCheckMzxid(item, stat.Mzxid), embed.OpDelete(item, embed.AnyVersion),
	}
	// Nobody has claimed and retried it since, which this node may not know yet.
	if triesStat == nil {
		ops = append(append(ops, q.newTries(ctx, name)...), embed.OpDelete(tries, embed.AnyVersion))
	} else {
		ops = append(ops, q.asRead(name, triesStat), embed.OpDelete(tries, embed.AnyVersion))
	}
	err = q.remove(ctx, ops)
	if errors.Is(err, embed.ErrQuotaExceeded) {
		err = q.takeAtQuota(ctx, name, ops[2:4], triesStat)
	}
	if err != nil {
		return nil, false, ofTask(err, embed.ErrNotEmpty)
	}
	return items[0], true, nil
}

// takeAtQuota removes a task by operations that create nothing, not even for a moment. tries is the
// Stat of its tries, if it has any.
func (q *Queue) takeAtQuota(
	ctx context.Context, name string, ops []embed.Op, tries *embed.Stat,
) error {
	unclaimed, err := q.without(ctx, q.locks, name)
	if err != nil {
		return err
	}
	var untried []embed.Op
	if tries != nil {
		untried = []embed.Op{q.asRead(name, tries), embed.OpDelete(queue.Child(q.tries, name), embed.AnyVersion)}
	} else if untried, err = q.without(ctx, q.tries, name); err != nil {
		return err
	}
	return q.remove(ctx, slices.Concat(ops, unclaimed, untried))
}

// othersMax bounds the checks of without.
const othersMax = 1000

// without returns operations that pass only if a parent has the children that this node shows, and
// so not the one of a name. The error is embed.ErrNodeExists if this node shows it.
func (q *Queue) without(ctx context.Context, parent, name string) ([]embed.Op, error) {
	names, err := q.session.Page(ctx, parent, "", othersMax)
	switch {
	case errors.Is(err, embed.ErrNoNode): // that it is missing cannot be checked
		return nil, fmt.Errorf("%w: %s is missing", embed.ErrQuotaExceeded, parent)
	case err != nil:
		return nil, err
	case slices.Contains(names, name):
		return nil, embed.ErrNodeExists
	case len(names) == othersMax:
		return nil, fmt.Errorf("%w: %s has too many children to check them", embed.ErrQuotaExceeded, parent)
	}
	ops := []embed.Op{embed.OpCheckChildren(parent, len(names))}
	for _, other := range names {
		ops = append(ops, embed.OpCheck(queue.Child(parent, other), embed.AnyVersion))
	}
	return ops, nil
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

// Claim claims the first task that is free, or one of the first if callers of several Queues
// compete. It waits for one as long as ctx allows. The task stays in the queue until Task.Finish,
// so it is worked on at least once. Nobody else has it as long as the Task lasts. If its session or
// its node is lost, the next caller claims it.
//
// Errors: the ctx's; why the session or the node ended; embed.ErrInvalidArgument for wrong options;
// embed.ErrCrossShard if the parts of the queue are on several shards, before anything is made;
// embed.ErrQuotaExceeded if a hard quota has no room for a znode more, although some tasks are
// claimed or were; those of embed.Session.Create; embed.ErrNoAuth if the session may remove no task
// of the queue, or not what counts its claims, before one is claimed. What concerns one task alone is
// no error: a task that the session may not read, whose znode has children, or that has to go to the
// dead ones and cannot, is logged and passed over.
func (q *Queue) Claim(ctx context.Context) (*Task, error) {
	var t *Task
	err := q.wait(ctx, func(name string) (_ bool, err error) {
		t, err = q.claim(ctx, name)
		return t != nil, err
	})
	return t, q.wrap("claim", err)
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
