package engine

import (
	"slices"
	"testing"
)

// A leader that steps aside tries all other members in turn, and never itself.
func TestOtherMembersInTurn(t *testing.T) {
	for _, c := range []struct {
		members []MemberID
		want    []MemberID
	}{
		{[]MemberID{2}, []MemberID{0, 0, 0, 0}},
		{[]MemberID{5, 2}, []MemberID{5, 5, 5, 5}},
		{[]MemberID{7, 3, 2, 1}, []MemberID{1, 3, 7, 1}},
	} {
		n := newNode(t)
		n.member.Store(2)
		n.cfg.Members = make(map[MemberID]string)
		for _, id := range c.members {
			n.cfg.Members[id] = ""
		}
		var got []MemberID
		for nth := range c.want {
			got = append(got, n.other(1, nth))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v it tries %v, want %v", c.members, got, c.want)
		}
	}
}

// Who asks for the founders or the voters may change the list that it gets.
func TestFounders_AreCopied(t *testing.T) {
	n := newNode(t)
	n.member.Store(2)
	founders := []MemberID{1, 2, 3}
	n.place.Store(&place{founders: slices.Clone(founders)})
	n.others(1)
	if got := n.founders(); !slices.Equal(got, founders) {
		t.Errorf("the founders were %v, and are %v", founders, got)
	}
}
