package value_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

const dir = "/ids/workers"

// bubble tests in virtual time, with an ensemble of so many members and a slow tick.
func bubble(t *testing.T, n int, test func(t *testing.T, ens *embedtest.Ensemble)) {
	synctest.Test(t, func(t *testing.T) {
		test(t, embedtest.New(t, n, embedtest.Options{Config: func(c *embed.Config) { c.Tick = 100 * time.Millisecond }}))
	})
}

func take(t testing.TB, s *embed.Session, n int, o value.NumberOptions) *value.Number {
	t.Helper()
	number, err := value.TakeNumber(context.Background(), s, dir, n, o)
	must(t, err)
	must(t, number.Err())
	return number
}

// While a number is taken, its member is cut off, after the claim is held and before the first time
// is written. TakeNumber outlasts that. It is what the fault campaign found: TakeNumber failed with
// embed.ErrSuspended.
func TestTakeNumber_OutlastsASuspension(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		await := func(want embed.State) {
			for now, changed := s.State(); now != want; now, changed = s.State() {
				<-changed
			}
		}
		var first sync.Once
		number := take(t, s, 1, value.NumberOptions{Clock: func() time.Time {
			first.Do(func() {
				ens.Isolate(1)
				await(embed.Suspended)
				ens.HealAll()
				await(embed.Connected)
			})
			return time.Now()
		}})
		if names, _, err := s.Children(t.Context(), dir+"/held"); err != nil || len(names) != 1 || number.N() != 0 {
			t.Errorf("held are %q, %v; number %d", names, err, number.N())
		}
	})
}

// The numbers are the least that are free, and stay below n: those of Leaf#26 were sequential, and
// outgrew their 10 bits. When all are held the next one waits.
func TestNumber_TheLeastThatIsFree(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{Root: "/ids"})
		var held []*value.Number
		for i := range 4 {
			held = append(held, take(t, s, 4, value.NumberOptions{}))
			if held[i].N() != i {
				t.Errorf("number %d is %d", i, held[i].N())
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := value.TakeNumber(short, other, "/workers", 4, value.NumberOptions{})
		wantErr(t, err, context.DeadlineExceeded)
		got := make(chan *value.Number)
		go func() {
			number, err := value.TakeNumber(t.Context(), other, "/workers", 4, value.NumberOptions{})
			if err != nil {
				t.Error(err)
			}
			got <- number
		}()
		<-time.After(time.Minute)
		must(t, held[2].Release())
		must(t, held[2].Release())
		wantErr(t, held[2].Err(), embed.ErrReleased)
		next := <-got
		if next.N() != 2 || next.Token().Compare(held[2].Token()) <= 0 || next.Token() == (lock.Token{}) {
			t.Errorf("%d with %v, before %v", next.N(), next.Token(), held[2].Token())
		}
		must(t, next.Err())
		must(t, held[0].Err())
		must(t, other.Close())
		wantErr(t, next.Err(), embed.ErrSessionClosed)
		again := take(t, s, 4, value.NumberOptions{})
		if again.N() != 2 {
			t.Errorf("%d", again.N())
		}
		must(t, s.Delete(t.Context(), dir+"/held/2", embed.AnyVersion))
		<-again.Done()
		wantErr(t, again.Err(), embed.ErrDeleted)
	})
}

// Everybody takes a number at once. In Butterfly#27 two of those that looked before they created
// had one number, and in Leaf#98 too.
func TestNumber_ManyAtOnce(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		var wg sync.WaitGroup
		var got ids
		for i := range 15 {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			wg.Go(func() {
				n, err := value.TakeNumber(t.Context(), s, dir, 15, value.NumberOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				got.add(t, int64(n.N()))
			})
		}
		wg.Wait()
	})
}

// A worker makes ids of the time and its number, and is refused if its number has ended.
type worker struct{ number *value.Number }

func (w worker) id() (string, error) {
	now, err := w.number.Now()
	if err != nil {
		return "", err
	}
	return fmt.Sprint(w.number.N(), "-", now.UnixMilli()), nil
}

// A number is never in two hands: not by tokens, which the ensemble compares, nor by the times of
// the ids that were made. Members are killed, cut off and started again, and each worker has a
// clock of its own that is up to ten seconds off. A number that was used again while its loser
// still made ids, or under a clock that stood behind, made doubles in shardingsphere#190 and
// snowflake#6.
func TestNumber_IsNeverInTwoHands(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx, cancel := context.WithCancel(t.Context())
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/ids", nil, embed.Persistent)
		must(t, err)
		must(t, s.Close())
		var mu sync.Mutex
		made := make(map[string]bool)
		newest := make(map[int]lock.Token) // of those that have made ids, by number
		var taken int
		work := func(n *embed.Node, off time.Duration) {
			s, err := n.NewSession(ctx, embed.SessionOptions{})
			if err != nil {
				return
			}
			defer s.Close()
			var w worker
			clock := func() time.Time { return time.Now().Add(off) }
			if w.number, err = value.TakeNumber(ctx, s, dir, 3, value.NumberOptions{Clock: clock}); err != nil {
				return
			}
			mu.Lock()
			taken++
			mu.Unlock()
			for range 100 {
				id, err := w.id()
				if err != nil {
					break
				}
				mu.Lock()
				if made[id] {
					t.Errorf("id %s comes twice", id)
				}
				made[id] = true
				if newest[w.number.N()].Compare(w.number.Token()) > 0 {
					t.Errorf("number %d is used with token %v after %v", w.number.N(), w.number.Token(), newest[w.number.N()])
				}
				newest[w.number.N()] = w.number.Token()
				mu.Unlock()
				<-time.After(37 * time.Millisecond)
			}
			_ = w.number.Release()
		}
		nodes := make(chan struct{}, 1) // held while the members change
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					nodes <- struct{}{}
					n := ens.Node(embed.MemberID((i+round)%3 + 1))
					<-nodes
					work(n, time.Duration((i*7+round)%5-2)*5*time.Second)
					<-time.After(time.Second)
				}
			})
		}
		for round := range 4 {
			<-time.After(10 * time.Second)
			id := embed.MemberID(round%3 + 1)
			if round%2 == 0 {
				nodes <- struct{}{}
				ens.Kill(id)
				<-time.After(time.Second)
				ens.Restart(id)
				<-nodes
			} else {
				ens.Isolate(id)
				<-time.After(15 * time.Second)
				ens.HealAll()
			}
		}
		cancel()
		wg.Wait()
		t.Logf("%d ids, numbers taken %d times", len(made), taken)
		if taken < 10 {
			t.Errorf("numbers were taken %d times", taken)
		}
	})
}

// The next owner waits until its own clock has passed the times of the former one: after a crash
// that of the time written ahead, after a release that of the release.
func TestNumber_WaitsForTheClock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		early := func() time.Time { return time.Now().Add(time.Minute) }
		first := worker{take(t, ens.Session(3, embed.SessionOptions{}), 1, value.NumberOptions{Clock: early})}
		<-time.After(20 * time.Second) // it writes ahead again and again
		_, err := first.id()
		must(t, err)
		used := early()
		ens.Kill(3)
		ens.Restart(3)
		s := ens.Session(1, embed.SessionOptions{})
		short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err = value.TakeNumber(short, s, dir, 1, value.NumberOptions{})
		wantErr(t, err, context.DeadlineExceeded)
		second := take(t, s, 1, value.NumberOptions{})
		if !time.Now().After(used) || time.Since(used) > 12*time.Second {
			t.Errorf("taken at %v, used up to %v", time.Now(), used)
		}
		must(t, second.Release())
		used = time.Now()
		third := take(t, s, 1, value.NumberOptions{})
		if !time.Now().After(used) || time.Since(used) > s.Timeout()/9 {
			t.Errorf("taken at %v, released at %v", time.Now(), used)
		}
		must(t, third.Release())
		_, err = s.Set(t.Context(), dir+"/used/0", []byte("soon"), embed.AnyVersion)
		must(t, err)
		_, err = value.TakeNumber(t.Context(), s, dir, 1, value.NumberOptions{})
		wantErr(t, err, embed.ErrNotNumber)
		ens.Until("the number to be free", func() bool {
			_, held, err := s.Exists(t.Context(), dir+"/held/0")
			return !held && err == nil
		})
	})
}

// No time that an owner has used passes the test of the next one, although the clock was set back
// before the release: at once if only NumberOptions.Clock was, or in steps that the node does not
// notice.
func TestNumber_ATimeIsUsedByOneOwner(t *testing.T) {
	for name, steps := range map[string][]time.Duration{
		"own clock":  {30 * time.Second},
		"wall clock": slices.Repeat([]time.Duration{900 * time.Millisecond}, 6),
	} {
		bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
			var back atomic.Int64
			clock := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
			s := ens.Session(1, embed.SessionOptions{Timeout: 10 * time.Second})
			number := take(t, s, 1, value.NumberOptions{Clock: clock})
			<-time.After(time.Minute)
			used, err := number.Now()
			must(t, err)
			for _, step := range steps {
				set := time.Duration(back.Add(int64(step)))
				if len(steps) > 1 {
					ens.Faults(1).SetWallClock(-set)
				}
				_, err := s.Create(t.Context(), fmt.Sprint("/proof-of-life-", set), nil, embed.Persistent)
				must(t, err)
				<-time.After(100 * time.Millisecond)
				must(t, number.Err())
			}
			must(t, number.Release())
			next := take(t, s, 1, value.NumberOptions{Clock: clock})
			now, err := next.Now()
			must(t, err)
			if !now.After(used) {
				t.Errorf("%s: the next owner may use %v, the former one has used %v", name, now, used)
			}
		})
	}
}

// M114: the clock is set back by an hour right after each reading. The time that was read is not used
// by two owners.
func TestNumber_TheClockIsSetBackAfterTheReading(t *testing.T) {
	for _, how := range []string{"released", "lost"} {
		bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
			var ahead atomic.Int64
			clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Swap(0))) }
			number := take(t, ens.Session(1, embed.SessionOptions{}), 1, value.NumberOptions{Clock: clock, Ahead: 2 * time.Hour})
			ahead.Store(int64(time.Hour))
			used, err := number.Now()
			must(t, err)
			if how == "released" {
				must(t, number.Release())
			} else {
				ens.Isolate(1)
				<-number.Done()
			}
			next := take(t, ens.Session(2, embed.SessionOptions{}), 1, value.NumberOptions{})
			now, err := next.Now()
			must(t, err)
			if !now.After(used) {
				t.Errorf("%s: the next owner may use %v, the former one has used %v", how, now, used)
			}
		})
	}
}

// A clock at which the number must not be used ends it, and its guard with it.
func TestNumber_TheClockIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, s *embed.Session, off *time.Duration){
		"it is ahead":    func(t *testing.T, s *embed.Session, off *time.Duration) { *off = time.Minute },
		"it is set back": func(t *testing.T, s *embed.Session, off *time.Duration) { *off = -time.Minute },
		"the time cannot be written": func(t *testing.T, s *embed.Session, off *time.Duration) {
			_, err := s.SetACL(t.Context(), dir+"/used/0", []embed.ACL{{Perms: embed.PermRead, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
			must(t, err)
			<-time.After(15 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
				s := ens.Session(1, embed.SessionOptions{})
				must(t, take(t, s, 1, value.NumberOptions{}).Release())
				var off time.Duration
				var mu sync.Mutex
				number := take(t, s, 1, value.NumberOptions{Clock: func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return time.Now().Add(off)
				}})
				ctx := number.Context()
				must(t, ctx.Err())
				mu.Lock()
				now := off
				mu.Unlock()
				spoil(t, s, &now)
				mu.Lock()
				off = now
				mu.Unlock()
				wantErr(t, number.Err(), value.ErrWrongClock)
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), value.ErrWrongClock)
				_, err := s.Multi(t.Context(), value.Guard(number), embed.OpEnsure("/x"))
				wantErr(t, err, embed.ErrNotHeld)
				must(t, number.Release())
				wantErr(t, number.Err(), value.ErrWrongClock)
			})
		})
	}
}

// A lost number lingers, and nobody else has it meanwhile. Its own ctx ends before. One that was
// released does not linger.
func TestNumber_LingersAfterALoss(t *testing.T) {
	sessionsflag.Member(t, "a client's tenure guards transactions of its own session only")
	bubble(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		const skew = time.Minute
		s := ens.Session(2, embed.SessionOptions{})
		must(t, take(t, s, 1, value.NumberOptions{Skew: skew}).Release())
		begun := time.Now()
		lost := take(t, ens.Session(1, embed.SessionOptions{}), 1, value.NumberOptions{Skew: skew})
		if d := time.Since(begun); d > skew/2 {
			t.Errorf("a released number was taken after %v", d)
		}
		_, err := s.Multi(t.Context(), value.Guard(lost), embed.OpEnsure("/guarded"))
		must(t, err)
		ens.Isolate(1)
		<-lost.Context().Done()
		if cause := context.Cause(lost.Context()); !errors.Is(cause, embed.ErrSuspended) || !errors.Is(lost.Err(), embed.ErrSuspended) {
			t.Errorf("%v, %v", cause, lost.Err())
		}
		gone := time.Now()
		next := take(t, s, 1, value.NumberOptions{Skew: skew})
		if d := time.Since(gone); d < skew {
			t.Errorf("taken %v after the loss", d)
		}
		ens.HealAll()
		_ = lost.Release()
		must(t, next.Err())
	})
}

func TestNumber_Refused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		for _, o := range []value.NumberOptions{{Skew: -1}, {Skew: time.Microsecond}, {Ahead: -1}, {Ahead: time.Millisecond}} {
			_, err := value.TakeNumber(t.Context(), s, dir, 1, o)
			wantErr(t, err, embed.ErrInvalidArgument)
		}
		_, err := value.TakeNumber(t.Context(), s, dir, 0, value.NumberOptions{})
		wantErr(t, err, embed.ErrInvalidArgument)
		_, err = value.TakeNumber(t.Context(), s, "no/path", 1, value.NumberOptions{})
		wantErr(t, err, embed.ErrInvalidPath)
		var zero value.Number
		wantErr(t, zero.Err(), embed.ErrNotHeld)
		_, err = zero.Now()
		wantErr(t, err, embed.ErrNotHeld)
		<-zero.Done()
		wantErr(t, context.Cause(zero.Context()), embed.ErrNotHeld)
		must(t, zero.Release())
		for _, n := range []*value.Number{nil, &zero} {
			_, err = s.Multi(t.Context(), value.Guard(n), embed.OpEnsure("/x"))
			wantErr(t, err, embed.ErrNotHeld)
		}
		must(t, s.Close())
		_, err = value.TakeNumber(t.Context(), s, dir, 1, value.NumberOptions{})
		wantErr(t, err, embed.ErrSessionClosed)
	})
}

// One number whose worker's clock was a year ahead, and one whose time cannot be read, keep nobody
// from the others: neither from those that are free, nor from one that is released later.
func TestTakeNumber_PassesOverOneThatIsAheadForLong(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		ahead := ens.Session(1, embed.SessionOptions{})
		take(t, ahead, 4, value.NumberOptions{Clock: func() time.Time { return time.Now().AddDate(1, 0, 0) }})
		must(t, ahead.Close())
		_, err := s.Create(t.Context(), dir+"/used/1", []byte("soon"), embed.Persistent)
		must(t, err)
		begun := time.Now()
		second, third := take(t, s, 4, value.NumberOptions{}), take(t, s, 4, value.NumberOptions{})
		if second.N() != 2 || third.N() != 3 || time.Since(begun) > time.Second {
			t.Errorf("the numbers are %d and %d, after %v", second.N(), third.N(), time.Since(begun))
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Millisecond/2)
		defer cancel()
		_, err = value.TakeNumber(short, s, dir, 4, value.NumberOptions{})
		wantErr(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "0 may have been used up to") {
			t.Error(err)
		}
		time.AfterFunc(time.Minute, func() { must(t, third.Release()) })
		if next := take(t, s, 4, value.NumberOptions{}); next.N() != 3 {
			t.Errorf("the number is %d", next.N())
		}
	})
}

// One number is held, and the other's time cannot be read. TakeNumber waits for the first that can be
// had: the one that is released, or the one that is corrected. It says meanwhile what is wrong.
func TestTakeNumber_WaitsBesideOneThatCannotBeRead(t *testing.T) {
	for _, corrected := range []bool{false, true} {
		bubble(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
			s := ens.Session(1, embed.SessionOptions{})
			_, err := s.Put(t.Context(), dir+"/used/1", []byte("soon"))
			must(t, err)
			first := take(t, s, 2, value.NumberOptions{})
			short, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second/2)
			defer cancel()
			_, err = value.TakeNumber(short, s, dir, 2, value.NumberOptions{})
			wantErr(t, err, context.DeadlineExceeded)
			if text := err.Error(); !strings.Contains(text, "1 of 2 are held") || !strings.Contains(text, dir+"/used/1") {
				t.Error(text)
			}
			want, free := 0, first.Release
			if corrected {
				want, free = 1, func() error { return s.Delete(t.Context(), dir+"/used/1", embed.AnyVersion) }
			}
			time.AfterFunc(time.Minute, func() { must(t, free()) })
			if next := take(t, s, 2, value.NumberOptions{}); next.N() != want {
				t.Errorf("the number is %d, not %d", next.N(), want)
			}
		})
	}
}
