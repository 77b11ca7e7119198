package virtualtime

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// slow lets members beat every second instead of every 10 ms, so that hours pass sooner. The least
// session timeout is then 72 s.
var slow = embedtest.Options{Config: func(c *embed.Config) {
	c.Tick = time.Second
	c.MaxSessionTimeout = time.Hour
}}

// A lease of 30 minutes, whose holder dies: nobody else gets it before it has run out.
func TestLease_RunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ensemble := embedtest.New(t, 3, slow)
		halfHour := embed.SessionOptions{Timeout: 30 * time.Minute}
		first := lock.NewMutex(ensemble.Session(1, halfHour), "/lease")
		second := lock.NewMutex(ensemble.Session(2, halfHour), "/lease")
		held, err := first.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the lease does not run out while its holder lives
		if err := held.Err(); err != nil {
			t.Fatal(err)
		}

		ensemble.Kill(1)
		killed := time.Now()
		next, err := second.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The timeout runs from the holder's last sign of life, which is at most five minutes old.
		// If the killed member led the ensemble, it runs from the election after that.
		if waited := time.Since(killed); waited < 25*time.Minute || waited > 35*time.Minute {
			t.Errorf("the second waited for %v", waited)
		}
		if next.Token().Compare(held.Token()) <= 0 {
			t.Errorf("the token is %v after %v", next.Token(), held.Token())
		}
	})
}

// An event is something that a member did for a night's report.
type event struct {
	member embed.MemberID
	night  string
}

// A job has three processes that write a report every midnight.
type job struct {
	t           *testing.T
	ensemble    *embedtest.Ensemble
	begun, done chan event
}

// newJob starts the processes an hour before midnight, which is when the clock of a bubble begins.
func newJob(t *testing.T) job {
	time.Sleep(23 * time.Hour)
	j := job{t, embedtest.New(t, 3, slow), make(chan event), make(chan event)}
	for _, id := range j.ensemble.Members() {
		go Nightly(t.Context(), j.ensemble.Node(id), func(ctx context.Context, night string, _ lock.Token) error {
			j.begun <- event{id, night}
			select {
			case <-time.After(20 * time.Minute): // the work
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			j.done <- event{id, night}
			return nil
		})
	}
	return j
}

// next waits for an event. In virtual time a wait without a limit would go on for ever.
func (j job) next(events <-chan event, what string) event {
	j.t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(2 * time.Hour):
		j.t.Fatalf("no report was %s", what)
	}
	return event{}
}

// A job at midnight that three processes run, of which the one that does it is killed.
func TestNightly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t)
		writer := j.next(j.begun, "begun")
		if now := time.Now().UTC(); now.Hour() != 0 || writer.night != now.Format(time.DateOnly) {
			t.Errorf("the report of %s was begun at %v", writer.night, now)
		}
		j.ensemble.Kill(writer.member)
		another := j.next(j.begun, "begun again")
		if another.member == writer.member || another.night != writer.night {
			t.Errorf("%v was killed, %v followed", writer, another)
		}
		if end := j.next(j.done, "ended"); end != another {
			t.Errorf("%v began the report, %v ended it", another, end)
		}
		select {
		case again := <-j.begun:
			t.Errorf("%v began a report that was written", again)
		case <-time.After(time.Hour):
		}
	})
}

// At midnight nobody leads the ensemble: the leader was killed a moment before.
func TestNightly_WithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t)
		leader := j.ensemble.Leader()
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour - time.Second)))
		j.ensemble.Kill(leader)
		if begun, ended := j.next(j.begun, "begun"), j.next(j.done, "ended"); begun != ended || begun.member == leader {
			t.Errorf("%v began the report, %v ended it, %d was killed", begun, ended, leader)
		}
	})
}
