package steer

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

const (
	asLearner = session.Learner
	asVoter   = session.Voter
	asOut     = session.Out
)

// M2, M4: a second member does not vote, and two more do. M3, M14, M57: who lags, does not answer
// or has just come is no spare. M11, M13: nobody is dismissed without a replacement, nor too many
// at once. M16: a spare of another zone comes first. The names of the cases have more.
func TestPlan(t *testing.T) {
	type of = map[session.MemberID]Health
	observer := learner(9)
	observer.Observer = true
	stranger := session.Member{ID: 9, Wish: asLearner}
	for _, c := range []struct {
		name      string
		voters    int
		shards    uint32
		members   []session.Member
		health    of
		dismissed int
		want      Wish
	}{
		{name: "nobody but the leader", members: []session.Member{voter(1)}},
		{name: "before the ensemble is founded"},

		// P1, M2: it grows to the next odd number.
		{name: "P1, M2: one voter and one spare stay so", members: []session.Member{voter(1), learner(2)}},
		{name: "P1, M4: two spares make one three", members: []session.Member{voter(1), learner(2), learner(3)}, want: Wish{2, asVoter, 0}},
		{name: "P1: the second of two follows", members: []session.Member{voter(1), member(2, asVoter, asLearner), learner(3)}, want: Wish{3, asVoter, 0}},
		{name: "P1: the second of two has gone", members: []session.Member{voter(1), member(2, asVoter, asLearner), learner(3)}, health: of{3: quiet}},
		{name: "P1: three are enough", members: []session.Member{voter(1), voter(2), voter(3), learner(4), learner(5)}},
		{name: "P1: three become five", voters: 5, members: []session.Member{voter(1), voter(2), voter(3), learner(4), learner(5)}, want: Wish{4, asVoter, 0}},
		{name: "P1: one spare does not make three five", voters: 5, members: []session.Member{voter(1), voter(2), voter(3), learner(4)}},
		{name: "P1: more than are wanted stay", voters: 1, members: []session.Member{voter(1), voter(2), voter(3)}},

		// Who is a spare.
		{name: "M3: not one that lags", members: []session.Member{voter(1), learner(2), learner(3)}, health: of{3: slow}},
		{name: "M57: not one that has come a moment ago", members: []session.Member{voter(1), learner(2), learner(3)}, health: of{3: fresh}},
		{name: "M14: not one that does not answer", members: []session.Member{voter(1), learner(2), learner(3)}, health: of{3: {CaughtUp: true, Well: time.Hour}}},
		{name: "not an observer", members: []session.Member{voter(1), learner(2), observer}},
		{name: "M21: not one that never came", members: []session.Member{voter(1), learner(2), stranger}},
		{name: "M41: not one that is in half of the shards", shards: 2, members: []session.Member{
			member(1, asVoter, asVoter, asVoter), member(2, asLearner, asLearner, asLearner), member(3, asLearner, asLearner)}},

		// P2, M90: with a spare there, the dead one goes first, and then the spare votes.
		{name: "P2: no spare, no dismissal", members: []session.Member{voter(1), voter(2), voter(3)}, health: of{3: dead}},
		{name: "P2: silent for a moment", members: []session.Member{voter(1), voter(2), voter(3), learner(4)}, health: of{3: quiet}},
		{name: "P3: somebody has come under the name of one who is silent", members: []session.Member{voter(1), voter(2), named(voter(3)), named(learner(4))}, health: of{3: quiet}, want: Wish{3, asOut, session.Replaced}},
		{name: "P3: it votes already", members: []session.Member{voter(1), voter(2), named(voter(3)), named(voter(4))}, health: of{3: quiet}, want: Wish{3, asOut, session.Replaced}},
		{name: "P3: it is no haste to replace a process that is known to have gone", members: []session.Member{voter(1), voter(2), named(voter(3)), named(voter(4))}, health: of{3: quiet}, dismissed: 1, want: Wish{3, asOut, session.Replaced}},
		{name: "P3: not under the name of one who answers", members: []session.Member{voter(1), voter(2), named(voter(3)), named(learner(4))}},
		{name: "P3: not under a name that came before", members: []session.Member{voter(1), voter(2), named(learner(3)), named(voter(4))}, health: of{4: quiet}},
		{name: "P2, M90: the dead one first", members: []session.Member{voter(1), voter(2), voter(3), learner(4)}, health: of{3: dead}, want: Wish{3, asOut, session.Silent}},
		{name: "P2: then the spare", members: []session.Member{voter(1), voter(2), going(voter(3), session.Silent), learner(4)}, health: of{3: dead}, want: Wish{4, asVoter, 0}},
		{name: "P2: not the one dead just now, nor a spare beside it", dismissed: 1, members: []session.Member{voter(1), voter(2), voter(3), learner(4), learner(5)}, health: of{3: dead}},
		{name: "P1: a silent one is waited for", voters: 5, members: []session.Member{voter(1), voter(2), voter(3), learner(4), learner(5)}, health: of{3: quiet}},
		{name: "P2: not yet a fact", members: []session.Member{voter(1), voter(2), voter(3), member(4, asVoter, asLearner), learner(5)}, health: of{3: dead}},
		{name: "P2: of an even number", members: []session.Member{voter(1), voter(2), voter(3), voter(4)}, health: of{3: dead}, want: Wish{3, asOut, session.Silent}},
		{name: "P2: a fact on one shard only", shards: 2, members: []session.Member{
			member(1, asVoter, asVoter, asVoter), member(2, asVoter, asVoter, asVoter),
			member(3, asVoter, asVoter, asVoter), member(4, asVoter, asVoter, asLearner)}, health: of{3: dead}},
		{name: "P2: two of five are dead, the second spare", voters: 5, dismissed: 1, members: []session.Member{
			voter(1), voter(2), voter(3), going(voter(4), session.Silent), voter(5), voter(6), learner(7)}, health: of{4: dead, 5: dead}, want: Wish{5, asOut, session.Silent}},
		{name: "P2: two of five are dead, one spare", voters: 5, members: []session.Member{
			voter(1), voter(2), voter(3), voter(4), voter(5), learner(6)}, health: of{4: dead, 5: dead}, want: Wish{4, asOut, session.Silent}},
		{name: "P2: two of five are dead, the spare of the first", voters: 5, members: []session.Member{
			voter(1), voter(2), voter(3), going(voter(4), session.Silent), voter(5), learner(6)}, health: of{4: dead, 5: dead}, want: Wish{6, asVoter, 0}},
		{name: "P2: the dead one was on its way", members: []session.Member{voter(1), member(2, asVoter, asLearner), member(3, asVoter, asLearner)}, health: of{3: dead}, want: Wish{3, asOut, session.Silent}},
		{name: "P2: the replacement died half way", shards: 2, members: []session.Member{
			member(1, asVoter, asVoter, asVoter), member(2, asVoter, asVoter, asVoter),
			member(3, asVoter, asVoter, asVoter), member(4, asVoter, asVoter, asLearner)}, health: of{3: dead, 4: dead}, want: Wish{4, asOut, session.Silent}},
		{name: "P2: the replacement died half way in five", voters: 5, shards: 2, members: []session.Member{
			member(1, asVoter, asVoter, asVoter), member(2, asVoter, asVoter, asVoter), member(3, asVoter, asVoter, asVoter), member(4, asVoter, asVoter, asVoter),
			member(5, asVoter, asVoter, asVoter), member(6, asVoter, asVoter, asLearner)}, health: of{5: dead, 6: dead}, want: Wish{6, asOut, session.Silent}},
		{name: "M1: the rest would be no quorum", members: []session.Member{voter(1), voter(2), voter(3), voter(4)}, health: of{2: quiet, 3: dead, 4: quiet}},
		{name: "M11: a minority was dismissed just now", dismissed: 1, members: []session.Member{voter(1), voter(2), voter(3), voter(4), learner(5)}, health: of{3: dead}},
		{name: "M11: two of five within DeadAfter", voters: 5, dismissed: 1, members: []session.Member{voter(1), voter(2), voter(3), voter(4), voter(5), voter(6)}, health: of{3: dead}, want: Wish{3, asOut, session.Silent}},
		{name: "M11: a third of five waits", voters: 5, dismissed: 2, members: []session.Member{voter(1), voter(2), voter(3), voter(4), voter(5), voter(6)}, health: of{3: dead}},
		{name: "P2: the leader is not silent to itself", members: []session.Member{voter(1), voter(2), voter(3), voter(4)}, health: of{1: dead}},
		{name: "P2: as many as are wanted live", members: []session.Member{voter(1), voter(2), voter(3), voter(4), voter(5)}, health: of{4: dead, 5: dead}, want: Wish{4, asOut, session.Silent}},
		{name: "P2: more live than are wanted", members: []session.Member{voter(1), voter(2), voter(3), voter(4), voter(5), learner(6)}, health: of{5: dead}},
		{name: "P2: one left and one died", voters: 5, members: []session.Member{voter(1), voter(2), voter(3), voter(4)}, health: of{4: dead}, want: Wish{4, asOut, session.Silent}},

		// P3, P4: whose wish is out already.
		{name: "P3, M6: a wiped one came back as a spare", members: []session.Member{voter(1), voter(2), going(voter(3), session.Replaced), learner(4)}, health: of{3: quiet}, want: Wish{4, asVoter, 0}},
		{name: "P4: one leaves, and there is a spare", members: []session.Member{voter(1), voter(2), going(voter(3), session.Left), learner(4)}, want: Wish{4, asVoter, 0}},
		{name: "P4: one leaves, and there is none", members: []session.Member{voter(1), voter(2), going(voter(3), session.Left)}},
		{name: "P4, M15: two leave, and there is one spare", members: []session.Member{voter(1), going(voter(2), session.Left), going(voter(3), session.Left), learner(4)}},
		{name: "P4: the only one is to go", members: []session.Member{going(voter(1), session.Removed), learner(2)}, want: Wish{2, asVoter, 0}},

		{name: "P4: one leaves, and who was to follow died", members: []session.Member{going(voter(1), session.Left), member(3, asVoter, asLearner), learner(6)}, health: of{3: dead}, want: Wish{6, asVoter, 0}},
		{name: "P4: one leaves, who was to follow died, and nobody else is there", members: []session.Member{going(voter(1), session.Left), member(3, asVoter, asLearner)}, health: of{3: dead}},
		{name: "P2: a founder whose votes are not reported yet", members: []session.Member{voter(1), voter(2), member(3, asVoter)}, health: of{3: dead}},

		// P5.
		{name: "P5: a learner is silent for an hour", members: []session.Member{voter(1), learner(2)}, health: of{2: dead}, want: Wish{2, asOut, session.Silent}},
		{name: "P5: a learner is silent for a minute", members: []session.Member{voter(1), learner(2)}, health: of{2: {Silent: time.Minute}}},
		{name: "P5, M21: never came", members: []session.Member{voter(1), stranger}, health: of{9: dead}, want: Wish{9, asOut, session.NeverCame}},
		{name: "P3: a wiped learner came back under its name", members: []session.Member{voter(1), voter(2), voter(3), named(learner(4)), named(learner(5))}, health: of{4: quiet}, want: Wish{4, asOut, session.Replaced}},
		{name: "P3: who never came has come under its name", members: []session.Member{voter(1), voter(2), voter(3), named(stranger), named(learner(10))}, health: of{9: quiet}, want: Wish{9, asOut, session.Replaced}},
		{name: "P3: the learner answers again", members: []session.Member{voter(1), voter(2), voter(3), named(learner(4)), named(learner(5))}},
		{name: "P3: a learner under a name that came before", members: []session.Member{voter(1), voter(2), voter(3), named(learner(4)), named(learner(5))}, health: of{5: quiet}},
		{name: "P3: who came under the learner's name goes too", members: []session.Member{voter(1), voter(2), voter(3), named(learner(4)), named(going(learner(5), session.Left))}, health: of{4: quiet}},
		{name: "P3: not while nobody is to vote", members: []session.Member{going(voter(1), session.Replaced), named(learner(2)), named(learner(3))}, health: of{2: quiet, 3: fresh}},
		{name: "P5: voters first", members: []session.Member{voter(1), voter(2), voter(3), learner(4), learner(5)}, health: of{3: dead, 4: dead}, want: Wish{3, asOut, session.Silent}},

		// P6, M16.
		{name: "P6: another zone", members: []session.Member{in("a", voter(1)), in("a", learner(2)), in("b", learner(3))}, want: Wish{3, asVoter, 0}},
		{name: "P6: a zone whose voter is dead", members: []session.Member{in("a", voter(1)), in("b", voter(2)), in("c", going(voter(3), session.Silent)), in("a", learner(4)), in("c", learner(5))}, health: of{3: dead}, want: Wish{5, asVoter, 0}},
		{name: "P6: a zone whose voter goes", members: []session.Member{in("a", voter(1)), in("b", voter(2)), in("c", going(voter(3), session.Left)), in("a", learner(4)), in("c", learner(5))}, want: Wish{5, asVoter, 0}},
		{name: "P6: the oldest of equals", members: []session.Member{in("a", voter(1)), in("b", learner(2)), in("c", learner(3))}, want: Wish{2, asVoter, 0}},

		{name: "M41: out of one shard", shards: 2, members: []session.Member{
			member(1, asVoter, asVoter, asVoter), member(2, asVoter, asVoter, asOut)}, want: Wish{2, asOut, session.Lost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := withVoters(max(c.voters, 1))
			if c.voters == 0 {
				r = rules
			}
			got, ok := Plan(Situation{
				Self: 1, Table: table(max(c.shards, 1), c.members...), Health: healths(c.health),
				Dismissed: c.dismissed, Rules: r,
			})
			if got != c.want || ok != (c.want != Wish{}) {
				t.Errorf("wish %+v (%v), want %+v", got, ok, c.want)
			}
		})
	}
}

// killers returns the members whose death would take the quorum.
func (s *state) killers() (n int) {
	for i := range int(s.admitted) {
		after := *s
		if after.down[i] = true; !s.down[i] && !after.quorum(0) {
			n++
		}
	}
	return n
}

// M90: while a spare takes the place of a dead voter, no more members are needed than before.
func TestPlanAndExecute_NeedNoNewcomer(t *testing.T) {
	x := &search{t: t, seen: make(map[state]bool), trail: []step{{}}}
	s := firstState(1, 3, 1)
	s.leader[0], s.down[2], s.looks[2] = 0, true, looksDead
	needed := s.killers()
	for {
		x.next = nil
		if x.plan(s, 0); len(x.next) == 0 {
			x.execute(s, 0, 0)
		}
		if len(x.next) == 0 {
			break
		}
		if s = x.next[0].state; s.pending[0].kind != 0 {
			s.apply(0)
		}
		if n := s.killers(); n > needed {
			t.Errorf("%d are needed, and %d were before: %+v", n, needed, s)
		}
	}
	if s.place[0] != [searchMembers]session.Part{asVoter, asVoter, asOut, asVoter} {
		t.Errorf("%+v", s)
	}
}

// Without DeadAfter nobody is dismissed; without ForgetAfter nobody is forgotten.
func TestPlan_NeverDismisses(t *testing.T) {
	r := rules
	r.DeadAfter, r.ForgetAfter = -1, 0
	members := table(1, voter(1), voter(2), voter(3), voter(4), learner(5))
	s := Situation{Self: 1, Table: members, Rules: r, Health: healths(map[session.MemberID]Health{3: dead, 5: dead})}
	if w, ok := Plan(s); ok {
		t.Errorf("wish %+v", w)
	}
}

// A planner that has nothing to do makes no garbage: it looks twice an election, for ever.
func TestPlanAndExecute_MakeNoGarbage(t *testing.T) {
	members := table(1, voter(1), voter(2), voter(3), learner(4))
	w := NewWatch(rules)
	now := time.Unix(0, 0)
	health := w.Health
	look := Look{Committed: 5, Table: members}
	look.Pulse = func(session.MemberID) Pulse { return Pulse{Answered: now, Index: 5} }
	ids := []session.MemberID{1, 2, 3}
	learners := []session.MemberID{4}
	once := func() {
		now = now.Add(rules.Period)
		look.Now = now
		w.Look(look)
		_, wishes := Plan(Situation{Self: 1, Table: members, Health: health, Dismissed: w.Dismissed(), Rules: rules})
		step := Execute(Shard{ID: 1, Self: 1, Voters: ids, Learners: learners, Table: members, Health: health, Connected: all, Sessions: none, Retired: none, Rules: rules})
		if wishes || step != (Step{}) {
			t.Fatal("there was something to do")
		}
	}
	once()
	if n := testing.AllocsPerRun(100, once); n > 0 {
		t.Errorf("%v allocations a look", n)
	}
}
