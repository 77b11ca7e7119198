package keeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
)

// A tick that comes late does not count: what has arrived meanwhile is read first. On a machine that
// is late all the time, every second tick counts. Otherwise a client that has gone would keep its
// session for ever.
func TestLateTicksCountEveryOtherTime(t *testing.T) {
	for pace, times := range map[time.Duration]int{1: 1, 2: 2, 5: 2} {
		t.Run(fmt.Sprint(pace), func(t *testing.T) {
			var now time.Duration
			k, all := newRemotes(clock.Clock{Boot: func() time.Duration { return now }, Wall: func() time.Time { return time.Unix(0, int64(now)) }}, 1)
			timeout := int(rigTimeout / k.tick)
			n := 0
			for ; all[0].Err() == nil && n <= 3*timeout; n++ {
				now += pace * k.tick
				k.Proved(now, k.clock.Offset())
				k.countSilence()
			}
			if least, most := times*timeout, times*(timeout+2); n < least || n > most {
				t.Errorf("the session of a silent client ended after %d ticks, want %d to %d", n, least, most)
			}
		})
	}
}
