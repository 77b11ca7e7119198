package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Glance is never behind Boot, except by as much as the wall clock was set back. Between two looks,
// time passes, the machine sleeps, the process stops, and the wall clock is set. (The system adds a
// sleep to both clocks at once. All clocks are read again before anybody can set one.)
func TestGlanceIsNeverEarly(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var boot, mono, wall time.Duration = 1 << 40, 1 << 30, 1 << 60
		pass := func(n time.Duration) { boot, mono, wall = boot+n, mono+n, wall+n }
		some := func() time.Duration {
			if r.IntN(3) > 0 {
				return 0
			}
			return time.Duration(r.Int64N(int64(time.Minute)))
		}
		c := Clock{Boot: func() time.Duration { return boot }, Wall: func() time.Time { return time.Unix(0, int64(wall)) },
			Quick: func() (time.Duration, time.Duration) { pass(some()); return wall, mono }}
		if _, _, ok := c.Glance(Anchor{}); ok {
			t.Fatal("Glance returned true without an anchor")
		}
		now := boot
		a := c.Mark(now, c.Offset())
		back := time.Duration(0)
		for range 5 {
			pass(some())
			slept := some()
			boot, wall = boot+slept, wall+slept
			switch set := some(); r.IntN(3) {
			case 0:
				wall += set
			case 1:
				wall -= set
				back += set
			}
			said, _, _ := c.Glance(a)
			if early := boot - said; early > back {
				t.Fatalf("seed %d: Glance is %v behind, but the wall clock was set back by only %v", seed, early, back)
			}
		}
	}
}
