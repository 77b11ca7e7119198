package engine

import (
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
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
		members := make(map[MemberID]string)
		for _, id := range c.members {
			members[id] = ""
		}
		n.roster = roster.New(n.identity, members, n.Engine.log)
		n.roster.Load(n.shards)
		n.roster.Claim(2)
		var got []MemberID
		for nth := range c.want {
			got = append(got, n.roster.Other(1, nth))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v it tries %v, want %v", c.members, got, c.want)
		}
	}
}

// Who asks for the founders or the voters may change the list that it gets.
func TestFounders_AreCopied(t *testing.T) {
	n := newNode(t)
	founders := []MemberID{1, 2, 3}
	n.roster.Become(replication.Identity{Member: 2, Founders: slices.Clone(founders)})
	n.roster.Others(1)
	if got := n.roster.Founders(); !slices.Equal(got, founders) {
		t.Errorf("the founders were %v, and are %v", founders, got)
	}
}
