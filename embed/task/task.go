package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A Task is one claim of a task. It ends by Finish or Retry, at its session's local deadline, when
// its session or its node ends, or when somebody deletes its znode. It ends on its own node before
// anybody else can claim the task, except after such a deletion. An ended Task does not come back.
//
// Its methods may be called by any number of goroutines. The zero Task has ended: embed.ErrNotHeld.
type Task struct {
	// Immutable. The queue is nil in the zero Task.
	queue   *Queue
	name    string
	items   [][]byte
	raw     []byte
	attempt int
	claim   *claim.Claim
	tenure  *claim.Tenure
	czxid   embed.Zxid
	values  context.Context // of Claim's ctx
}

// tries is what is kept of the claims of a task.
type tries struct {
	Attempts int       // how often it was claimed
	Next     time.Time `json:",omitzero"` // when it may be claimed again
}

// readTries returns the tries of a task, and the znode's Stat if there is one.
func (q *Queue) readTries(ctx context.Context, name string) (t tries, stat *embed.Stat, err error) {
	data, s, err := q.session.Get(ctx, queue.Child(q.tries, name))
	if err != nil {
		return t, nil, unless(err, embed.ErrNoNode)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		t = tries{} // not ours: it counts from now on
	}
	return t, &s, nil
}

// claim claims a task. It returns nil if somebody else was faster, with an error or without.
func (q *Queue) claim(ctx context.Context, name string) (*Task, error) {
	t := &Task{queue: q, name: name, values: ctx}
	had, stat, err := q.readTries(ctx, name)
	if err != nil || time.Now().Before(had.Next) { // it was retried since it was seen
		return nil, err
	}
	t.attempt = had.Attempts + 1
	data, err := json.Marshal(tries{Attempts: t.attempt})
	if err != nil {
		return nil, err
	}
	count := embed.OpCreate(queue.Child(q.tries, name), data, embed.Persistent)
	if stat != nil {
		count = embed.OpSet(queue.Child(q.tries, name), data, stat.Version)
	}
	t.claim, err = claim.New(ctx, q.session, embed.OpCheck(t.item(), embed.AnyVersion), count,
		queue.OfTask(embed.OpCreate(queue.Child(q.locks, name), nil, embed.Ephemeral)))
	if err != nil {
		return nil, err
	}
	results, err := t.claim.Await(ctx)
	if err == nil {
		t.czxid = results[2].Stat.Czxid
		err = t.begin(ctx)
	}
	if err != nil {
		_ = t.claim.Release() // the node deletes what was created once it knows the outcome
		return nil, unless(err, embed.ErrUnknownOutcome)
	}
	t.items, err = q.layout.decode(slices.Clone(t.raw)) // they belong to the caller
	if err != nil || q.options.Attempts > 0 && t.attempt > q.options.Attempts {
		// The outcome says nothing of this call, which goes on to the next task. If the dead task is
		// still there, it is buried later.
		return nil, unless(t.bury(ctx), embed.ErrUnknownOutcome, embed.ErrNotHeld)
	}
	return t, nil
}

// begin holds the claim and reads the data.
func (t *Task) begin(ctx context.Context) (err error) {
	if t.tenure, err = t.claim.Hold(false); err != nil {
		return err
	}
	if t.raw, _, err = t.queue.session.Get(ctx, t.item()); errors.Is(err, embed.ErrNoNode) {
		_, _ = t.queue.forget(ctx, t.name)
	}
	return err
}

func (t *Task) item() string { return queue.Child(t.queue.entries, t.name) }

// bury moves the task to the dead ones.
func (t *Task) bury(ctx context.Context) error {
	q := t.queue
	if err := ensure(ctx, q.session, q.grave); err != nil {
		return errors.Join(err, t.giveUp())
	}
	return t.end(embed.OpDelete(t.item(), embed.AnyVersion),
		embed.OpCreate(queue.Child(q.grave, t.name+"-"), t.raw, embed.Sequential))
}

// end applies operations and gives up the claim, in one transaction, and removes the tries unless
// they are set. It waits for the outcome as long as the session lasts.
func (t *Task) end(ops ...embed.Op) error {
	return t.submit(t.queue.withTries(ops[:len(ops):len(ops)], t.name))
}

func (t *Task) submit(ops []embed.Op) error {
	if t.tenure == nil {
		return embed.ErrNotHeld
	}
	if err := t.Err(); err != nil {
		return fmt.Errorf("%w: %w", embed.ErrNotHeld, err)
	}
	ops = append(ops, claim.OpRelease(t.claim))
	_, err := t.queue.session.Submit(context.Background(), ops...).Result()
	if err != nil {
		_ = t.giveUp() // so that somebody claims it again
	}
	return err
}

// giveUp gives up the claim. If that cannot be sent, the node keeps trying until the session ends.
func (t *Task) giveUp() error { return t.claim.Release() }

// Finish removes the task from the queue, and applies operations in the same transaction. So they
// are applied once, however often the task is worked on. Their paths must be on the shard of the
// queue.
//
// After an error the Task has ended all the same. Unless it is embed.ErrUnknownOutcome, nothing was
// applied, and the task is claimed again. Errors: embed.ErrNotHeld if the claim is lost;
// embed.ErrNoNode if a client that does not respect claims has removed the task; those of
// embed.Session.Multi.
func (t *Task) Finish(ops ...embed.Op) error {
	if t.queue == nil {
		return embed.ErrNotHeld
	}
	ops = append(ops[:len(ops):len(ops)], embed.OpDelete(t.item(), embed.AnyVersion))
	return t.wrap("finish", t.end(ops...))
}

// Retry gives the task back. Nobody claims it before a time has passed, by the wall clocks of those
// that claim. It keeps its place: then it is the first again. A task that has no attempts left
// moves to the dead ones. Errors are those of Finish.
func (t *Task) Retry(after time.Duration) error {
	if t.queue == nil {
		return embed.ErrNotHeld
	}
	q := t.queue
	if q.options.Attempts > 0 && t.attempt >= q.options.Attempts {
		return t.wrap("retry", t.bury(context.Background()))
	}
	data, err := json.Marshal(tries{Attempts: t.attempt, Next: time.Now().Add(after).UTC().Round(0)})
	if err != nil {
		return t.wrap("retry", err)
	}
	set := embed.OpSet(queue.Child(q.tries, t.name), data, embed.AnyVersion)
	return t.wrap("retry", t.submit([]embed.Op{embed.OpCheck(t.item(), embed.AnyVersion), set}))
}

// Name returns the name of the task in its queue.
func (t *Task) Name() string { return t.name }

// Data returns what was put. It belongs to the caller.
func (t *Task) Data() []byte {
	if len(t.items) == 0 {
		return nil
	}
	return t.items[0]
}

// Items returns all that was put at once: more than one element only if a client of Curator has put
// them so.
func (t *Task) Items() [][]byte { return t.items }

// Attempt counts the claims of the task, from 1. Those of a client of ZooKeeper do not count.
func (t *Task) Attempt() int { return t.attempt }

// Token returns the fencing token. It grows with every claim of the task, see lock.Token. Compare
// tokens of the same task only.
func (t *Task) Token() lock.Token { return lock.Token{Zxid: t.czxid} }

// Guard lets a Multi be applied only while the Task lasts, as lock.Guard does for a Hold.
func (t *Task) Guard() embed.Op { return claim.OpGuard(t.tenure) }

// Session returns the session that has claimed the task. The zero Task has none: nil.
func (t *Task) Session() *embed.Session {
	if t.queue == nil {
		return nil
	}
	return t.queue.session
}

func (t *Task) life() *claim.Tenure {
	if t.tenure == nil {
		return new(claim.Tenure)
	}
	return t.tenure
}

// Context returns a context with the values of Claim's ctx and the lifetime of the Task.
// context.Cause says why it ended. Its Err and Done compare the clock when they are called.
func (t *Task) Context() context.Context {
	if t.tenure == nil {
		return t.life().Context()
	}
	return queue.Context(t.tenure, t.values)
}

// Done compares the clock and returns a channel that is closed when the Task has ended.
func (t *Task) Done() <-chan struct{} { return t.life().Done() }

// Err compares the clock and returns why the Task ended, or nil while it lasts: embed.ErrReleased
// after Finish or Retry, else the errors of lock.Hold.Err.
func (t *Task) Err() error { return t.life().Err() }

func (t *Task) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, t.item(), err)
}
