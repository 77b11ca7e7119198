package recipetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/internal/refusals"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// once fails the test when something is run for the second time. It returns a function that notes a
// run.
func (c *visit) once() func(what any) {
	runs := make(map[any]int)
	return func(what any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if runs[what]++; runs[what] > 1 {
			c.t.Errorf("%v is run for the %d. time", what, runs[what])
		}
	}
}

// workings are calls of functions that must not run again because a record was refused.
func workings() []blocking {
	put := func(c *visit) {
		q := task.New(c.other, c.path, task.Options{})
		for _, text := range []string{"x", "y"} {
			_, err := q.Put(c.t.Context(), []byte(text), task.PutOptions{})
			must(c.t, err)
		}
	}
	return []blocking{
		{name: "job.Once, counted", call: func(ctx context.Context, c *visit) (got, error) {
			ran := c.once()
			_, err := job.Once(ctx, c, c.path, func(context.Context, lock.Token) ([]byte, error) {
				ran("fn")
				return nil, nil
			})
			return nil, err
		}, outlives: true},
		{name: "job.Run, counted", call: func(ctx context.Context, c *visit) (got, error) {
			ran := c.once()
			j := job.Job{Name: "j", Schedule: job.Every(time.Second), Crash: job.AtLeastOnce}
			j.Run = func(_ context.Context, tick *job.Tick) error {
				ran(tick.Time)
				return nil
			}
			return nil, job.Run(ctx, c, c.path, j)
		}, outlives: true},
		{name: "task.Work, counted", prepare: func(c *visit) got { put(c); return nil },
			call: func(ctx context.Context, c *visit) (got, error) {
				ran := c.once()
				return nil, task.Work(ctx, c, c.path, task.Options{}, func(_ context.Context, k *task.Task) error {
					ran(string(k.Data()))
					return nil
				})
			}, outlives: true},
		{name: "group.Follow, counted", prepare: func(c *visit) got { c.put("", "x"); return nil },
			call: func(ctx context.Context, c *visit) (got, error) {
				ran := c.once()
				return nil, group.Follow(ctx, c, c.path, "a", value.Codec[string]{},
					func(_ context.Context, v value.Versioned[string]) error {
						ran(v.Value)
						return nil
					})
			}, outlives: true},
	}
}

// lockings are the calls of packages lock and election.
func lockings() []blocking {
	hold := func(acquire func(ctx context.Context, c *visit) (*lock.Hold, error)) func(context.Context, *visit) (got, error) {
		return func(ctx context.Context, c *visit) (got, error) {
			h, err := acquire(ctx, c)
			if err != nil {
				return nil, err
			}
			return func() { _ = h.Release() }, nil
		}
	}
	lead := func(ctx context.Context, _ lock.Token) error { <-ctx.Done(); return nil }
	campaign := func(ctx context.Context, c *visit) (*election.Leadership, error) {
		return election.New(c.s, c.path).Campaign(ctx, nil)
	}
	return []blocking{
		{name: "lock.Mutex.Lock", call: hold(func(ctx context.Context, c *visit) (*lock.Hold, error) {
			return lock.NewMutex(c.s, c.path).Lock(ctx)
		})},
		{name: "lock.Mutex.TryLock", call: hold(func(ctx context.Context, c *visit) (*lock.Hold, error) {
			return lock.NewMutex(c.s, c.path).TryLock(ctx)
		})},
		{name: "lock.RWMutex.RLock", call: hold(func(ctx context.Context, c *visit) (*lock.Hold, error) {
			return lock.NewRWMutex(c.s, c.path).RLock(ctx)
		})},
		{name: "lock.RWMutex.Lock", call: hold(func(ctx context.Context, c *visit) (*lock.Hold, error) {
			return lock.NewRWMutex(c.s, c.path).Lock(ctx)
		})},
		{name: "lock.Semaphore.Acquire", call: hold(func(ctx context.Context, c *visit) (*lock.Hold, error) {
			return lock.NewSemaphore(c.s, c.path, 3).Acquire(ctx, 2)
		})},
		{name: "lock.Semaphore.Acquire behind another", prepare: func(c *visit) got {
			h, err := lock.NewSemaphore(c.other, c.path, 3).Acquire(c.t.Context(), 2)
			must(c.t, err)
			c.hold = h
			return func() { _ = h.Release() }
		}, call: hold(func(ctx context.Context, c *visit) (*lock.Hold, error) {
			return lock.NewSemaphore(c.s, c.path, 3).Acquire(ctx, 2)
		}), wake: func(c *visit) { must(c.t, c.hold.Release()) }},
		{name: "lock.Semaphore.Resize", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, lock.NewSemaphore(c.s, c.path, 3).Resize(ctx, 4)
		}},
		{name: "lock.Do", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, lock.Do(ctx, c, c.path, func(context.Context, lock.Token) error { return nil })
		}},
		{name: "election.Run", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, election.Run(ctx, c, c.path, nil, lead)
		}, outlives: true},
		{name: "election.Balance", call: func(ctx context.Context, c *visit) (got, error) {
			return nil, election.Balance(ctx, c, c.path, []string{"a", "b"}, nil,
				func(ctx context.Context, _ string, t lock.Token) error { return lead(ctx, t) })
		}, outlives: true},
		{name: "election.Latch", call: func(ctx context.Context, c *visit) (got, error) {
			l := election.NewLatch(c, c.path, nil, election.Options{})
			select {
			case <-l.Done():
			case <-ctx.Done():
				must(c.t, l.Close())
				return nil, ctx.Err()
			}
			return nil, l.Err()
		}, outlives: true},
		{name: "election.Election.Campaign", call: func(ctx context.Context, c *visit) (got, error) {
			l, err := campaign(ctx, c)
			if err != nil {
				return nil, err
			}
			return func() { _ = l.Resign() }, nil
		}},
		{name: "election.Election.Enter with a priority", prepare: func(c *visit) got {
			var all []*election.Candidate
			for range 2 {
				other, err := election.New(c.other, c.path).Enter(c.t.Context(), nil, election.Options{})
				must(c.t, err)
				all = append(all, other)
			}
			return func() { _, _ = all[0].Withdraw(), all[1].Withdraw() }
		}, call: func(ctx context.Context, c *visit) (got, error) {
			k, err := election.New(c.s, c.path).Enter(ctx, nil, election.Options{Priority: 5})
			if err != nil {
				return nil, err
			}
			return func() { _ = k.Withdraw() }, nil
		}},
		{name: "election.Leadership.Proclaim", call: func(ctx context.Context, c *visit) (got, error) {
			l, err := campaign(ctx, c)
			if err != nil {
				return nil, err
			}
			return func() { _ = l.Resign() }, l.Proclaim(ctx, []byte("x"))
		}},
		{name: "election.Leadership.Requeue", call: func(ctx context.Context, c *visit) (got, error) {
			l, err := campaign(ctx, c)
			if err != nil {
				return nil, err
			}
			k, err := l.Requeue(ctx)
			if err != nil {
				return nil, err
			}
			return func() { _ = k.Withdraw() }, nil
		}},
	}
}

// M145: each single write of every recipe is refused once, or its outcome is hidden. The call succeeds all
// the same, or has just this error, unless it is one that lasts and the refusal one that passes. It
// leaves nothing, runs no work again, and does not rage.
func TestRecipes_RefusedAtEveryWrite(t *testing.T) {
	t.Parallel()
	refused := []error{embed.ErrQuotaExceeded, embed.ErrNoAuth, embed.ErrUnavailable, embed.ErrUnknownOutcome}
	list := append(append(blockings(), workings()...), lockings()...)
	for _, b := range list {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
					c.Tick, c.ContainerCheckInterval, c.Shards = 100*time.Millisecond, time.Second, 1
				}})
				other := ens.Session(1, embed.SessionOptions{})
				for i, refusal := range refused {
					for n := 1; ; n++ {
						if n > 50 {
							t.Fatal("it has no last write")
						}
						from := &refusals.Opener{From: ens.Opener(1)}
						from.Judge = func(k int, _ []refusals.Write) error {
							if k == n && refusal != embed.ErrUnknownOutcome {
								return refusal
							}
							return nil
						}
						from.Hide = func(k int, _ []refusals.Write) bool {
							return k == n && refusal == embed.ErrUnknownOutcome
						}
						own, err := from.NewSession(t.Context(), embed.SessionOptions{})
						must(t, err)
						c := &visit{t: t, node: from, s: own, other: other, path: fmt.Sprintf("/refused-%d-%d/a/b", i, n)}
						c.playRefused(&b, from, n, refusal)
						if from.Count() < n || b.outlives && n >= 12 { // these write for ever
							break
						}
					}
				}
			})
		})
	}
}

// noEffect are the calls whose doc says that they have no effect if their outcome is not known.
var noEffect = map[string]bool{
	"lock.Mutex.TryLock": true, "lock.Keys.TryLock": true, // what they create is taken back
	"value.Sequence.Next": true, // numbers are lost, but none is given twice
}

// lasting are the beginnings of the names of calls that last as long as their ctx and the session.
var lasting = []string{
	"barrier.Enter", "barrier.Gate.Wait", "barrier.Countdown.Wait", "election.Election.Campaign",
	"election.Election.Enter", "group.AwaitApplied", "lock.Keys.Lock", "lock.Mutex.Lock",
	"lock.RWMutex.", "lock.Semaphore.Acquire", "task.Queue.Claim", "task.Queue.Take", "value.TakeNumber",
}

// lasts reports whether no refusal that passes ends the call.
func (b *blocking) lasts() bool {
	return slices.ContainsFunc(lasting, func(begin string) bool { return strings.HasPrefix(b.name, begin) })
}

// playRefused makes one call, whose n-th write is refused.
func (c *visit) playRefused(b *blocking, from *refusals.Opener, n int, refusal error) {
	t := c.t
	where := fmt.Sprintf("%v at write %d", refusal, n)
	var end got
	if b.prepare != nil {
		end = b.prepare(c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type outcome struct {
		got got
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		g, err := b.call(ctx, c)
		done <- outcome{g, err}
	}()
	var over outcome
	waits := func(d time.Duration) bool {
		select {
		case over = <-done:
			return false
		case <-time.After(d):
			return true
		}
	}
	asleep := waits(2 * time.Second)
	if asleep && b.wake != nil {
		b.wake(c)
		asleep = waits(2 * time.Second)
	}
	if asleep {
		cancel()
		if waits(20 * time.Second) {
			t.Fatalf("%s: it does not end\n%s", where, testkit.Stacks())
		}
	}
	switch err := over.err; {
	case b.lasts() && errors.Is(err, embed.ErrUnavailable):
		t.Errorf("%s: a refusal that passes ended it: %v", where, err)
	case err == nil, errors.Is(err, refusal), asleep && errors.Is(err, context.Canceled):
	case refusal == embed.ErrUnknownOutcome && noEffect[b.name] && errors.Is(err, embed.ErrUnavailable):
	default:
		t.Errorf("%s: %v", where, err)
	}
	if writes := from.Count(); writes > 100 {
		t.Errorf("%s: %d writes in seconds", where, writes)
	}
	over.got.back()
	end.back()
	if what := c.left(); what != "" {
		t.Errorf("%s: %v, left: %s", where, over.err, what)
	}
	must(t, c.s.Close())
}
