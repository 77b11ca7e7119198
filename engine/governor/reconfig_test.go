package governor

import (
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/steer"
	"github.com/vivarium-go/vivarium/session"
)

// A change is recorded when the table has its wishes, and done when they are facts on all shards.
// Another one waits until then, unless it sends the same members the same way.
func TestReconfig_WhatATableShows(t *testing.T) {
	part := func(parts ...session.Part) (list []session.Place) {
		for i, p := range parts {
			list = append(list, session.Place{Part: p, Change: uint64(i + 1)})
		}
		return list
	}
	const (
		learner, voter, out = session.Learner, session.Voter, session.Out
	)
	voters := []session.Member{{ID: 1, Wish: voter, Places: part(voter, voter)}, {ID: 2, Wish: voter, Places: part(voter, voter)}}
	promote, remove := ask.Reconfig{Promote: []MemberID{3}}, ask.Reconfig{Remove: []MemberID{3}}
	for name, c := range map[string]struct {
		third    session.Member // ID 3; zero if it is forgotten
		change   ask.Reconfig
		missing  []steer.Wish
		done     bool
		underWay session.MemberID // for another change
	}{
		"a learner is to vote":         {session.Member{ID: 3, Wish: learner, Places: part(learner, learner)}, promote, []steer.Wish{{Member: 3, Part: voter}}, false, 0},
		"it is wished":                 {session.Member{ID: 3, Wish: voter, Places: part(learner, learner)}, promote, nil, false, 3},
		"it votes on one shard":        {session.Member{ID: 3, Wish: voter, Places: part(voter, learner)}, promote, nil, false, 3},
		"it has no place on the other": {session.Member{ID: 3, Wish: voter, Places: part(voter)}, promote, nil, false, 3},
		"it votes":                     {session.Member{ID: 3, Wish: voter, Places: part(voter, voter)}, promote, nil, true, 0},
		"somebody took it out":         {session.Member{ID: 3, Wish: out, Places: part(learner, learner)}, promote, []steer.Wish{{Member: 3, Part: voter}}, false, 3},
		"a voter is to go":             {session.Member{ID: 3, Wish: voter, Places: part(voter, voter)}, remove, []steer.Wish{{Member: 3, Part: out, Reason: session.Removed}}, false, 0},
		"it is wished out":             {session.Member{ID: 3, Wish: out, Places: part(voter, voter)}, remove, nil, false, 3},
		"it is out of one shard":       {session.Member{ID: 3, Wish: out, Places: part(out, voter)}, remove, nil, false, 3},
		"it is out":                    {session.Member{ID: 3, Wish: out, Places: part(out, out)}, remove, nil, true, 0},
		"it is forgotten":              {session.Member{}, remove, nil, true, 0},
	} {
		table := &session.MembersView{Ensemble: session.Ensemble{Next: 4, Shards: 2}, List: slices.Clone(voters)}
		if c.third.ID != 0 {
			table.List = append(table.List, c.third)
		}
		if got := lacks(&c.change, table); !slices.Equal(got, c.missing) || isRecorded(&c.change, table) != (len(got) == 0) {
			t.Errorf("%s: the table lacks %+v, want %+v", name, got, c.missing)
		}
		if got := IsMade(&c.change, table); got != c.done {
			t.Errorf("%s: it is done: %v", name, got)
		}
		other := ask.Reconfig{Remove: []MemberID{2}}
		if got := underWay(&other, table); got != c.underWay {
			t.Errorf("%s: another change waits for member %d, want %d", name, got, c.underWay)
		}
		if got := underWay(&ask.Reconfig{Remove: []MemberID{2, 3}}, table); got != 0 {
			t.Errorf("%s: to remove it waits for member %d", name, got)
		}
	}
}
