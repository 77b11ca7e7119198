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
	if len(data) == 0 {
		return tries{Attempts: 1}, &s, nil
	}
	if err := json.Unmarshal(data, &t); err != nil {
		t = tries{} // not ours: it counts from now on
	}
	return t, &s, nil
}

// newTries returns the operations that count the first claim of a task. The tries have no data, so
// that they need no room where a quota is of bytes. Their parent is created if makeRoom, perhaps of
// another caller, has deleted it.
func (q *Queue) newTries(ctx context.Context, name string) (ops []embed.Op) {
	if _, there, err := q.session.Exists(ctx, q.tries); !there && err == nil {
		ops = append(ops, embed.OpCreate(q.tries, nil, embed.Persistent))
	}
	return append(ops, embed.OpCreate(queue.Child(q.tries, name), nil, embed.Persistent))
}

// makeRoom deletes the znode of the tries if it has no children, which happens when no task is
// claimed or was retried. So there is room for a claim in a queue that has filled its own quota. A
// transaction is judged by what there was before it, and may create several znodes in the room for
// one.
func (q *Queue) makeRoom(ctx context.Context) bool {
	return q.session.Delete(ctx, q.tries, embed.AnyVersion) == nil
}

// count returns the operations that count a claim of a task. stat is that of its tries, if any.
func (q *Queue) count(
	ctx context.Context, name string, attempt int, stat *embed.Stat,
) ([]embed.Op, error) {
	if stat == nil {
		return q.newTries(ctx, name), nil
	}
	data, err := json.Marshal(tries{Attempts: attempt})
	set := embed.OpSet(queue.Child(q.tries, name), data, embed.AnyVersion)
	return []embed.Op{q.asRead(name, stat), set}, err
}

// asRead passes only if the tries of a task are those that were read. A version would not tell: a
// task that has the name of a former one has tries of the same versions.
func (q *Queue) asRead(name string, tries *embed.Stat) embed.Op {
	return embed.OpCheckMzxid(queue.Child(q.tries, name), tries.Mzxid)
}

// claim claims a task. It returns nil if somebody else was faster, with an error or without.
func (q *Queue) claim(ctx context.Context, name string) (*Task, error) {
	t := &Task{queue: q, name: name, values: ctx}
	if item, _, err := q.session.Exists(ctx, t.item()); err == nil && item.NumChildren > 0 {
		return nil, trouble{embed.ErrNotEmpty} // nobody could remove it when it is done
	}
	had, stat, err := q.readTries(ctx, name)
	if err != nil || time.Now().Before(had.Next) { // it was retried since it was seen
		return nil, ofTask(err, embed.ErrNoAuth)
	}
	t.attempt = had.Attempts + 1
	count, err := q.count(ctx, name, t.attempt, stat)
	if err != nil {
		return nil, err
	}
	ops := append([]embed.Op{embed.OpCheck(t.item(), embed.AnyVersion)}, count...)
	if err := t.mayEnd(ctx, ops); err != nil {
		return nil, unless(hidden(err, stat != nil), embed.ErrUnknownOutcome)
	}
	ops = append(ops, queue.OfTask(embed.OpCreate(queue.Child(q.locks, name), nil, embed.Ephemeral)))
	t.claim, err = claim.New(ctx, q.session, ops...)
	if err != nil {
		return nil, err
	}
	results, err := t.claim.Await(ctx)
	if err == nil {
		t.czxid = results[len(ops)-1].Stat.Czxid
		err = t.begin(ctx)
	}
	if err != nil {
		_ = t.claim.Release() // the node deletes what was created once it knows the outcome
		return nil, unless(hidden(err, stat != nil), embed.ErrUnknownOutcome)
	}
	t.items, err = q.layout.decode(slices.Clone(t.raw)) // they belong to the caller
	if err != nil || q.isSpent(t.attempt-1) {
		return nil, t.buryNow(ctx)
	}
	return t, nil
}

// isSpent reports whether a task that was claimed so often has no attempts left.
func (q *Queue) isSpent(attempts int) bool {
	return q.options.Attempts > 0 && attempts >= q.options.Attempts
}

// hidden returns the error of a claim. That the session may not read the task, or may not write the
// tries that there are, concerns this task alone.
func hidden(err error, tried bool) error {
	var refused *embed.MultiError
	if errors.As(err, &refused) && refused.Index > 0 && !(refused.Index <= 2 && tried) {
		return err
	}
	return ofTask(err, embed.ErrNoAuth)
}

// buryNow buries a task that the caller does not get. The outcome says nothing of the caller's
// call, which goes on to the next task. If the dead task is still there, it is buried later.
func (t *Task) buryNow(ctx context.Context) error {
	err := t.bury(ctx)
	if err == nil {
		return nil
	}
	_ = t.giveUp()
	if queue.Unanswered(err) {
		return unless(err, embed.ErrUnknownOutcome)
	}
	if err = unless(err, append(faster, embed.ErrNotHeld)...); err != nil {
		return trouble{err}
	}
	return nil
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

// mayEnd returns why the session may not remove a task after operations that count a claim. It asks
// once, and before the first claim: neither work nor an attempt is spent for nothing.
func (t *Task) mayEnd(ctx context.Context, count []embed.Op) error {
	q := t.queue
	if q.look.ends.Load() {
		return nil
	}
	ops := slices.Concat(count, []embed.Op{
		embed.OpDelete(t.item(), embed.AnyVersion),
		embed.OpDelete(queue.Child(q.tries, t.name), embed.AnyVersion),
	})
	err := queue.Rehearse(ctx, q.session, t.item(), ops...)
	q.look.ends.Store(err == nil)
	return ofTask(err, embed.ErrNotEmpty)
}

func (t *Task) item() string { return queue.Child(t.queue.entries, t.name) }

// bury moves the task to the dead ones.
func (t *Task) bury(ctx context.Context) error {
	q := t.queue
	if err := ensure(ctx, q.session, q.grave); err != nil {
		return err
	}
	return t.end(embed.OpDelete(t.item(), embed.AnyVersion),
		embed.OpCreate(queue.Child(q.grave, t.name+"-"), t.raw, embed.Sequential))
}

// end applies operations and gives up the claim, in one transaction, and removes the tries unless
// they are set. It waits for the outcome as long as the session lasts.
func (t *Task) end(ops ...embed.Op) error {
	return t.submit(t.queue.withTries(ops[:len(ops):len(ops)], t.name))
}

// submit is end without the tries. The Task has ended then, but after a refusal its claim still
// keeps the task from the others: end it again, or give it up.
func (t *Task) submit(ops []embed.Op) error {
	if err := t.claim.Err(); err != nil {
		return fmt.Errorf("%w: %w", embed.ErrNotHeld, err)
	}
	ops = append(ops, claim.OpRelease(t.claim))
	_, err := t.queue.session.Submit(context.Background(), ops...).Result()
	return err
}

// giveUp gives up the claim. If that cannot be sent, the node keeps trying until the session ends.
func (t *Task) giveUp() error { return t.claim.Release() }

// Finish removes the task from the queue, and applies operations in the same transaction. So they
// are applied once, however often the task is worked on. Their paths must be on the shard of the
// queue.
//
// After an error the Task has ended all the same. Unless it is embed.ErrUnknownOutcome, nothing was
// applied. If the ensemble has refused the operations, that is as a Retry after the time that Work
// waits after an error: so the task is not claimed again at once. Errors: embed.ErrNotHeld if the
// claim is lost; embed.ErrNoNode if a client that does not respect claims has removed the task;
// those of embed.Session.Multi.
func (t *Task) Finish(ops ...embed.Op) error {
	if t.queue == nil {
		return embed.ErrNotHeld
	}
	err := t.finish(ops...)
	if err != nil && (queue.Unanswered(err) || t.retry(context.Background(), t.pause()) != nil) {
		_ = t.giveUp() // so that somebody claims it again
	}
	return t.wrap("finish", err)
}

// finish is Finish that keeps the claim after an error.
func (t *Task) finish(ops ...embed.Op) error {
	return t.end(append(ops[:len(ops):len(ops)], embed.OpDelete(t.item(), embed.AnyVersion))...)
}

// retryMax is the longest time before a task that has failed may be claimed again.
const retryMax = time.Minute

// pause returns how long a task that has failed is left: a second, which doubles with each attempt.
func (t *Task) pause() time.Duration { return min(time.Second<<min(t.attempt-1, 6), retryMax) }

// Retry gives the task back. Nobody claims it before a time has passed, by the wall clocks of those
// that claim. It keeps its place: then it is the first again. A task that has no attempts left
// moves to the dead ones. Errors are those of Finish.
func (t *Task) Retry(after time.Duration) error {
	if t.queue == nil {
		return embed.ErrNotHeld
	}
	err := t.retry(context.Background(), after)
	if err != nil {
		_ = t.giveUp() // so that somebody claims it again
	}
	return t.wrap("retry", err)
}

// retry is Retry that keeps the claim after an error.
func (t *Task) retry(ctx context.Context, after time.Duration) error {
	q := t.queue
	if q.options.Attempts > 0 && t.attempt >= q.options.Attempts {
		return t.bury(ctx)
	}
	data, err := json.Marshal(tries{Attempts: t.attempt, Next: time.Now().Add(after).UTC().Round(0)})
	if err != nil {
		return err
	}
	there := embed.OpCheck(t.item(), embed.AnyVersion)
	set := embed.OpSet(queue.Child(q.tries, t.name), data, embed.AnyVersion)
	err = t.submit([]embed.Op{there, set})
	if errors.Is(err, embed.ErrNoNode) { // somebody has removed the task, or its tries
		err = t.submit(append(append([]embed.Op{there}, q.newTries(ctx, t.name)...), set))
	}
	return err
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
