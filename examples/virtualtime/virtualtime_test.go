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

// A job at midnight that three processes run, of which the one that does it is killed.
func TestNightly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(23 * time.Hour) // a bubble's clock starts at midnight; the members start at 23:00
		ensemble := embedtest.New(t, 3, slow)
		type event struct {
			member embed.MemberID
			night  string
		}
		begun, done := make(chan event), make(chan event)
		for _, id := range ensemble.Members() {
			go Nightly(t.Context(), ensemble.Node(id), func(ctx context.Context, night string, _ lock.Token) error {
				begun <- event{id, night}
				select {
				case <-time.After(20 * time.Minute): // the work
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				done <- event{id, night}
				return nil
			})
		}
		writer := <-begun
		if now := time.Now().UTC(); now.Hour() != 0 || writer.night != now.Format(time.DateOnly) {
			t.Errorf("the report of %s was begun at %v", writer.night, now)
		}
		ensemble.Kill(writer.member)
		another := <-begun
		if another.member == writer.member || another.night != writer.night {
			t.Errorf("%v was killed, %v followed", writer, another)
		}
		if end := <-done; end != another {
			t.Errorf("%v began the report, %v ended it", another, end)
		}
		select {
		case again := <-begun:
			t.Errorf("%v began a report that was written", again)
		case <-time.After(time.Hour):
		}
	})
}
