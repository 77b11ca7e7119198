package session

import (
	"maps"
	"slices"

	"github.com/vivarium-go/vivarium/tree"
)

// Track books the ephemerals that a transaction created and deleted, or that linger since, and ignores other znodes. After a
// load, the caller tracks every ephemeral of the tree as created.
func (t *Table) Track(changes []tree.Change) {
	for _, c := range changes {
		switch {
		case c.Owner == 0:
		case c.Type == tree.Created:
			t.own(c.Owner, c.Path)
		case c.Type == tree.Deleted || c.Lost:
			t.disown(c.Owner, c.Path)
		}
	}
}

func (t *Table) own(id tree.SessionID, path string) {
	set, ok := t.ephemerals[id]
	if !ok {
		set = make(map[string]struct{})
		t.ephemerals[id] = set
	}
	set[path] = struct{}{}
}

func (t *Table) disown(id tree.SessionID, path string) {
	set := t.ephemerals[id]
	delete(set, path)
	if len(set) == 0 {
		delete(t.ephemerals, id)
	}
}

// Owned is Ephemerals in no order, which whoever cannot keep the table for long sorts elsewhere.
func (t *Table) Owned(id tree.SessionID) []string {
	set := t.ephemerals[id]
	paths := slices.Grow([]string(nil), len(set))
	for path := range set {
		paths = append(paths, path)
	}
	return paths
}

// CountEphemerals returns how many ephemerals sessions own. It looks at every session that owns one.
func (t *Table) CountEphemerals() (n int) {
	for _, set := range t.ephemerals {
		n += len(set)
	}
	return n
}

// Ephemerals returns the paths of the ephemerals that a session owns, sorted.
func (t *Table) Ephemerals(id tree.SessionID) []string {
	return slices.Sorted(maps.Keys(t.ephemerals[id]))
}
