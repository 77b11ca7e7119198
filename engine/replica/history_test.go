package replica

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/tree"
)

// Zxids of a new history are larger than all that were given before.
func TestAbove(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Unix(1_700_000_000, 0)
	for _, zxid := range []tree.Zxid{0, 5, 1<<32 - 1, 1 << 40, ZxidAt(now) - 1, ZxidAt(now), ZxidAt(now) + 50*60*second, ZxidAt(now) + 48*60*60*second, 1 << 52, 1 << 60, math.MaxInt64 / 2} {
		last := zxid
		lead := zxid - min(zxid, ZxidAt(now))
		for _, later := range []time.Duration{0, 1, 10 * time.Second, day, 100 * day} {
			to := Above(zxid, lead, now.Add(later))
			if to <= last && later > 1 || to <= zxid || to > math.MaxInt64 {
				t.Errorf("after %v %#x follows %#x", later, to, last)
			}
			last = to + tree.Zxid(later.Microseconds())/2 // what is given until the next one begins
		}
		for _, wrong := range []time.Time{{}, time.Unix(math.MaxInt64/second, 0), time.Unix(-5, 0), time.Unix(0, 0)} {
			if to := Above(zxid, lead, wrong); to <= zxid || to > math.MaxInt64 {
				t.Errorf("%#x follows %#x with a clock at %v", to, zxid, wrong)
			}
		}
	}
}

// What is no zxid ends in some history, too.
func TestAbove_TheLargestNumber(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, newest := range []tree.Zxid{1<<62 + 1<<61, 1<<63 - 1<<20} {
		if to := Above(newest, newest, now); to <= newest || to > math.MaxInt64 {
			t.Errorf("%#x follows %#x", to, newest)
		}
	}
	for _, most := range []tree.Zxid{math.MaxInt64, math.MaxUint64} {
		for _, to := range []tree.Zxid{Above(most, 0, now), Above(0, most, now), Above(most, most, now)} {
			if to < ZxidAt(now) || to > math.MaxInt64 {
				t.Errorf("%#x follows %#x", to, most)
			}
		}
	}
}

// M96: zxids are ahead of the clock, as one was wrong, and nobody has noticed. Of two histories that
// follow soon from one past, the later one has the larger zxids.
func TestAbove_AfterAClockThatWasFast(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	newest := ZxidAt(now.Add(50 * time.Minute))
	first := Above(newest, 0, now)
	if again := Above(newest, 0, now.Add(time.Minute)); again < first+60*second {
		t.Errorf("a minute later %#x follows %#x", again, first)
	}
}

// M96, M111: zxids are ahead of the clock, as one was wrong. Whatever follows from whatever, and however
// much of it is known, the later history has the larger zxids, without any jump.
func TestAbove_TheLeadStays(t *testing.T) {
	for _, fast := range []time.Duration{0, time.Second, 50 * time.Minute, 12 * time.Hour, 48 * time.Hour, 9000 * time.Hour} {
		now := time.Unix(1_700_000_000, 0)
		type past struct{ newest, lead tree.Zxid }
		pasts := []past{{ZxidAt(now.Add(fast)), tree.Zxid(fast.Microseconds())}}
		last := pasts[0].newest
		for i := range 30 {
			now = now.Add(3 * time.Second)
			of := pasts[i%len(pasts)]
			base := Above(of.newest, of.lead, now)
			if most := ZxidAt(now.Add(fast + 2*time.Second)); base <= last || base > most {
				t.Errorf("%v fast: in history %d %#x follows %#x", fast, i, base, last)
			}
			lead := base - ZxidAt(now)
			pasts = append(pasts, past{base, lead}) // one who knows only the beginning
			now = now.Add(time.Second)
			last = base + second/2
			pasts = append(pasts, past{last, lead})
		}
	}
}

// M111: a shard keeps the most that its zxids were ahead of the clock of anybody who proposed a command.
func TestLead(t *testing.T) {
	r := seedRig(t)
	beat := func(seq uint64, wall int64) []byte {
		return command.EncodeBatch(enginetest.Member, enginetest.Origin().Start, seq, wall, 0, 0, slices.Values([][]byte(nil)))
	}
	wants := func(why string, want tree.Zxid) {
		t.Helper()
		if _, lead := r.Given(); lead != want {
			t.Errorf("%s: the lead is %d, want %d", why, lead, want)
		}
	}
	begin := time.Unix(1_700_000_000, 0)
	base := Above(0, 0, begin)
	r.apply(command.EncodeLoad(command.Load{Source: source, Zxid: base}, begin.UnixMilli()))
	lead := base - ZxidAt(begin)
	wants("a history begins", lead)
	r.apply(beat(1, begin.Add(time.Minute).UnixMilli()), beat(2, 0), beat(3, -1))
	wants("the clock runs, and is not known", lead)
	r.apply(beat(4, begin.Add(-time.Hour).UnixMilli()), beat(5, begin.UnixMilli()))
	wants("a clock was fast", lead+3600*second)
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	l, err := loadImage(r.image, r.schemes, r.levelMax())
	if err != nil || l.state.Lead != r.mu.Lead {
		t.Errorf("the image has the lead %d: %v", l.state.Lead, err)
	}
}
