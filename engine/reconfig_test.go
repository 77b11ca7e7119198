package engine

import (
	"encoding/json"
	"errors"
	"fmt"
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
	promote, remove := Reconfig{Promote: []MemberID{3}}, Reconfig{Remove: []MemberID{3}}
	for name, c := range map[string]struct {
		third    session.Member // ID 3; zero if it is forgotten
		change   Reconfig
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
		if got := isMade(&c.change, table); got != c.done {
			t.Errorf("%s: it is done: %v", name, got)
		}
		other := Reconfig{Remove: []MemberID{2}}
		if got := underWay(&other, table); got != c.underWay {
			t.Errorf("%s: another change waits for member %d, want %d", name, got, c.underWay)
		}
		if got := underWay(&Reconfig{Remove: []MemberID{2, 3}}, table); got != 0 {
			t.Errorf("%s: to remove it waits for member %d", name, got)
		}
	}
}

// A caller hears the same error at the leader and at any other member: its kind decides on the code
// that a gateway answers.
func TestAnswer_ARefusalKeepsItsKind(t *testing.T) {
	kinds := []error{ErrUnsafe, ErrConfigChanged, ErrReconfiguring, session.ErrNotMember, session.ErrObserver, ErrUnavailable}
	for _, kind := range append(kinds, errors.New("any other")) {
		atLeader := fmt.Errorf("%w: member 4", kind)
		var sent, got ask.Answer
		sent.Refuse(atLeader)
		text, err := json.Marshal(sent)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		here := got.Refusal()
		if here == nil || here.Error() != atLeader.Error() {
			t.Errorf("%q is %q elsewhere", atLeader, here)
		}
		for _, k := range kinds {
			if errors.Is(here, k) != errors.Is(atLeader, k) {
				t.Errorf("elsewhere %q is the error %q: %v", here, k, errors.Is(here, k))
			}
		}
	}
	if err := (&ask.Answer{Done: true}).Refusal(); err != nil {
		t.Error(err)
	}
}

// A leader's refusal is one, unless it was asked before and the answer was lost. Then the change may
// be recorded, and the error is none of those with which nothing was changed.
func TestRefused_AfterALostAnswer(t *testing.T) {
	unsafe := fmt.Errorf("%w: member 4", ErrUnsafe)
	if err := ask.Refused(unsafe, false, "it"); err != unsafe {
		t.Errorf("asked once: %v", err)
	}
	if err := ask.Refused(unsafe, true, "it"); !errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrUnsafe) {
		t.Errorf("asked again: %v", err)
	}
	if err := ask.Refused(nil, true, "it"); err != nil {
		t.Errorf("not refused: %v", err)
	}
}
