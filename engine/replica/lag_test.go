package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
)

// A6.2: a leader steps aside when it has not applied an entry one step after it was committed.
// Being busy is no reason. It steps aside less and less often while that changes nothing.
func TestLag(t *testing.T) {
	var committed, applied uint64
	l := &lag{committed: func() uint64 { return committed }, applied: func() uint64 { return applied }, patience: time.Second}
	now := time.Now()
	want := func(after time.Duration, c, a uint64, behind bool) {
		t.Helper()
		now = now.Add(after)
		committed, applied = c, a
		if got := l.behind(now); got != behind {
			t.Errorf("behind at %d of %d: %v, want %v", a, c, got, behind)
		}
	}
	want(0, 5, 0, false) // it is not known yet how long 5 has been committed
	want(time.Second, 6, 4, false)
	want(time.Millisecond, 6, 4, true)
	want(time.Second, 6, 4, false)
	want(time.Second+time.Millisecond, 6, 4, true)
	want(time.Millisecond, 9, 5, false)
	for i := range uint64(100) { // always a hundred behind, but no entry for long
		want(900*time.Millisecond, 109+100*i, 9+100*i, false)
	}
	want(0, 20_000, 20_000, false)
	want(time.Hour, 20_000, 20_000, false)
	want(0, 20_001, 20_000, false)
	want(0, 20_001, 20_000, false)
	for range 120 { // two minutes without lag
		want(time.Second, 20_001, 20_001, false)
	}

	// Every replica is a step and a half late, and none stands still. Each leader steps aside, and
	// gets the leadership back.
	transfers, last := 0, time.Duration(0)
	for passed := time.Duration(0); passed < 10*time.Minute; passed += 500 * time.Millisecond {
		now = now.Add(500 * time.Millisecond)
		committed++
		if passed%(1500*time.Millisecond) == 0 {
			applied = committed - 2
		}
		if l.behind(now) {
			transfers, last = transfers+1, passed
		}
	}
	if transfers == 0 || transfers > 20 {
		t.Errorf("the leadership was given up %d times in ten minutes, the last time after %v", transfers, last)
	}

	// The replica stands still.
	committed = applied + 10
	seldom := time.Duration(0)
	transfers = 0
	for ago := time.Duration(0); ago < time.Hour; ago += time.Second {
		now = now.Add(time.Second)
		if seldom += time.Second; l.behind(now) {
			transfers, seldom = transfers+1, 0
		}
		if seldom > 2*lagPatienceMax {
			t.Fatal("the leader no longer tries to step aside")
		}
	}
	if transfers > 70 { // once a minute, and a few times on the way there
		t.Errorf("the leadership was given up %d times in an hour by a replica that stood still", transfers)
	}
}

// A step is longer than a minute if the tick is some seconds. A leader that steps aside for such a
// step waits no shorter the next time.
func TestLagOfLongSteps(t *testing.T) {
	l := &lag{committed: func() uint64 { return 1 }, applied: func() uint64 { return 0 }, patience: 3 * lagPatienceMax}
	now := time.Now()
	l.behind(now)
	for range 3 {
		if now = now.Add(l.patience); l.behind(now) {
			t.Error("the leader steps aside within a step")
		}
		if now = now.Add(time.Second); !l.behind(now) {
			t.Error("the leader stays after a step")
		}
	}
}

// A replica whose image is not up to date does not lag.
func TestLag_DoesNotWaitForTheImage(t *testing.T) {
	r := newRig(t)
	r.apply(command.EncodeExpire(1, 1))
	if l := r.expirer.lag; l.applied() != 1 || r.image.Applied() != 0 {
		t.Errorf("the lag sees entry %d applied, the replica is at %d, the image at %d", l.applied(), r.Index(), r.image.Applied())
	}
}

// Each transfer goes to another member: the one before may be down.
func TestLag_TransfersInTurn(t *testing.T) {
	var got []int
	l := &lag{transfer: func(nth int) { got = append(got, nth) }}
	for range 3 {
		l.transferLeadership()
	}
	if want := []int{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("transfers %v, want %v", got, want)
	}
}
