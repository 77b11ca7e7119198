package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// permits starts a call that waits for permits. It returns a channel for the outcome once the
// caller queues.
func permits(t testing.TB, ens *embedtest.Ensemble, s *embed.Session, acquire func(context.Context) (*lock.Hold, error)) <-chan outcome {
	t.Helper()
	waits := func() int {
		list, err := lock.Waiters(bounded(t), s, path)
		must(t, err)
		return len(list)
	}
	_, err := s.Sync(bounded(t), "/")
	must(t, err)
	before := waits()
	out := make(chan outcome, 1)
	go func() {
		h, err := acquire(bounded(t))
		out <- outcome{h, err}
	}()
	ens.Until("the caller to queue", func() bool { return waits() > before })
	return out
}

func acquires(m *lock.Semaphore, n int) func(context.Context) (*lock.Hold, error) {
	return func(ctx context.Context) (*lock.Hold, error) { return m.Acquire(ctx, n) }
}

func out(t testing.TB, s *embed.Session) int {
	t.Helper()
	list, err := lock.Holders(bounded(t), s, path)
	must(t, err)
	return len(list)
}

func TestSemaphore_GivesOutAsManyAsThereAre(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewSemaphore(s, path, 3)
		one, err := m.Acquire(bounded(t), 1)
		must(t, err)
		two, err := m.TryAcquire(bounded(t), 2)
		must(t, err)
		grows(t, one, two)
		if n := out(t, s); n != 3 {
			t.Errorf("%d permits are out", n)
		}
		if _, err := m.TryAcquire(bounded(t), 1); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a fourth permit: %v", err)
		}
		// Fair: a caller that wants few does not overtake one that wants many.
		many := permits(t, ens, s, acquires(m, 3))
		few := permits(t, ens, s, acquires(m, 1))
		must(t, two.Release())
		pending(t, s, "more than there are", many, few)
		if _, err := m.TryAcquire(bounded(t), 1); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a permit ahead of a waiter: %v", err)
		}
		must(t, one.Release())
		all := granted(t, many)
		pending(t, s, "more than there are", few)
		must(t, all.Release())
		must(t, granted(t, few).Release())
		if n := out(t, s); n != 0 {
			t.Errorf("%d permits are out when all are back", n)
		}
	})
}

// Resize changes the semaphore that is there, although its own replica still has the one before.
func TestSemaphore_ResizeWhereItIsSeenTooLate(t *testing.T) {
	for what, before := range map[string]func(t *testing.T, s *embed.Session) int{
		"a Resize": func(t *testing.T, s *embed.Session) int {
			must(t, lock.NewSemaphore(s, path, 2).Resize(bounded(t), 7))
			return 2
		},
		"another semaphore": func(t *testing.T, s *embed.Session) int {
			_, err := s.Multi(bounded(t), embed.OpDelete(path+"/locks", embed.AnyVersion), embed.OpDelete(path+"/leases", embed.AnyVersion), embed.OpDelete(path, embed.AnyVersion))
			must(t, err)
			h, err := lock.NewSemaphore(s, path, 5).Acquire(bounded(t), 1)
			must(t, err)
			must(t, h.Release())
			return 5
		},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			ens := embedtest.New(t, 3, embedtest.Options{})
			ens.TransferLeadership(1)
			leads, lags := ens.Session(1, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
			h, err := lock.NewSemaphore(leads, path, 2).Acquire(bounded(t), 1)
			must(t, err)
			must(t, h.Release())
			_, err = lags.Sync(bounded(t), "/")
			must(t, err)
			ens.Faults(1).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
			<-time.After(time.Second)
			want := before(t, leads)
			m := lock.NewSemaphore(lags, path, 0)
			if want == 5 {
				must(t, m.Resize(bounded(t), 7))
			}
			must(t, m.Resize(bounded(t), 0))
			_, err = leads.Sync(bounded(t), "/")
			must(t, err)
			if n, err := lock.NewSemaphore(leads, path, 0).Limit(bounded(t)); n != want || err != nil {
				t.Errorf("after %s and one that removes it the limit is %d, not %d: %v", what, n, want, err)
			}
		})
	}
}

func TestSemaphore_Limit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		follows := lock.NewSemaphore(s, path, 0)
		if _, err := follows.Acquire(bounded(t), 1); !errors.Is(err, lock.ErrNoLimit) {
			t.Errorf("a permit of a semaphore that nobody has said the limit of: %v", err)
		}
		m := lock.NewSemaphore(s, path, 2)
		for n, want := range map[int]error{0: embed.ErrInvalidArgument, -1: embed.ErrInvalidArgument, 3: lock.ErrTooManyPermits, 1001: embed.ErrInvalidArgument} {
			if _, err := m.Acquire(bounded(t), n); !errors.Is(err, want) {
				t.Errorf("%d permits of 2: %v, want %v", n, err, want)
			}
		}
		if _, err := lock.NewSemaphore(s, path, -1).TryAcquire(bounded(t), 1); !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("of -1: %v", err)
		}
		h, err := m.Acquire(bounded(t), 2)
		must(t, err)
		if _, err := lock.NewSemaphore(s, path, 5).TryAcquire(bounded(t), 1); !errors.Is(err, lock.ErrLimitDiffers) {
			t.Errorf("a caller with another limit: %v", err)
		}
		if n, err := follows.Limit(bounded(t)); n != 2 || err != nil {
			t.Errorf("the limit is %d, %v", n, err)
		}
		// The limit grows, and a waiter notices. In CURATOR-75 a change of the limit woke nobody.
		waits := permits(t, ens, s, acquires(m, 1))
		must(t, follows.Resize(bounded(t), 3))
		third := granted(t, waits)
		if _, err := lock.NewSemaphore(s, path, 5).TryAcquire(bounded(t), 1); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a caller with another limit after Resize: %v", err)
		}
		// The limit shrinks: nobody is granted a permit until enough have come back.
		must(t, m.Resize(bounded(t), 1))
		waits = permits(t, ens, s, acquires(m, 1))
		must(t, third.Release())
		pending(t, s, "a second permit of one", waits)
		must(t, h.Release())
		must(t, granted(t, waits).Release())
		must(t, m.Resize(bounded(t), 0))
		if n, err := m.Limit(bounded(t)); n != 2 || err != nil {
			t.Errorf("the limit that callers agree on is %d, %v", n, err)
		}
		if err := m.Resize(bounded(t), -1); !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("a limit of -1: %v", err)
		}
		_, err = s.Set(bounded(t), path, []byte("many"), embed.AnyVersion)
		must(t, err)
		if _, err := m.Acquire(bounded(t), 1); !errors.Is(err, lock.ErrNoLimit) {
			t.Errorf("a limit that is none: %v", err)
		}
	})
}

// CURATOR-315 and CURATOR-462: permits of callers that failed or were interrupted half-way stayed
// out for ever.
func TestSemaphore_ACancelledAcquireLeavesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		m := lock.NewSemaphore(s, path, 2)
		h, err := m.Acquire(bounded(t), 1)
		must(t, err)
		ctx, cancel := context.WithCancel(bounded(t))
		first := permits(t, ens, s, func(context.Context) (*lock.Hold, error) { return m.Acquire(ctx, 2) })
		second := permits(t, ens, other, acquires(lock.NewSemaphore(other, path, 2), 1))
		cancel()
		if o := <-first; !errors.Is(o.err, context.Canceled) {
			t.Fatal(o.err)
		}
		two := granted(t, second)
		if n := out(t, s); n != 2 {
			t.Errorf("%d permits are out", n)
		}
		must(t, h.Release())
		// Permits also come back when their session ends.
		must(t, other.Close())
		if two.Err() == nil {
			t.Error("a permit outlived its session")
		}
		all, err := m.Acquire(bounded(t), 2)
		must(t, err)
		must(t, all.Release())
	})
}

// A fickle context ends when a condition holds. It checks the condition whenever it is asked.
type fickle struct {
	context.Context
	over func() bool
}

func (c fickle) Err() error {
	if c.over() {
		return context.Canceled
	}
	return nil
}

// The caller gives up when it has its permits and does not know it yet. They come back, and the
// caller gets an error.
func TestSemaphore_CancelledWhenItsPermitsCome(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewSemaphore(s, path, 3)
		first, err := m.Acquire(bounded(t), 3)
		must(t, err)
		waiting := permits(t, ens, s, func(ctx context.Context) (*lock.Hold, error) {
			return m.Acquire(fickle{ctx, func() bool {
				holders, err := lock.Holders(context.Background(), s, path)
				if err != nil || len(holders) != 1 {
					return false
				}
				// This may be the last of the permits that come back one by one, but by then the
				// caller has left the queue.
				waiters, err := lock.Waiters(context.Background(), s, path)
				return err == nil && len(waiters) == 0
			}}, 1)
		})
		must(t, first.Release())
		if got := <-waiting; !errors.Is(got.err, context.Canceled) {
			t.Errorf("Acquire: %v, %v", got.hold, got.err)
		}
		ens.Until("the permits to come back", func() bool { return out(t, s) == 0 })
		free, err := m.TryAcquire(bounded(t), 3)
		must(t, err)
		must(t, free.Release())
	})
}

// Somebody deletes a caller's place in the queue while the transaction is in flight that exchanges
// the place for permits.
func TestSemaphore_ItsPlaceIsDeletedWhenItsPermitsCome(t *testing.T) {
	sessionsflag.Member(t, "a client reads nothing while nobody hears its member")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		first, err := lock.NewSemaphore(other, path, 1).Acquire(bounded(t), 1)
		must(t, err)
		_, err = s.Sync(bounded(t), "/")
		must(t, err)
		looks := &looker{Context: bounded(t)}
		waiting := permits(t, ens, s, func(context.Context) (*lock.Hold, error) {
			return lock.NewSemaphore(s, path, 1).Acquire(looks, 1)
		})
		_, err = other.Sync(bounded(t), "/")
		must(t, err)
		names, _, err := other.Children(bounded(t), path+"/locks")
		must(t, err)
		// It hears that the permit is back, and its request arrives later.
		for _, id := range []embed.MemberID{2, 3} {
			ens.Faults(1).SetLink(id, embedtest.Link{Cut: true})
		}
		release(t, first)
		ens.Until("the permit to come back", func() bool { return out(t, s) == 0 })
		looks.asleep(nil)
		must(t, other.Delete(bounded(t), path+"/locks/"+names[0], embed.AnyVersion))
		ens.HealAll()
		if got := <-waiting; !errors.Is(got.err, embed.ErrDeleted) {
			t.Errorf("Acquire: %v, %v", got.hold, got.err)
		}
		if n := out(t, s); n != 0 {
			t.Errorf("%d permits are out", n)
		}
	})
}

// Goroutines and sessions share a Semaphore. There are never more permits out than the limit, and
// each caller gives back its own. In CURATOR-376 two threads raced for the one lease that a
// semaphore of one could remember. In kazoo#65 and kazoo#93 callers waited although they should
// not, or longer than they should.
func TestSemaphore_ManyGoroutinesAndSessions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens, _ := slowly(t)
		const limit = 3
		var out atomic.Int32
		var held, refused, late atomic.Int32
		var wg sync.WaitGroup
		for i := range 3 {
			s := ens.Session(1, embed.SessionOptions{})
			m := lock.NewSemaphore(s, path, limit)
			for j := range 3 {
				wg.Go(func() {
					for k := range 15 {
						n := (i+j+k)%limit + 1
						ctx, cancel := context.WithCancel(bounded(t))
						acquire := m.Acquire
						switch k % 3 {
						case 1:
							acquire = m.TryAcquire
						case 2:
							ctx, cancel = context.WithTimeout(ctx, time.Duration(k)*200*time.Microsecond)
						}
						h, err := acquire(ctx, n)
						cancel()
						switch {
						case err == nil:
							held.Add(1)
							if now := out.Add(int32(n)); now > limit {
								t.Errorf("%d permits of %d are out", now, limit)
							}
							out.Add(int32(-n))
							if err := errors.Join(h.Err(), h.Release(), h.Release()); err != nil {
								t.Error(err)
							}
						case k%3 == 1 && errors.Is(err, lock.ErrHeld):
							refused.Add(1)
						case k%3 == 2 && errors.Is(err, context.DeadlineExceeded):
							late.Add(1)
						default:
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		if h, r, l := held.Load(), refused.Load(), late.Load(); !testkit.Night() && min(h, r, l) == 0 {
			t.Errorf("%d held, %d refused, %d late", h, r, l)
		} else {
			t.Logf("%d held, %d refused, %d late", h, r, l)
		}
		s := ens.Session(1, embed.SessionOptions{})
		ens.Until("the late ones to leave", func() bool { return left(t, s) == 0 })
		h, err := lock.NewSemaphore(s, path, limit).TryAcquire(bounded(t), limit)
		must(t, err)
		must(t, h.Release())
	})
}

// A permit whose znode may not be read counts, and stops nobody.
func TestSemaphore_AHiddenPermit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		first, err := lock.NewSemaphore(s, "/s", 2).Acquire(bounded(t), 1)
		must(t, err)
		hidden, _, err := other.CreateWith(bounded(t), "/s/leases/_c_00000000-0000-4000-8000-000000000001-lease-", nil,
			embed.CreateOptions{Mode: embed.EphemeralSequential, ACL: []embed.ACL{{Perms: embed.PermWrite, Scheme: "world", ID: "anyone"}}})
		must(t, err)
		got := make(chan error, 1)
		go func() {
			_, err := lock.NewSemaphore(s, "/s", 2).Acquire(bounded(t), 1)
			got <- err
		}()
		select {
		case err := <-got:
			t.Errorf("a third permit of two: %v", err)
		case <-time.After(time.Second):
		}
		must(t, other.Delete(bounded(t), hidden, embed.AnyVersion))
		must(t, <-got)
		must(t, first.Release())
	})
}
