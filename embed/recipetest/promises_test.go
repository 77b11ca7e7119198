package recipetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
)

// promises are those of all recipes about what others have done. What a doc calls the view of one
// node only, such as lock.Holders, promises nothing about others, and is not here.
func promises() []promise {
	return slices.Concat(barrierPromises(), lockPromises(), semaphorePromises(), electionPromises(),
		valuePromises(), groupPromises(), jobPromises(), taskPromises())
}

// waits returns an error unless a call waited until its ctx ended.
func waits(err error) error { return is(err, context.DeadlineExceeded) }

func barrierPromises() []promise {
	return []promise{
		{name: "barrier.Gate.Wait at a gate that was shut", change: func(l *lag) func() {
			l.must(barrier.NewGate(l.ahead, l.path).Shut(l.within()))
			return nil
		}, call: func(l *lag) error {
			return waits(barrier.NewGate(l.late, l.path).Wait(l.soon()))
		}},
		{name: "barrier.Gate.Shut of a gate that was opened", before: func(l *lag) {
			l.must(barrier.NewGate(l.ahead, l.path).Shut(l.within()))
		}, change: func(l *lag) func() {
			l.must(barrier.NewGate(l.ahead, l.path).Open(l.within()))
			return nil
		}, call: func(l *lag) error {
			l.must(barrier.NewGate(l.late, l.path).Shut(l.within()))
			return waits(barrier.NewGate(l.ahead, l.path).Wait(l.soon()))
		}},
		{name: "barrier.Gate.Open of a gate that was shut", change: func(l *lag) func() {
			l.must(barrier.NewGate(l.ahead, l.path).Shut(l.within()))
			return nil
		}, call: func(l *lag) error {
			l.must(barrier.NewGate(l.late, l.path).Open(l.within()))
			return barrier.NewGate(l.ahead, l.path).Wait(l.within())
		}},
		{name: "barrier.Countdown.Wait in the next round", before: func(l *lag) {
			l.must(barrier.NewCountdown(l.ahead, l.path, 2).Done(l.within(), "x"))
			l.must(barrier.NewCountdown(l.ahead, l.path, 2).Done(l.within(), "y"))
		}, change: func(l *lag) func() {
			l.remove("/x", "/y", "")
			l.must(barrier.NewCountdown(l.ahead, l.path, 2).Done(l.within(), "x"))
			return nil
		}, call: func(l *lag) error {
			return waits(barrier.NewCountdown(l.late, l.path, 2).Wait(l.soon()))
		}},
		{name: "barrier.Countdown.Done with the total of the next round", before: func(l *lag) {
			l.must(barrier.NewCountdown(l.ahead, l.path, 2).Done(l.within(), "x"))
		}, change: func(l *lag) func() {
			l.remove("/x", "")
			l.must(barrier.NewCountdown(l.ahead, l.path, 3).Done(l.within(), "x"))
			return nil
		}, call: func(l *lag) error {
			return barrier.NewCountdown(l.late, l.path, 3).Done(l.within(), "y")
		}},
		{name: "barrier.Enter beside one that has left", before: func(l *lag) {
			_, _, err := l.ahead.CreateWith(l.within(), l.path+"/x", nil,
				embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
			l.must(err)
		}, change: func(l *lag) func() {
			l.remove("/x")
			return nil
		}, call: func(l *lag) error {
			_, err := barrier.Enter(l.soon(), l.late, l.path, 2)
			return waits(err)
		}},
	}
}

// remove deletes znodes ahead.
func (l *lag) remove(below ...string) {
	l.t.Helper()
	for _, rel := range below {
		l.must(l.ahead.Delete(l.within(), l.path+rel, embed.AnyVersion))
	}
}

// takes returns an error unless a call got a Hold, which it releases.
func takes(h *lock.Hold, err error) error {
	if err != nil {
		return err
	}
	return h.Release()
}

// refuses returns an error unless a call waited until its ctx ended.
func refuses(h *lock.Hold, err error) error {
	if err == nil {
		_ = h.Release()
	}
	return waits(err)
}

func lockPromises() []promise {
	type acquire = func(ctx context.Context, s *embed.Session, path string) (*lock.Hold, error)
	var list []promise
	for name, how := range map[string]acquire{
		"Mutex": func(ctx context.Context, s *embed.Session, path string) (*lock.Hold, error) {
			return lock.NewMutex(s, path).Lock(ctx)
		},
		"RWMutex.Lock": func(ctx context.Context, s *embed.Session, path string) (*lock.Hold, error) {
			return lock.NewRWMutex(s, path).Lock(ctx)
		},
		"RWMutex.RLock": func(ctx context.Context, s *embed.Session, path string) (*lock.Hold, error) {
			return lock.NewRWMutex(s, path).RLock(ctx)
		},
		"Multi": func(ctx context.Context, s *embed.Session, path string) (*lock.Hold, error) {
			return lock.NewMulti(s, path+"-", path).Lock(ctx)
		},
		"Semaphore": func(ctx context.Context, s *embed.Session, path string) (*lock.Hold, error) {
			return lock.NewSemaphore(s, path, 1).Acquire(ctx, 1)
		},
	} {
		first := how // ahead: a writer, so that everybody waits
		if name == "RWMutex.RLock" {
			first = func(ctx context.Context, s *embed.Session, path string) (*lock.Hold, error) {
				return lock.NewRWMutex(s, path).Lock(ctx)
			}
		}
		var hold *lock.Hold
		held := func(l *lag) (err error) { hold, err = first(l.within(), l.ahead, l.path); return err }
		list = append(list, promise{name: "lock." + name + " that was taken", change: func(l *lag) func() {
			l.must(held(l))
			return func() { l.must(hold.Release()) }
		}, call: func(l *lag) error { return refuses(how(l.soon(), l.late, l.path)) }},
			promise{name: "lock." + name + " that was released", before: func(l *lag) { l.must(held(l)) },
				change: func(l *lag) func() { l.must(hold.Release()); return nil },
				call:   func(l *lag) error { return takes(how(l.within(), l.late, l.path)) }})
	}
	mine := lock.Options{Delay: time.Hour, Identity: "mine"}
	lost := func(l *lag) { // a member holds the lock and is lost
		_, err := lock.NewMutex(l.ens.Session(4, embed.SessionOptions{}), l.path).With(mine).Lock(l.within())
		l.must(err)
	}
	return append(list, promise{
		name: "lock.Options.Identity that comes back", before: lost,
		change: func(l *lag) func() {
			l.ens.Kill(4)
			l.ens.Until("the lock to be lost", func() bool {
				list, err := lock.Holders(l.within(), l.ahead, l.path)
				l.must(err)
				return len(list) == 1 && list[0].Session == 0
			})
			return nil
		}, call: func(l *lag) error {
			return takes(lock.NewMutex(l.late, l.path).With(mine).Lock(l.within()))
		}}, promise{
		name: "lock.Options.Identity that comes back before the loss is known", before: lost,
		change: func(l *lag) func() { l.ens.Kill(4); return nil },
		call: func(l *lag) error {
			return takes(lock.NewMutex(l.late, l.path).With(mine).Lock(l.within()))
		}}, promise{
		name: "lock.Options.Identity of one that was waited out", before: lost,
		change: func(l *lag) func() {
			l.ens.Kill(4)
			l.ens.Until("the lock to be lost", func() bool {
				list, err := lock.Holders(l.within(), l.ahead, l.path)
				l.must(err)
				return len(list) == 1 && list[0].Session == 0
			})
			list, err := lock.Holders(l.within(), l.ahead, l.path)
			l.must(err)
			l.must(l.ahead.Delete(l.within(), list[0].Path, embed.AnyVersion))
			h, err := lock.NewMutex(l.ahead, l.path).Lock(l.within())
			l.must(err)
			return func() { l.must(h.Release()) }
		}, call: func(l *lag) error {
			return refuses(lock.NewMutex(l.late, l.path).With(mine).Lock(l.soon()))
		}})
}

func semaphorePromises() []promise {
	sem := lock.NewSemaphore
	anew := func(l *lag, limit int) *lock.Hold { // the ensemble removes empty containers likewise
		l.remove("/leases", "/locks", "")
		h, err := sem(l.ahead, l.path, limit).Acquire(l.within(), 1)
		l.must(err)
		return h
	}
	used := func(limit int) func(l *lag) {
		return func(l *lag) {
			h, err := sem(l.ahead, l.path, limit).Acquire(l.within(), 1)
			l.must(err)
			l.must(h.Release())
		}
	}
	return []promise{
		{name: "lock.Semaphore.Acquire of one that is there anew, with a lower limit", before: used(10),
			change: func(l *lag) func() { h := anew(l, 2); return func() { l.must(h.Release()) } },
			call: func(l *lag) error {
				_, err := sem(l.late, l.path, 0).Acquire(l.soon(), 8)
				return is(err, lock.ErrTooManyPermits)
			}},
		{name: "lock.Semaphore.Acquire of one that is there anew, with a higher limit", before: used(2),
			change: func(l *lag) func() { h := anew(l, 10); return func() { l.must(h.Release()) } },
			call:   func(l *lag) error { return takes(sem(l.late, l.path, 10).Acquire(l.within(), 8)) }},
		{name: "lock.Semaphore.TryAcquire after a Resize", before: used(2), change: func(l *lag) func() {
			l.must(sem(l.ahead, l.path, 2).Resize(l.within(), 10))
			return nil
		}, call: func(l *lag) error { return takes(sem(l.late, l.path, 2).TryAcquire(l.within(), 8)) }},
		{name: "lock.Semaphore.Acquire after a Resize to fewer", before: used(10), change: func(l *lag) func() {
			l.must(sem(l.ahead, l.path, 10).Resize(l.within(), 2))
			return nil
		}, call: func(l *lag) error {
			_, err := sem(l.late, l.path, 10).Acquire(l.soon(), 8)
			return is(err, lock.ErrTooManyPermits)
		}},
		{name: "lock.Semaphore.Resize to zero after another Resize", before: used(2), change: func(l *lag) func() {
			l.must(sem(l.ahead, l.path, 2).Resize(l.within(), 10))
			return nil
		}, call: func(l *lag) error {
			l.must(sem(l.late, l.path, 2).Resize(l.within(), 0))
			n, err := sem(l.ahead, l.path, 2).Limit(l.within())
			if err == nil && n != 2 {
				err = fmt.Errorf("the limit is %d", n)
			}
			return err
		}},
	}
}

func electionPromises() []promise {
	var leads *election.Leadership
	var stands *election.Candidate
	campaign := func(l *lag, s *embed.Session) (err error) {
		leads, err = election.New(s, l.path).Campaign(l.within(), nil)
		return err
	}
	return []promise{
		{name: "election.Campaign beside a leader", change: func(l *lag) func() {
			l.must(campaign(l, l.ahead))
			return func() { l.must(leads.Resign()) }
		}, call: func(l *lag) error {
			_, err := election.New(l.late, l.path).Campaign(l.soon(), nil)
			return waits(err)
		}},
		{name: "election.Leadership.Transfer to one that has come", before: func(l *lag) { l.must(campaign(l, l.late)) },
			change: func(l *lag) func() {
				var err error
				stands, err = election.New(l.ahead, l.path).Enter(l.within(), nil, election.Options{})
				l.must(err)
				go stands.Wait(l.within())
				return func() { l.must(stands.Withdraw()) }
			}, call: func(l *lag) error { return leads.Transfer(l.within(), stands.Path()) }},
		{name: "election.Options.Priority beside one that has come", before: func(l *lag) { l.must(campaign(l, l.ahead)) },
			change: func(l *lag) func() {
				var err error
				stands, err = election.New(l.ahead, l.path).Enter(l.within(), nil, election.Options{})
				l.must(err)
				return func() { l.must(stands.Withdraw()) }
			}, call: func(l *lag) error {
				_, err := election.New(l.late, l.path).Enter(l.within(), nil, election.Options{Priority: 1})
				l.must(err)
				list, err := election.New(l.ahead, l.path).Candidates(l.within())
				if err == nil && (len(list) != 3 || list[1].Priority != 1) {
					err = fmt.Errorf("the candidates are %v", list)
				}
				return err
			}},
	}
}

func valuePromises() []promise {
	var texts value.Codec[string]
	set := func(text string) func(l *lag) {
		return func(l *lag) {
			_, err := value.New(l.ahead, l.path, texts).Set(l.within(), text)
			l.must(err)
		}
	}
	after := func(text string) func(l *lag) func() {
		return func(l *lag) func() { set(text)(l); return nil }
	}
	add := func(l *lag, n int64) {
		_, err := value.NewCounter(l.ahead, l.path, embed.Int64).Add(l.within(), n)
		l.must(err)
	}
	errOld := errors.New("it is the old one")
	now := func(l *lag, want string) error {
		got, err := value.New(l.ahead, l.path, texts).Get(l.within())
		if err == nil && got.Value != want {
			err = fmt.Errorf("it is %q, want %q", got.Value, want)
		}
		return err
	}
	var number *value.Number
	take := func(l *lag) {
		var err error
		number, err = value.TakeNumber(l.within(), l.ahead, l.path, 2, value.NumberOptions{})
		l.must(err)
	}
	taken := func(l *lag, want int) error {
		got, err := value.TakeNumber(l.within(), l.late, l.path, 2, value.NumberOptions{})
		if err != nil {
			return err
		}
		if got.N() != want {
			return fmt.Errorf("it has taken %d, want %d", got.N(), want)
		}
		return got.Release()
	}
	return []promise{
		{name: "value.Value.Update of a newer value", before: set("a"), change: after("b"), call: func(l *lag) error {
			_, err := value.New(l.late, l.path, texts).Update(l.within(), func(was string, _ bool) (string, error) { return was + "x", nil })
			return errors.Join(err, now(l, "bx"))
		}},
		{name: "value.Value.Update that refuses the old value", before: set("a"), change: after("b"), call: func(l *lag) error {
			_, err := value.New(l.late, l.path, texts).Update(l.within(), func(was string, _ bool) (string, error) {
				if was == "a" {
					return "", errOld
				}
				return was + "x", nil
			})
			return errors.Join(err, now(l, "bx"))
		}},
		{name: "value.Value.Update of a value that can be decoded again", before: set("a"), change: after("7"), call: func(l *lag) error {
			_, err := value.New(l.late, l.path, value.JSON[int]()).Update(l.within(), func(was int, _ bool) (int, error) { return was + 1, nil })
			return errors.Join(err, now(l, "8"))
		}},
		{name: "value.Value.Swap of an older value", before: set("a"), change: after("b"), call: func(l *lag) error {
			v := value.New(l.late, l.path, texts)
			old, err := v.Get(l.within())
			l.must(err)
			_, err = v.Swap(l.within(), old, "c")
			return errors.Join(is(err, value.ErrChanged), now(l, "b"))
		}},
		{name: "value.Value.Set of a znode that is gone", before: set("a"), change: func(l *lag) func() { l.remove(""); return nil },
			call: func(l *lag) error {
				_, err := value.New(l.late, l.path, texts).Set(l.within(), "c")
				return errors.Join(err, now(l, "c"))
			}},
		{name: "value.Counter.Add", before: func(l *lag) { add(l, 1) }, change: func(l *lag) func() { add(l, 2); return nil },
			call: func(l *lag) error {
				sum, err := value.NewCounter(l.late, l.path, embed.Int64).Add(l.within(), 4)
				if err == nil && sum != 7 {
					err = fmt.Errorf("the sum is %d", sum)
				}
				return err
			}},
		{name: "value.Counter.Swap", before: func(l *lag) { add(l, 1) }, change: func(l *lag) func() { add(l, 2); return nil },
			call: func(l *lag) error {
				c := value.NewCounter(l.late, l.path, embed.Int64)
				return errors.Join(c.Swap(l.within(), 3, 9), is(c.Swap(l.within(), 3, 9), value.ErrChanged))
			}},
		{name: "value.TakeNumber beside one that was taken", change: func(l *lag) func() {
			take(l)
			return func() { l.must(number.Release()) }
		}, call: func(l *lag) error { return taken(l, 1) }},
		{name: "value.TakeNumber of one that was released", before: take, change: func(l *lag) func() {
			l.must(number.Release())
			return func() {}
		}, call: func(l *lag) error { <-time.After(5 * time.Second); return taken(l, 0) }},
	}
}

func groupPromises() []promise {
	var texts value.Codec[string]
	var newest value.Versioned[string]
	write := func(l *lag, text string) {
		var err error
		newest, err = value.New(l.ahead, l.path, texts).Set(l.within(), text)
		l.must(err)
	}
	follow := func(l *lag, from embed.Opener, id string, apply func(ctx context.Context, text string) error) func() {
		ctx, cancel := context.WithCancel(l.t.Context())
		done := make(chan error, 1)
		go func() {
			done <- group.Follow(ctx, from, l.path, id, texts, func(ctx context.Context, v value.Versioned[string]) error { return apply(ctx, v.Value) })
		}()
		return func() { cancel(); <-done }
	}
	return []promise{
		{name: "group.AwaitApplied beside a member that has not applied it", before: func(l *lag) { write(l, "old") },
			change: func(l *lag) func() {
				applying := make(chan struct{}, 2)
				end := follow(l, l.ens.Node(1), "slow", func(ctx context.Context, text string) error {
					applying <- struct{}{}
					<-ctx.Done()
					return nil
				})
				<-applying
				write(l, "new")
				return end
			}, call: func(l *lag) error {
				_, err := group.AwaitApplied(l.soon(), l.late, l.path, newest.Mzxid)
				return waits(err)
			}},
		{name: "group.Follow after a value that all have applied", before: func(l *lag) { write(l, "old") },
			change: func(l *lag) func() {
				write(l, "new")
				_, err := group.AwaitApplied(l.within(), l.ahead, l.path, newest.Mzxid)
				l.must(err)
				return nil
			}, call: func(l *lag) error {
				applied := make(chan string, 2)
				end := follow(l, l.from, "late", func(_ context.Context, text string) error { applied <- text; return nil })
				defer end()
				if got := <-applied; got != "new" {
					return fmt.Errorf("it has applied %q", got)
				}
				return nil
			}},
		{name: "group.Join beside one that has left", before: func(l *lag) {
			_, _, err := l.ahead.CreateWith(l.within(), l.path+"/a", nil, embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
			l.must(err)
		}, change: func(l *lag) func() { l.remove("/a"); return nil }, call: func(l *lag) error {
			a := group.Join(l.from, l.path, "a", nil, group.Options{})
			defer a.Close()
			for now, err := range a.Changes(l.within()) {
				if now.Present || err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "discovery.Registration.Update beside one that has left", before: func(l *lag) {
			_, _, err := l.ahead.CreateWith(l.within(), l.path+"/x/a", nil, embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
			l.must(err)
		}, change: func(l *lag) func() { l.remove("/x/a"); return nil }, call: func(l *lag) error {
			r := discovery.Register(l.from, l.path, discovery.Instance{Name: "x", ID: "a"})
			return errors.Join(r.Update(l.within(), func(in *discovery.Instance) { in.Port = 80 }), r.Close())
		}},
		{name: "partition.Run of an ID that has just been given back", before: func(l *lag) {
			_, _, err := l.ahead.CreateWith(l.within(), l.path+"/members/late", nil, embed.CreateOptions{Mode: embed.Ephemeral, Parents: true})
			l.must(err)
		}, change: func(l *lag) func() { return nil }, call: func(l *lag) error {
			// Its patience is over when the member that lags does not show yet that the ID is free.
			opened := openerFunc(func(ctx context.Context, o embed.SessionOptions) (*embed.Session, error) {
				s, err := l.from.NewSession(ctx, o)
				if err == nil {
					time.AfterFunc(2*s.Timeout()-behind/2, func() { l.remove("/members/late") })
				}
				return s, err
			})
			ctx, cancel := context.WithCancel(l.within())
			err := partition.Run(ctx, opened, l.path, []string{"p"}, partition.Options{ID: "late"},
				func(context.Context, string, *lock.Hold) error { cancel(); return nil })
			return is(err, context.Canceled)
		}},
		{name: "partition.Run beside another owner", change: func(l *lag) func() {
			owns, over := make(chan struct{}, 1), make(chan struct{})
			ctx, cancel := context.WithCancel(l.t.Context())
			done := make(chan error, 1)
			go func() {
				done <- partition.Run(ctx, l.ens.Node(1), l.path, []string{"p"}, partition.Options{ID: "ahead"},
					func(context.Context, string, *lock.Hold) error {
						owns <- struct{}{}
						<-over // it does not let go
						return nil
					})
			}()
			<-owns
			return func() { cancel(); close(over); <-done }
		}, call: func(l *lag) error {
			err := partition.Run(l.soon(), l.from, l.path, []string{"p"}, partition.Options{ID: "late"},
				func(context.Context, string, *lock.Hold) error { return errors.New("two own the part") })
			return waits(err)
		}},
	}
}

func jobPromises() []promise {
	result := func(text string) func(context.Context, lock.Token) ([]byte, error) {
		return func(context.Context, lock.Token) ([]byte, error) { return []byte(text), nil }
	}
	var r *job.Reservation
	reserve := func(l *lag) {
		var err error
		r, err = job.Reserve(l.within(), l.ahead, l.path, "ahead", time.Hour)
		l.must(err)
	}
	once := func(l *lag) {
		_, err := job.Once(l.within(), l.ens.Node(1), l.path, result("old"))
		l.must(err)
	}
	want := func(text string) func(l *lag) error {
		return func(l *lag) error {
			got, err := job.Once(l.within(), l.from, l.path, result("new"))
			if err == nil && string(got) != text {
				err = fmt.Errorf("the result is %q", got)
			}
			return err
		}
	}
	ticked := make(map[time.Time]bool)
	return []promise{
		{name: "job.Once whose result was deleted", before: once,
			change: func(l *lag) func() { l.remove("/done"); return nil }, call: want("new")},
		{name: "job.Once that was done", change: func(l *lag) func() { once(l); return nil }, call: want("old")},
		{name: "job.Reserve of a name that was released", before: reserve,
			change: func(l *lag) func() { l.must(r.Release()); return nil }, call: func(l *lag) error {
				r, err := job.Reserve(l.within(), l.late, l.path, "late", time.Hour)
				return errors.Join(err, r.Release())
			}},
		{name: "job.Reserve of a name that was reserved", change: func(l *lag) func() { reserve(l); return nil },
			call: func(l *lag) error {
				_, err := job.Reserve(l.within(), l.late, l.path, "late", time.Hour)
				return is(err, job.ErrReserved)
			}},
		{name: "job.Run of a tick that was run", change: func(l *lag) func() {
			clear(ticked)
			ctx, cancel := context.WithCancel(l.t.Context())
			over := job.Run(ctx, l.ens.Node(1), l.path, job.Job{Name: "j", Schedule: job.Every(time.Minute),
				Run: func(_ context.Context, tick *job.Tick) error {
					ticked[tick.Time] = true
					err := tick.Commit()
					cancel()
					return err
				}})
			l.must(is(over, context.Canceled))
			return nil
		}, call: func(l *lag) error {
			ctx, cancel := context.WithCancel(l.bound(2 * time.Minute))
			var twice error
			over := job.Run(ctx, l.from, l.path, job.Job{Name: "j", Schedule: job.Every(time.Minute),
				Run: func(_ context.Context, tick *job.Tick) error {
					if ticked[tick.Time] {
						twice = fmt.Errorf("%v has run twice", tick.Time)
					}
					cancel()
					return nil
				}})
			return errors.Join(twice, is(over, context.Canceled))
		}},
	}
}

func taskPromises() []promise {
	put := func(l *lag) {
		_, err := task.New(l.ahead, l.path, task.Options{}).Put(l.within(), []byte("x"), task.PutOptions{})
		l.must(err)
	}
	claim := func(l *lag) *task.Task {
		t, err := task.New(l.ahead, l.path, task.Options{}).Claim(l.within())
		l.must(err)
		return t
	}
	const named = "/entries/entry-100-0000000007"
	again := func(l *lag) { // a task of a name that is used again
		_, _, err := l.ahead.CreateWith(l.within(), l.path+named, []byte("x"), embed.CreateOptions{Parents: true})
		l.must(err)
	}
	list := []promise{{name: "task.Task.Attempt of a task with the name of a former one", before: func(l *lag) {
		again(l)
		l.must(claim(l).Retry(0))
	}, change: func(l *lag) func() {
		l.must(claim(l).Finish())
		again(l)
		_, err := l.ahead.Create(l.within(), l.path+"/tries/entry-100-0000000007", []byte(`{"Attempts":7}`), embed.Persistent)
		l.must(err)
		_, err = l.ahead.Set(l.within(), l.path+"/tries/entry-100-0000000007", []byte(`{"Attempts":8}`), embed.AnyVersion)
		l.must(err)
		return nil
	}, call: func(l *lag) error {
		t, err := task.New(l.late, l.path, task.Options{}).Claim(l.within())
		if err == nil && t.Attempt() != 9 {
			err = fmt.Errorf("it is attempt %d", t.Attempt())
		}
		return err
	}}}
	for name, how := range map[string]func(ctx context.Context, l *lag) error{
		"Claim": func(ctx context.Context, l *lag) error {
			t, err := task.New(l.late, l.path, task.Options{}).Claim(ctx)
			if err == nil {
				err = t.Finish()
			}
			return err
		},
		"Take": func(ctx context.Context, l *lag) error {
			_, err := task.New(l.late, l.path, task.Options{}).Take(ctx)
			return err
		},
	} {
		list = append(list,
			promise{name: "task.Queue." + name + " of a task that was put", change: func(l *lag) func() { put(l); return nil },
				call: func(l *lag) error { return how(l.within(), l) }},
			promise{name: "task.Queue." + name + " of a task that was claimed", before: put, change: func(l *lag) func() {
				t := claim(l)
				return func() { l.must(t.Finish()) }
			}, call: func(l *lag) error { return waits(how(l.soon(), l)) }},
			promise{name: "task.Queue." + name + " of a task that was finished", before: put, change: func(l *lag) func() {
				l.must(claim(l).Finish())
				return nil
			}, call: func(l *lag) error { return waits(how(l.soon(), l)) }},
			promise{name: "task.Queue." + name + " of a task that was given back for later", before: put, change: func(l *lag) func() {
				l.must(claim(l).Retry(time.Hour))
				return nil
			}, call: func(l *lag) error { return waits(how(l.soon(), l)) }})
	}
	return list
}
