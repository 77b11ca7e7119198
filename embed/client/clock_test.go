package client_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine/enginetest"
)

// Requests of a session that is well rarely read the slow clock. Time that its owner did not see,
// and a wall clock that was set, suspend the session at the next question: no timer has fired.
func TestClocks(t *testing.T) {
	for name, move := range map[string]func(*enginetest.Clock){
		"pause":              func(c *enginetest.Clock) { c.Pause(2 * time.Second) },
		"sleep":              func(c *enginetest.Clock) { c.Sleep(2 * time.Second) },
		"wall clock forward": func(c *enginetest.Clock) { c.Step(time.Second) },
		"wall clock back":    func(c *enginetest.Clock) { c.Step(-time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(w *world) {
				t, clock := w.t, enginetest.NewClock()
				ctx, read := t.Context(), atomic.Int64{}
				k := w.client(func(c *client.Config) {
					c.Inside.Clock = clock.Clock()
					c.Inside.Clock.Boot = func() time.Duration {
						read.Add(1)
						return clock.Boot()
					}
				})
				defer func() { _ = k.Close() }()
				s, err := k.NewSession(ctx, embed.SessionOptions{})
				must(t, err)
				hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
				must(t, err)
				const sets = 100
				before := read.Load()
				for range sets {
					_, err := s.Set(ctx, "/lock", nil, embed.AnyVersion)
					must(t, err)
				}
				if n := read.Load() - before; n > sets {
					t.Errorf("%d requests read the clock %d times", sets, n)
				}
				move(clock)
				if err := hold.Err(); !errors.Is(err, embed.ErrSuspended) {
					t.Errorf("the hold has %v", err)
				}
			})
		})
	}
}
