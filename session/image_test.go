package session

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// image is what storage would hold of a table.
type image struct {
	origins  map[MemberID]Origin
	sessions map[tree.SessionID]Record
}

// drain writes what is dirty and checks the order in which Drain passes it on.
func (i *image) drain(t testing.TB, table *Table) {
	if i.origins == nil {
		i.origins, i.sessions = make(map[MemberID]Origin), make(map[tree.SessionID]Record)
	}
	var members []MemberID
	var ids []tree.SessionID
	err := table.Drain(func(o Origin) error {
		members = append(members, o.Member)
		i.origins[o.Member] = o
		return nil
	}, func(id tree.SessionID, r Record, exists bool) error {
		ids = append(ids, id)
		if delete(i.sessions, id); exists {
			i.sessions[id] = r
		} else if !reflect.DeepEqual(r, Record{}) {
			t.Errorf("session %d is gone with a record: %+v", id, r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(members) || !slices.IsSorted(ids) {
		t.Errorf("drained out of order: %v %v", members, ids)
	}
}

// load makes a table of the image. It takes the ephemerals, which the tree keeps, from old.
func (i *image) load(t testing.TB, old *Table) *Table {
	table := NewTable()
	for _, id := range slices.Sorted(maps.Keys(i.sessions)) {
		if err := table.LoadRecord(i.sessions[id]); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(i.origins)) {
		table.LoadOrigin(i.origins[m])
	}
	for id := range old.ephemerals {
		for _, path := range old.Ephemerals(id) {
			table.Track([]tree.Change{{Type: tree.Created, Path: path, Owner: id}})
		}
	}
	if err := table.Verify(); err != nil {
		t.Fatal(err)
	}
	return table
}
