package keeper

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/tree"
)

// newRemotes returns a keeper with idle remote sessions.
func newRemotes(clock clock.Clock, sessions int) (k *Keeper, all []*Session) {
	k = newRigOf(clock, 1).keeper
	for i := range sessions {
		s := newSession(k, rigTimeout+time.Duration(i%3)*rigTimeout, new(remote), nil)
		k.add(s, tree.SessionID(i+1), 0, clock.Offset())
		all = append(all, s)
	}
	return k, all
}

// BenchmarkTick measures one tick, which is what counting the silence of clients costs a node. A
// timeout has ticksPerTimeout of them. Each client is heard three times in its timeout.
func BenchmarkTick(b *testing.B) {
	for _, sessions := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			var now time.Duration
			k, all := newRemotes(clock.Clock{Boot: func() time.Duration { return now }, Wall: func() time.Time { return time.Unix(0, int64(now)) }}, sessions)
			pings := int(rigTimeout / k.tick / 3)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				for j := i % pings; j < sessions; j += pings {
					all[j].Heard()
				}
				now += k.tick
				k.Proved(now, k.clock.Offset())
				b.StartTimer()
				k.countSilence()
			}
			if n := len(k.mu.remotes.byID); all[0].remote.class.clock.Load() == 0 || n != sessions {
				b.Fatalf("the clock stands still, or %d sessions are left, want all", n)
			}
		})
	}
}

func BenchmarkHeard(b *testing.B) {
	_, all := newRemotes(enginetest.NewClock().Clock(), 1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			all[0].Heard()
		}
	})
}

func TestIdleRemoteSessionIsSmall(t *testing.T) {
	const sessions, most = 100_000, 450
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	k, _ := newRemotes(enginetest.NewClock().Clock(), sessions)
	size := float64(heap()-before) / sessions
	t.Logf("%.0f bytes a session", size)
	if size > most {
		t.Errorf("%.0f bytes a session, want at most %d", size, most)
	}
	runtime.KeepAlive(k)
}
