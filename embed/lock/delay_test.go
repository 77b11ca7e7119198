package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// delayed returns a mutex with a delay. Unless a test says otherwise, the delay is longer than the
// test.
func delayed(s *embed.Session, identity string, d time.Duration) *lock.Mutex {
	return lock.NewMutex(s, path).With(lock.Options{Delay: d, Identity: identity})
}

// lost makes worker-1 lose a Hold with a delay of an hour, because member 1 dies; member 1 is
// restarted. Meanwhile a session of another member waits for the lock.
func lost(t testing.TB, ens *embedtest.Ensemble) (s *embed.Session, h *lock.Hold, w <-chan outcome) {
	t.Helper()
	s = ens.Session(2, embed.SessionOptions{})
	h, err := delayed(ens.Session(1, embed.SessionOptions{}), "worker-1", time.Hour).Lock(bounded(t))
	must(t, err)
	w = acquiring(t, ens, s, lock.NewMutex(s, path).Lock)
	ens.Kill(1)
	ens.Restart(1)
	ens.Ready(1)
	return s, h, w
}

// A released lock is free at once.
func TestDelay_IsNoneAfterARelease(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		h, err := delayed(s, "", time.Hour).Lock(bounded(t))
		must(t, err)
		must(t, h.Release())
		other := ens.Session(1, embed.SessionOptions{})
		_, err = delayed(other, "", time.Hour).Lock(bounded(t))
		must(t, err)
		must(t, other.Close()) // its owner ends this session on purpose too
		h, err = delayed(s, "", time.Hour).TryLock(bounded(t))
		must(t, err)
		must(t, h.Release())
	})
}

// What has the name of a lost contender, and is there to stay, is not deleted when the delay is over.
func TestDelay_DeletesNothingThatIsThereToStay(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := one(t).Session(1, embed.SessionOptions{})
		h, err := delayed(s, "", time.Second).Lock(bounded(t))
		must(t, err)
		names, _, err := s.Children(bounded(t), path)
		must(t, err)
		must(t, h.Release())
		theirs := path + "/" + names[0]
		_, err = s.Put(bounded(t), theirs, []byte("theirs"))
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := lock.NewMutex(s, path).Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind what is there to stay: %v", err)
		}
		if data, _, err := s.Get(bounded(t), theirs); string(data) != "theirs" {
			t.Errorf("it has %q: %v", data, err)
		}
	})
}

// A lost holder may have sent something that has not arrived yet; Consul calls this delay
// lock-delay. In Netflix/curator#9 nobody could make the lock wait.
func TestDelay_AfterALoss(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(2, embed.SessionOptions{})
		lost := ens.Session(1, embed.SessionOptions{})
		const delay = 300 * time.Millisecond
		h, err := delayed(lost, "", delay).Lock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, s, delayed(s, "", delay).Lock)
		behind := acquiring(t, ens, s, lock.NewMutex(s, path).Lock) // this one has no delay of its own
		began := time.Now()
		ens.Kill(1)
		ens.Restart(1) // its Register ends the sessions of the process before at once
		if h.Err() == nil {
			t.Error("a Hold of a former life goes on")
		}
		next := granted(t, w)
		if d := time.Since(began); d < delay {
			t.Errorf("granted after %v", d)
		}
		grows(t, h, next)
		must(t, next.Release())
		must(t, granted(t, behind).Release())
		empty(t, s)
	})
}

// The former holder has the lock again during the delay. It could not in consul#430, nor after a
// restart in etcd#22384 and etcd#22382.
func TestDelay_TheSameIdentityComesBackAtOnce(t *testing.T) {
	sessionsflag.Member(t, "a member's sessions end as soon as it comes back, a client's last for their timeout")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s, h, w := lost(t, ens)
		back := ens.Session(1, embed.SessionOptions{})
		if _, err := delayed(back, "worker-2", time.Hour).TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("another identity: %v", err)
		}
		pending(t, s, "in during the delay", w)
		again, err := delayed(back, "worker-1", time.Hour).Lock(bounded(t))
		must(t, err)
		pending(t, s, "in beside the one that came back", w)
		grows(t, h, again)
		must(t, again.Release())
		next := granted(t, w)
		grows(t, again, next)
		must(t, next.Release())
	})
}

// Who comes back before the ensemble knows of the loss waits until then, and then goes ahead of all
// who wait. It waited out its own delay.
func TestDelay_TheSameIdentityComesBackBeforeTheLoss(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s, back := ens.Session(2, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
		h, err := delayed(ens.Session(1, embed.SessionOptions{}), "worker-1", time.Hour).Lock(bounded(t))
		must(t, err)
		waits := acquiring(t, ens, s, lock.NewMutex(s, path).Lock)
		ens.Kill(1)
		comes := acquiring(t, ens, back, delayed(back, "worker-1", time.Hour).Lock)
		again := granted(t, comes)
		if again.Token().Compare(h.Token()) <= 0 {
			t.Errorf("the token %v after %v", again.Token(), h.Token())
		}
		select {
		case got := <-waits:
			t.Fatalf("two hold the lock: %v", got)
		default:
		}
		must(t, again.Release())
		must(t, granted(t, waits).Release())
	})
}

// A former holder that comes back and gives up before it has the lock did not have it, so the delay
// goes on.
func TestDelay_GoesOnWhenWhoCameBackGivesUp(t *testing.T) {
	sessionsflag.Member(t, "a member's sessions end as soon as it comes back, a client's last for their timeout")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s, h, w := lost(t, ens)
		back := ens.Session(1, embed.SessionOptions{})
		m := delayed(back, "worker-1", time.Hour)
		for range 2 {
			_, err := m.Lock(fickle{bounded(t), func() bool { // ends when it has the place
				owned, err := back.Ephemerals(context.Background(), "/")
				return err == nil && len(owned) > 0
			}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that gave up: %v", err)
			}
			ens.Until("it to be gone", func() bool {
				owned, err := back.Ephemerals(context.Background(), "/")
				return err == nil && len(owned) == 0
			})
			pending(t, s, "in during the delay", w)
			if names := queued(t, s); len(names) != 2 {
				t.Errorf("in the queue: %v", names)
			}
		}
		again, err := m.Lock(bounded(t))
		must(t, err)
		grows(t, h, again)
		must(t, again.Release()) // a release ends the delay
		next := granted(t, w)
		grows(t, again, next)
		must(t, next.Release())
	})
}

// The loss of a contender that only waited delays nobody.
func TestDelay_IsNoneAfterTheLossOfAWaiter(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(2, embed.SessionOptions{})
		h, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		lost := ens.Session(1, embed.SessionOptions{})
		acquiring(t, ens, lost, delayed(lost, "", time.Hour).Lock)
		w := acquiring(t, ens, s, lock.NewMutex(s, path).Lock)
		ens.Kill(1)
		ens.Restart(1)
		ens.Until("the lost waiter to be removed", func() bool { return len(queued(t, s)) == 2 })
		must(t, h.Release())
		must(t, granted(t, w).Release())
	})
}

func TestDelay_OfASemaphore(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(2, embed.SessionOptions{})
		m := lock.NewSemaphore(s, path, 2)
		const delay = 300 * time.Millisecond
		_, err := lock.NewSemaphore(ens.Session(1, embed.SessionOptions{}), path, 2).With(lock.Options{Delay: delay}).Acquire(bounded(t), 2)
		must(t, err)
		w := permits(t, ens, s, acquires(m, 1))
		began := time.Now()
		ens.Kill(1)
		ens.Restart(1)
		one := granted(t, w)
		if d := time.Since(began); d < delay {
			t.Errorf("granted after %v", d)
		}
		must(t, one.Release())
	})
}

func TestOptions_AreChecked(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		refused := func(name string, want error, calls ...acquirer) {
			t.Helper()
			for i, call := range calls {
				if h, err := call(bounded(t)); !errors.Is(err, want) {
					t.Errorf("%s: call %d: %v, %v; want %v", name, i, h, err, want)
				}
			}
		}
		for name, k := range map[string]struct {
			o    lock.Options
			want error
		}{
			"a delay of less than nothing":                 {lock.Options{Delay: -time.Second}, embed.ErrInvalidArgument},
			"a delay in microseconds":                      {lock.Options{Delay: 1500 * time.Microsecond}, embed.ErrInvalidArgument},
			"a delay of a century":                         {lock.Options{Delay: 100 * 365 * 24 * time.Hour}, embed.ErrInvalidTTL},
			"less than nothing is kept":                    {lock.Options{Keep: -1}, embed.ErrInvalidArgument},
			"a note that no znode can store":               {lock.Options{Note: string(make([]byte, 2<<20))}, embed.ErrTooLarge},
			"somebody to come back to a lock that is kept": {lock.Options{Keep: time.Second, Delay: time.Second, Identity: "x"}, embed.ErrInvalidArgument},
		} {
			m := lock.NewMutex(s, path).With(k.o)
			refused(name, k.want, m.Lock, m.TryLock)
		}
		rw, several, permits := lock.NewRWMutex(s, path), lock.NewMulti(s, path), lock.NewSemaphore(s, path, 1)
		for name, o := range map[string]lock.Options{"Keep": {Keep: 1}, "Identity": {Identity: "x", Delay: time.Second}} {
			m, p := several.With(o), permits.With(o)
			refused(name+" of others", embed.ErrInvalidArgument, m.Lock, m.TryLock, acquires(p, 1), func(ctx context.Context) (*lock.Hold, error) { return p.TryAcquire(ctx, 1) })
		}
		keeps := rw.With(lock.Options{Keep: 1})
		refused("Keep of a RWMutex", embed.ErrInvalidArgument, keeps.Lock, keeps.RLock, keeps.TryLock, keeps.TryRLock)
		empty(t, s)
	})
}

// A lost reader may have held the lock beside the readers ahead of it.
func TestDelay_OfAReaderBehindAnother(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(2, embed.SessionOptions{})
		ahead, err := lock.NewRWMutex(s, path).RLock(bounded(t))
		must(t, err)
		const delay = 500 * time.Millisecond
		_, err = lock.NewRWMutex(ens.Session(1, embed.SessionOptions{}), path).With(lock.Options{Delay: delay}).RLock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, s, lock.NewRWMutex(s, path).Lock)
		began := time.Now()
		ens.Kill(1)
		ens.Restart(1)
		must(t, ahead.Release())
		writer := granted(t, w)
		if d := time.Since(began); d < delay {
			t.Errorf("granted after %v", d)
		}
		must(t, writer.Release())
	})
}

// The delays of readers that were lost together run together. A writer does not wait for one after
// the other.
func TestDelay_OfReadersWhoWereLostTogether(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s, lost := ens.Session(2, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		// One after the other, the delays would last longer than the bounded wait below. The
		// ensemble removes none of them in that time.
		const readers, delay = 200, 700 * time.Millisecond
		var in sync.WaitGroup
		for range readers {
			in.Go(func() {
				_, err := lock.NewRWMutex(lost, path).With(lock.Options{Delay: delay}).RLock(bounded(t))
				if err != nil {
					t.Error(err)
				}
			})
		}
		in.Wait()
		_, err := s.Sync(bounded(t), "/")
		must(t, err)
		w := acquiring(t, ens, s, func(ctx context.Context) (*lock.Hold, error) {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
			defer cancel()
			return lock.NewRWMutex(s, path).Lock(ctx)
		})
		began := time.Now()
		ens.Kill(1)
		ens.Restart(1)
		writer := granted(t, w)
		if d := time.Since(began); d < delay {
			t.Errorf("granted after %v", d)
		}
		must(t, writer.Release())
	})
}

// The delay goes on if the session that came back is closed before it has the lock. In one case it
// has the place and does not know it yet. In the other it has given up and does not know whether it
// has the place.
func TestDelay_GoesOnWhenWhoCameBackCloses(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	for name, deaf := range map[string]bool{"in its place": false, "not knowing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := newDeaf(t, embed.DefaultRequestTimeout)
				s, _, w := lost(t, ens)
				ens.TransferLeadership(2)
				back := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
				lingers := func(s *embed.Session) bool {
					return slices.ContainsFunc(queued(t, s), func(name string) bool {
						stat, ok, err := s.Exists(bounded(t), path+"/"+name)
						return err == nil && ok && stat.EphemeralOwner == 0
					})
				}
				ens.Until("the holder to be lost", func() bool { return lingers(back) })
				owns := func(s *embed.Session) bool {
					owned, err := s.Ephemerals(bounded(t), "/")
					return err == nil && len(owned) > 0
				}
				ctx, cancel := context.WithCancel(bounded(t))
				defer cancel()
				tried := make(chan error, 1)
				lock := func() {
					_, err := delayed(back, "worker-1", time.Hour).Lock(ctx)
					tried <- err
				}
				if deaf {
					for _, id := range []embed.MemberID{2, 3} { // member 1 is heard, but hears nothing
						ens.Faults(id).SetLink(1, embedtest.Link{Cut: true})
					}
					go lock()
					ens.Until("it to have the place", func() bool { return !lingers(s) && len(queued(t, s)) == 2 })
					cancel()
					if err := <-tried; !errors.Is(err, context.Canceled) {
						t.Errorf("a caller that gave up: %v", err)
					}
				} else {
					ctx = fickle{ctx, func() bool {
						if !owns(back) {
							return false
						}
						go back.Close()
						<-back.Done()
						return true
					}}
					go lock()
					if err := <-tried; err == nil {
						t.Error("it has the lock")
					}
				}
				closed := make(chan error, 1)
				go func() { closed <- back.Close() }()
				<-back.Done()
				ens.HealAll()
				must(t, <-closed)
				pending(t, s, "in during the delay", w)
				if !lingers(s) || len(queued(t, s)) != 2 {
					t.Errorf("in the queue: %v", queued(t, s))
				}
			})
		})
	}
}

// A reader comes back beside other readers.
func TestDelay_OfAReaderWhoComesBackBesideOthers(t *testing.T) {
	sessionsflag.Member(t, "a member's sessions end as soon as it comes back, a client's last for their timeout")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(2, embed.SessionOptions{})
		ahead, err := lock.NewRWMutex(s, path).RLock(bounded(t))
		must(t, err)
		o := lock.Options{Delay: time.Hour, Identity: "worker-1"}
		read, err := lock.NewRWMutex(ens.Session(1, embed.SessionOptions{}), path).With(o).RLock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, s, lock.NewRWMutex(s, path).Lock)
		ens.Kill(1)
		ens.Restart(1)
		ens.Ready(1)
		back := ens.Session(1, embed.SessionOptions{})
		if _, err := lock.NewRWMutex(back, path).With(lock.Options{Delay: time.Hour, Identity: "worker-2"}).TryRLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("another reader, which comes behind the writer: %v", err)
		}
		again, err := lock.NewRWMutex(back, path).With(o).RLock(bounded(t))
		must(t, err)
		grows(t, read, again)
		pending(t, s, "beside readers", w)
		must(t, errors.Join(ahead.Release(), again.Release()))
		must(t, granted(t, w).Release())
	})
}

// A waiter does not delete a znode ahead of it that is nobody's contender.
func TestLock_DeletesNobodysZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		h, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		item, err := s.Create(bounded(t), path+"/item-", []byte("precious"), embed.Persistent|embed.Sequential)
		must(t, err)
		w := acquiring(t, ens, s, lock.NewMutex(s, path).Lock)
		must(t, h.Release())
		pending(t, s, "in ahead of the znode that stands there", w)
		if data, _, err := s.Get(bounded(t), item); string(data) != "precious" {
			t.Errorf("%s: %q, %v", item, data, err)
		}
		must(t, s.Delete(bounded(t), item, embed.AnyVersion))
		must(t, granted(t, w).Release())
	})
}
