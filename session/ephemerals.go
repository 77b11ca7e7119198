package session

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/vivarium-go/vivarium/tree"
)

// Track records which ephemerals a transaction created, deleted or made linger. It ignores other
// znodes. After a load, the caller tracks every ephemeral of the tree as created.
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
	t.owned -= len(set)
	set[path] = struct{}{}
	t.owned += len(set)
}

func (t *Table) disown(id tree.SessionID, path string) {
	set := t.ephemerals[id]
	t.owned -= len(set)
	delete(set, path)
	t.owned += len(set)
	if len(set) == 0 {
		delete(t.ephemerals, id)
	}
}

// Owned returns the paths of Ephemerals in no order. A caller that must not hold the table for long
// sorts them afterwards.
func (t *Table) Owned(id tree.SessionID) []string {
	set := t.ephemerals[id]
	paths := slices.Grow([]string(nil), len(set))
	for path := range set {
		paths = append(paths, path)
	}
	return paths
}

// CountEphemerals returns how many ephemerals all sessions own together.
func (t *Table) CountEphemerals() int { return t.owned }

// Ephemerals returns the paths of the ephemerals that a session owns, sorted.
func (t *Table) Ephemerals(id tree.SessionID) []string {
	return slices.Sorted(maps.Keys(t.ephemerals[id]))
}

// Owns returns how many ephemerals a session owns.
func (t *Table) Owns(id tree.SessionID) int { return len(t.ephemerals[id]) }

// Leaving returns the ephemerals that go next, of a session whose end is decided: the first ones by
// path, at most most of them. The caller deletes them, or makes them linger, and tells Track.
//
// Sorting a million paths takes a second, during which nothing is applied. So the paths are put
// into a heap once, and each call pops only what it returns.
func (t *Table) Leaving(id tree.SessionID, most int) []string {
	owned := t.ephemerals[id]
	if len(owned) <= most {
		delete(t.leaving, id)
		return t.Ephemerals(id)
	}
	left := t.leaving[id]
	if left == nil {
		all := make(paths, 0, len(owned))
		for path := range owned {
			all = append(all, path)
		}
		left = &all
		heap.Init(left)
		t.leaving[id] = left
	}
	var next []string
	for len(next) < most {
		path := heap.Pop(left).(string)
		if _, still := owned[path]; still { // else the znode was deleted by another session
			next = append(next, path)
		}
	}
	return next
}

// paths is a heap with the first path on top.
type paths []string

func (p paths) Len() int           { return len(p) }
func (p paths) Less(i, j int) bool { return p[i] < p[j] }
func (p paths) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *paths) Push(path any)     { *p = append(*p, path.(string)) }

func (p *paths) Pop() any {
	last := len(*p) - 1
	path := (*p)[last]
	(*p)[last] = ""
	*p = (*p)[:last]
	return path
}
