package lock_test

import (
	"context"
	"errors"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// An acquirer is a call that acquires a Hold.
type acquirer = func(context.Context) (*lock.Hold, error)

// A session ends while its callers wait, for every kind of lock. Each caller learns it at once,
// although those ahead go on, and none is granted anything. In etcd#16221 a read-write lock was
// granted to a session that had expired, and in etcd#9921 a mutex.
func TestLock_AWaiterWithADeadSessionFailsAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, dying := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		rw, theirs := lock.NewRWMutex(s, "/rw"), lock.NewRWMutex(dying, "/rw")
		reading := lock.NewRWMutex(dying, "/up")
		own, err := reading.RLock(bounded(t))
		must(t, err)
		outs := make(map[string]chan outcome)
		var holds []*lock.Hold
		for _, k := range []struct {
			name         string
			holds, waits acquirer
		}{
			{"a mutex", lock.NewMutex(s, "/mutex").Lock, lock.NewMutex(dying, "/mutex").Lock},
			{"a mutex that is kept", lock.NewMutex(s, "/kept").Lock, lock.NewMutex(dying, "/kept").With(lock.Options{Keep: time.Hour}).Lock},
			{"a reader behind a writer", rw.Lock, theirs.RLock},
			{"a writer", nil, theirs.Lock},
			{"an upgrade", lock.NewRWMutex(s, "/up").RLock, func(ctx context.Context) (*lock.Hold, error) { return reading.Upgrade(ctx, own) }},
			{"permits", acquires(lock.NewSemaphore(s, "/permits", 2), 1), acquires(lock.NewSemaphore(dying, "/permits", 2), 2)},
			{"permits behind others", nil, acquires(lock.NewSemaphore(dying, "/permits", 2), 1)},
			{"several", lock.NewMutex(s, "/several").Lock, lock.NewMulti(dying, "/several", "/free").Lock},
		} {
			if k.holds != nil {
				h, err := k.holds(bounded(t))
				must(t, err)
				holds = append(holds, h)
			}
			before, err := dying.Ephemerals(bounded(t), "/")
			must(t, err)
			out := make(chan outcome, 1)
			outs[k.name] = out
			go func() {
				h, err := k.waits(bounded(t))
				out <- outcome{h, err}
			}()
			ens.Until(k.name+" to queue", func() bool {
				now, err := dying.Ephemerals(bounded(t), "/")
				return err == nil && len(now) > len(before)
			})
		}
		must(t, dying.Close())
		for name, out := range outs {
			if o := <-out; !errors.Is(o.err, embed.ErrSessionClosed) {
				t.Errorf("%s: %v, %v", name, o.hold, o.err)
			}
		}
		for _, h := range holds {
			must(t, errors.Join(h.Err(), h.Release()))
		}
	})
}

// A session is Suspended and Connected again while its callers wait. The Holds of the session have
// ended. The callers wait on and are served in their order. In kazoo#170 they then waited for ever.
func TestLock_AWaiterWhoseSessionIsSuspendedMeanwhile(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		m, permits := lock.NewRWMutex(s, path), lock.NewSemaphore(s, "/permits", 1)
		hours := 0
		suspend := func() {
			hours++
			ens.Faults(1).SetWallClock(time.Duration(hours) * time.Hour)
		}
		for range 3 {
			hold, err := m.Lock(bounded(t))
			must(t, err)
			permit, err := permits.Acquire(bounded(t), 1)
			must(t, err)
			reads, writes := acquiring(t, ens, s, m.RLock), acquiring(t, ens, s, m.Lock)
			enough := make(chan outcome, 1)
			go func() {
				h, err := permits.Acquire(bounded(t), 1)
				enough <- outcome{h, err}
			}()
			ens.Until("the caller that wants a permit to queue", func() bool {
				waiters, err := lock.Waiters(bounded(t), s, "/permits")
				return err == nil && len(waiters) == 1
			})
			// This ends the Holds but keeps the places. The session may be Connected again before
			// anybody asks for its state.
			suspend()
			if !errors.Is(hold.Err(), embed.ErrSuspended) || !errors.Is(permit.Err(), embed.ErrSuspended) {
				t.Errorf("after the suspension the Holds are %v and %v", hold.Err(), permit.Err())
			}
			must(t, errors.Join(hold.Release(), permit.Release()))
			read := granted(t, reads)
			must(t, read.Release())
			must(t, granted(t, writes).Release())
			must(t, granted(t, enough).Release())
		}
	})
}

// For every kind of lock, a call that does not wait returns an error and leaves nothing if its
// session cannot safely hold anything now.
func TestLock_WhoDoesNotWaitIsToldThatItsSessionIsSuspended(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		rw := lock.NewRWMutex(s, "/locks/rw")
		kinds := map[string]acquirer{
			"a mutex": lock.NewMutex(s, path).TryLock, "a mutex that is kept": lock.NewMutex(s, "/locks/kept").With(lock.Options{Keep: time.Hour}).TryLock,
			"a reader": rw.TryRLock, "a writer": rw.TryLock, "several": lock.NewMulti(s, path, path+"2").TryLock,
			"permits": func(ctx context.Context) (*lock.Hold, error) {
				return lock.NewSemaphore(s, "/locks/permits", 2).TryAcquire(ctx, 1)
			},
		}
		for name, try := range kinds { // this creates the znodes
			h, err := try(bounded(t))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			must(t, h.Release())
		}
		ens.Isolate(1)
		ens.Faults(1).Sleep(55 * time.Second)
		for name, try := range kinds {
			if h, err := try(bounded(t)); !errors.Is(err, embed.ErrSuspended) {
				t.Errorf("%s: %v, %v", name, h, err)
			}
		}
		ens.HealAll()
		ens.Until("the session to be back", func() bool { state, _ := s.State(); return state == embed.Connected })
		_, err := s.Sync(bounded(t), "/")
		must(t, err)
		ens.Until("the kept lock to be gone, and nothing to be left", func() bool {
			owned, err := s.Ephemerals(bounded(t), "/")
			return err == nil && len(owned) == 0
		})
	})
}

// Locks are acquired, waited for in vain, revoked and lost. When none of them is held any more,
// none of their goroutines is left. In curator#1277 nobody ended the threads that reported changes.
func TestLock_LeavesNoGoroutine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		rw := lock.NewRWMutex(s, path)
		for i, acquire := range []acquirer{
			lock.NewMutex(s, path).Lock, kept(s, time.Millisecond).Lock, kept(s, time.Hour).Lock, rw.RLock, rw.Lock,
			lock.NewMulti(s, path, path+"2").Lock, acquires(lock.NewSemaphore(s, "/permits", 2), 2),
		} {
			for _, lose := range []bool{false, true} {
				h, err := acquire(bounded(t))
				must(t, err)
				derived, stop := context.WithCancel(h.Context())
				defer stop()
				revoked := h.Revoked()
				ctx, cancel := context.WithCancel(bounded(t))
				waiter := make(chan outcome, 1)
				go func() {
					h, err := lock.NewMutex(s, path).Lock(ctx)
					waiter <- outcome{h, err}
				}()
				if i%2 == 0 {
					for _, at := range []string{path, "/permits"} {
						must(t, lock.Revoke(bounded(t), s, at))
					}
					<-revoked
				}
				if lose {
					must(t, s.Delete(bounded(t), h.Path(), embed.AnyVersion))
					<-derived.Done()
				}
				cancel()
				if o := <-waiter; o.err == nil {
					must(t, o.hold.Release())
				} else if !errors.Is(o.err, context.Canceled) {
					t.Error(o.err)
				}
				must(t, h.Release())
			}
		}
		ens.Until("their goroutines to end", func() bool { return goroutines("/embed/lock.")+goroutines("/embed/internal/queue.") == 0 })
		m := kept(s, time.Hour)
		for range 3 {
			h, err := m.Lock(bounded(t))
			must(t, err)
			_ = h.Revoked()
			must(t, h.Release())
		}
		ens.Until("those of Holds to end whose lock is kept", func() bool { return goroutines("/embed/lock.(*Hold)") == 0 })
	})
}

// goroutines returns how many goroutines are inside a function.
func goroutines(in string) (n int) {
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, in) {
			n++
		}
	}
	return n
}
