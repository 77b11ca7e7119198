package keeper

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Every session and claim is asked for its state all the time, also without a quorum. So the cost
// of an answer must not grow with the number of sessions.
func BenchmarkQuestion(b *testing.B) {
	for _, state := range []session.State{session.Connected, session.Suspended} {
		for _, sessions := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("state=%v/sessions=%d", state, sessions), func(b *testing.B) {
				var now time.Duration
				clock := clock.Clock{Boot: func() time.Duration { return now }, Wall: func() time.Time { return time.Unix(0, int64(now)) }}
				k := newRigOf(clock, 1).keeper
				var s *Session
				for i := range sessions {
					s = newSession(k, rigTimeout+time.Duration(i%3)*rigTimeout, nil, nil)
					k.add(s, tree.SessionID(i+1), 0, clock.Offset())
				}
				if state == session.Suspended {
					now = rigTimeout - rigTimeout/10
				}
				b.ReportAllocs()
				for b.Loop() {
					s.State()
				}
			})
		}
	}
}

// What a session needs only sometimes is created on first use, so an idle session is small.
func TestIdleSessionIsSmall(t *testing.T) {
	const sessions, most = 100_000, 400
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	k := newRigOf(enginetest.NewClock().Clock(), 1).keeper
	before := heap()
	for i := range sessions {
		k.add(newSession(k, rigTimeout, nil, nil), tree.SessionID(i+1), 0, k.clock.Offset())
	}
	size := float64(heap()-before) / sessions
	t.Logf("%.0f bytes a session", size)
	if size > most {
		t.Errorf("%.0f bytes a session, want at most %d", size, most)
	}
	runtime.KeepAlive(k)
}
