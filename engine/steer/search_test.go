package steer

import (
	"flag"
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
)

const (
	searchMembers = 5 // at most, with those that join
	searchShards  = 2 // at most
)

// A state is an ensemble of the search, in which time is no more than what members look like to the
// leaders. Members count from zero, and have ids from one.
type state struct {
	shards   int8
	admitted int8
	crashes  int8 // that may still happen
	wish     [searchMembers]session.Part
	reason   [searchMembers]session.Reason
	place    [searchShards][searchMembers]session.Part // as the table has it
	part     [searchShards][searchMembers]session.Part // as it is
	leader   [searchShards]int8                        // -1: none
	pending  [searchShards]change
	down     [searchMembers]bool
	looks    [searchMembers]look // to the leaders
}

// look is what a member looks like.
type look uint8

const (
	looksNew look = iota
	looksWell
	looksQuiet
	looksDead
)

func (l look) answers() bool { return l == looksNew || l == looksWell }

func (l look) health() Health {
	return [...]Health{fresh, well, quiet, dead}[l]
}

// change is a change in a leader's log.
type change struct {
	kind   StepKind // zero: none
	member int8
	calm   bool // the leader saw what was so, and nobody has crashed since
}

// firstState returns an ensemble of so many voters and spares.
func firstState(shards, voters, spares int) state {
	s := state{shards: int8(shards), admitted: int8(voters + spares), crashes: 2}
	for i := range voters + spares {
		s.looks[i] = looksWell
		if s.wish[i] = session.Voter; i >= voters {
			s.wish[i] = session.Learner
		}
		for k := range shards {
			s.part[k][i], s.place[k][i] = s.wish[i], s.wish[i]
		}
	}
	return s
}

func (s *state) table() *session.MembersView {
	v := &session.MembersView{Ensemble: session.Ensemble{Next: id(s.admitted + 1), Shards: uint32(s.shards)}}
	for i := range int(s.admitted) {
		m := session.Member{ID: id(i + 1), Wish: s.wish[i], Reason: s.reason[i]}
		for k := range int(s.shards) {
			m.Places = append(m.Places, session.Place{Part: s.place[k][i], Change: 1})
		}
		v.List = append(v.List, m)
	}
	return v
}

func (s *state) in(k int, part session.Part) (list ids) {
	for i, p := range s.part[k] {
		if p == part {
			list = append(list, id(i+1))
		}
	}
	return list
}

// quorum reports whether the voters of a shard that are up decide.
func (s *state) quorum(k int) bool {
	votes, up := 0, 0
	for i, p := range s.part[k] {
		if p == session.Voter {
			votes++
			if !s.down[i] {
				up++
			}
		}
	}
	return 2*up > votes
}

func (s *state) led(k int) bool { return s.leader[k] >= 0 && !s.down[s.leader[k]] && s.quorum(k) }

// sees reports whether the leaders see what is so.
func (s *state) sees() bool {
	for i := range int(s.admitted) {
		if s.looks[i].answers() == s.down[i] {
			return false
		}
	}
	return true
}

func (s *state) health(self int8) func(id) Health {
	return func(m id) Health {
		if int8(m-1) == self {
			return well
		}
		return s.looks[m-1].health()
	}
}

// search visits the states that schedules of some length lead to.
type search struct {
	t     testing.TB
	seen  map[state]bool
	next  []step
	trail []step // of the states of this length and shorter ones
}

// step is a state and how it came about.
type step struct {
	state
	from int // in trail
	what string
	args []any
}

func (x *search) reach(s state, from int, format string, args ...any) {
	if !x.seen[s] {
		x.seen[s] = true
		x.next = append(x.next, step{s, from, format, args})
	}
}

func (x *search) fail(s *state, from int, format string, args ...any) {
	x.t.Helper()
	var lines string
	for ; from > 0; from = x.trail[from].from {
		lines = fmt.Sprintf(x.trail[from].what, x.trail[from].args...) + "\n" + lines
	}
	x.t.Fatalf("%s\n%s%+v", fmt.Sprintf(format, args...), lines, *s)
}

// expand visits what may happen next.
func (x *search) expand(s state, at int) {
	for k := range int(s.shards) {
		x.elections(s, at, k)
		if !s.led(k) {
			continue
		}
		if s.pending[k].kind != 0 {
			n := s
			n.apply(k)
			x.judge(&s, &n, k, at)
			x.reach(n, at, "shard %d: %v %d", k+1, s.pending[k].kind, s.pending[k].member+1)
			n = s
			n.pending[k] = change{}
			x.reach(n, at, "shard %d: the change is dropped", k+1)
		} else if s.led(0) {
			x.execute(s, at, k)
		}
	}
	if s.led(0) {
		x.plan(s, at)
	}
	x.members(s, at)
}

// elections gives a shard another leader, with or without the change of the former one.
func (x *search) elections(s state, at, k int) {
	if !s.quorum(k) {
		return
	}
	for i, p := range s.part[k] {
		if p != session.Voter || s.down[i] || int8(i) == s.leader[k] {
			continue
		}
		for late := range 2 {
			n := s
			n.leader[k] = int8(i)
			if late == 1 {
				if s.pending[k].kind == 0 {
					break
				}
				n.apply(k)
			}
			n.pending[k] = change{}
			if n.part[k][i] != session.Voter {
				n.leader[k] = -1
			}
			n.forgetLooks()
			x.reach(n, at, "shard %d: member %d leads, with the change: %v", k+1, i+1, late == 1)
		}
	}
}

// forgetLooks is what a new leader knows: nothing.
func (s *state) forgetLooks() {
	for i, l := range s.looks {
		if s.looks[i] = looksQuiet; l.answers() {
			s.looks[i] = looksNew
		}
	}
}

func (s *state) apply(k int) {
	c := s.pending[k]
	s.part[k][c.member] = map[StepKind]session.Part{AddLearner: session.Learner, Promote: session.Voter, Remove: session.Out}[c.kind]
	s.pending[k] = change{}
}

// judge checks a change that takes effect.
func (x *search) judge(s, n *state, k, at int) {
	c := s.pending[k]
	if len(n.in(k, session.Voter)) == 0 {
		x.fail(s, at, "shard %d: nobody votes", k+1)
	}
	if c.calm && s.quorum(k) && !n.quorum(k) {
		x.fail(s, at, "shard %d: %v %d takes the quorum", k+1, c.kind, c.member+1)
	}
}

// execute does what Execute says.
func (x *search) execute(s state, at, k int) {
	self := s.leader[k]
	got := Execute(Shard{
		ID: uint32(k + 1), Self: id(self + 1), Change: 2,
		Voters: s.in(k, session.Voter), Learners: s.in(k, session.Learner), Removed: s.in(k, session.Out),
		Table: s.table(), Health: s.health(self), Rules: rules, Sessions: none, Retired: all,
		Connected: func(m id) bool { return !s.down[m-1] },
	})
	m := int8(got.Member) - 1
	n := s
	switch got.Kind {
	case 0:
		return
	case Report:
		n.place[k][m] = got.Place.Part
	case HandOver:
		if s.down[m] {
			return
		}
		n.leader[k] = m
		n.forgetLooks()
	default:
		x.decides(&s, k, at, got)
		n.pending[k] = change{got.Kind, m, s.sees()}
	}
	x.reach(n, at, "shard %d: member %d decides: %v %d", k+1, self+1, got.Kind, got.Member)
}

// decides checks a change as it is proposed.
func (x *search) decides(s *state, k, at int, c Step) {
	i := c.Member - 1
	allowed := map[StepKind]bool{
		AddLearner: s.part[k][i] == 0 && s.wish[i] < session.Out,
		Promote:    s.part[k][i] == session.Learner && s.wish[i] == session.Voter,
		Remove:     s.part[k][i] < session.Out && s.wish[i] == session.Out && int8(i) != s.leader[k],
	}
	if !allowed[c.Kind] {
		x.fail(s, at, "shard %d: %v %d", k+1, c.Kind, c.Member)
	}
	votes, answer := 0, 0
	for j, p := range s.part[k] {
		if c.Kind == Promote && j == int(i) {
			p = session.Voter
		}
		if p != session.Voter || c.Kind == Remove && j == int(i) {
			continue
		}
		votes++
		if int8(j) == s.leader[k] || s.looks[j].answers() {
			answer++
		}
	}
	if c.Kind != AddLearner && 2*answer <= votes {
		x.fail(s, at, "shard %d: %v %d while %d answer", k+1, c.Kind, c.Member, answer)
	}
}

// plan enters what Plan says.
func (x *search) plan(s state, at int) {
	wish, ok := Plan(Situation{Self: id(s.leader[0] + 1), Table: s.table(), Health: s.health(s.leader[0]), Rules: rules})
	if !ok {
		return
	}
	i := wish.Member - 1
	if wish.Part <= s.wish[i] {
		x.fail(&s, at, "wish %+v", wish)
	}
	if s.isLast(int(i)) {
		x.fail(&s, at, "the last one that is to vote: wish %+v", wish)
	}
	n := s
	if wish.Part == session.Out && s.wish[i] == session.Voter {
		x.replaced(&s, at, int(i))
	}
	n.wish[i], n.reason[i] = wish.Part, wish.Reason
	x.reach(n, at, "wish: %d %v %v", wish.Member, wish.Part, wish.Reason)
}

func (s *state) isLast(i int) bool {
	for j, w := range s.wish {
		if j != i && w == session.Voter {
			return false
		}
	}
	return s.wish[i] == session.Voter
}

// replaced checks that somebody can take the place of a voter that is dismissed.
func (x *search) replaced(s *state, at, i int) {
	for k := range int(s.shards) {
		stay, known := 0, true
		for j, p := range s.part[k] {
			if p == session.Voter && s.wish[j] == session.Voter {
				stay++
				known = known && s.place[k][j] == session.Voter
			}
		}
		spares := len(s.in(k, session.Learner))
		if s.part[k][i] == session.Voter && known && stay%2 == 1 && stay <= rules.Voters && spares == 0 {
			x.fail(s, at, "shard %d: member %d is dismissed, and nobody can take its place", k+1, i+1)
		}
	}
}

// members lets members crash, come back, join, leave and be noticed.
func (x *search) members(s state, at int) {
	if int(s.admitted) < searchMembers && s.led(0) {
		n := s
		n.wish[n.admitted] = session.Learner
		n.admitted++
		x.reach(n, at, "member %d joins", n.admitted)
	}
	for i := range int(s.admitted) {
		n := s
		if n.down[i] = !s.down[i]; s.down[i] || s.crashes > 0 {
			if n.down[i] {
				n.crashes--
				for k := range n.pending {
					n.pending[k].calm = false
				}
			}
			x.reach(n, at, "member %d is up: %v", i+1, !n.down[i])
		}
		n = s
		switch l := s.looks[i]; {
		case s.down[i] && l.answers():
			n.looks[i] = looksQuiet
		case s.down[i]:
			n.looks[i] = looksDead
		case l != looksNew && l != looksWell:
			n.looks[i] = looksNew
		default:
			n.looks[i] = looksWell
		}
		x.reach(n, at, "member %d looks %d", i+1, n.looks[i])
		if s.wish[i] < session.Out && !s.down[i] && s.led(0) && !s.isLast(i) {
			n = s
			n.wish[i], n.reason[i] = session.Out, session.Left
			x.reach(n, at, "member %d leaves", i+1)
		}
	}
}

var searchDeeper = flag.Int("search.deeper", 0, "search for schedules that are so much longer; each more takes four times as long")

// TestSearch visits all schedules of up to five members with two crashes: M1, M2, M4, M8 to M11,
// M41 and M42. A leader acts on what it sees, which may be old.
func TestSearch(t *testing.T) {
	for _, c := range []struct{ shards, voters, spares, depth int }{
		{1, 3, 0, 9}, {1, 3, 2, 8}, {1, 1, 2, 11}, {1, 2, 1, 9}, {2, 3, 1, 7}, {2, 1, 2, 8}, {2, 2, 1, 7},
	} {
		t.Run(fmt.Sprintf("shards=%d,voters=%d,spares=%d", c.shards, c.voters, c.spares), func(t *testing.T) {
			x := &search{t: t, seen: make(map[state]bool), trail: []step{{}}}
			x.reach(firstState(c.shards, c.voters, c.spares), 0, "")
			if !testkit.Night() {
				c.depth -= 2
			}
			for range c.depth + *searchDeeper {
				now := x.next
				x.next = nil
				for _, s := range now {
					x.trail = append(x.trail, s)
					x.expand(s.state, len(x.trail)-1)
				}
			}
			t.Logf("%d states", len(x.seen))
		})
	}
}
