package session

import (
	"errors"
	"reflect"
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

// drained returns a table that has what the other one drained.
func drained(t *testing.T, from *Members) *Members {
	t.Helper()
	to := NewMembers()
	from.Drain(to.LoadEnsemble, to.LoadMember)
	if err := to.Verify(); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestMembers_FirstFoundDecides(t *testing.T) {
	m, table := NewMembers(), registered(t, 1, 2)
	if err := m.Verify(); err != nil || m.Dirty() != 0 {
		t.Fatalf("an empty table: %v, %d are dirty", err, m.Dirty())
	}
	if m.Found(Lineage{}, []MemberID{1}, table) || m.Found(Lineage{7}, nil, table) {
		t.Error("founded without a lineage or members")
	}
	if !m.Found(Lineage{7}, []MemberID{2, 1, 5}, table) {
		t.Fatal("not founded")
	}
	if m.Found(Lineage{8}, []MemberID{9}, table) {
		t.Error("founded again")
	}
	want := []Member{{1, [16]byte{1}}, {2, [16]byte{2}}, {5, [16]byte{}}}
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
	m.Found(Lineage{7}, []MemberID{1, 2}, registered(t, 1))
	m.Registered(1, [16]byte{9})
	m.Registered(2, [16]byte{2})
	m.Registered(2, [16]byte{9})
	m.Registered(3, [16]byte{3})
	if want := []Member{{1, [16]byte{1}}, {2, [16]byte{2}}}; !reflect.DeepEqual(m.All(), want) {
		t.Errorf("members %v, want %v", m.All(), want)
	}
	drained(t, m)
}

func TestMembers_VerifyFindsWhatCannotBe(t *testing.T) {
	whole := Ensemble{Lineage: Lineage{7}, Next: 3}
	for name, c := range map[string]struct {
		ensemble Ensemble
		members  []Member
	}{
		"members without a lineage": {Ensemble{}, []Member{{1, [16]byte{1}}}},
		"a lineage without members": {whole, nil},
		"an id without a lineage":   {Ensemble{Next: 3}, nil},
		"no next id":                {Ensemble{Lineage: Lineage{7}}, []Member{{1, [16]byte{1}}}},
		"a member without an id":    {whole, []Member{{0, [16]byte{1}}}},
		"an id that was not given":  {whole, []Member{{3, [16]byte{1}}}},
		"a directory twice":         {whole, []Member{{1, [16]byte{1}}, {2, [16]byte{1}}}},
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
