package lock_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
}

const path = "/locks/x"

var (
	must    = testkit.Must
	bounded = testkit.Context
)

// one starts an ensemble of one member. That is enough for all tests but those of a lost quorum.
func one(t testing.TB) *embedtest.Ensemble {
	t.Helper()
	return embedtest.New(t, 1, embedtest.Options{})
}

// slowly starts three members and returns a session of one that follows. Their messages take half a
// millisecond, so that commits take time in a bubble too.
func slowly(t testing.TB) (*embedtest.Ensemble, *embed.Session) {
	t.Helper()
	ens := embedtest.New(t, 3, embedtest.Options{})
	ens.TransferLeadership(2)
	embedkit.Distant(ens, 500*time.Microsecond)
	return ens, ens.Session(1, embed.SessionOptions{})
}

func queued(t testing.TB, s *embed.Session) []string {
	t.Helper()
	names, _, err := s.Children(bounded(t), path)
	if errors.Is(err, embed.ErrNoNode) {
		return nil
	}
	must(t, err)
	return names
}

// empty checks that nobody is left in the queue.
func empty(t testing.TB, s *embed.Session) {
	t.Helper()
	if left := queued(t, s); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// drained waits until all that the node of a session has sent so far is applied. Before that, a
// look into the queue may miss what nobody waits for any more, such as the create of a cancelled
// Lock.
func drained(t testing.TB, s *embed.Session) {
	t.Helper()
	if err := s.Delete(bounded(t), path+"/nobody", embed.AnyVersion); !errors.Is(err, embed.ErrNoNode) {
		t.Fatalf("deleting nobody: %v", err)
	}
}

// release releases a Hold and waits until the ensemble knows. With a short request timeout a busy
// machine needs several attempts.
func release(t testing.TB, h *lock.Hold) {
	t.Helper()
	ctx := bounded(t)
	err := h.Release()
	for ctx.Err() == nil && (errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome)) {
		err = h.Release()
	}
	must(t, err)
}

// create creates persistent znodes.
func create(t testing.TB, s *embed.Session, paths ...string) {
	t.Helper()
	for _, p := range paths {
		_, err := s.Create(bounded(t), p, nil, embed.Persistent)
		must(t, err)
	}
}

// again acquires a lock n times and checks that each token is greater.
func again(t testing.TB, m *lock.Mutex, n int) {
	t.Helper()
	var last lock.Token
	for range n {
		h, err := m.Lock(bounded(t))
		must(t, err)
		if h.Token().Compare(last) <= 0 {
			t.Errorf("token %v after %v", h.Token(), last)
		}
		last = h.Token()
		must(t, h.Release())
	}
}

// waits makes a contender queue, and returns a channel for its outcome.
func waits(t testing.TB, ens *embedtest.Ensemble, s *embed.Session) <-chan outcome {
	t.Helper()
	out := make(chan outcome, 1)
	_, err := s.Sync(bounded(t), "/") // otherwise contenders before it would be counted for it
	must(t, err)
	before := len(queued(t, s))
	go func() {
		h, err := lock.NewMutex(s, path).Lock(bounded(t))
		out <- outcome{h, err}
	}()
	ens.Until("the contender to queue", func() bool { return len(queued(t, s)) == before+1 })
	return out
}

type outcome struct {
	hold *lock.Hold
	err  error
}

// In etcd a Mutex belongs to its session: two goroutines that share a session both hold it
// (etcd#11364).
func TestMutex_GoroutinesOfOneSessionExcludeOneAnother(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewMutex(s, path)
		var holders atomic.Int32
		var last lock.Token // guarded by the lock
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 10 {
					h, err := m.Lock(bounded(t))
					if err != nil {
						t.Error(err)
						return
					}
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					if h.Token().Compare(last) <= 0 {
						t.Errorf("token %v after %v", h.Token(), last)
					}
					last = h.Token()
					holders.Add(-1)
					if err := h.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		empty(t, s)
	})
}

// TryLock answers at once and may be called again. etcd#10493 and etcd#14062 asked for such a call,
// and in kazoo#315 it waited.
func TestMutex_TryLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewMutex(s, path)
		first, err := m.TryLock(bounded(t))
		must(t, err)
		for range 3 {
			if _, err := m.TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("TryLock of a held lock: %v", err)
			}
		}
		ens.Until("the callers that only tried to leave the queue", func() bool { return len(queued(t, s)) == 1 })
		must(t, first.Release())
		second, err := m.TryLock(bounded(t))
		must(t, err)
		if second.Token().Compare(first.Token()) <= 0 {
			t.Errorf("token %v after %v", second.Token(), first.Token())
		}
	})
}

// Several callers try a free lock at once. One gets it, the others get ErrHeld, and nobody is left
// in the queue.
func TestMutex_TryLockRace(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		for range 20 {
			var holds atomic.Int32
			var wg sync.WaitGroup
			release := make(chan struct{})
			told := make(chan struct{}, 8)
			for range cap(told) {
				wg.Go(func() {
					h, err := lock.NewMutex(s, path).TryLock(bounded(t))
					told <- struct{}{}
					switch {
					case err == nil:
						holds.Add(1)
						<-release
						if err := h.Release(); err != nil {
							t.Error(err)
						}
					case !errors.Is(err, lock.ErrHeld):
						t.Error(err)
					}
				})
			}
			for range cap(told) {
				<-told
			}
			// The first in the queue may have been a caller that tried and left again. Then nobody
			// has the lock.
			if n := holds.Load(); n > 1 {
				t.Errorf("%d hold the lock", n)
			}
			close(release)
			wg.Wait()
			ens.Until("all to leave the queue", func() bool { return len(queued(t, s)) == 0 })
		}
	})
}

// E7: callers give up at any moment: before their znode exists, while its create is in flight,
// while they wait, and when they have just become the first. In CURATOR-462 and CURATOR-315 the
// znodes of interrupted callers of a semaphore stayed, and the next caller waited for them for
// ever. In etcd#10111 a caller that gave up just as it became the first got no error and held
// nothing.
func TestMutex_ACancelledLockLeavesNobodyBehind(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens, s := slowly(t)
		seed := testkit.Seed(t)
		var wg sync.WaitGroup
		var held, cancelled atomic.Int32
		for i := range uint64(8) {
			rng := rand.New(rand.NewPCG(seed, i))
			wg.Go(func() {
				for range 40 {
					ctx, cancel := context.WithTimeout(bounded(t), time.Duration(rng.IntN(60000))*time.Microsecond)
					h, err := lock.NewMutex(s, path).Lock(ctx)
					cancel()
					switch {
					case err == nil:
						held.Add(1)
						if err := errors.Join(h.Err(), h.Release()); err != nil {
							t.Error(err)
						}
					case errors.Is(err, context.DeadlineExceeded):
						cancelled.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if h, c := held.Load(), cancelled.Load(); !testkit.Night() && (h < 10 || c < 10) {
			t.Errorf("%d held, %d cancelled", h, c)
		} else {
			t.Logf("%d held, %d cancelled", h, c)
		}
		drained(t, s)
		ens.Until("the cancelled ones to leave the queue", func() bool { return len(queued(t, s)) == 0 })
		h, err := lock.NewMutex(s, path).TryLock(bounded(t))
		must(t, err)
		must(t, h.Release())
	})
}

// E7: the same without a quorum. Nothing can be sent when the callers leave. Once the quorum is
// back, they are gone, and so is the Hold that was released meanwhile.
func TestMutex_CancelledWithoutAQuorum(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 200 * time.Millisecond }})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		waiter := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		next := waits(t, ens, waiter)
		ens.Isolate(1)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(bounded(t), time.Duration(i)*20*time.Millisecond)
				defer cancel()
				if _, err := lock.NewMutex(s, path).Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Lock without a quorum: %v", err)
				}
			})
		}
		wg.Wait()
		if err := hold.Release(); !errors.Is(err, embed.ErrUnavailable) && !errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("Release without a quorum: %v", err)
		}
		if err := hold.Err(); !errors.Is(err, embed.ErrReleased) {
			t.Errorf("a hold that was given up: %v", err)
		}
		ens.HealAll()
		got := <-next
		must(t, got.err)
		ens.Until("the cancelled ones to leave the queue", func() bool { return len(queued(t, waiter)) == 1 })
		release(t, hold) // its member may learn this later than the waiter's
		must(t, got.hold.Err())
	})
}

// Without a quorum TryLock ends, even with a ctx that never ends, and Lock waits for the quorum's
// return. In kazoo#315 a call that should not wait did wait.
func TestMutex_WithoutAQuorumTryLockEndsAndLockWaits(t *testing.T) {
	sessionsflag.Member(t, "a client's reads without a deadline wait for a connection")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 200 * time.Millisecond }})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(s, path).Lock(bounded(t)) // creates the path
		must(t, err)
		release(t, hold)
		ens.Isolate(1)
		granted := make(chan outcome, 1)
		go func() {
			h, err := lock.NewMutex(s, path).Lock(context.Background())
			granted <- outcome{h, err}
		}()
		for _, p := range []string{"/new/path", path, "/new/other", path} {
			began := time.Now()
			h, err := lock.NewMutex(s, p).TryLock(context.Background())
			if !errors.Is(err, embed.ErrUnavailable) || errors.Is(err, lock.ErrHeld) {
				t.Errorf("TryLock of %s without a quorum: %v, %v", p, h, err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("TryLock of %s took %v", p, took)
			}
		}
		select {
		case got := <-granted:
			t.Fatalf("Lock: %v, %v", got.hold, got.err)
		default:
		}
		ens.HealAll()
		got := <-granted
		must(t, got.err)
		ens.Until("the callers that did not wait to leave the queue", func() bool { return len(queued(t, s)) == 1 })
		release(t, got.hold)
		free(t, s)
	})
}

// Without a quorum, Lock still ends with its ctx. The request timeout is out of reach here.
func TestMutex_LockEndsWithItsCtxAlsoWithoutAQuorum(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = time.Hour }})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		ctx, cancel := context.WithCancel(bounded(t))
		ended := make(chan error)
		go func() {
			_, err := lock.NewMutex(s, path).Lock(ctx)
			ended <- err
		}()
		ens.Until("the contender to queue", func() bool { return len(queued(t, s)) == 2 })
		ens.Isolate(1)
		ens.Until("the quorum to be away", func() bool { return ens.Node(1).Status().Shards[0].Leader == 0 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		must(t, hold.Err())
		ens.HealAll()
		ens.Until("the cancelled one to leave the queue", func() bool { return len(queued(t, s)) == 1 })
	})
}

// A waiter whose session ends learns that at once and is not granted the lock. In etcd#11456,
// etcd#11490 and etcd#9921 it queued on and was granted the lock. In etcd#19597 it learned it only
// when everybody ahead was done.
func TestMutex_AWaiterWithADeadSessionFailsAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		holder := ens.Session(1, embed.SessionOptions{})
		hold, err := lock.NewMutex(holder, path).Lock(bounded(t))
		must(t, err)
		dying := ens.Session(1, embed.SessionOptions{})
		first, second := waits(t, ens, dying), waits(t, ens, dying)
		patient := waits(t, ens, holder)
		must(t, dying.Close())
		for _, c := range []<-chan outcome{first, second} {
			if got := <-c; !errors.Is(got.err, embed.ErrSessionClosed) {
				t.Errorf("a waiter of a closed session: %v, %v", got.hold, got.err)
			}
		}
		must(t, hold.Err())
		if names := queued(t, holder); len(names) != 2 {
			t.Errorf("in the queue: %v, want the holder and the patient one", names)
		}
		must(t, hold.Release())
		must(t, (<-patient).err)
	})
}

// The same when the session expires because the waiter's member is cut off; see etcd#11456.
func TestMutex_AWaiterWithAnExpiredSessionIsNotServed(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		holder := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(holder, path).Lock(bounded(t))
		must(t, err)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		waiting := waits(t, ens, s)
		ens.Isolate(1)
		expire(t, ens, s)
		if got := <-waiting; !errors.Is(got.err, embed.ErrSessionExpired) {
			t.Errorf("a waiter of an expired session: %v, %v", got.hold, got.err)
		}
		must(t, hold.Err())
		ens.HealAll()
		ens.Until("the dead contender to leave the queue", func() bool { return len(queued(t, holder)) == 1 })
	})
}

// If the session expires while the create of the contender is in flight, Lock returns that, not an
// unknown outcome.
func TestMutex_WhoseSessionExpiresOnTheWayIsToldSo(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		hold, err := lock.NewMutex(s, path).Lock(bounded(t)) // creates the path
		must(t, err)
		must(t, hold.Release())
		ens.Isolate(1)
		ctx := &looker{Context: bounded(t)}
		out := make(chan outcome, 1)
		go func() {
			h, err := lock.NewMutex(s, path).Lock(ctx)
			out <- outcome{h, err}
		}()
		ctx.asleep(nil)
		expire(t, ens, s)
		if got := <-out; !errors.Is(got.err, embed.ErrSessionExpired) || errors.Is(got.err, embed.ErrUnknownOutcome) {
			t.Errorf("on its way: %v, %v", got.hold, got.err)
		}
	})
}

// expire makes a session of member 1, which is cut off, expire at once: the machine below the
// member sleeps.
func expire(t testing.TB, ens *embedtest.Ensemble, s *embed.Session) {
	t.Helper()
	ens.Faults(1).Sleep(2 * s.Timeout())
	if state, _ := s.State(); state != embed.Expired {
		t.Fatalf("the session is %v", state)
	}
}

// Release is idempotent and frees nothing but its own Hold. In etcd#22082 a repeated Unlock of an
// old Mutex deleted a newer acquisition of the same session. In CURATOR-486 a release whose delete
// had failed could not be repeated.
func TestHold_ReleaseIsIdempotentAndFreesNothingButItsOwn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewMutex(s, path)
		old, err := m.Lock(bounded(t))
		must(t, err)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := old.Release(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if !errors.Is(old.Err(), embed.ErrReleased) {
			t.Errorf("a released hold: %v", old.Err())
		}
		fresh, err := m.Lock(bounded(t))
		must(t, err)
		for range 10 {
			must(t, old.Release())
		}
		must(t, fresh.Err())
		if names := queued(t, s); len(names) != 1 || path+"/"+names[0] != fresh.Path() {
			t.Errorf("in the queue: %v, want %s", names, fresh.Path())
		}
		// Another owner's new znode with the very same name is not its own either.
		must(t, fresh.Release())
		other := ens.Session(1, embed.SessionOptions{})
		_, err = other.Create(bounded(t), old.Path(), nil, embed.Ephemeral)
		must(t, err)
		must(t, old.Release())
		if names := queued(t, s); len(names) != 1 {
			t.Errorf("a foreign znode of the same name was deleted")
		}
	})
}

// E3.1: somebody deletes a contender by hand. Its Hold ends, and the next one is granted. In
// CURATOR-206 the holder did not learn it: "thread still thinks it has the lock".
func TestHold_EndsWhenSomebodyDeletesItsZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(2, embed.SessionOptions{})
		hold, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		next := waits(t, ens, s)
		_, err = other.Sync(bounded(t), "/")
		must(t, err)
		must(t, other.Delete(bounded(t), hold.Path(), embed.AnyVersion))
		<-hold.Done()
		if !errors.Is(hold.Err(), embed.ErrDeleted) || !errors.Is(context.Cause(hold.Context()), embed.ErrDeleted) {
			t.Errorf("hold: %v, its context: %v", hold.Err(), context.Cause(hold.Context()))
		}
		got := <-next
		must(t, got.err)
		must(t, hold.Release())
		must(t, got.hold.Err())

		// The same for a waiter.
		waiting := waits(t, ens, s)
		names := queued(t, s)
		victim := names[slices.IndexFunc(names, func(n string) bool { return path+"/"+n != got.hold.Path() })]
		must(t, s.Delete(bounded(t), path+"/"+victim, embed.AnyVersion))
		if got := <-waiting; !errors.Is(got.err, embed.ErrDeleted) {
			t.Errorf("a waiter whose znode was deleted: %v", got.err)
		}
	})
}

type key struct{}

func TestHold_Context(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		ctx, cancel := context.WithCancel(context.WithValue(bounded(t), key{}, "value"))
		hold, err := lock.NewMutex(s, path).Lock(ctx)
		must(t, err)
		if got := hold.Context().Value(key{}); got != "value" {
			t.Errorf("value %v", got)
		}
		cancel()
		if err := hold.Context().Err(); err != nil || hold.Err() != nil {
			t.Errorf("the ctx of Lock bounds the waiting only, but the hold ended: %v", err)
		}
		if _, ok := hold.Context().Deadline(); ok {
			t.Error("a hold has no deadline")
		}
		derived, stop := context.WithTimeout(hold.Context(), time.Hour)
		defer stop()
		must(t, hold.Release())
		<-derived.Done()
		for _, c := range []context.Context{hold.Context(), derived} {
			if c.Err() != context.Canceled || !errors.Is(context.Cause(c), embed.ErrReleased) {
				t.Errorf("context of a released hold: %v, cause %v", c.Err(), context.Cause(c))
			}
		}
		<-hold.Done()
	})
}

// A release wakes one contender of three hundred. Every contender that wakes looks at the clock, so
// few looks mean no herd. On a busy machine some may look late, for they have only just queued. So
// the least of some releases counts.
func TestMutex_AReleaseWakesOne(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var looks atomic.Int64
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			system := clock.System()
			c.Inside = &inside.Seams{Clock: clock.Clock{Wall: system.Wall, Boot: func() time.Duration {
				looks.Add(1)
				return system.Boot()
			}}}
		}})
		// With a long timeout the node seldom beats.
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		m := lock.NewMutex(s, path)
		hold, err := m.Lock(bounded(t))
		must(t, err)
		const contenders = 300
		granted := make(chan *lock.Hold)
		for range contenders {
			go func() {
				if h, err := m.Lock(bounded(t)); err == nil {
					granted <- h
				}
			}()
		}
		ens.Until("all to queue", func() bool { return len(queued(t, s)) == contenders+1 })
		least := int64(math.MaxInt64)
		for range 5 {
			quiet := int64(-1)
			ens.Until("all to sleep", func() bool {
				before := quiet
				quiet = looks.Load()
				return quiet == before
			})
			must(t, hold.Release())
			hold = <-granted
			least = min(least, looks.Load()-quiet)
		}
		if least > contenders/3 {
			t.Errorf("%d looks at the clock for one release among %d contenders", least, contenders)
		}
	})
}

// The names are those of Curator's InterProcessMutex and go-zookeeper's Lock. So their contenders
// and ours wait for each other.
func TestMutex_StandsInOneQueueWithCurator(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, curator := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		ours, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		form := regexp.MustCompile(`^/locks/x/_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-lock-[0-9]{10}$`)
		if !form.MatchString(ours.Path()) {
			t.Errorf("our name is %s", ours.Path())
		}
		// In byte order this name comes before ours. By number, which decides, it comes after.
		theirs, err := curator.Create(bounded(t), path+"/_c_00000000-0000-4000-8000-000000000000-lock-", nil, embed.EphemeralSequential)
		must(t, err)
		if before, ok, err := claim.Before(bounded(t), curator, theirs); err != nil || !ok || path+"/"+before != ours.Path() {
			t.Errorf("they wait for %s, %v, %v", before, ok, err)
		}
		// Not a contender, so nobody waits for it.
		_, err = curator.Create(bounded(t), path+"/notes", nil, embed.Persistent)
		must(t, err)
		next := waits(t, ens, s)
		must(t, ours.Release())
		select {
		case got := <-next:
			t.Fatalf("granted while Curator's client holds: %v", got)
		default:
		}
		must(t, curator.Delete(bounded(t), theirs, embed.AnyVersion))
		must(t, (<-next).err)
	})
}

func TestMutex_RefusesPathsThatAreNone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		for _, p := range []string{"", "x", "/x/", "//", "/a//b", "/a/../b", "/\x00"} {
			m := lock.NewMutex(s, p)
			for name, acquire := range map[string]func(context.Context) (*lock.Hold, error){"Lock": m.Lock, "TryLock": m.TryLock} {
				_, err := acquire(bounded(t))
				if !errors.Is(err, embed.ErrInvalidPath) {
					t.Errorf("%s of %q: %v", name, p, err)
				} else if text := err.Error(); strings.Contains(text, "-lock-") || strings.Contains(text, "operation") {
					t.Errorf("%s of %q names a path that its caller did not write: %v", name, p, err)
				}
			}
		}
		must(t, func() error { _, err := s.Create(bounded(t), "/e", nil, embed.Ephemeral); return err }())
		if _, err := lock.NewMutex(s, "/e/x").Lock(bounded(t)); !errors.Is(err, embed.ErrNoChildrenForEphemerals) {
			t.Errorf("Lock below an ephemeral: %v", err)
		}
		h, err := lock.NewMutex(s, "/").Lock(bounded(t)) // the root works like any other znode
		if shardsflag.N > 1 {                            // unless it is on several shards
			if !errors.Is(err, embed.ErrCrossShard) {
				t.Errorf("Lock of the root: %v", err)
			}
			return
		}
		must(t, err)
		must(t, h.Release())
	})
}

// E3.1: the znode of the lock is deleted while contenders come and go, because it is empty at
// times. In CURATOR-724 a latch whose parent had vanished never recovered.
func TestMutex_SurvivesTheDeletionOfItsPath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, s := slowly(t)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		deleted, rng := 0, testkit.Rand(t)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Delete(bounded(t), path, embed.AnyVersion); err == nil {
					deleted++
				}
				<-time.After(time.Duration(rng.IntN(5000)) * time.Microsecond) // or no lock comes between two deletes
			}
		})
		again(t, lock.NewMutex(s, path), 20)
		close(stop)
		wg.Wait()
		if t.Logf("deleted %d times", deleted); deleted == 0 {
			t.Error("never deleted")
		}
	})
}
