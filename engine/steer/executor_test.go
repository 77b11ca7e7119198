package steer

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

type ids = []session.MemberID

// M3, M4: a learner that lags does not vote, and a lone voter takes two or none. M93: a Leave that has
// given up does not wait for its sessions. M10: what a late
// change has added is removed. M55: there is no step without a quorum. M56: nor is there one about
// an id that the table does not have yet.
func TestExecute(t *testing.T) {
	type of = map[session.MemberID]Health
	const change = 7
	report := func(id session.MemberID, part session.Part) Step {
		return Step{Kind: Report, Member: id, Place: session.Place{Part: part, Change: change}}
	}
	step := func(kind StepKind, id session.MemberID) Step { return Step{Kind: kind, Member: id} }
	stranger := session.Member{ID: 4, Wish: asLearner}
	wished := member(4, asVoter, asLearner)
	left := going(voter(3), session.Left)
	for _, c := range []struct {
		name                      string
		rules                     int // how many should vote
		voters, learners, removed ids
		members                   []session.Member
		next                      session.MemberID
		health                    of
		away, sessions, retired   ids
		want                      Step
	}{
		{name: "rest", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), voter(3)}},

		// E0, M55.
		{name: "E0, M55: no quorum, no step", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), left}, health: of{2: quiet, 3: quiet}},
		{name: "E0: no report either", voters: ids{1, 2}, members: []session.Member{voter(1), member(2, asVoter)}, health: of{2: quiet}},

		// E1.
		{name: "E1: a newcomer", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), voter(3), stranger}, want: step(AddLearner, 4)},
		{name: "E1, M21: one that has not shown up", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), voter(3), stranger}, away: ids{4}},
		{name: "E1, M41: a spare that became a voter elsewhere", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), voter(3), member(4, asVoter)}, want: step(AddLearner, 4)},

		// E2.
		{name: "E2: a spare", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), voter(3), wished}, want: step(Promote, 4)},
		{name: "E2, M3: that lags here", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), voter(3), wished}, health: of{4: slow}},
		{name: "E2: that has come a moment ago", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), voter(3), wished}, health: of{4: fresh}},
		{name: "E2: with one of three silent", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), voter(3), wished}, health: of{3: dead}, want: step(Promote, 4)},
		{name: "E2: four of which two are silent", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), voter(3), wished}, health: of{3: dead, 4: quiet}},
		{name: "E2, M2: one alone", voters: ids{1}, learners: ids{4}, members: []session.Member{voter(1), wished}},
		{name: "E2, M4: two for one", voters: ids{1}, learners: ids{4, 5}, members: []session.Member{voter(1), wished, member(5, asVoter, asLearner)}, want: step(Promote, 4)},
		{name: "E2, M4: the second of two is not well here", voters: ids{1}, learners: ids{4, 5}, members: []session.Member{voter(1), wished, member(5, asVoter, asLearner)}, health: of{5: slow}},
		{name: "E2: the second of two", voters: ids{1, 4}, learners: ids{5}, members: []session.Member{voter(1), voter(4), member(5, asVoter, asLearner)}, want: step(Promote, 5)},
		{name: "E2: one alone that goes", voters: ids{1}, learners: ids{4}, members: []session.Member{going(voter(1), session.Removed), wished}, want: step(Promote, 4)},
		{name: "E2: not without the wish", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), voter(3), learner(4)}},

		// E3.
		{name: "E3: a silent one", voters: ids{1, 2, 3, 4}, members: []session.Member{voter(1), voter(2), going(voter(3), session.Silent), voter(4)}, health: of{3: dead}, want: step(Remove, 3)},
		{name: "E3, M90: a silent one before the one that takes its place", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), going(voter(3), session.Silent), wished}, health: of{3: dead}, want: step(Remove, 3)},
		{name: "E3, M1: another one is silent too", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), left}, health: of{2: quiet}},
		{name: "E3: down to one", voters: ids{1, 3}, members: []session.Member{voter(1), left}, want: step(Remove, 3)},
		{name: "E3: the silent one first", voters: ids{1, 2, 3, 4, 5}, members: []session.Member{voter(1), voter(2), left, going(voter(4), session.Silent), voter(5)}, health: of{4: dead}, want: step(Remove, 4)},
		{name: "E3: its sessions are still open", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), left}, sessions: ids{3}},
		{name: "E3: its sessions are open and it is silent", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), left}, sessions: ids{3}, health: of{3: quiet}, want: step(Remove, 3)},
		{name: "E3, M93: its sessions are still open, and nobody closes them", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), left}, sessions: ids{3}, health: of{3: leaving(well, 10*time.Second)}, want: step(Remove, 3)},
		{name: "E3: it was removed by a person, with sessions", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(2), going(voter(3), session.Removed)}, sessions: ids{3}, want: step(Remove, 3)},
		{name: "E3, M8: never itself, the best one leads", voters: ids{1, 2, 3}, members: []session.Member{going(voter(1), session.Left), voter(2), voter(3)}, health: of{2: fresh}, want: step(HandOver, 3)},
		{name: "E3: none can lead", voters: ids{1, 2, 3}, members: []session.Member{going(voter(1), session.Left), voter(2), voter(3)}, health: of{2: slow, 3: slow}},
		{name: "E3: the other one is to go too", voters: ids{1, 2}, members: []session.Member{going(voter(1), session.Left), going(voter(2), session.Left)}, sessions: ids{2}},
		{name: "E3: its own sessions are still open", voters: ids{1, 2, 3}, members: []session.Member{going(voter(1), session.Left), voter(2), voter(3)}, sessions: ids{1}},
		{name: "E3: the last one stays", voters: ids{1}, members: []session.Member{going(voter(1), session.Removed)}},
		{name: "E3: to hand over comes last", voters: ids{1, 2, 3}, members: []session.Member{going(voter(1), session.Left), voter(2), voter(3), stranger}, want: step(AddLearner, 4)},

		// P4: a while for who takes its place.
		{name: "P4: a spare that is to vote", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, wished}, health: of{3: leaving(well, time.Second), 4: slow}},
		{name: "P4: a learner that may become a spare", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4)}, health: of{3: leaving(well, time.Second), 4: slow}},
		{name: "P4: not for long", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4)}, health: of{3: leaving(well, 10*time.Second), 4: slow}, want: step(Remove, 3)},
		{name: "P4: not for a silent learner", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4)}, health: of{4: quiet}, want: step(Remove, 3)},
		{name: "P4: not for one that is not needed", rules: 5, voters: ids{1, 2, 3, 5}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4), voter(5)}, want: step(Remove, 3)},
		{name: "P4, M61: it crashed while it left, and may come back", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4)}, health: of{3: leaving(quiet, time.Second)}},
		{name: "P4: but not for ever", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4)}, health: of{3: leaving(dead, 10*time.Second)}, want: step(Remove, 3)},
		{name: "P4: nor if the margin is larger without it", rules: 5, voters: ids{1, 2, 3, 5}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4), voter(5), learner(6)}, health: of{3: quiet}, want: step(Remove, 3)},
		{name: "P4: two that crashed, so it is larger without both", rules: 5, voters: ids{1, 2, 3, 4, 5}, learners: ids{6, 7}, members: []session.Member{voter(1), voter(2), left, going(voter(4), session.Left), voter(5), learner(6), learner(7)}, health: of{3: quiet, 4: quiet}, want: step(Remove, 3)},
		{name: "P4: one that the table has forgotten waits for nobody", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), learner(4)}, next: 5, health: of{3: {}}, want: step(Remove, 3)},
		{name: "P4: a leadership that has heard of nobody but another voter", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), left, learner(4)}, health: of{3: {}, 4: {}}},
		{name: "P3: nor of a wiped one", voters: ids{1, 2, 3}, learners: ids{4}, members: []session.Member{voter(1), voter(2), going(voter(3), session.Replaced), learner(4)}, health: of{3: quiet}, want: step(Remove, 3)},

		// E4.
		{name: "E4", voters: ids{1}, learners: ids{4}, members: []session.Member{voter(1), going(learner(4), session.Silent)}, want: step(Remove, 4)},
		{name: "E4: its sessions are still open", voters: ids{1}, learners: ids{4}, members: []session.Member{voter(1), going(learner(4), session.Left)}, sessions: ids{4}},
		{name: "E4, M10: a late change added it", voters: ids{1}, learners: ids{4}, members: []session.Member{voter(1), going(session.Member{ID: 4}, session.NeverCame)}, want: step(Remove, 4)},

		// Members that the table does not have.
		{name: "M56: an id that this table does not know yet", voters: ids{1, 2, 4}, learners: ids{5}, members: []session.Member{voter(1), voter(2)}, next: 3},
		{name: "one that is forgotten", voters: ids{1, 2, 3}, members: []session.Member{voter(1), voter(3)}, health: of{2: quiet}, want: step(Remove, 2)},

		// E5, E6.
		{name: "E5, M33: retired first", voters: ids{1}, removed: ids{3}, members: []session.Member{voter(1), left}, want: step(Retire, 3)},
		{name: "E6: then reported", voters: ids{1}, removed: ids{3}, retired: ids{3}, members: []session.Member{voter(1), left}, want: report(3, asOut)},
		{name: "E6: nothing is left", voters: ids{1}, removed: ids{3}, retired: ids{3}, members: []session.Member{voter(1), going(member(3, asVoter, asOut), session.Left)}},
		{name: "E5: removed and forgotten", voters: ids{1}, removed: ids{3}, members: []session.Member{voter(1)}, next: 4},
		{name: "E4, M41: was never in", voters: ids{1}, members: []session.Member{voter(1), going(session.Member{ID: 4}, session.NeverCame)}, want: step(Remove, 4)},
		{name: "E6: a founder", voters: ids{1}, members: []session.Member{member(1, asVoter)}, want: report(1, asVoter)},
		{name: "E6: a learner", voters: ids{1}, learners: ids{4}, members: []session.Member{voter(1), stranger}, want: report(4, asLearner)},
		{name: "E6: promoted by an earlier leader", voters: ids{1, 4}, members: []session.Member{voter(1), wished}, want: report(4, asVoter)},
	} {
		t.Run(c.name, func(t *testing.T) {
			members := table(1, c.members...)
			if c.next > 0 {
				members.Ensemble.Next = c.next
			}
			r := rules
			if c.rules > 0 {
				r = withVoters(c.rules)
			}
			away := these(c.away...)
			got := Execute(Shard{
				ID: 1, Self: 1, Voters: c.voters, Learners: c.learners, Removed: c.removed, Change: change,
				Table: members, Health: healths(c.health), Rules: r,
				Connected: func(id session.MemberID) bool { return !away(id) },
				Sessions:  these(c.sessions...), Retired: these(c.retired...),
			})
			if got != c.want {
				t.Errorf("%v of member %d (%v), want %v of member %d", got.Kind, got.Member, got.Place, c.want.Kind, c.want.Member)
			}
		})
	}
}

func TestSafeToRemove(t *testing.T) {
	for _, c := range []struct {
		voters, answer ids
		remove         session.MemberID
		want           bool
	}{
		{ids{1}, ids{1}, 1, false},
		{ids{1, 2}, ids{1, 2}, 2, true},
		{ids{1, 2}, ids{1, 2}, 1, true},
		{ids{1, 2, 3}, ids{1, 2, 3}, 3, true},
		{ids{1, 2, 3}, ids{1, 2}, 3, true},
		{ids{1, 2, 3}, ids{1, 2}, 2, false},
		{ids{1, 2, 3, 4}, ids{1, 2, 3}, 3, true},
		{ids{1, 2, 3, 4, 5}, ids{1, 2, 3}, 3, false},
		{ids{1, 2, 3}, ids{1}, 9, true},
	} {
		if got := SafeToRemove(c.voters, these(c.answer...), c.remove); got != c.want {
			t.Errorf("%d of %v, of which %v answer: %v", c.remove, c.voters, c.answer, got)
		}
	}
}

func TestQuorum(t *testing.T) {
	for voters, want := range []int{1, 1, 2, 2, 3, 3, 4} {
		if got := Quorum(voters); got != want {
			t.Errorf("quorum of %d: %d, want %d", voters, got, want)
		}
	}
	if Margin(5, 5) != 2 || Margin(4, 4) != 1 || Margin(3, 2) != 0 || Margin(3, 1) != -1 {
		t.Error("the margin is wrong")
	}
	for n, want := range []int{0, 1, 1, 3, 3, 5} {
		if got := odd(n); got != want {
			t.Errorf("the odd number up to %d: %d", n, got)
		}
	}
}

// A member that is out of one shard is over on all. So one that answers stays until it is not
// needed on any shard: here 4 votes on the first shard in place of the dead 3, and is still a
// learner on the second.
func TestExecute_ARemovalLooksAtAllShards(t *testing.T) {
	on := func(id session.MemberID, second session.Part) session.Member {
		return member(id, asVoter, asVoter, second)
	}
	situation := func(second session.Part) Shard {
		gone := on(2, asVoter)
		gone.Wish, gone.Reason = asOut, session.Removed
		return Shard{ID: 1, Self: 1, Voters: []session.MemberID{1, 2, 3, 4}, Table: table(2, on(1, asVoter), gone, on(3, asVoter), on(4, second)),
			Health: func(id session.MemberID) Health {
				return map[session.MemberID]Health{1: well, 2: leaving(well, time.Hour), 3: dead, 4: well}[id]
			},
			Connected: func(session.MemberID) bool { return true }, Sessions: func(session.MemberID) bool { return false },
			Retired: func(session.MemberID) bool { return false }, Rules: rules}
	}
	if s := Execute(situation(asLearner)); s.Kind == Remove {
		t.Errorf("the second shard needs it: %v", s)
	}
	if s := Execute(situation(asVoter)); s != (Step{Kind: Remove, Member: 2}) {
		t.Errorf("nobody needs it: %v", s)
	}
}

// M74: with several shards, one that the others have done without is over once it is out of one. So a
// voter that leaves does not count on it, and goes after it.
func TestExecute_WhoLeavesCountsOnNobodyWhoMayBeOver(t *testing.T) {
	goes := func(id session.MemberID, why session.Reason) session.Member {
		m := member(id, asVoter, asVoter, asVoter)
		m.Wish, m.Reason = asOut, why
		return m
	}
	s := Shard{ID: 1, Self: 1, Voters: []session.MemberID{1, 2, 3},
		Table:     table(2, member(1, asVoter, asVoter, asVoter), goes(2, session.Left), goes(3, session.Silent)),
		Health:    func(session.MemberID) Health { return well },
		Connected: func(session.MemberID) bool { return true }, Sessions: func(session.MemberID) bool { return false },
		Retired: func(session.MemberID) bool { return false }, Rules: rules}
	if step := Execute(s); step != (Step{Kind: Remove, Member: 3}) {
		t.Error(step)
	}
}
