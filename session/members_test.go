package session

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func registered(t *testing.T, members ...MemberID) *Table {
	t.Helper()
	table := NewTable()
	for _, m := range members {
		if _, err := table.Register(Origin{Member: m, Start: 1, Directory: [16]byte{byte(m)}}); err != nil {
			t.Fatal(err)
		}
	}
	return table
}

// founder returns the record of a founder whose directory begins with a byte.
func founder(id MemberID, directory byte) Member {
	return Member{ID: id, Directory: [16]byte{directory}, Wish: Voter}
}

// drained returns a table that has what the other one drained.
func drained(t *testing.T, from *Members) *Members {
	t.Helper()
	to := NewMembers()
	from.Drain(to.LoadEnsemble, load(to))
	if err := to.Verify(); err != nil {
		t.Fatal(err)
	}
	return to
}

// load returns what loads a drained member into a table, or removes a forgotten one.
func load(to *Members) func(m Member, exists bool) {
	return func(m Member, exists bool) {
		if to.LoadMember(m); !exists {
			delete(to.members, m.ID)
		}
	}
}

func TestMembers_FirstFoundDecides(t *testing.T) {
	m, table := NewMembers(), registered(t, 1, 2)
	if err := m.Verify(); err != nil || m.Dirty() != 0 {
		t.Fatalf("an empty table: %v, %d are dirty", err, m.Dirty())
	}
	if m.Found(Lineage{}, []MemberID{1}, 3, table) || m.Found(Lineage{7}, nil, 3, table) {
		t.Error("founded without a lineage or members")
	}
	if !m.Found(Lineage{7}, []MemberID{2, 1, 5}, 3, table) {
		t.Fatal("not founded")
	}
	if m.Found(Lineage{8}, []MemberID{9}, 3, table) {
		t.Error("founded again")
	}
	want := []Member{founder(1, 1), founder(2, 2), founder(5, 0)}
	if m.Lineage() != (Lineage{7}) || !reflect.DeepEqual(m.All(), want) || m.Dirty() != 4 {
		t.Errorf("lineage %v, members %v, %d are dirty", m.Lineage(), m.All(), m.Dirty())
	}
	copied := drained(t, m)
	if copied.Lineage() != m.Lineage() || !reflect.DeepEqual(copied.All(), want) || m.Dirty() != 0 {
		t.Errorf("drained %v, %d are dirty", copied.All(), m.Dirty())
	}
}

// A founder's directory is entered once. It never changes, and nobody else's is entered.
func TestMembers_DirectoryOfAFounderThatIsLate(t *testing.T) {
	m := NewMembers()
	m.Registered(1, [16]byte{1})
	m.Found(Lineage{7}, []MemberID{1, 2}, 3, registered(t, 1))
	m.Registered(1, [16]byte{9})
	m.Registered(2, [16]byte{2})
	m.Registered(2, [16]byte{9})
	m.Registered(3, [16]byte{3})
	if want := []Member{founder(1, 1), founder(2, 2)}; !reflect.DeepEqual(m.All(), want) {
		t.Errorf("members %v, want %v", m.All(), want)
	}
	drained(t, m)
}

func TestMembers_VerifyFindsWhatCannotBe(t *testing.T) {
	whole := Ensemble{Lineage: Lineage{7}, Next: 3, Shards: 2}
	for name, c := range map[string]struct {
		ensemble Ensemble
		members  []Member
	}{
		"members without a lineage": {Ensemble{}, []Member{founder(1, 1)}},
		"a lineage without members": {whole, nil},
		"an id without a lineage":   {Ensemble{Next: 3}, nil},
		"no next id":                {Ensemble{Lineage: Lineage{7}, Shards: 2}, []Member{founder(1, 1)}},
		"no shards":                 {Ensemble{Lineage: Lineage{7}, Next: 3}, []Member{founder(1, 1)}},
		"a number without a leader": {Ensemble{Lineage: Lineage{7}, Next: 3, Shards: 2, Govern: 1}, []Member{founder(1, 1)}},
		"a leader without a number": {Ensemble{Lineage: Lineage{7}, Next: 3, Shards: 2, Governor: 1}, []Member{founder(1, 1)}},
		"an unknown leader":         {Ensemble{Lineage: Lineage{7}, Next: 3, Shards: 2, Govern: 1, Governor: 3}, []Member{founder(1, 1)}},
		"nobody who stays":          {whole, []Member{{ID: 1, Wish: Out, Reason: Left}}},
		"a place on no shard":       {whole, []Member{{ID: 1, Wish: Voter, Places: make([]Place, 3)}}},
		"a part that is none":       {whole, []Member{{ID: 1, Wish: Voter, Places: []Place{{Out + 1, 5}}}}},
		"a part without a change":   {whole, []Member{{ID: 1, Wish: Voter, Places: []Place{{Voter, 0}}}}},
		"a change without a part":   {whole, []Member{{ID: 1, Wish: Voter, Places: []Place{{0, 5}}}}},
		"a reason that is none":     {whole, []Member{founder(2, 2), {ID: 1, Wish: Out, Reason: Lost + 1}}},
		"a member without an id":    {whole, []Member{founder(0, 1)}},
		"an id that was not given":  {whole, []Member{founder(3, 1)}},
		"a member without a wish":   {whole, []Member{{ID: 1}}},
		"a wish that is none":       {whole, []Member{founder(2, 2), {ID: 1, Wish: Out + 1}}},
		"out without a reason":      {whole, []Member{founder(2, 2), {ID: 1, Wish: Out}}},
		"a reason to stay":          {whole, []Member{{ID: 1, Wish: Voter, Reason: Replaced}}},
		"an observer that votes":    {whole, []Member{{ID: 1, Wish: Voter, Observer: true}}},
		"a directory twice":         {whole, []Member{founder(1, 1), founder(2, 1)}},
	} {
		m := NewMembers()
		m.LoadEnsemble(c.ensemble)
		for _, one := range c.members {
			m.LoadMember(one)
		}
		if err := m.Verify(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// M21, M39: a candidate that asks again with the same directory gets the same id, and an id is
// given once. A pod that comes back without its directory names what it was.
func TestMembers_Admit(t *testing.T) {
	m := NewMembers()
	one := Candidate{Directory: [16]byte{11}, Name: "pod-1", Zone: "a", Address: "one:1"}
	if _, _, err := m.Admit(one, 5); !errors.Is(err, ErrNotFounded) {
		t.Fatalf("before the lineage: %v", err)
	}
	m.Found(Lineage{7}, []MemberID{1, 2}, 3, registered(t, 1, 2))
	admit := func(c Candidate, want, wantFormer MemberID, wantErr error) {
		t.Helper()
		id, former, err := m.Admit(c, 6)
		if id != want || former != wantFormer || !errors.Is(err, wantErr) {
			t.Fatalf("%+v is member %d, was member %d, %v; want %d, %d, %v", c, id, former, err, want, wantFormer, wantErr)
		}
	}
	admit(one, 3, 0, nil)
	admit(Candidate{Directory: [16]byte{12}, Observer: true}, 4, 0, nil)
	one.Address = "two:2"
	admit(one, 3, 0, nil)
	admit(Candidate{Directory: [16]byte{1}, Observer: true}, 1, 0, nil) // a founder
	want := []Member{founder(1, 1), founder(2, 2),
		{ID: 3, Directory: [16]byte{11}, Name: "pod-1", Zone: "a", Address: "two:2", Wish: Learner, Since: 6},
		{ID: 4, Directory: [16]byte{12}, Observer: true, Wish: Learner, Since: 6}}
	if !reflect.DeepEqual(m.All(), want) {
		t.Fatalf("members %+v, want %+v", m.All(), want)
	}

	// Only who knows both id and directory was that member.
	again := Candidate{Directory: [16]byte{13}, Former: Former{ID: 3, Directory: [16]byte{99}}}
	admit(again, 5, 0, nil)
	again = Candidate{Directory: [16]byte{14}, Former: Former{ID: 3, Directory: [16]byte{11}}}
	admit(again, 6, 3, nil)
	admit(again, 6, 0, nil)
	admit(one, 0, 0, ErrDismissed)
	drained(t, m)
}

// M35: only a member registers, and only with its own directory.
func TestMembers_CheckRegister(t *testing.T) {
	m := NewMembers()
	if err := m.CheckRegister(9, [16]byte{9}); err != nil {
		t.Fatalf("before the lineage: %v", err)
	}
	m.Found(Lineage{7}, []MemberID{1, 2}, 3, registered(t, 1))
	_, _, err := m.Admit(Candidate{Directory: [16]byte{13}}, 1)
	if err == nil {
		_, _, err = m.Admit(Candidate{Directory: [16]byte{14}, Former: Former{3, [16]byte{13}}}, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id        MemberID
		directory byte
		want      error
	}{
		{1, 1, nil}, {1, 9, ErrOtherDirectory}, {2, 9, nil}, {2, 14, ErrOtherDirectory}, {2, 13, ErrOtherDirectory},
		{3, 13, ErrDismissed}, {4, 14, nil}, {5, 15, ErrNotMember}, {0, 15, ErrNotMember},
	} {
		if err := m.CheckRegister(c.id, [16]byte{c.directory}); !errors.Is(err, c.want) {
			t.Errorf("member %d with the directory %x: %v, want %v", c.id, c.directory, err, c.want)
		}
	}
}

// tableOf returns a table with the founders 1 and 2, the learner 3 and the observer 4, on so many
// shards.
func tableOf(t *testing.T, shards uint32, table *Table) *Members {
	t.Helper()
	m := NewMembers()
	m.Found(Lineage{7}, []MemberID{1, 2}, shards, table)
	for id := MemberID(3); id <= 4; id++ {
		if _, _, err := m.Admit(Candidate{Directory: [16]byte{byte(id)}, Observer: id == 4}, 1); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// M51: a wish that a leader made before it was deposed arrives when another one leads. It changes
// nothing. Neither does a number that comes twice, late, or from who is no member.
func TestMembers_WishesOfFormerLeadersAreRefused(t *testing.T) {
	m := NewMembers()
	if m.Govern(1, 1) {
		t.Error("somebody governs an ensemble that is not founded")
	}
	if err := m.Want(0, 1, Out, Removed, 5); !errors.Is(err, ErrNotFounded) {
		t.Errorf("before the lineage: %v", err)
	}
	m = tableOf(t, 1, registered(t, 1, 2))
	if err := m.Want(0, 3, Out, Silent, 5); !errors.Is(err, ErrOutdated) {
		t.Errorf("before anybody governs: %v", err)
	}
	for _, c := range []struct {
		number uint64
		member MemberID
		want   bool
	}{{0, 1, false}, {2, 1, false}, {1, 9, false}, {1, 1, true}, {1, 2, false}, {2, 2, true}, {1, 1, false}, {3, 2, true}} {
		if got := m.Govern(c.number, c.member); got != c.want {
			t.Fatalf("member %d governs under %d: %v", c.member, c.number, got)
		}
	}
	if e := drained(t, m).View().Ensemble; e.Govern != 3 || e.Governor != 2 {
		t.Errorf("stored: %+v", e)
	}
	m.TakeChanged()
	for _, number := range []uint64{0, 1, 2, 4} {
		if err := m.Want(number, 3, Out, Silent, 5); !errors.Is(err, ErrOutdated) {
			t.Errorf("under %d: %v", number, err)
		}
	}
	if m.TakeChanged() || m.Dirty() != 0 {
		t.Error("a refused wish has changed something")
	}
	if err := m.Want(3, 3, Out, Silent, 5); err != nil {
		t.Error(err)
	}
}

// A member goes from learner to voter to out. The last one that is to vote stays.
func TestMembers_Want(t *testing.T) {
	m := tableOf(t, 1, registered(t, 1, 2))
	m.Govern(1, 1)
	for _, c := range []struct {
		number uint64
		id     MemberID
		wish   Part
		reason Reason
		want   error
	}{
		{1, 9, Voter, 0, ErrNotMember}, {1, 3, Learner, 0, nil}, {1, 3, Voter, Left, ErrBackward}, {1, 3, Out, 0, ErrBackward},
		{1, 3, Out, Lost + 1, ErrBackward}, {1, 3, Out + 1, 0, ErrBackward}, {1, 3, 0, 0, ErrBackward}, {1, 4, Voter, 0, ErrObserver},
		{0, 4, Voter, 0, ErrObserver}, {0, 3, Voter, 0, nil}, {1, 3, Voter, 0, nil}, {1, 3, Learner, 0, ErrBackward}, {1, 4, Out, NeverCame, nil},
		{1, 1, Out, Silent, nil}, {1, 1, Out, Lost, nil}, {1, 1, Voter, 0, ErrBackward},
		{0, 2, Out, Silent, ErrOutdated}, {0, 2, Out, Removed, nil}, {0, 2, Out, Removed, nil}, {0, 3, Out, Removed, ErrLastVoter}, {1, 3, Out, Silent, ErrLastVoter},
	} {
		if err := m.Want(c.number, c.id, c.wish, c.reason, 9); !errors.Is(err, c.want) {
			t.Errorf("member %d is to be %v (%v) under %d: %v, want %v", c.id, c.wish, c.reason, c.number, err, c.want)
		}
	}
	if err := m.Want(0, 3, Out, Left, 9); !errors.Is(err, ErrLastVoter) {
		t.Errorf("the last voter leaves: %v", err)
	}
	want := []Member{
		{ID: 1, Directory: [16]byte{1}, Wish: Out, Reason: Silent, Since: 9},
		{ID: 2, Directory: [16]byte{2}, Wish: Out, Reason: Removed, Since: 9},
		{ID: 3, Directory: [16]byte{3}, Wish: Voter, Since: 1},
		{ID: 4, Directory: [16]byte{4}, Observer: true, Wish: Out, Reason: NeverCame, Since: 9},
	}
	if got := drained(t, m).All(); !reflect.DeepEqual(got, want) {
		t.Errorf("members %+v, want %+v", got, want)
	}
}

// The last voter loses its directory and comes back as a learner. Then no learner may go: one of
// them has to vote.
func TestMembers_SomebodyStays(t *testing.T) {
	m := tableOf(t, 1, registered(t, 1, 2))
	_, _, err := m.Admit(Candidate{Directory: [16]byte{5}, Former: Former{2, [16]byte{2}}}, 5)
	if errs := errors.Join(err, m.Want(0, 1, Out, Left, 5)); !errors.Is(errs, ErrLastVoter) {
		t.Fatal(errs)
	}
	if _, _, err := m.Admit(Candidate{Directory: [16]byte{6}, Former: Former{1, [16]byte{1}}}, 5); err != nil {
		t.Fatal(err)
	}
	for id := MemberID(3); id <= 6; id++ {
		if err := m.Want(0, id, Out, Left, 5); !errors.Is(err, ErrLastVoter) {
			t.Errorf("member %d leaves: %v", id, err)
		}
	}
	drained(t, m)
}

// M35: a member that is out of all shards, and has nothing left, is forgotten, except for one that
// somebody has removed. M22: the directory of such a one is not admitted again. An id below the next
// one without a record was given to a member that is gone.
func TestMembers_Forget(t *testing.T) {
	table := registered(t, 1, 2)
	m := tableOf(t, 2, table)
	if _, err := table.Register(Origin{Member: 3, Start: 1, Directory: [16]byte{3}}); err != nil {
		t.Fatal(err)
	}
	table.Accept(3, 1, 1)
	if err := table.Open(1, [16]byte{}, 1, 3, 0, nil); err != nil {
		t.Fatal(err)
	}
	stays := func(id MemberID, when string) {
		t.Helper()
		m.Forget(table)
		if _, known := m.Member(id); !known || m.Gone(id) {
			t.Fatalf("member %d is forgotten %s", id, when)
		}
	}
	if err := m.Want(0, 3, Out, Left, 5); err != nil {
		t.Fatal(err)
	}
	m.Report(3, 1, Place{Out, 5})
	table.Retire(3)
	stays(3, "while it is on a shard")
	m.Report(3, 2, Place{Out, 5})
	stays(3, "while it has a session")
	table.Close(1, 9, true)
	table.Retire(1)
	m.Report(1, 1, Place{Out, 6})
	m.Report(1, 2, Place{Out, 6})
	stays(1, "and is to stay")
	if _, known := m.Member(3); known || !m.Gone(3) || m.Gone(9) || m.Gone(0) {
		t.Errorf("member 3 is known: %v, gone: %v", known, m.Gone(3))
	}
	if err := m.CheckRegister(3, [16]byte{3}); !errors.Is(err, ErrDismissed) {
		t.Errorf("it may register: %v", err)
	}
	if id, _, err := m.Admit(Candidate{Directory: [16]byte{3}}, 6); id != 5 || err != nil {
		t.Errorf("its directory is admitted as member %d, %v", id, err)
	}

	if err := m.Want(0, 4, Out, Removed, 6); err != nil {
		t.Fatal(err)
	}
	m.Report(4, 1, Place{Out, 7})
	m.Report(4, 2, Place{Out, 7})
	stays(4, "before it is retired")
	table.Retire(4)
	stays(4, "and somebody removed it")
	for _, c := range []Candidate{{Directory: [16]byte{4}}, {Directory: [16]byte{40}, Former: Former{4, [16]byte{4}}}} {
		if err := m.CheckAdmit(c); !errors.Is(err, ErrDismissed) {
			t.Errorf("what was removed asks as %+v: %v", c, err)
		}
	}
	drained(t, m)
}

// A view stays as it was.
func TestMembers_View(t *testing.T) {
	m := tableOf(t, 2, registered(t, 1, 2))
	if !m.TakeChanged() || m.TakeChanged() {
		t.Error("a change is not noticed once")
	}
	before := m.View()
	text := fmt.Sprint(before)
	m.Govern(1, 1)
	m.Announce(1, "n", "a:1", "", "")
	m.Report(2, 2, Place{Voter, 3})
	if err := m.Want(1, 3, Out, Silent, 5); err != nil || !m.TakeChanged() {
		t.Fatal("nothing has changed: ", err)
	}
	if fmt.Sprint(before) != text {
		t.Errorf("was %s, is %v", text, before)
	}
	one, found := m.View().Find(3)
	if of, known := m.View().Of([16]byte{3}); !found || !known || one.Reason != Silent || !reflect.DeepEqual(of, one) {
		t.Errorf("member 3 is %+v", one)
	}
	_, found = before.Find(9)
	if _, known := before.Of([16]byte{}); found || known {
		t.Error("the view has a member that is not there")
	}
}

func TestMembers_Texts(t *testing.T) {
	for reason, want := range map[Reason]string{0: "", Replaced: "replaced", Left: "left", Removed: "removed", Silent: "silent", NeverCame: "never came", Lost: "lost", 9: "reason 9"} {
		if got := reason.String(); got != want {
			t.Errorf("reason %d is %q, want %q", uint8(reason), got, want)
		}
	}
	for part, want := range map[Part]string{0: "none", Learner: "learner", Voter: "voter", Out: "out", 4: "part 4"} {
		if got := part.String(); got != want {
			t.Errorf("part %d is %q, want %q", uint8(part), got, want)
		}
	}
}

func TestMembers_Bounded(t *testing.T) {
	m := NewMembers()
	m.Found(Lineage{7}, []MemberID{1}, 3, registered(t, 1))
	directory := func(n int) [16]byte { return [16]byte{1: 1, 2: byte(n >> 8), 3: byte(n)} }
	for n := range MembersMax - 1 {
		if _, _, err := m.Admit(Candidate{Directory: directory(n)}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := m.Admit(Candidate{Directory: directory(MembersMax)}, 1); !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if id, _, err := m.Admit(Candidate{Directory: directory(5)}, 1); id != 7 || err != nil {
		t.Errorf("a member that asks again is %d, %v", id, err)
	}
}

// M147: whoever gets a name first has it, whatever the leader saw before. Only those that it took for
// gone are replaced.
func TestMembers_NameIsTakenMeanwhile(t *testing.T) {
	m := NewMembers()
	m.Found(Lineage{7}, []MemberID{1, 2}, 1, registered(t, 1, 2))
	m.Announce(2, "announced", "", "", "")
	named := func(directory byte, name string, instead ...MemberID) Candidate {
		return Candidate{Directory: [16]byte{directory}, Name: name, Instead: instead}
	}
	for _, c := range []struct {
		Candidate
		id MemberID // zero: it is refused
	}{
		{named(13, "pod"), 3},
		{named(14, "pod"), 0},
		{named(13, "pod"), 3}, // a copy of the first one
		{named(14, "pod", 3), 4},
		{named(15, "pod", 3), 0},
		{named(13, "pod"), 0}, // a late copy
		{named(16, "announced"), 0},
		{named(16, ""), 5},
		{named(17, ""), 6},
		{named(17, "pod"), 0},
		{Candidate{Directory: [16]byte{18}, Name: "pod", Former: Former{4, [16]byte{14}}, Instead: []MemberID{3}}, 7},
	} {
		id, _, err := m.Admit(c.Candidate, 1)
		if refused := errors.Is(err, ErrNameTaken); id != c.id || refused != (c.id == 0) {
			t.Errorf("%+v is member %d, %v; want %d", c.Candidate, id, err, c.id)
		}
	}
}

// M41, M42: what a shard's members are only goes forward, in whatever order the reports arrive.
func TestMembers_ReportsGoForward(t *testing.T) {
	m := NewMembers()
	m.Report(1, 1, Place{Voter, 1})
	m.Found(Lineage{7}, []MemberID{1}, 3, registered(t, 1))
	for _, r := range []struct {
		shard uint32
		place Place
	}{{3, Place{Learner, 10}}, {3, Place{Voter, 20}}, {3, Place{Learner, 10}}, {3, Place{Learner, 30}}, {3, Place{Out, 15}}, {1, Place{Voter, 5}}, {0, Place{Out, 9}}} {
		before := m.All()
		copied := fmt.Sprint(before)
		m.Report(1, r.shard, r.place)
		if fmt.Sprint(before) != copied {
			t.Fatal("a report has changed what was given away")
		}
	}
	if got, want := m.All()[0].Places, []Place{{Voter, 5}, {}, {Voter, 20}}; !reflect.DeepEqual(got, want) {
		t.Errorf("places %v, want %v", got, want)
	}
	drained(t, m)
}

// Whatever happens in whatever order: ids are given once, in order, and nobody goes back. Only who
// was to be out is forgotten. Wishes count under one number. The table that was stored and loaded
// is the table.
func TestMembers_AnyOrder(t *testing.T) {
	forgotten := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, stored, table := NewMembers(), NewMembers(), registered(t, 1)
		owners := make(map[MemberID][16]byte)
		parts := make(map[MemberID]Part)
		directory := func() [16]byte { return [16]byte{byte(1 + rng.IntN(12))} }
		for range 60 {
			before := m.View()
			switch rng.IntN(10) {
			case 0:
				m.Found(Lineage{byte(1 + rng.IntN(3))}, []MemberID{1, 2}, 3, table)
			case 1:
				if m.CheckRegister(2, [16]byte{2}) == nil {
					m.Registered(2, [16]byte{2})
				}
			case 2:
				m.Report(MemberID(rng.IntN(9)), uint32(rng.IntN(4)), Place{Part(rng.IntN(4)), rng.Uint64N(50)})
			case 3:
				m.Announce(MemberID(rng.IntN(9)), "n", "a:1", "", "z")
			case 4:
				if number := rng.Uint64N(4); m.Govern(number, MemberID(rng.IntN(4))) != (number != 0 && m.View().Ensemble.Govern != before.Ensemble.Govern) {
					t.Fatalf("seed %d: number %d after %d", seed, number, before.Ensemble.Govern)
				}
			case 5:
				number, reason := rng.Uint64N(3), Reason(rng.IntN(8))
				id, wish := MemberID(rng.IntN(9)), Part(rng.IntN(5))
				err := m.Want(number, id, wish, reason, int64(seed))
				if counts := number == 0 && (wish == Voter || reason == Removed || reason == Left) || number != 0 && number == before.Ensemble.Govern; (err != nil || !counts) && !reflect.DeepEqual(m.View(), before) {
					t.Fatalf("seed %d: a wish under %d has changed the table: %v", seed, number, err)
				}
			case 6:
				_ = m.Want(0, MemberID(rng.IntN(9)), Out, Left, int64(seed))
			case 7: // the shards carry out what is wished
				for _, one := range before.List {
					if one.Wish == Out && rng.IntN(2) == 0 {
						m.Report(one.ID, uint32(1+rng.IntN(3)), Place{Out, 60})
						table.Retire(one.ID)
					}
				}
				m.Forget(table)
			default:
				c := Candidate{Directory: directory(), Observer: rng.IntN(3) == 0}
				if id := MemberID(rng.IntN(9)); rng.IntN(2) == 0 {
					c.Former = Former{id, owners[id]}
				}
				id, former, err := m.Admit(c, int64(seed))
				given := slices.Collect(maps.Keys(owners))
				if _, known := owners[id]; err == nil && !known && len(given) > 0 && id <= slices.Max(given) {
					t.Fatalf("seed %d: id %d was given after %d", seed, id, slices.Max(given))
				}
				if err != nil && (id != 0 || former != 0 || !reflect.DeepEqual(m.View(), before)) {
					t.Fatalf("seed %d: refused, but %d, %d", seed, id, former)
				}
			}
			for _, one := range m.All() {
				if was := owners[one.ID]; was != one.Directory && was != ([16]byte{}) || one.Wish < parts[one.ID] {
					t.Fatalf("seed %d: member %+v had the directory %x and was to be %v", seed, one, was, parts[one.ID])
				}
				owners[one.ID], parts[one.ID] = one.Directory, one.Wish
			}
			for id, part := range parts {
				_, known := m.Member(id)
				if known == m.Gone(id) || !known && part < Out {
					t.Fatalf("seed %d: member %d was to be %v: known %v, gone %v", seed, id, part, known, m.Gone(id))
				}
				if !known {
					forgotten++
				}
			}
			if rng.IntN(4) == 0 {
				m.Drain(stored.LoadEnsemble, load(stored))
			}
			if err := m.Verify(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		m.Drain(stored.LoadEnsemble, load(stored))
		if m.TakeChanged(); !reflect.DeepEqual(m, stored) {
			t.Fatalf("seed %d: stored %+v, want %+v", seed, stored, m)
		}
	}
	if forgotten < 100 {
		t.Errorf("too little is forgotten: %d", forgotten)
	}
}

// M29, M30: a forced recovery leaves one member, with a new lineage, and ids that the lost members
// cannot have given. Repeated, late, or of another lineage it changes nothing.
func TestMembers_Recover(t *testing.T) {
	m := NewMembers()
	first := Recovery{Lineage: Lineage{8}, Parent: Lineage{7}, Survivor: 3}
	if m.Recover(first, 9) {
		t.Error("recovered before the lineage")
	}
	m.Found(Lineage{7}, []MemberID{1, 2}, 2, registered(t, 1, 2))
	if _, _, err := m.Admit(Candidate{Directory: [16]byte{33}, Observer: true}, 5); err != nil {
		t.Fatal(err)
	}
	m.Report(1, 1, Place{Voter, 20})
	m.Report(3, 1, Place{Learner, 21})
	if err := m.Want(0, 2, Out, Removed, 6); err != nil {
		t.Fatal(err)
	}
	before := m.View()
	for name, r := range map[string]Recovery{
		"another parent":     {Lineage{8}, Lineage{6}, 3},
		"no parent":          {Lineage{8}, Lineage{}, 3},
		"no lineage":         {Lineage{}, Lineage{7}, 3},
		"the same lineage":   {Lineage{7}, Lineage{7}, 3},
		"an unknown member":  {Lineage{8}, Lineage{7}, 4},
		"no member survives": {Lineage{8}, Lineage{7}, 0},
	} {
		if m.Recover(r, 9) || !reflect.DeepEqual(m.View(), before) {
			t.Errorf("%s: %+v", name, m.View())
		}
	}
	if !m.Recover(first, 9) {
		t.Fatal("not recovered")
	}
	gone := []Place{{Out, 20}, {Out, 1}}
	want := &MembersView{Ensemble{Lineage: Lineage{8}, Ancestors: []Lineage{{7}}, Next: 1004, Shards: 2}, []Member{
		{ID: 1, Directory: [16]byte{1}, Wish: Out, Reason: Lost, Since: 9, Places: gone},
		{ID: 2, Directory: [16]byte{2}, Wish: Out, Reason: Removed, Since: 6, Places: []Place{{Out, 1}, {Out, 1}}},
		{ID: 3, Directory: [16]byte{33}, Wish: Voter, Since: 5, Places: []Place{{Learner, 21}}},
	}}
	if got := drained(t, m).View(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if m.Recover(first, 10) || !reflect.DeepEqual(m.View(), want) {
		t.Errorf("a repeat made %+v", m.View())
	}
	if !m.Recover(Recovery{Lineage{9}, Lineage{8}, 3}, 11) {
		t.Fatal("not recovered for the second time")
	}
	want = m.View()
	if !slices.Equal(want.Ensemble.Ancestors, []Lineage{{7}, {8}}) || want.Ensemble.Next != 2004 {
		t.Errorf("%+v", want.Ensemble)
	}
	if m.Recover(first, 12) || m.Recover(Recovery{Lineage{7}, Lineage{9}, 3}, 12) || !reflect.DeepEqual(m.View(), want) {
		t.Errorf("a late one made %+v", m.View())
	}
	for i := range byte(AncestorsMax) {
		if !m.Recover(Recovery{Lineage{9, i + 1}, m.Lineage(), 3}, 13) {
			t.Fatal("not recovered")
		}
	}
	if got := drained(t, m).View().Ensemble.Ancestors; len(got) != AncestorsMax || got[0] != (Lineage{9}) {
		t.Errorf("%d ancestors, the oldest is %v", len(got), got[0])
	}
}

// A member that was to leave is the only one that is left: it stays.
func TestMembers_RecoverOfOneThatWasToGo(t *testing.T) {
	m := NewMembers()
	m.Found(Lineage{7}, []MemberID{1, 2}, 1, registered(t, 1, 2))
	if err := m.Want(0, 1, Out, Left, 5); err != nil {
		t.Fatal(err)
	}
	if !m.Recover(Recovery{Lineage{8}, Lineage{7}, 1}, 9) {
		t.Fatal("not recovered")
	}
	if got, _ := m.Member(1); got.Wish != Voter || got.Reason != 0 {
		t.Errorf("it is %+v", got)
	}
	drained(t, m)
}
