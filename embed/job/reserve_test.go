package job_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// leveled is bubble with an ensemble that has risen to the level of Renew.
func leveled(t *testing.T, n int, test func(t *testing.T, ens *embedtest.Ensemble)) {
	bubble(t, n, func(t *testing.T, ens *embedtest.Ensemble) {
		test(t, ens)
	})
}

// A name is reserved for its time, without its session, and then it is free.
func TestReserve(t *testing.T) {
	leveled(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		first, second := ens.Session(1, embed.SessionOptions{}), ens.Session(2, embed.SessionOptions{})
		r, err := job.Reserve(t.Context(), first, "/hosts/report", "a", 6*time.Minute)
		must(t, err)
		must(t, r.Err())
		_, err = job.Reserve(t.Context(), second, "/hosts/report", "b", time.Hour)
		wantErr(t, err, job.ErrReserved)
		if !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%v", err)
		}
		_, err = first.Multi(t.Context(), r.Guard(), embed.OpEnsure("/hosts/guarded"))
		must(t, err)
		<-time.After(4 * time.Minute)
		must(t, r.Renew(t.Context()))
		renewed := time.Now()
		must(t, first.Close())
		<-time.After(4 * time.Minute)
		must(t, r.Err())
		var next *job.Reservation
		for next == nil {
			if time.Since(renewed) > 12*time.Minute {
				t.Fatal("it does not end")
			}
			if next, err = job.Reserve(t.Context(), second, "/hosts/report", "b", time.Minute); err != nil {
				wantErr(t, err, job.ErrReserved)
			} else if r.Err() == nil {
				t.Error("two have it")
			}
			<-time.After(time.Second)
		}
		wantErr(t, r.Err(), embed.ErrNotHeld)
		if d := time.Since(renewed); d < 6*time.Minute || d > 9*time.Minute {
			t.Errorf("it was free after %v", d)
		}
		if next.Token().Compare(r.Token()) <= 0 {
			t.Errorf("token %v after %v", next.Token(), r.Token())
		}
		_, err = second.Multi(t.Context(), r.Guard(), embed.OpEnsure("/hosts/guarded2"))
		wantErr(t, err, embed.ErrBadVersion)
		must(t, next.Release())
		must(t, next.Release())
		wantErr(t, next.Err(), embed.ErrReleased)
		wantErr(t, next.Renew(t.Context()), embed.ErrReleased)
		again, err := job.Reserve(t.Context(), ens.Session(3, embed.SessionOptions{}), "/hosts/report",
			"c", time.Minute)
		must(t, err)
		must(t, again.Err())
		must(t, next.Release()) // frees only its own
		must(t, again.Renew(t.Context()))
	})
}

// The same holder reserves it again, for another time, and the earlier Reservation has ended.
// kazoo's lease is deleted and created by its renewal, and free if its holder dies in between; here
// that is one transaction. And kazoo's believes all clocks.
func TestReserve_TheSameHolder(t *testing.T) {
	leveled(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		var events []embed.Event
		w, err := s.WatchWith(t.Context(), "/name", embed.WatchPersistent, embed.WatchOptions{})
		must(t, err)
		old, err := job.Reserve(t.Context(), s, "/name", "a", 10*time.Minute)
		must(t, err)
		r, err := job.Reserve(t.Context(), s, "/name", "a", time.Hour)
		must(t, err)
		must(t, w.Close())
		for e := range w.Events() {
			events = append(events, e)
		}
		if len(events) != 3 || events[1].Zxid != events[2].Zxid {
			t.Errorf("%v", events)
		}
		wantErr(t, old.Renew(t.Context()), embed.ErrNotHeld)
		wantErr(t, old.Err(), embed.ErrNotHeld)
		must(t, old.Release())
		<-time.After(50 * time.Minute)
		must(t, r.Err())
		_, ok, err := s.Exists(t.Context(), "/name")
		if !ok || err != nil {
			t.Errorf("it is gone: %v", err)
		}
		must(t, s.Delete(t.Context(), "/name", embed.AnyVersion))
		must(t, r.Release())
		for _, c := range []struct {
			path, holder string
			time         time.Duration
			want         error
		}{
			{"/x", "", time.Hour, embed.ErrInvalidArgument},
			{"/x", "a", 0, embed.ErrInvalidTTL},
			{"/x", "a", -time.Hour, embed.ErrInvalidTTL},
			{"/x", "a", time.Nanosecond, embed.ErrInvalidTTL},
			{"", "a", time.Hour, embed.ErrInvalidPath},
			{"/x/", "a", time.Hour, embed.ErrInvalidPath},
		} {
			_, err := job.Reserve(t.Context(), s, c.path, c.holder, c.time)
			wantErr(t, err, c.want)
		}
		for _, root := range []string{"", "/tenant"} { // no session can delete its root
			s := ens.Session(1, embed.SessionOptions{Root: root})
			_, err := job.Reserve(t.Context(), s, "/", "a", time.Hour)
			wantErr(t, err, embed.ErrInvalidPath)
		}
	})
	var zero job.Reservation
	wantErr(t, zero.Err(), embed.ErrNotHeld)
	wantErr(t, zero.Renew(t.Context()), embed.ErrNotHeld)
	must(t, zero.Release())
	if zero.Token() != (lock.Token{}) {
		t.Error("the zero Reservation has a token")
	}
}

// What is there to stay, or belongs to a session, is no reservation, whatever it says.
func TestReserve_NeverReplacesWhatIsThereToStay(t *testing.T) {
	leveled(t, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		for path, mode := range map[string]embed.CreateMode{"/kept": embed.Persistent, "/owned": embed.Ephemeral} {
			_, err := s.Create(t.Context(), path, []byte("me"), mode)
			must(t, err)
			before, _, err := s.Exists(t.Context(), path)
			must(t, err)
			_, err = job.Reserve(t.Context(), s, path, "me", time.Hour)
			wantErr(t, err, job.ErrReserved)
			if now, there, err := s.Exists(t.Context(), path); now != before {
				t.Errorf("%s: %v %+v, was %+v: %v", path, there, now, before, err)
			}
		}
	})
}

// Many reserve, renew and release a name at once, while members are killed and cut off. No two have
// it at a time, and the tokens grow.
func TestReserve_NeverTwo(t *testing.T) {
	leveled(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var last *job.Reservation
		holder, taken := 0, 0
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					<-time.After(time.Second)
					s, err := ens.Opener(embed.MemberID(i%2+1)).NewSession(ctx, embed.SessionOptions{})
					if err != nil {
						continue
					}
					for s.Err() == nil && ctx.Err() == nil {
						r, err := job.Reserve(ctx, s, "/name", fmt.Sprint(i), 30*time.Second)
						if err != nil {
							<-time.After(time.Second)
							continue
						}
						mu.Lock()
						if last != nil && (holder != i && last.Err() == nil && r.Err() == nil ||
							last.Token().Compare(r.Token()) >= 0) {
							t.Errorf("%v beside %v", r.Token(), last.Token())
						}
						last, holder = r, i
						taken++
						mu.Unlock()
						for range 3 {
							<-time.After(10 * time.Second)
							_ = r.Renew(ctx)
						}
						if round++; round%2 == 0 {
							_ = r.Release()
						}
						<-time.After(time.Second)
					}
					_ = s.Close()
				}
			})
		}
		for i := range 6 {
			<-time.After(2 * time.Minute)
			if id := embed.MemberID(i%2 + 1); i%3 == 0 {
				ens.PowerCut(3)
				ens.Restart(3)
			} else {
				ens.Isolate(id)
				<-time.After(2 * time.Minute)
				ens.HealAll()
			}
		}
		cancel()
		wg.Wait()
		if taken < 10 {
			t.Errorf("it was taken %d times", taken)
		}
		t.Logf("taken %d times", taken)
	})
}

// Beyond its members' patience there is no answer, and an unknown outcome is told.
func TestReserve_WithoutAQuorum(t *testing.T) {
	leveled(t, 3, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		r, err := job.Reserve(t.Context(), s, "/name", "a", time.Hour)
		must(t, err)
		ens.Isolate(1)
		if err := r.Renew(t.Context()); !errors.Is(err, embed.ErrUnavailable) &&
			!errors.Is(err, embed.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
		must(t, r.Err())
		ens.HealAll()
		s = ens.Session(2, embed.SessionOptions{})
		again, err := job.Reserve(t.Context(), s, "/name", "a", time.Hour)
		must(t, err)
		must(t, again.Err())
	})
}
