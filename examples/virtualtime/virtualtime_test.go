package virtualtime

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/job"
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
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		held, err := first.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the lease does not run out while its holder lives
		if err := held.Err(); err != nil {
			t.Fatal(err)
		}

		ensemble.Kill(1)
		killed := time.Now()
		next, err := second.Lock(ctx)
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

// A night is one whose report a member begins or ends.
type night struct {
	member  embed.MemberID
	date    string
	attempt int
}

// begin starts Nightly on all members. It sends what they begin and end. An error of Nightly fails
// the test, unless over says that it is to be expected from a member.
func begin(t *testing.T, ensemble *embedtest.Ensemble, over func(embed.MemberID) bool) (begun, done chan night) {
	ctx := t.Context()
	begun, done = make(chan night, 100), make(chan night, 100) // nobody waits for the test
	for _, id := range ensemble.Members() {
		node := ensemble.Node(id)
		go func() {
			err := Nightly(ctx, node, func(ctx context.Context, tick *job.Tick) error {
				n := night{id, tick.Time.Format(time.DateOnly), tick.Attempt}
				begun <- n
				select {
				case <-time.After(20 * time.Minute): // the work
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				done <- n
				return nil
			})
			if ctx.Err() == nil && !over(id) {
				t.Errorf("member %d: %v", id, err)
			}
		}()
	}
	return begun, done
}

// next waits for a night, not for ever: a day is longer than every wait of these tests.
func next(t *testing.T, what string, from <-chan night) night {
	t.Helper()
	select {
	case n := <-from:
		return n
	case <-time.After(25 * time.Hour):
		t.Fatalf("no report was %s", what)
		return night{}
	}
}

// none fails the test if a night comes within half an hour.
func none(t *testing.T, from <-chan night) {
	t.Helper()
	select {
	case again := <-from:
		t.Errorf("%v began a report that was written", again)
	case <-time.After(30 * time.Minute):
	}
}

// A job at midnight that three processes run, of which the one that does it is killed.
func TestNightly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(23*time.Hour + 30*time.Minute) // a bubble's clock starts at midnight; the members start at 23:30
		ensemble := embedtest.New(t, 3, slow)
		var killed atomic.Uint64
		begun, done := begin(t, ensemble, func(id embed.MemberID) bool { return uint64(id) == killed.Load() })
		writer := next(t, "begun", begun)
		if now := time.Now().UTC(); now.Hour() != 0 || writer.date != now.Format(time.DateOnly) || writer.attempt != 1 {
			t.Errorf("the report of %v was begun at %v", writer, now)
		}
		killed.Store(uint64(writer.member))
		ensemble.Kill(writer.member)
		another := next(t, "begun again", begun)
		if another.member == writer.member || another.date != writer.date || another.attempt != 2 {
			t.Errorf("%v was killed, %v followed", writer, another)
		}
		if end := next(t, "ended", done); end != another {
			t.Errorf("%v began the report, %v ended it", another, end)
		}
		none(t, begun)
	})
}

// Before midnight each member is cut off for so long that its session expires. Nightly goes on.
// Then the writer is cut off too, and another member writes the report again.
func TestNightly_LostSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(23 * time.Hour)
		ensemble := embedtest.New(t, 3, slow)
		begun, done := begin(t, ensemble, func(embed.MemberID) bool { return false })
		for _, id := range ensemble.Members() {
			ensemble.Isolate(id)
			time.Sleep(10 * time.Minute)
			ensemble.HealAll()
			time.Sleep(5 * time.Minute)
		}
		writer := next(t, "begun", begun)
		if now := time.Now().UTC(); now.Hour() != 0 || writer.date != now.Format(time.DateOnly) || writer.attempt != 1 {
			t.Errorf("the report of %v was begun at %v", writer, now)
		}
		ensemble.Isolate(writer.member)
		another := next(t, "begun again", begun)
		if another.member == writer.member || another.date != writer.date || another.attempt != 2 {
			t.Errorf("%v was cut off, %v followed", writer, another)
		}
		if end := next(t, "ended", done); end != another {
			t.Errorf("%v began the report, %v ended it", another, end)
		}
		ensemble.HealAll()
		none(t, begun)
	})
}

// At midnight nobody leads the ensemble: the leader was killed a moment before.
func TestNightly_WithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(23*time.Hour + 30*time.Minute)
		ensemble := embedtest.New(t, 3, slow)
		leader := ensemble.Leader()
		begun, done := begin(t, ensemble, func(id embed.MemberID) bool { return id == leader })
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour - time.Second)))
		ensemble.Kill(leader)
		writer := next(t, "begun", begun)
		if end := next(t, "ended", done); end != writer || writer.member == leader {
			t.Errorf("%v began the report, %v ended it, member %d was killed", writer, end, leader)
		}
	})
}
