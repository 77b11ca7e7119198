package steer

import (
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// Rules are the settings of an ensemble that planner and executors go by.
type Rules struct {
	Voters int // how many should vote: odd

	Period   time.Duration // between two looks
	Election time.Duration // the longest election

	StableFor   time.Duration // how long a member must be well before it may vote
	DeadAfter   time.Duration // the silence after which a voter is replaced; zero or less: never
	ForgetAfter time.Duration // the silence after which a member that does not vote is forgotten; zero or less: never
	LeaveWait   time.Duration // how long a member that is to go waits for who takes its place
}

// Pulse is what a leader last heard from another member's replica of its shard. An answer is one of
// the replica itself, in Raft. A connection is none: its messages may go in one direction only.
type Pulse struct {
	Answered time.Time // the last answer; zero if there was none
	Index    uint64    // up to which it has acknowledged the log
}

// Health is what the leader of a shard knows about another member's replica there. All durations
// begin with the leadership at the earliest. Zero is a member that was never looked at.
type Health struct {
	Answers  bool          // it answered within two longest elections
	CaughtUp bool          // what it has acknowledged is near the end of the log
	Well     time.Duration // for how long both have been so without a break
	Silent   time.Duration // for how long it has not answered; zero if it answers
	Leaving  time.Duration // for how long its wish has been out
}

// IsStable reports whether a member has been well for long enough to vote.
func (h Health) IsStable(r Rules) bool { return h.Answers && h.CaughtUp && h.Well >= r.StableFor }

// A Watch is what one leadership of a shard has seen of the members. It begins empty with each
// leadership, so that nobody is judged by what an earlier leader saw.
//
// It counts time in looks. Between two looks lie at most two periods, however long the leader's
// process or machine was stopped. So a leader that wakes does not take its own absence for the
// silence of the others.
type Watch struct {
	rules   Rules
	last    time.Time     // of the last look
	looks   uint64        // how many there were
	elapsed time.Duration // over all looks
	members map[session.MemberID]seen
	// marks are ends of the log, oldest first. The first is at least lagTime old, or the first of
	// the leadership.
	marks     []mark
	dismissed []time.Duration // when, in elapsed, voters were dismissed for silence within DeadAfter
}

// seen is a member at the last look.
type seen struct {
	Health
	wish session.Part
	look uint64 // the number of that look
}

// mark is an end of the log.
type mark struct {
	at        time.Time
	committed uint64
}

const (
	// lagMax and lagTime bound how far a replica that is caught up may be behind: in entries, and
	// in time. If a voter fails, the writers wait for the replica that takes its place to get this
	// far.
	lagMax  = 1000
	lagTime = time.Second
	// markTime is the least time between two marks, so that there are few.
	markTime = lagTime / 10
)

// NewWatch returns the watch of a leadership that begins.
func NewWatch(r Rules) *Watch {
	return &Watch{rules: r, members: make(map[session.MemberID]seen)}
}

// Look is what a leader sees of its shard at one time.
type Look struct {
	Now       time.Time
	Committed uint64 // the end of the shard's log that is committed
	Table     *session.MembersView
	Pulse     func(session.MemberID) Pulse // of the replicas of this shard
}

// Look takes in what the leader sees now. It is to be called once a period.
func (w *Watch) Look(l Look) {
	step := w.step(l.Now)
	w.looks++
	w.elapsed += step
	w.mark(l.Now, l.Committed)
	for _, m := range l.Table.List {
		before, known := w.members[m.ID]
		if known && before.wish == session.Voter && m.Wish == session.Out && m.Reason == session.Silent {
			w.dismissed = append(w.dismissed, w.elapsed)
		}
		now := seen{wish: m.Wish, look: w.looks}
		now.Health = w.judge(l, m, before.Health, step, known)
		w.members[m.ID] = now
	}
	w.forget()
}

// step returns by how much time has moved on since the last look.
func (w *Watch) step(now time.Time) time.Duration {
	step := min(max(now.Sub(w.last), 0), 2*w.rules.Period)
	if w.last.IsZero() {
		step = 0
	}
	w.last = now
	return step
}

// mark notes the end of the log.
func (w *Watch) mark(now time.Time, committed uint64) {
	if n := len(w.marks); n > 0 && now.Sub(w.marks[n-1].at) < markTime {
		return
	}
	w.marks = append(w.marks, mark{now, committed})
	old := 0
	for old+1 < len(w.marks) && now.Sub(w.marks[old+1].at) >= lagTime {
		old++
	}
	w.marks = slices.Delete(w.marks, 0, old)
}

// judge returns a member's health after a look, which comes a step after the one before.
func (w *Watch) judge(l Look, m session.Member, before Health, step time.Duration, known bool) (now Health) {
	p := l.Pulse(m.ID)
	now.Answers = !p.Answered.IsZero() && l.Now.Sub(p.Answered) <= 2*w.rules.Election
	now.CaughtUp = p.Index+lagMax >= l.Committed && p.Index >= w.marks[0].committed
	switch {
	case !known: // the durations begin with this look
		return now
	case !now.Answers:
		now.Silent = before.Silent + step
	case now.CaughtUp && before.Answers && before.CaughtUp:
		now.Well = before.Well + step
	}
	if m.Wish == session.Out && w.members[m.ID].wish == session.Out {
		now.Leaving = before.Leaving + step
	}
	return now
}

// forget drops the members that the table no longer has, and the dismissals that are old.
func (w *Watch) forget() {
	for id, m := range w.members {
		if m.look == w.looks {
			continue
		}
		// A dismissed member may be gone from the table before the next look.
		if m.wish == session.Voter && m.Silent > 0 {
			w.dismissed = append(w.dismissed, w.elapsed)
		}
		delete(w.members, id)
	}
	w.dismissed = slices.DeleteFunc(w.dismissed, func(at time.Duration) bool { return w.elapsed-at >= w.rules.DeadAfter })
}

// Health returns what the last look said of a member.
func (w *Watch) Health(id session.MemberID) Health { return w.members[id].Health }

// Dismissed returns how many voters were dismissed for their silence within DeadAfter, as this
// leadership has seen. No others matter: it dismisses nobody before DeadAfter has passed.
func (w *Watch) Dismissed() int { return len(w.dismissed) }
