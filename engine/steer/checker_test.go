package steer

import (
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// A checker judges each step, wish and change of a world by its own arithmetic, and by what the
// world really is. It calls nothing of the package.
type checker struct {
	added, promoted, removed map[uint32]map[id]bool
	silenced                 []time.Time // when voters were dismissed for silence
	admitted                 id
}

func (c *checker) begin(w *world) {
	c.added, c.promoted, c.removed = make(map[uint32]map[id]bool), make(map[uint32]map[id]bool), make(map[uint32]map[id]bool)
	for _, r := range w.shards {
		c.added[r.shard], c.promoted[r.shard], c.removed[r.shard] = make(map[id]bool), make(map[id]bool), make(map[id]bool)
	}

}

// heard returns how many members have answered the leader within two elections.
func (c *checker) heard(w *world, r *raft, of ids) (n int) {
	for _, m := range of {
		if m == r.leader || !r.answered[m].IsZero() && w.now.Sub(r.answered[m]) <= 2*w.rules.Election {
			n++
		}
	}
	return n
}

// isSteady reports whether each leader has had the time to notice all faults.
func (w *world) isSteady() bool { return w.now.Sub(w.fault) > 2*w.rules.Election+2*w.rules.Period }

// after returns the voters after a step.
func after(r *raft, s Step) ids {
	next := slices.DeleteFunc(slices.Clone(r.voters), func(m id) bool { return m == s.Member })
	if s.Kind == Promote {
		next = append(next, s.Member)
	}
	return next
}

// decides judges a step.
func (c *checker) decides(w *world, r *raft, s Step) {
	rec, known := w.known().Find(s.Member)
	votes, learns := slices.Contains(r.voters, s.Member), slices.Contains(r.learners, s.Member)
	switch {
	case s.Kind > HandOver:
		w.fail("shard %d: step %v", r.shard, s)
	case s.Kind == AddLearner && (votes || learns || slices.Contains(r.removed, s.Member) || !known || rec.Wish == session.Out):
		w.fail("shard %d: adds member %d", r.shard, s.Member)
	case s.Kind == Promote && (!learns || rec.Wish != session.Voter || rec.Observer):
		w.fail("shard %d: promotes member %d", r.shard, s.Member)
	case s.Kind == Remove && (slices.Contains(r.removed, s.Member) || known && rec.Wish != session.Out):
		w.fail("shard %d: removes member %d", r.shard, s.Member)
	case s.Kind == Remove && s.Member == r.leader:
		w.fail("M8: shard %d: the leader removes itself", r.shard)
	case s.Kind == HandOver && (!votes || s.Member == r.leader):
		w.fail("shard %d: is handed to member %d", r.shard, s.Member)
	}
	if s.Kind != Promote && (s.Kind != Remove || !votes) {
		return
	}
	if n := c.heard(w, r, r.voters); 2*n <= len(r.voters) {
		w.fail("M55: shard %d: a change while %d of %v answer", r.shard, n, r.voters)
	}
	next := after(r, s)
	if n := c.heard(w, r, next); 2*n <= len(next) {
		w.fail("M1: shard %d: %v %d, then %d of %v answer", r.shard, s.Kind, s.Member, n, next)
	}
	if s.Kind == Promote && len(r.voters) == 1 && rec.Wish == session.Voter {
		c.pairs(w, r)
	}
}

// pairs checks that one voter becomes two only on the way to three, or to another one.
func (c *checker) pairs(w *world, r *raft) {
	coming := 0
	for _, m := range w.known().List {
		if m.Wish == session.Voter && slices.Contains(r.learners, m.ID) {
			coming++
		}
	}
	if only, _ := w.known().Find(r.voters[0]); coming < 2 && only.Wish != session.Out {
		w.fail("M4: shard %d: one voter becomes two", r.shard)
	}
}

// applies judges a change as it takes effect, before it does.
func (c *checker) applies(w *world, r *raft, s Step, calmly bool) {
	switch {
	case s.Kind == AddLearner && (c.added[r.shard][s.Member] || c.removed[r.shard][s.Member]):
		w.fail("shard %d: member %d is added again", r.shard, s.Member)
	case s.Kind == Promote && (c.promoted[r.shard][s.Member] || c.removed[r.shard][s.Member]):
		w.fail("shard %d: member %d is promoted again", r.shard, s.Member)
	case s.Kind == Remove && c.removed[r.shard][s.Member]:
		w.fail("shard %d: member %d is removed again", r.shard, s.Member)
	}
	map[StepKind]map[uint32]map[id]bool{AddLearner: c.added, Promote: c.promoted, Remove: c.removed}[s.Kind][r.shard][s.Member] = true
	if !calmly || s.Kind == AddLearner || !w.led(r) {
		return
	}
	// All leaders know the truth: no step takes a quorum, and none but a departure lowers the
	// margin.
	next := after(r, s)
	now, then := w.reached(r.leader, r.voters), w.reached(r.leader, next)
	if 2*now > len(r.voters) && 2*then <= len(next) {
		w.fail("shard %d: %v %d takes the quorum", r.shard, s.Kind, s.Member)
	}
	leaves := s.Kind == Remove && w.reach(r.leader, s.Member)
	if !leaves && then-len(next)/2 < now-len(r.voters)/2 {
		w.fail("shard %d: %v %d lowers the margin", r.shard, s.Kind, s.Member)
	}
}

// wishes judges a wish of the planner.
func (c *checker) wishes(w *world, r *raft, wish Wish) {
	rec, known := w.known().Find(wish.Member)
	if !known || wish.Part <= rec.Wish || (wish.Part == session.Out) != (wish.Reason != 0) || wish.Member == r.leader {
		w.fail("wish %+v of %+v", wish, rec)
	}
	if wish.Reason == session.Lost || wish.Part == session.Voter && rec.Observer {
		w.fail("wish %+v of %+v", wish, rec)
	}
	if wish.Reason == session.Silent && rec.Wish == session.Voter {
		c.silences(w, rec)
	}
}

// silences judges the dismissal of a silent voter: there is somebody for its place on each shard,
// and it is one of few.
func (c *checker) silences(w *world, rec session.Member) {
	for _, r := range w.shards {
		if !slices.Contains(r.voters, rec.ID) || w.isBehind(r) {
			continue
		}
		stay := 0
		for _, m := range r.voters {
			if v, _ := w.known().Find(m); v.Wish == session.Voter {
				stay++
			}
		}
		if stay%2 == 1 && stay <= w.rules.Voters && len(r.learners) == 0 {
			w.fail("M13: shard %d: member %d of %v is dismissed, and nobody can take its place", r.shard, rec.ID, r.voters)
		}
	}
	voters := 0
	for _, m := range w.known().List {
		if m.Wish == session.Voter {
			voters++
		}
	}
	recent := slices.DeleteFunc(slices.Clone(c.silenced), func(at time.Time) bool { return w.now.Sub(at) >= w.rules.DeadAfter })
	if len(recent)+1 > max(1, (voters-1)/2) {
		w.fail("M11: %d of %d are dismissed within DeadAfter", len(recent)+1, voters)
	}
}

// isBehind reports whether the table has yet to hear of a voter.
func (w *world) isBehind(r *raft) bool {
	return slices.ContainsFunc(w.known().List, func(m session.Member) bool {
		return slices.Contains(r.voters, m.ID) && (len(m.Places) < int(r.shard) || m.Places[r.shard-1].Part != session.Voter)
	})
}

// check judges the table after each tick: parts only go forward, and no id is given twice.
func (c *checker) check(w *world) {
	now := make(map[id]session.Member)
	for _, m := range w.known().List {
		now[m.ID] = m
		old, known := w.before[m.ID]
		if !known && m.ID <= c.admitted {
			w.fail("member %d is admitted again", m.ID)
		}
		if known && m.Wish < old.Wish {
			w.fail("member %d was to be %v, now %v", m.ID, old.Wish, m.Wish)
		}
		if old.Wish == session.Voter && m.Wish == session.Out && m.Reason == session.Silent {
			c.silenced = append(c.silenced, w.now)
		}
		for i, p := range old.Places {
			if m.Places[i].Part < p.Part {
				w.fail("member %d was %v on shard %d, now %v", m.ID, p.Part, i+1, m.Places[i].Part)
			}
		}
		for _, r := range w.shards {
			c.isTrue(w, r, &m)
		}
	}
	for m := range now {
		c.admitted = max(c.admitted, m)
	}
	for m, old := range w.before {
		if _, known := now[m]; !known && old.Wish != session.Out {
			w.fail("member %d is gone from the table", m)
		}
	}
	w.before = now
	for _, r := range w.shards {
		if len(r.voters) == 0 {
			w.fail("shard %d has no voters", r.shard)
		}
	}
}

// isTrue checks that the table never says more of a member than is so.
func (c *checker) isTrue(w *world, r *raft, m *session.Member) {
	said := session.Part(0)
	if len(m.Places) >= int(r.shard) {
		said = m.Places[r.shard-1].Part
	}
	in := slices.Contains(r.voters, m.ID) || slices.Contains(r.learners, m.ID)
	switch {
	case said == session.Out && in,
		said == session.Voter && slices.Contains(r.learners, m.ID),
		(said == session.Voter || said == session.Learner) && !in && !slices.Contains(r.removed, m.ID):
		w.fail("the table says that member %d is %v on shard %d", m.ID, said, r.shard)
	}
}
