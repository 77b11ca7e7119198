package steer

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/session"
)

// station drives a watch: it looks once a period, while members answer or do not.
type station struct {
	*Watch
	now     time.Time
	pulses  map[session.MemberID]Pulse
	members []session.Member
	end     uint64
}

func newStation(members ...session.Member) *station {
	return &station{Watch: NewWatch(rules), now: time.Unix(1000, 0), pulses: make(map[session.MemberID]Pulse), members: members, end: 5000}
}

// look looks so many times, a period apart; the members that answer have acknowledged all.
func (s *station) look(times int, answering ...session.MemberID) {
	for range times {
		s.now = s.now.Add(rules.Period)
		for _, id := range answering {
			s.pulses[id] = Pulse{Answered: s.now, Index: s.end}
		}
		s.once()
	}
}

func (s *station) once() {
	s.Look(Look{Now: s.now, Committed: s.end, Table: table(1, s.members...), Pulse: func(id session.MemberID) Pulse { return s.pulses[id] }})
}

// M11: leaders that change often judge nobody by what happened before they led.
func TestWatch_CountsFromTheFirstLook(t *testing.T) {
	s := newStation(voter(1), voter(2), voter(3))
	s.pulses[2] = Pulse{Answered: s.now.Add(-time.Hour)}
	s.look(1, 3)
	if h := s.Health(2); h != (Health{}) {
		t.Errorf("M11: silent before this leadership began: %+v", h)
	}
	if h, want := s.Health(3), fresh; h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
	s.look(10, 3)
	if h := s.Health(2); h.Silent != 10*time.Second || h.Answers || h.Well != 0 {
		t.Errorf("after ten looks without an answer: %+v", h)
	}
	if h := s.Health(3); h.Well != 10*time.Second || !h.Answers || h.Silent != 0 {
		t.Errorf("after ten looks with answers: %+v", h)
	}
	if h := s.Health(9); h != (Health{}) {
		t.Errorf("a stranger: %+v", h)
	}
}

// M12: the leader's process stands still for an hour. It does not take that for the others'
// silence, nor for a time in which they were well.
func TestWatch_DoesNotCountItsOwnPause(t *testing.T) {
	s := newStation(voter(1), voter(2))
	s.look(10, 2)
	s.now = s.now.Add(time.Hour)
	s.once()
	if h := s.Health(2); h.Silent != 2*rules.Period || h.Well != 0 {
		t.Errorf("after a pause: %+v", h)
	}
	s.look(1, 2)
	if h := s.Health(2); h.Silent != 0 || h.Well != 0 || !h.Answers {
		t.Errorf("it answers again: %+v", h)
	}
}

// M12: the clock goes back.
func TestWatch_TimeStandsStill(t *testing.T) {
	s := newStation(voter(1), voter(2))
	s.look(5)
	before := s.Health(2)
	s.now = s.now.Add(-time.Hour)
	s.once()
	if h := s.Health(2); h.Silent != before.Silent {
		t.Errorf("silent for %v, before that %v", h.Silent, before.Silent)
	}
}

// M3: caught up is near the end, in entries and in time. Nobody who is not is well.
func TestWatch_CaughtUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		behind uint64 // of the end at the last look
		grows  uint64 // how far the end moves in each look
		want   bool
	}{
		{"at the end", 0, 0, true},
		{"a second behind", 100, 100, true},
		{"two seconds behind", 101, 100, false},
		{"nothing happens, and it is one behind", 1, 0, false},
		{"within a second, but too many", 1001, 2000, false},
		{"within a second", 1000, 2000, true},
	} {
		s := newStation(voter(1), voter(2))
		for range 5 {
			s.end += c.grows
			s.now = s.now.Add(rules.Period)
			s.pulses[2] = Pulse{Answered: s.now, Index: s.end - c.behind}
			s.once()
		}
		if h := s.Health(2); h.CaughtUp != c.want || (h.Well > 0) != c.want {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

// A look may come at any time. The marks stay few.
func TestWatch_KeepsFewMarks(t *testing.T) {
	s := newStation(voter(1), voter(2))
	for range 10_000 {
		s.now = s.now.Add(time.Millisecond)
		s.end++
		s.once()
	}
	if n := len(s.marks); n > 12 {
		t.Errorf("%d marks", n)
	}
	if old := s.now.Sub(s.marks[0].at); old < lagTime || old > lagTime+2*markTime {
		t.Errorf("the oldest mark is of %v ago", old)
	}
}

// M14: whoever answers is heard. A pulse that is older than two elections is none.
func TestWatch_Answers(t *testing.T) {
	s := newStation(voter(1), voter(2))
	s.look(3, 2)
	s.look(4)
	if !s.Health(2).Answers {
		t.Error("two elections have not passed")
	}
	s.look(1)
	if h := s.Health(2); h.Answers || h.Silent != time.Second {
		t.Errorf("two elections have passed: %+v", h)
	}
}

func TestWatch_Leaving(t *testing.T) {
	s := newStation(voter(1), voter(2))
	s.look(5, 2)
	s.members[1] = going(voter(2), session.Left)
	s.look(1, 2)
	if h := s.Health(2); h.Leaving != 0 {
		t.Errorf("leaving for %v at the first look", h.Leaving)
	}
	s.look(3, 2)
	if h := s.Health(2); h.Leaving != 3*time.Second || h.Well == 0 {
		t.Errorf("after three looks: %+v", h)
	}
}

// M11, M57: dismissals are counted for DeadAfter, also of who is gone from the table by the next
// look.
func TestWatch_Dismissed(t *testing.T) {
	s := newStation(voter(1), voter(2), voter(3), voter(4), learner(5), going(voter(6), session.Silent))
	s.look(5, 2)
	s.members[3] = going(voter(4), session.Left)
	s.members[4] = going(learner(5), session.Silent)
	s.look(1, 2)
	if n := s.Dismissed(); n != 0 {
		t.Fatalf("%d were dismissed", n)
	}
	s.members[1] = going(voter(2), session.Silent)
	s.look(1, 2)
	if n := s.Dismissed(); n != 1 {
		t.Fatalf("%d were dismissed", n)
	}
	s.members = append(s.members[:2], s.members[3:]...)
	s.look(59, 2)
	if n := s.Dismissed(); n != 2 {
		t.Fatalf("%d were dismissed", n)
	}
	if h := s.Health(3); h != (Health{}) {
		t.Errorf("it is gone: %+v", h)
	}
	s.look(1, 2)
	if n := s.Dismissed(); n != 1 {
		t.Fatalf("%d were dismissed within DeadAfter", n)
	}
	s.look(60, 2)
	if n := s.Dismissed(); n != 0 {
		t.Fatalf("%d were dismissed within DeadAfter", n)
	}
}
