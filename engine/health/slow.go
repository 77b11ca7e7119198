package health

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
)

// slowPause is the first pause before the log tells again that something is slow. It doubles, up to
// an hour. The figures in a line are those of a minute, so more lines would say the same again.
const slowPause = time.Minute

// StepInterval is how often the figures of the last minute move on.
const StepInterval = time.Minute / meter.Steps

// Slowness warns of what takes long enough to cost a leader its leadership. Histograms tell it of
// what took long, so whatever is fast pays for one atomic load.
//
// A busy disk makes all that a node does slow, on each shard. So the lines of one kind share a pace,
// except those about other members. While the disk of this node is slow, it is the cause of slow
// applying and slow commits, and the log names only the disk.
type Slowness struct {
	// Immutable once something is watched.
	Limit    time.Duration // zero: nothing is watched
	Election time.Duration // the shortest
	Recent   *Recent       // gets what is told
	States   func(within time.Duration) (installed, sent bool)

	Work Work

	mu struct {
		rank.Mutex[rank.Slow]
		timed []*timed
		paces map[slowKind]*pace.Pace
		clock pace.Pace
	}
}

// Work is what may slow a node down while it runs.
type Work struct{ Flushes, Compactions, Backups, Elections meter.Work }

// A slowKind has one pace.
type slowKind struct {
	kind   Kind
	member replication.MemberID // only of SlowPeer
}

// A timed is one histogram that is watched. The lock of Slowness guards it.
type timed struct {
	seen *meter.Histogram
	what Occurrence // without At and Took

	minute  meter.Minute
	worst   time.Duration // the longest of about the last minute
	worstAt time.Time
	lastAt  time.Time // of the newest; zero: nothing was slow
}

// A SlowCall is one call that took long.
type SlowCall struct {
	Took, P50, P99 time.Duration // the quantiles are those of about the last minute
	Also           string        // what else ran
	Held           int           // how many such calls of any shard or file were not told of
}

// Watch has tell called, at a limited rate, for what a histogram sees that takes long. what goes to
// Recent then.
func (s *Slowness) Watch(seen *meter.Histogram, what Occurrence, tell func(SlowCall)) {
	if s.Limit == 0 {
		return
	}
	t := &timed{seen: seen, what: what}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.timed = append(s.mu.timed, t)
	t.seen.OnSlow(s.Limit, func(took time.Duration) {
		if c, due := s.note(t, took, time.Now()); due {
			tell(c)
		}
	})
}

// note records that something took long. due reports whether it may be told.
func (s *Slowness) note(t *timed, took time.Duration, now time.Time) (c SlowCall, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took >= t.worst || now.Sub(t.worstAt) > time.Minute {
		t.worst, t.worstAt = took, now
	}
	t.lastAt = now
	kind := t.what.Kind
	if (kind == SlowApply || kind == SlowCommit) && s.worstFsyncLocked(now) > 0 {
		return c, false // the disk is the cause
	}
	held, due := s.paceLocked(slowKind{kind, t.what.Member}).Due(now)
	if !due {
		return c, false
	}
	what := t.what
	what.Took = took
	s.Recent.Note(what)
	lately := t.minute.Since(t.seen.Read())
	c = SlowCall{Took: round(took), P50: round(lately.Quantile(0.5)), P99: round(lately.Quantile(0.99)), Held: held}
	c.Also = strings.Join(s.ranWithin(took), ", ")
	return c, true
}

func (s *Slowness) paceLocked(of slowKind) *pace.Pace {
	if s.mu.paces == nil {
		s.mu.paces = make(map[slowKind]*pace.Pace)
	}
	if s.mu.paces[of] == nil {
		s.mu.paces[of] = &pace.Pace{First: slowPause}
	}
	return s.mu.paces[of]
}

// ranWithin names the work of the node that ran within the last d.
func (s *Slowness) ranWithin(d time.Duration) (names []string) {
	installed, sent := s.States(d)
	for _, w := range []struct {
		name string
		ran  bool
	}{
		{"an election", s.Work.Elections.RanWithin(d)},
		{"a state was installed", installed},
		{"a state was sent to a member", sent},
		{"a backup", s.Work.Backups.RanWithin(d)},
		{"a flush of the image", s.Work.Flushes.RanWithin(d)},
		{"a compaction of the image", s.Work.Compactions.RanWithin(d)},
	} {
		if w.ran {
			names = append(names, w.name)
		}
	}
	return names
}

// Step moves the figures of the last minute on. It forgets all members but these.
func (s *Slowness) Step(peers map[replication.MemberID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.mu.timed[:0]
	for _, t := range s.mu.timed {
		if t.what.Kind != SlowPeer || peers[t.what.Member] {
			t.minute.Step(t.seen.Read())
			kept = append(kept, t)
		}
	}
	clear(s.mu.timed[len(kept):])
	maps.DeleteFunc(s.mu.paces, func(k slowKind, _ *pace.Pace) bool { return k.kind == SlowPeer && !peers[k.member] })
	s.mu.timed = kept
}

// Disk says in words that the disk was slow within the last minute. It is empty if it was not.
func (s *Slowness) Disk(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	worst := s.worstFsyncLocked(now)
	if worst == 0 {
		return ""
	}
	return fmt.Sprintf("the disk is slow: an fsync has taken %v, and an election begins after %v", round(worst), s.Election)
}

// worstFsyncLocked returns the longest fsync of about the last minute that was slow, or zero.
func (s *Slowness) worstFsyncLocked(now time.Time) (worst time.Duration) {
	for _, t := range s.mu.timed {
		if t.what.Kind == SlowFsync && !t.lastAt.IsZero() && now.Sub(t.lastAt) <= time.Minute {
			worst = max(worst, t.worst)
		}
	}
	return worst
}

// clockJumpMin is the least jump of a clock that is told of. The two looks at the clocks that show
// it may be that far apart on a busy machine.
const clockJumpMin = 100 * time.Millisecond

// ClockJump returns the least jump of a clock that is to be told of; zero: none is.
func (s *Slowness) ClockJump() time.Duration {
	if s.Limit == 0 {
		return 0
	}
	return max(s.Limit, clockJumpMin)
}

// Jumped records a jump of the clock, and reports whether it may be told, and how many were not.
func (s *Slowness) Jumped(by time.Duration) (held int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held, due = s.mu.clock.Due(time.Now()); due {
		s.Recent.Note(Occurrence{Kind: ClockJumped, Took: by})
	}
	return held, due
}
