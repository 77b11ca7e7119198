package campaign

import (
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// since returns a history with others before it, the oldest first.
func since(p past, before ...past) past {
	for i := len(before) - 1; i >= 0; i-- {
		before[i].Survivor = 1
		last := &p
		for last.Before != nil {
			last = last.Before
		}
		last.Before = &before[i]
	}
	return p
}

func TestFindOldZxids(t *testing.T) {
	of := func(ops ...op) past { return past{Ops: ops} }
	before := of(at(1, 2, set(a0+"/a", "x", 9, 1)))
	read := at(1, 2, get1("c", a0+"/a", "x", 9, 1))
	read.Stat.Pzxid = 12 // only a child was made at 12
	held := func(token, wrote embed.Zxid) past {
		g := granted(token, 10, 20, guarded{Outcome: applied, Mzxid: wrote})
		g.Path = a0 + "/l"
		return past{Grants: []grant{g}}
	}
	hold(t, findOldZxids, []badHistory{
		{"a zxid is given twice", since(of(at(5, 6, set(a0+"/b", "y", 9, 1))), before), since(of(at(5, 6, set(a0+"/b", "y", 10, 1))), before), "has zxid 9, and zxid 9"},
		{"zxids go back", since(of(at(5, 6, set(a0+"/b", "y", 8, 1))), before), since(of(at(5, 6, set("/area1/b", "y", 8, 1))), before), "has zxid 8"},
		{"a read has shown it", since(of(at(5, 6, set(a0+"/b", "y", 12, 1))), of(read)), since(of(at(5, 6, set(a0+"/b", "y", 13, 1))), of(read)), "has zxid 12"},
		{"a guarded write has it", since(of(at(5, 6, set(a0+"/b", "y", 12, 1))), held(3, 12)), since(of(at(5, 6, set(a0+"/b", "y", 13, 1))), held(3, 12)), "has zxid 12"},
		{"a guarded write gets it", since(held(30, 9), before), since(held(30, 10), before), "has zxid 9"},
		{"two recoveries ago", since(of(at(5, 6, set(a0+"/b", "y", 9, 1))), before, of()), since(of(at(5, 6, set(a0+"/b", "y", 10, 1))), before, of()), "has zxid 9"},
	})
}

func TestFindSecondSessions(t *testing.T) {
	of := func(name string, id embed.SessionID) past { return past{Lives: []life{{Name: name, ID: id}}} }
	hold(t, findSecondSessions, []badHistory{
		{"an id comes again", since(of("d", 7), of("c", 7)), since(of("d", 8), of("c", 7)), "sessions c and d"},
		{"two recoveries ago", since(of("d", 7), of("c", 7), of("b", 9)), since(of("d", 8), of("c", 7), of("b", 9)), "sessions c and d"},
	})
}

// What holds of the holders of a lock holds over a recovery.
func TestLasting_Holds(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	all := func(p *past) (found []string) {
		for _, c := range lasting {
			found = append(found, c.find(p)...)
		}
		return found
	}
	hold(t, all, []badHistory{
		{"a token is used again", since(of(granted(5, 30, 40)), of(granted(5, 10, 20))), since(of(granted(6, 30, 40)), of(granted(5, 10, 20))), "the same token"},
		{"a token goes back", since(of(granted(4, 30, 40)), of(granted(5, 10, 20))), since(of(granted(6, 30, 40)), of(granted(5, 10, 20))), "was requested at"},
		{"two hold at once", since(of(granted(6, 30, 40)), of(granted(5, 10, 35))), since(of(granted(6, 30, 40)), of(granted(5, 10, 29))), "while"},
		{"the old holder writes last", since(of(granted(6, 30, 40, guarded{Outcome: applied, Data: "b", Mzxid: 70})), of(granted(5, 10, 20, guarded{Outcome: applied, Data: "a", Mzxid: 71}))), since(of(granted(6, 30, 40, guarded{Outcome: applied, Data: "b", Mzxid: 72})), of(granted(5, 10, 20, guarded{Outcome: applied, Data: "a", Mzxid: 71}))), "succeeded at zxid 71"},
	})
}

func TestFindForgotten(t *testing.T) {
	number := func(member embed.MemberID, data string, z embed.Zxid) op {
		o := op{Client: "c", Call: callCreate, Path: a0 + numbersPath + "/n-", Data: data, Stat: embed.Stat{Czxid: z}}
		o.Member, o.Got = member, a0+numbersPath+"/"+data
		return at(1, 2, o)
	}
	entryOf := func(data string, z embed.Zxid) entry {
		return entry{Path: a0 + numbersPath + "/" + data, Data: data, Stat: embed.Stat{Czxid: z}}
	}
	// The survivor, member 1, has shown zxid 8. Member 2 has acknowledged up to 9.
	before := past{Ops: []op{number(2, "a", 7), number(1, "b", 8), number(2, "c", 9)}}
	again := entryOf("c", 12)
	again.Path += "-again"
	for _, c := range []struct {
		name string
		tree []entry
		lost int
		want string
	}{
		{"all is there", []entry{entryOf("a", 7), entryOf("b", 8), entryOf("c", 9)}, 0, ""},
		{"the newest is lost", []entry{entryOf("a", 7), entryOf("b", 8)}, 1, ""},
		{"what the survivor has acknowledged is lost", []entry{entryOf("a", 7), entryOf("c", 9)}, 0, "is lost, although member 1"},
		{"an older one is lost", []entry{entryOf("b", 8), entryOf("c", 9)}, 0, "is lost, although member 1"},
		{"it is there, but since another time", []entry{entryOf("a", 6), entryOf("b", 8), entryOf("c", 9)}, 0, "is lost, although member 1"},
		{"one is there twice", []entry{entryOf("a", 7), entryOf("b", 8), entryOf("c", 9), again}, 0, "applied 2 times"},
	} {
		p := since(past{}, before)
		found, lost := findForgotten(&p, c.tree)
		if lost != c.lost || (len(found) > 0) != (c.want != "") || c.want != "" && !strings.Contains(found[0], c.want) {
			t.Errorf("%s: found %q, lost %d; want %q and %d", c.name, found, lost, c.want, c.lost)
		}
	}
	// Nobody knows which member has served the survivor's remote session.
	remote := number(1, "b", 8)
	remote.Session = "away"
	p := since(past{}, past{Lives: []life{{Name: "away", Member: 1, Remote: true}}, Ops: []op{number(2, "a", 7), remote}})
	if found, lost := findForgotten(&p, nil); len(found) > 0 || lost != 2 {
		t.Errorf("after a recovery of a member whose remote session was shown something: %q, %d", found, lost)
	}
	// The member that survived the second recovery has shown nothing older than the first one.
	p = since(past{}, before, past{Ops: []op{number(1, "d", 20)}})
	if found, lost := findForgotten(&p, []entry{entryOf("b", 8), entryOf("d", 20)}); len(found) != 1 || lost != 1 {
		t.Errorf("after two recoveries: %q, %d", found, lost)
	}
	p = since(past{}, before, past{})
	if found, lost := findForgotten(&p, nil); len(found) > 0 || lost != 3 {
		t.Errorf("after a recovery of a member that has shown nothing: %q, %d", found, lost)
	}
}

// A history that is cut begins anew, and keeps what was before.
func TestHistory_Cut(t *testing.T) {
	h := &history{now: func() time.Duration { return 0 }}
	for i := range 3 {
		add(h, lives, life{ID: embed.SessionID(i)})
		if i < 2 {
			h.cut(embed.MemberID(i + 1))
		}
	}
	p := h.snapshot()
	for i, part := range p.parts() {
		if len(part.Lives) != 1 || part.Lives[0].ID != embed.SessionID(i) || i < 2 && part.Survivor != embed.MemberID(i+1) {
			t.Errorf("part %d is %+v", i, part)
		}
	}
}
