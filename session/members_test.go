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
		"a place on no shard":       {whole, []Member{{ID: 1, Wish: Voter, Places: make([]Place, 3)}}},
		"a reason that is none":     {whole, []Member{{ID: 1, Wish: Out, Reason: Lost + 1}}},
		"a member without an id":    {whole, []Member{founder(0, 1)}},
		"an id that was not given":  {whole, []Member{founder(3, 1)}},
		"a member without a wish":   {whole, []Member{{ID: 1}}},
		"a wish that is none":       {whole, []Member{{ID: 1, Wish: Out + 1}}},
		"out without a reason":      {whole, []Member{{ID: 1, Wish: Out}}},
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

// M21, M39: a candidate that asks again with the same directory gets the same id, and an id is given
// once. A pod that comes back without its directory names what it was.
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

// Whatever happens in whatever order: ids are given once, in order; nobody goes back; and the table
// that was stored and loaded is the table.
func TestMembers_AnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, stored := NewMembers(), NewMembers()
		owners := make(map[MemberID][16]byte)
		parts := make(map[MemberID]Part)
		directory := func() [16]byte { return [16]byte{byte(1 + rng.IntN(12))} }
		for range 60 {
			switch rng.IntN(6) {
			case 0:
				m.Found(Lineage{byte(1 + rng.IntN(3))}, []MemberID{1, 2}, 3, registered(t, 1))
			case 1:
				if m.CheckRegister(2, [16]byte{2}) == nil {
					m.Registered(2, [16]byte{2})
				}
			case 2:
				m.Report(MemberID(rng.IntN(9)), uint32(rng.IntN(4)), Place{Part(rng.IntN(4)), rng.Uint64N(50)})
			case 3:
				m.Announce(MemberID(rng.IntN(9)), "a:1", "", "z")
			default:
				c := Candidate{Directory: directory(), Observer: rng.IntN(3) == 0}
				if id := MemberID(rng.IntN(9)); rng.IntN(2) == 0 {
					c.Former = Former{id, owners[id]}
				}
				before := len(m.All())
				id, former, err := m.Admit(c, int64(seed))
				given := slices.Collect(maps.Keys(owners))
				if _, known := owners[id]; err == nil && !known && len(given) > 0 && id <= slices.Max(given) {
					t.Fatalf("seed %d: id %d was given after %d", seed, id, slices.Max(given))
				}
				if err != nil && (id != 0 || former != 0 || len(m.All()) != before) {
					t.Fatalf("seed %d: refused, but %d, %d", seed, id, former)
				}
			}
			for _, one := range m.All() {
				if was := owners[one.ID]; was != one.Directory && was != ([16]byte{}) || one.Wish < parts[one.ID] {
					t.Fatalf("seed %d: member %+v had the directory %x and was to be %v", seed, one, was, parts[one.ID])
				}
				owners[one.ID], parts[one.ID] = one.Directory, one.Wish
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
}
