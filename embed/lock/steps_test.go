package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A looker is a ctx that calls do when its Err is called for the n-th time. Every method of a
// Session calls Err first.
type looker struct {
	context.Context
	n     int64
	do    func()
	looks atomic.Int64
}

func (l *looker) Err() error {
	if l.looks.Add(1) == l.n {
		l.do()
	}
	return l.Context.Err()
}

// asleep waits until nobody calls Err any more, or returns false when done is closed. In real
// time, on a slow machine, it may be wrong.
func (l *looker) asleep(done <-chan struct{}) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for quiet, last := 0, int64(-1); quiet < 4; quiet++ {
		select {
		case <-done:
			return false
		case <-tick.C:
		}
		if now := l.looks.Load(); now != last {
			quiet, last = -1, now
		}
	}
	return true
}

// left returns the number of contenders and permits on the paths that the tests of this file use.
func left(t testing.TB, s *embed.Session) (n int) {
	t.Helper()
	for _, p := range []string{path, path + "2", path + "/locks", path + "/leases"} {
		names, _, err := s.Children(bounded(t), p)
		if err != nil && !errors.Is(err, embed.ErrNoNode) {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "_") {
				n++
			}
		}
	}
	return n
}

// A stage is the situation that a caller finds. It is set up anew for each call.
type stage struct {
	acquire acquirer // replaces the call under test, if set
	wake    func()   // makes the caller the first; nil: it is, or never will be
	over    func()   // ends the stage
}

// Callers give up at every single step: on a free lock, on one that stays held, and on one that
// becomes free. Either they have the Hold, or they get an error and leave nothing.
//
// In CURATOR-315 a semaphore's lease stayed when its caller failed after creating it, and in
// CURATOR-462 when the caller was interrupted. In kazoo#429 so did the lock around it. In
// go-zookeeper#237 a lock's znode stayed when its caller failed. In CURATOR-41 an error of the
// clean-up replaced the reason.
func TestLock_CancelledAtAnyStepLeavesNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		mutex, rw, permits := lock.NewMutex(s, path), lock.NewRWMutex(s, path), lock.NewSemaphore(s, path, 2)
		several := lock.NewMulti(s, path, path+"2")
		free := func() stage { return stage{over: func() {}} }
		occupied := func(acquire acquirer) func() stage {
			return func() stage {
				h, err := acquire(bounded(t))
				must(t, err)
				return stage{over: func() { must(t, h.Release()) }}
			}
		}
		freed := func(acquire acquirer) func() stage {
			return func() stage {
				st := occupied(acquire)()
				st.wake = st.over // this may be called twice
				return st
			}
		}
		upgrade := func(wakes bool) func() stage { // beside another reader and ahead of a writer
			return func() stage {
				mine, err := rw.RLock(bounded(t))
				must(t, err)
				other, err := rw.RLock(bounded(t))
				must(t, err)
				ctx, cancel := context.WithCancel(bounded(t))
				writer := acquiring(t, ens, s, func(context.Context) (*lock.Hold, error) { return rw.Lock(ctx) })
				st := stage{
					acquire: func(ctx context.Context) (*lock.Hold, error) {
						h, err := rw.Upgrade(ctx, mine)
						if (err == nil) == (mine.Err() == nil) {
							t.Errorf("the upgrade ended with %v, its read Hold with %v", err, mine.Err())
						}
						return h, err
					},
					over: func() {
						cancel()
						must(t, errors.Join(mine.Release(), other.Release()))
						if o := <-writer; o.err == nil {
							must(t, o.hold.Release())
						}
					},
				}
				if wakes {
					st.wake = func() { must(t, other.Release()) }
				}
				return st
			}
		}
		downgrade := func() stage { // with a writer behind
			mine, err := rw.Lock(bounded(t))
			must(t, err)
			writer := acquiring(t, ens, s, rw.Lock)
			return stage{
				acquire: func(ctx context.Context) (*lock.Hold, error) {
					h, err := rw.Downgrade(ctx, mine)
					if mine.Err() == nil {
						t.Error("a write Hold outlived its downgrade")
					}
					return h, err
				},
				over: func() { must(t, granted(t, writer).Release()) },
			}
		}
		for _, k := range []struct {
			name    string
			acquire acquirer
			with    func() stage
		}{
			{"a mutex", mutex.Lock, free},
			{"a held mutex", mutex.Lock, occupied(mutex.Lock)},
			{"a mutex that is released", mutex.Lock, freed(mutex.Lock)},
			{"a lock to read", rw.RLock, free},
			{"a lock to read that is written", rw.RLock, freed(rw.Lock)},
			{"a lock to write that is read", rw.Lock, freed(rw.RLock)},
			{"an upgrade", nil, upgrade(false)},
			{"an upgrade when the other reader leaves", nil, upgrade(true)},
			{"a downgrade", nil, downgrade},
			{"several", several.Lock, free},
			{"several of which one is held", several.Lock, freed(lock.NewMutex(s, path+"2").Lock)},
			{"permits", acquires(permits, 2), free},
			{"permits that are out", acquires(permits, 2), occupied(acquires(permits, 1))},
			{"permits that come back", acquires(permits, 2), freed(acquires(permits, 1))},
		} {
			for n := int64(1); ; n++ {
				st := k.with()
				if st.acquire == nil {
					st.acquire = k.acquire
				}
				inner, cancel := context.WithCancel(bounded(t))
				ctx := &looker{Context: inner, n: n, do: cancel}
				var h *lock.Hold
				var err error
				done := make(chan struct{})
				go func() {
					defer close(done)
					h, err = st.acquire(ctx)
				}()
				if ctx.asleep(done) {
					if st.wake != nil {
						st.wake()
					} else {
						cancel()
					}
				}
				<-done
				cancel()
				if err == nil {
					must(t, h.Release())
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("%s, step %d: %v", k.name, n, err)
				}
				st.over()
				drained(t, s)
				ens.Until(fmt.Sprintf("%s, step %d: nothing to be left", k.name, n), func() bool { return left(t, s) == 0 })
				if ctx.looks.Load() < n {
					t.Logf("%s: %d steps", k.name, n-1)
					break
				}
			}
		}
	})
}

// A permit comes back, or the limit grows, at every step of a waiter's look. The waiter notices,
// and nobody is forgotten. In CURATOR-75 a growing limit woke nobody. In CURATOR-527 a caller that
// left between two looks left its successor waiting.
func TestSemaphore_WhatChangesWhileAWaiterLooks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewSemaphore(s, path, 0)
		must(t, m.Resize(bounded(t), 1))
		for name, change := range map[string]func(*lock.Hold){
			"a permit comes back": func(h *lock.Hold) { must(t, h.Release()) },
			"the limit grows":     func(*lock.Hold) { must(t, m.Resize(bounded(t), 2)) },
		} {
			for n := int64(1); ; n++ {
				must(t, m.Resize(bounded(t), 1))
				first, err := m.Acquire(bounded(t), 1)
				must(t, err)
				ctx := &looker{Context: bounded(t), n: n, do: func() { change(first) }}
				done := make(chan struct{})
				var second *lock.Hold
				go func() {
					defer close(done)
					second, err = m.Acquire(ctx, 1)
				}()
				late := ctx.asleep(done) && ctx.looks.Load() < n
				if late {
					must(t, first.Release())
				}
				select {
				case <-done:
				case <-bounded(t).Done():
					t.Fatalf("%s at step %d, and the waiter does not notice", name, n)
				}
				must(t, err)
				must(t, errors.Join(first.Release(), second.Release()))
				if late {
					t.Logf("%s: %d steps", name, n-1)
					break
				}
			}
		}
	})
}

// Somebody else acquires the only free permit, queues for it, or lowers the limit by it, while a
// caller looks. What the caller has seen does not count.
func TestSemaphore_WhatIsTakenWhileACallerLooks(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		m, theirs := lock.NewSemaphore(s, path, 1), lock.NewSemaphore(other, path, 1)
		nothing := func() error { return nil }
		for name, row := range map[string]struct {
			begin func() (end func() error)
			rival func() (over func() error) // nil: the caller has the permit
		}{
			"acquired": {
				func() func() error { return nothing },
				func() func() error {
					h, err := theirs.TryAcquire(bounded(t), 1)
					if errors.Is(err, lock.ErrHeld) {
						return nil
					}
					must(t, err)
					return h.Release
				},
			},
			"waited for": {
				func() func() error { return nothing },
				func() func() error {
					if left(t, other) > 0 {
						return nil
					}
					at, err := other.Create(bounded(t), path+"/locks/_c_00000000-0000-4000-8000-000000000000-lock-", nil, embed.EphemeralSequential)
					must(t, err)
					return func() error { return other.Delete(bounded(t), at, embed.AnyVersion) }
				},
			},
			"abolished": {
				func() func() error { // one of two is out
					must(t, theirs.Resize(bounded(t), 2))
					h, err := theirs.TryAcquire(bounded(t), 1)
					must(t, err)
					return func() error { return errors.Join(h.Release(), theirs.Resize(bounded(t), 0)) }
				},
				func() func() error {
					if left(t, other) > 1 {
						return nil
					}
					must(t, theirs.Resize(bounded(t), 1))
					return func() error { return theirs.Resize(bounded(t), 2) }
				},
			},
		} {
			h, err := m.Acquire(bounded(t), 1) // creates the znodes
			must(t, err)
			must(t, h.Release())
			end := row.begin()
			for n := int64(1); ; n++ {
				var over func() error
				ctx := &looker{Context: bounded(t), n: n, do: func() { over = row.rival() }}
				h, err := m.TryAcquire(ctx, 1)
				if over != nil && !errors.Is(err, lock.ErrHeld) {
					t.Errorf("a permit that was %s at step %d: %v, %v", name, n, h, err)
				} else if over == nil {
					must(t, err)
				}
				if err == nil {
					must(t, h.Release())
				}
				if over != nil {
					must(t, over())
				}
				if ctx.looks.Load() < n {
					break
				}
			}
			must(t, end())
		}
	})
}
