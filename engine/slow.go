package engine

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
)

// ShortestElection is how long members are without a leader at least before they stand for
// election.
func ShortestElection(tick time.Duration) time.Duration {
	return replication.DefaultElectionTicks * tick
}

// slowPause is the first pause before the log tells again that something is slow. It doubles, up to
// an hour. The figures in a line are those of a minute, so more lines would say the same again.
const slowPause = time.Minute

// slowStep is how often the figures of the last minute move on.
const slowStep = time.Minute / meter.Steps

// slowness warns of what takes long enough to cost a leader its leadership. Histograms tell it of
// what took long, so whatever is fast pays for one atomic load.
//
// A busy disk makes all that a node does slow, on each shard. So the lines of one kind share a pace,
// except those about other members. While the disk of this node is slow, it is the cause of slow
// applying and slow commits, and the log names only the disk.
type slowness struct {
	engine *Engine
	limit  time.Duration // zero: nothing is watched
	work   work

	mu struct {
		rank.Mutex[rank.Slow]
		timed []*timed
		paces map[slowKind]*pace.Pace
		clock pace.Pace
	}
}

// work is what may slow a node down while it runs.
type work struct{ flushes, compactions, backups, elections meter.Work }

// A slowKind has one pace.
type slowKind struct {
	kind   Kind
	member MemberID // only of SlowPeer
}

// A timed is one histogram that is watched. The lock of slowness guards it.
type timed struct {
	seen *meter.Histogram
	what Occurrence // without At and Took

	minute  meter.Minute
	worst   time.Duration // the longest of about the last minute
	worstAt time.Time
	lastAt  time.Time // of the newest; zero: nothing was slow
}

// A slowCall is one call that took long.
type slowCall struct {
	took, p50, p99 time.Duration // the quantiles are those of about the last minute
	also           string        // what else ran
	held           int           // how many such calls of any shard or file were not told of
}

// watch has tell called, at a limited rate, for what a histogram sees that takes long.
func (s *slowness) watch(t *timed, tell func(slowCall)) {
	if s.limit == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.timed = append(s.mu.timed, t)
	t.seen.OnSlow(s.limit, func(took time.Duration) {
		if c, due := s.note(t, took, time.Now()); due {
			tell(c)
		}
	})
}

// note records that something took long. due reports whether it may be told.
func (s *slowness) note(t *timed, took time.Duration, now time.Time) (c slowCall, due bool) {
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
	s.engine.recent.note(what)
	lately := t.minute.Since(t.seen.Read())
	c = slowCall{took: round(took), p50: round(lately.Quantile(0.5)), p99: round(lately.Quantile(0.99)), held: held}
	c.also = strings.Join(s.ranWithin(took), ", ")
	return c, true
}

func (s *slowness) paceLocked(of slowKind) *pace.Pace {
	if s.mu.paces == nil {
		s.mu.paces = make(map[slowKind]*pace.Pace)
	}
	if s.mu.paces[of] == nil {
		s.mu.paces[of] = &pace.Pace{First: slowPause}
	}
	return s.mu.paces[of]
}

// round leaves three digits or more.
func round(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Millisecond, 10 * time.Microsecond, 10 * time.Nanosecond} {
		if d.Abs() > 100*unit {
			return d.Round(unit)
		}
	}
	return d
}

// ranWithin names the work of the node that ran within the last d.
func (s *slowness) ranWithin(d time.Duration) (names []string) {
	e := s.engine
	var installs, streams bool
	host := e.host.Load()
	for _, r := range e.shards {
		installs = installs || r.Meters.Installing.RanWithin(d)
		streams = streams || host != nil && host.Meters(r.Shard).Streaming.RanWithin(d)
	}
	for _, w := range []struct {
		name string
		ran  bool
	}{
		{"an election", s.work.elections.RanWithin(d)},
		{"a state was installed", installs},
		{"a state was sent to a member", streams},
		{"a backup", s.work.backups.RanWithin(d)},
		{"a flush of the image", s.work.flushes.RanWithin(d)},
		{"a compaction of the image", s.work.compactions.RanWithin(d)},
	} {
		if w.ran {
			names = append(names, w.name)
		}
	}
	return names
}

// step moves the figures of the last minute on. It forgets the members that are gone.
func (s *slowness) step() {
	peers := make(map[uint64]bool)
	for _, p := range s.engine.transport.Peers() {
		peers[p.Member] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.mu.timed[:0]
	for _, t := range s.mu.timed {
		if t.what.Kind != SlowPeer || peers[uint64(t.what.Member)] {
			t.minute.Step(t.seen.Read())
			kept = append(kept, t)
		}
	}
	clear(s.mu.timed[len(kept):])
	maps.DeleteFunc(s.mu.paces, func(k slowKind, _ *pace.Pace) bool { return k.kind == SlowPeer && !peers[uint64(k.member)] })
	s.mu.timed = kept
}

// disk says in words that the disk was slow within the last minute. It is empty if it was not.
func (s *slowness) disk(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	worst := s.worstFsyncLocked(now)
	if worst == 0 {
		return ""
	}
	return fmt.Sprintf("the disk is slow: an fsync has taken %v, and an election begins after %v", round(worst), ShortestElection(s.engine.cfg.Tick))
}

// worstFsyncLocked returns the longest fsync of about the last minute that was slow, or zero.
func (s *slowness) worstFsyncLocked(now time.Time) (worst time.Duration) {
	for _, t := range s.mu.timed {
		if t.what.Kind == SlowFsync && !t.lastAt.IsZero() && now.Sub(t.lastAt) <= time.Minute {
			worst = max(worst, t.worst)
		}
	}
	return worst
}

// watchSlow watches what the node times by itself. The transport tells of its peers, and the keeper
// of the clocks.
func (e *Engine) watchSlow() {
	election := ShortestElection(e.cfg.Tick)
	for _, f := range []struct {
		name string
		seen *meter.Histogram
	}{{"log", &e.disk.Meters().Log}, {"other", &e.disk.Meters().Other}} {
		e.slow.watch(&timed{seen: f.seen, what: Occurrence{Kind: SlowFsync}}, func(c slowCall) {
			e.log.Warn("the disk is slow: see what else uses it",
				"file", f.name, "took", c.took, "p50", c.p50, "p99", c.p99, "election", election, "also", c.also, "repeated", c.held)
		})
	}
	for _, r := range e.shards {
		e.slow.watch(&timed{seen: &r.Meters.Applies, what: Occurrence{Kind: SlowApply, Shard: r.Shard}}, func(c slowCall) {
			e.log.Warn("applying is slow: look at the processor, the memory and the disk",
				"shard", r.Shard, "took", c.took, "p50", c.p50, "p99", c.p99, "election", election, "also", c.also, "repeated", c.held)
		})
		e.slow.watch(&timed{seen: &r.Outbox.Meters.Commits, what: Occurrence{Kind: SlowCommit, Shard: r.Shard}}, func(c slowCall) {
			e.log.Warn("commits are slow: look at the disks of the members and the network",
				"shard", r.Shard, "took", c.took, "p50", c.p50, "p99", c.p99, "election", election, "also", c.also, "repeated", c.held)
		})
	}
}

// watchPeer watches how long a member takes to answer. The transport calls it with its lock held.
func (e *Engine) watchPeer(peer uint64, m *transport.Meters) {
	election := ShortestElection(e.cfg.Tick)
	e.slow.watch(&timed{seen: &m.RoundTrips, what: Occurrence{Kind: SlowPeer, Member: MemberID(peer)}}, func(c slowCall) {
		e.log.Warn("a member answers slowly: look at its log and the network",
			"peer", peer, "took", c.took, "p50", c.p50, "p99", c.p99, "election", election, "also", c.also, "repeated", c.held)
	})
}

// clockJumpMin is the least jump of a clock that is told of. The two looks at the clocks that show
// it may be that far apart on a busy machine.
const clockJumpMin = 100 * time.Millisecond

// clockJump returns the jump from which the keeper tells of one; zero: it tells of none.
func (s *slowness) clockJump() time.Duration {
	if s.limit == 0 {
		return 0
	}
	return max(s.limit, clockJumpMin)
}

// jumped is called by the keeper, with its lock held, when the wall clock has jumped.
func (e *Engine) jumped(by time.Duration) {
	e.slow.mu.Lock()
	held, due := e.slow.mu.clock.Due(time.Now())
	e.slow.mu.Unlock()
	if due {
		e.recent.note(Occurrence{Kind: ClockJumped, Took: by})
		e.log.Warn("the clock jumped: see what sets it", "by", by.Round(time.Millisecond), "repeated", held)
	}
}
