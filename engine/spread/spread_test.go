package spread

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/replication"
)

// A shareholder is member 1, which looks at a share once a second. The first pause is 10 s.
type shareholder struct {
	share
	now    time.Time
	leader replication.MemberID
	times  int
}

const testPause = 10 * time.Second

func newShareholder(leader replication.MemberID) *shareholder {
	return &shareholder{share: share{pause: testPause}, now: time.Unix(1000, 0), leader: leader}
}

// pass lets time pass. If given is set, the member gets the leadership when it asks.
func (h *shareholder) pass(d time.Duration, given bool) {
	for end := h.now.Add(d); h.now.Before(end); h.now = h.now.Add(time.Second) {
		if h.due(h.leader, 1, testPause, h.now) {
			h.asked(testPause, h.now)
			h.times++
			if given {
				h.leader = 1
			}
		}
	}
}

// asks checks how many times the member has asked since the last check.
func (h *shareholder) asks(t *testing.T, what string, least, most int) {
	t.Helper()
	if h.times < least || h.times > most {
		t.Errorf("%s: it asks %d times, want %d to %d", what, h.times, least, most)
	}
	h.times = 0
}

// A member asks for its share when another member has led it for a while. Then it keeps the share.
func TestShare_IsAskedForOnce(t *testing.T) {
	h := newShareholder(2)
	h.pass(testPause, true)
	h.asks(t, "before another has settled", 0, 0)
	h.pass(time.Hour, true)
	h.asks(t, "in an hour", 1, 1)
	h.leader = 2
	h.pass(2*testPause, true)
	h.asks(t, "after it has lost what it kept for an hour", 1, 1)
}

// A member that has to catch up asks for nothing meanwhile, and asks no later because of that.
func TestShare_WaitsNoLongerForCatchingUp(t *testing.T) {
	h := newShareholder(2)
	for end := h.now.Add(10 * time.Minute); h.now.Before(end); h.now = h.now.Add(time.Second) {
		h.due(h.leader, 1, testPause, h.now) // it would ask
	}
	h.pass(testPause, true)
	h.asks(t, "once it has caught up", 1, 1)
}

// If a member does not know the leader, or leaderships change, it asks for nothing until they are
// stable.
func TestShare_WaitsForRest(t *testing.T) {
	h := newShareholder(0)
	h.pass(time.Hour, true)
	h.asks(t, "without a leader", 0, 0)
	for range 100 {
		h.leader = 2
		h.pass(testPause/2, true)
		h.leader = 0
		h.pass(testPause/2, true)
	}
	h.asks(t, "while there is a leader only now and then", 0, 0)
}

// A member that cannot get its share, or cannot keep it for long, asks less and less often. So a
// member with a slow disk does not pull the leadership back and forth.
func TestShare_IsAskedForMoreSeldom(t *testing.T) {
	h := newShareholder(2)
	h.pass(10*time.Hour, false)
	h.asks(t, "in ten hours in which it gets nothing", 60, 70)
	for _, kept := range []time.Duration{0, 5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute} {
		h := newShareholder(2)
		for start := h.now; h.now.Sub(start) < 10*time.Hour; {
			if h.pass(time.Second, true); h.leader == 1 {
				h.pass(kept, true)
				h.leader = 2
			}
		}
		h.asks(t, "in ten hours in which it keeps it for "+kept.String(), 30, 70)
	}
}
