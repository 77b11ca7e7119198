package engine

import (
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// The reaper's pace, as ZooKeeper's of the same meaning.
const (
	reapInterval = time.Minute     // znode.container.checkIntervalMs
	reapMax      = 10_000          // znode.container.maxPerMinute: znodes in one round
	reapBatch    = 1_000           // in one log entry, of batchBytesMax bytes at most
	reapOverhead = 32              // bytes of a znode there beside its path, at most
	neverUsedAge = 5 * time.Minute // znode.container.maxNeverUsedIntervalMs
)

// A reaper removes containers that have lost their last child, or never had one, and TTL znodes that nobody has set for as
// long as they may live, while its node leads. It proposes ordinary deletions that name what it saw, so one that comes late,
// twice, or from a former leader removes nothing that was used since.
//
// Ages count on this node's own clock from when it first saw the znode's newest write, and so begin anew with a change of
// leader: the wall clocks of members that wrote may be years apart.
type reaper struct {
	// Immutable after newReaper.
	machine *machine
	raft    replicator
	member  MemberID
	pace    time.Duration
	log     *slog.Logger

	// Owned by loop.
	seen map[string]sighting
}

// A sighting is since when a znode has been as it is.
type sighting struct {
	tree.Seen
	since time.Time
}

func newReaper(m *machine, raft replicator, cfg Config, log *slog.Logger) *reaper {
	pace := reapInterval
	if cfg.Seams.Reap > 0 {
		pace = cfg.Seams.Reap
	}
	return &reaper{machine: m, raft: raft, member: cfg.Member, pace: pace, log: log}
}

// loop ends when either channel is closed.
func (r *reaper) loop(stop, done <-chan struct{}) {
	ticker := time.NewTicker(r.pace)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-done:
			return
		case <-ticker.C:
		}
		r.round(time.Now())
	}
}

// round looks at all mortal znodes once and proposes the removal of those whose time has come.
func (r *reaper) round(now time.Time) {
	if r.raft.Leader(r.machine.shard).Member != r.member {
		r.seen = nil
		return
	}
	due := r.due(now)
	for len(due) > 0 {
		n := portionOf(due)
		if _, err := r.raft.Propose(r.machine.shard, encodeReap(now.UnixMilli(), due[:n])); err != nil {
			r.log.Debug("reap not proposed", "error", err) // the next round proposes it again
			return
		}
		due = due[n:]
	}
}

// portionOf returns how many znodes go into one log entry, one at least.
func portionOf(due []mortal) (n int) {
	for size := 0; n < min(len(due), reapBatch); n++ {
		if size += len(due[n].path) + reapOverhead; size > batchBytesMax && n > 0 {
			break
		}
	}
	return n
}

// due returns the znodes to be removed, at most reapMax, and remembers the others.
func (r *reaper) due(now time.Time) (due []mortal) {
	seen := make(map[string]sighting)
	for _, m := range r.machine.mortals() {
		s, known := r.seen[m.Path]
		// Children that came and went do not make a TTL znode younger, as in ZooKeeper: only writes do.
		if !known || s.Czxid != m.Czxid || s.Mzxid != m.Mzxid {
			s.since = now
		}
		s.Seen = m.Seen
		seen[m.Path] = s
		if len(due) < reapMax && over(m, now.Sub(s.since)) {
			due = append(due, mortal{path: m.Path, seen: m.Seen})
		}
	}
	r.seen = seen
	return due
}

// over reports whether a znode's time has come.
func over(m tree.Mortal, age time.Duration) bool {
	switch {
	case m.Busy:
		return false
	case m.TTL == 0:
		return m.Used || age > neverUsedAge
	}
	return age > time.Duration(m.TTL)*time.Millisecond
}

// mortals returns every znode whose time may come. No entry is applied meanwhile, so it does nothing else.
func (m *machine) mortals() (all []tree.Mortal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tree.Load().Mortals(func(z tree.Mortal) bool {
		all = append(all, z)
		return true
	})
	return all
}
