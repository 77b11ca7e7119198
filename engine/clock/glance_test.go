package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The quick clock never says that it is earlier than it is, whatever happens between two looks: time that passes, that the machine sleeps
// through, that a stop takes within a look, and wall clocks that are set; but for what the wall clock was set back. (The system adds a sleep to
// both clocks at once, and the next look at all of them comes before anybody sets one.)
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
			t.Fatal("without an anchor")
		}
		now := boot
		a := c.Mark(now, c.Drift())
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
				t.Fatalf("seed %d: %v early, and the wall clock was set back by %v", seed, early, back)
			}
		}
	}
}
