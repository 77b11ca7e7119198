package steer

import (
	"cmp"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// Shard is what the leader of a shard knows.
type Shard struct {
	ID   uint32
	Self session.MemberID

	// Who takes part, by the shard's Raft: sorted, and as of Change, the newest change in its log.
	Voters, Learners, Removed []session.MemberID
	Change                    uint64

	Table     *session.MembersView
	Health    func(session.MemberID) Health // of the replicas of this shard
	Connected func(session.MemberID) bool   // whether there is a connection to a member
	// Sessions reports whether a member has in-process sessions, as the home shard knows it.
	Sessions func(session.MemberID) bool
	// Retired reports whether this shard takes nothing more from a member.
	Retired func(session.MemberID) bool
	Rules   Rules
}

// StepKind is a kind of step. Zero is none.
type StepKind uint8

// The steps. The first three change the members of the shard, and name its Change.
const (
	AddLearner StepKind = 1 + iota
	Promote             // let a learner vote
	Remove              // end a member's part in the shard
	Retire              // take nothing more from a member that is out, and wait for it no longer
	Report              // tell the table what the member is on this shard: Place
	HandOver            // let the member lead, because Self is to be removed
)

var stepNames = [...]string{"none", "add learner", "promote", "remove", "retire", "report", "hand over"}

// String returns the step's name.
func (k StepKind) String() string { return stepNames[min(int(k), len(stepNames)-1)] }

// NeedsProof reports whether a step counts on members for a quorum. Then their Health must say who
// has just stored an entry.
func (k StepKind) NeedsProof() bool { return k == Promote || k == Remove || k == HandOver }

// A Step is what the leader of a shard does next. Zero is nothing.
type Step struct {
	Kind   StepKind
	Member session.MemberID
	Place  session.Place // only of Report
}

// Execute returns what the leader of a shard should do next, so that the wishes become facts there.
// It returns no step while those that answer are no quorum: what cannot commit now would commit at
// a moment that nobody chose.
//
// A silent voter that is to go does so before another takes its place: then no decision needs the
// newcomer. Steps that make an even number of voters odd again come before those that can wait. The
// leadership is handed over when nothing else is left: if nobody can take it, the others' matters
// go on.
func Execute(s Shard) Step {
	if Margin(len(s.Voters), s.answering(0)) < 0 {
		return Step{}
	}
	return cmp.Or(s.removeSilent(), s.promote(), s.removeVoter(), s.removeLearner(), s.shutOut(), s.add(), s.retire(), s.report(), s.handOver())
}

// answers reports whether a member answers, or is the leader itself.
func (s *Shard) answers(id session.MemberID) bool { return id == s.Self || s.Health(id).Answers }

// answering returns how many voters answer, without one of them.
func (s *Shard) answering(without session.MemberID) (n int) {
	for _, v := range s.Voters {
		if v != without && s.answers(v) {
			n++
		}
	}
	return n
}

// part returns a member's part by the shard's Raft.
func (s *Shard) part(id session.MemberID) session.Part {
	for _, c := range [...]struct {
		of   []session.MemberID
		part session.Part
	}{{s.Removed, session.Out}, {s.Voters, session.Voter}, {s.Learners, session.Learner}} {
		if _, found := slices.BinarySearch(c.of, id); found {
			return c.part
		}
	}
	return 0
}

// goes reports whether a member is to be out. One that the table does not have is gone, unless its
// id has not been given yet: then the table is older than the shard's members.
func (s *Shard) goes(id session.MemberID) bool {
	m, known := s.Table.Find(id)
	return m.Wish == session.Out || !known && id < s.Table.Ensemble.Next
}

// promote lets a learner vote that is to vote and is well. The voters that answer are a quorum, and
// with one more that answers they stay one.
func (s *Shard) promote() Step {
	if s.staysAlone() {
		return Step{}
	}
	for _, id := range s.Learners {
		if s.mayVote(id) {
			return Step{Kind: Promote, Member: id}
		}
	}
	return Step{}
}

// mayVote reports whether a learner is to vote and is well.
func (s *Shard) mayVote(id session.MemberID) bool {
	m, _ := s.Table.Find(id)
	return m.Wish == session.Voter && s.Health(id).IsStable(s.Rules)
}

// staysAlone reports whether a voter that is alone has to remain so for now. It takes two more at
// once: while there are two voters, either failure stops both. Only if it is to go does it take
// one.
func (s *Shard) staysAlone() bool {
	if len(s.Voters) != 1 || s.goes(s.Voters[0]) {
		return false
	}
	ready := 0
	for _, id := range s.Learners {
		if s.mayVote(id) {
			ready++
		}
	}
	return ready < 2
}

// removeSilent removes a voter that is to go and is silent.
func (s *Shard) removeSilent() Step {
	for _, id := range s.Voters {
		if s.isSilent(id) && s.mayGo(id) {
			return Step{Kind: Remove, Member: id}
		}
	}
	return Step{}
}

// removeVoter removes a voter that is to go. One that does not answer comes first: without it the
// others are a larger majority.
func (s *Shard) removeVoter() (step Step) {
	for _, id := range s.Voters {
		switch {
		case !s.mayGo(id):
		case !s.answers(id):
			return Step{Kind: Remove, Member: id}
		case step.Kind == 0:
			step = Step{Kind: Remove, Member: id}
		}
	}
	return step
}

// mayGo reports whether a voter is to go and can go now.
func (s *Shard) mayGo(id session.MemberID) bool {
	return id != s.Self && s.goes(id) && s.fits(id) && !s.waits(id)
}

// fits reports whether the other voters that answer are a quorum without a voter. A member that is
// out of one shard is over on all of them, so for one that answers all shards have to fit.
func (s *Shard) fits(id session.MemberID) bool {
	if len(s.Voters) < 2 || Margin(len(s.Voters)-1, s.answering(id)-s.ending(id)) < 0 {
		return false
	}
	return !s.answers(id) || s.fitsElsewhere(id)
}

// ending returns how many other voters answer, but may be over at any moment: with several shards, who is
// removed is over once it is out of one. A member that leaves votes until it is out of all, so it can wait.
func (s *Shard) ending(id session.MemberID) (n int) {
	if m, _ := s.Table.Find(id); m.Reason != session.Left || s.Table.Ensemble.Shards < 2 {
		return 0
	}
	for _, v := range s.Voters {
		if m, known := s.Table.Find(v); v != id && s.goes(v) && s.answers(v) && (!known || m.Reason != session.Left) {
			n++
		}
	}
	return n
}

// fitsElsewhere is fits for the other shards, as far as the table and this leader know them.
func (s *Shard) fitsElsewhere(id session.MemberID) bool {
	for shard := uint32(1); shard <= s.Table.Ensemble.Shards; shard++ {
		voters, answering, votes := 0, 0, false
		for i := range s.Table.List {
			m := &s.Table.List[i]
			switch {
			case shard == s.ID || !m.Votes(shard):
			case m.ID == id:
				votes = true
			default:
				voters++
				if s.answers(m.ID) {
					answering++
				}
			}
		}
		if votes && Margin(voters, answering) < 0 {
			return false
		}
	}
	return true
}

// waits reports whether a voter that is to go should stay a little. One that the table has forgotten
// is gone already.
func (s *Shard) waits(id session.MemberID) bool {
	m, known := s.Table.Find(id)
	switch {
	case !known:
		return false
	case s.closes(id):
		return true
	case s.leaving(id) >= s.Rules.LeaveWait || !s.hasHeir():
		return false
	case s.answers(id) && Margin(len(s.Voters), s.answering(id)-s.going(id)) < 0:
		return false // nothing could be decided without it, and its process is about to end
	}
	return !s.isSilent(id) || s.mayReturn(&m)
}

// going returns how many voters besides one answer and are to go: their processes may end with its.
func (s *Shard) going(id session.MemberID) (n int) {
	for _, v := range s.Voters {
		if v != id && s.goes(v) && s.answers(v) {
			n++
		}
	}
	return n
}

// isSilent reports whether a member has not answered this leadership for a whole election. One that
// has not answered yet may be about to: the leadership, or the member's process, has just begun.
func (s *Shard) isSilent(id session.MemberID) bool {
	return !s.answers(id) && s.Health(id).Silent >= s.Rules.Election
}

// mayReturn reports whether a silent voter that is to go is worth waiting for, as one that answers
// is: its process may have crashed and come back, and its vote counts until it is out. It is not if
// the margin is larger without all that are to go and are silent.
func (s *Shard) mayReturn(m *session.Member) bool {
	gone := 0
	for _, v := range s.Voters {
		if s.goes(v) && s.isSilent(v) {
			gone++
		}
	}
	answering := s.answering(0)
	return (m.Reason == session.Left || m.Reason == session.Removed) &&
		Margin(len(s.Voters)-gone, answering) <= Margin(len(s.Voters), answering)
}

// closes reports whether a member that leaves is still closing its sessions. If it were removed
// now, the end of its stream would outrun them, and their locks would wait for their timeouts. It has
// to be done some time: if its Leave has given up, nobody closes them.
func (s *Shard) closes(id session.MemberID) bool {
	m, _ := s.Table.Find(id)
	return m.Reason == session.Left && !s.isSilent(id) && s.leaving(id) < s.Rules.LeaveWait && s.Sessions(id)
}

func (s *Shard) leaving(id session.MemberID) time.Duration { return s.Health(id).Leaving }

// hasHeir reports whether somebody is about to take the place of a voter that goes. That is a
// learner that is to vote, or one with which the voters would be the next odd number once it is
// well.
func (s *Shard) hasHeir() bool {
	voters, coming := 0, 0
	for i := range s.Table.List {
		switch m := &s.Table.List[i]; {
		case m.Wish == session.Voter && s.part(m.ID) == session.Learner && !s.isSilent(m.ID):
			return true
		case m.Wish == session.Voter:
			voters++
		case m.Wish == session.Learner && !m.Observer && s.part(m.ID) == session.Learner && !s.isSilent(m.ID):
			coming++
		}
	}
	return odd(min(s.Rules.Voters, voters+coming)) > voters
}

// removeLearner removes a learner that is to go. No quorum depends on it.
func (s *Shard) removeLearner() Step {
	for _, id := range s.Learners {
		if s.goes(id) && !s.closes(id) {
			return Step{Kind: Remove, Member: id}
		}
	}
	return Step{}
}

// shutOut removes a member that is to be out and has not been in yet. From then on no change can
// add it, whichever leader proposed that, and however late it arrives.
func (s *Shard) shutOut() Step {
	for i := range s.Table.List {
		if m := &s.Table.List[i]; m.Wish == session.Out && s.part(m.ID) == 0 {
			return Step{Kind: Remove, Member: m.ID}
		}
	}
	return Step{}
}

// add adds a member that the shard does not have, once it has shown up.
func (s *Shard) add() Step {
	for i := range s.Table.List {
		if m := &s.Table.List[i]; m.Wish < session.Out && s.part(m.ID) == 0 && s.Connected(m.ID) {
			return Step{Kind: AddLearner, Member: m.ID}
		}
	}
	return Step{}
}

// retire ends what the shard still has of a member that is out.
func (s *Shard) retire() Step {
	for i := range s.Table.List {
		if id := s.Table.List[i].ID; s.part(id) == session.Out && !s.Retired(id) {
			return Step{Kind: Retire, Member: id}
		}
	}
	return Step{}
}

// report tells the table what it does not know yet.
func (s *Shard) report() Step {
	for i := range s.Table.List {
		m := &s.Table.List[i]
		if part := s.part(m.ID); part > partOn(m, s.ID-1) && (part < session.Out || s.Retired(m.ID)) {
			return Step{Kind: Report, Member: m.ID, Place: session.Place{Part: part, Change: s.Change}}
		}
	}
	return Step{}
}

// handOver lets another voter lead if this one is to go. It does not remove itself: it would step
// down at once. If a last other voter has not heard by then that the removal is committed, it could
// never be elected.
func (s *Shard) handOver() (step Step) {
	if s.part(s.Self) != session.Voter || !s.goes(s.Self) || !s.fits(s.Self) || s.waits(s.Self) {
		return Step{}
	}
	longest := time.Duration(-1)
	for _, id := range s.Voters {
		if h := s.Health(id); id != s.Self && !s.goes(id) && h.Answers && h.CaughtUp && h.Well > longest {
			step, longest = Step{Kind: HandOver, Member: id}, h.Well
		}
	}
	return step
}
