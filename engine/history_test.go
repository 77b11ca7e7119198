package engine

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// Zxids of a new history are larger than all that were given before.
func TestAbove(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Unix(1_700_000_000, 0)
	for _, zxid := range []tree.Zxid{0, 5, 1<<32 - 1, 1 << 40, zxidAt(now) - 1, zxidAt(now), zxidAt(now) + 50*60*second, zxidAt(now) + 48*60*60*second, 1 << 52, 1 << 60, math.MaxInt64 / 2} {
		last := zxid
		for _, later := range []time.Duration{0, 1, 10 * time.Second, day, 100 * day} {
			to := above(zxid, now, now.Add(later))
			if to <= last && later > 1 || to <= zxid || to > math.MaxInt64 {
				t.Errorf("after %v %#x follows %#x", later, to, last)
			}
			last = to + tree.Zxid(later.Microseconds())/2 // what is given until the next one begins
		}
		for _, wrong := range []time.Time{{}, time.Unix(math.MaxInt64/second, 0), time.Unix(-5, 0)} {
			if to := above(zxid, now, wrong); to <= zxid || to > math.MaxInt64 {
				t.Errorf("%#x follows %#x with a clock at %v", to, zxid, wrong)
			}
		}
		if to := above(zxid, time.Unix(0, 0), time.Unix(0, 0)); to < zxid+second/2 || to > math.MaxInt64 {
			t.Errorf("%#x follows %#x without a clock", to, zxid)
		}
	}
}

// M29: the first start after a recovery has died, and is repeated much later. Another survivor may have
// given tokens since, up to the clock.
func TestRecoveryBase_FollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := disk.Open(memory.New(), "/")
		if err != nil {
			t.Fatal(err)
		}
		e := &Engine{disk: d, clock: clock.System(), cfg: Config{Dir: "/"}}
		e.identity.now = replication.Identity{Member: 1, Shards: 1, Start: 1, Recovered: true}
		for _, later := range []time.Duration{0, time.Second, time.Hour} {
			<-time.After(later)
			base, err := e.recoveryBase()
			id, _, errRead := replication.ReadIdentity(d, "/")
			if err != nil || errRead != nil || base <= zxidAt(time.Now()) || id.Base != uint64(base) {
				t.Errorf("after %v: %#x, and the file has %#x: %v, %v", later, base, id.Base, err, errRead)
			}
		}
	})
}

// What is no zxid ends in some history, too.
func TestAbove_TheLargestNumber(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, newest := range []tree.Zxid{math.MaxInt64, math.MaxUint64} {
		if to := above(newest, now, now); to < zxidAt(now) || to > math.MaxInt64 {
			t.Errorf("%#x follows %#x", to, newest)
		}
	}
}

// M96: zxids are ahead of the clock, as one was wrong. Whether a backup is restored again, or one of
// what was restored from it, the later history has the larger zxids.
func TestAbove_AfterAClockThatWasFast(t *testing.T) {
	made := time.Unix(1_700_000_000, 0)
	for _, fast := range []time.Duration{0, time.Second, 50 * time.Minute, 12 * time.Hour, 48 * time.Hour, 9000 * time.Hour} {
		newest := zxidAt(made.Add(fast))
		now, last := made, newest
		from, at := newest, made
		for i := range 10 {
			now = now.Add(3 * time.Second)
			base := above(from, at, now)
			if base <= last {
				t.Errorf("%v fast: in history %d %#x follows %#x", fast, i, base, last)
			}
			now = now.Add(time.Second)
			last = base + 1000
			if from, at = newest, made; i%2 == 0 {
				from, at = last, now
			}
		}
	}
}

// M96: a directory does not say when it had its newest zxid. Another survivor is recovered later.
func TestAbove_RecoveredAgain(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	newest := zxidAt(now.Add(50 * time.Minute))
	first := above(newest, now, now)
	if again := above(newest, now.Add(time.Minute), now.Add(time.Minute)); again < first+60*second {
		t.Errorf("a minute later %#x follows %#x", again, first)
	}
}
