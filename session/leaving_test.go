package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// The ephemerals that go next are the same on a replica that is asked for the first time, and
// however many were asked for before.
func TestLeaving(t *testing.T) {
	const owns, most = 100, 7
	table := NewTable()
	var all []string
	for i := range owns {
		all = append(all, fmt.Sprintf("/%02d", i))
		table.Track([]tree.Change{{Type: tree.Created, Path: all[i], Owner: 1}})
	}
	gone := func(paths ...string) {
		for _, path := range paths {
			table.Track([]tree.Change{{Type: tree.Deleted, Path: path, Owner: 1}})
		}
	}
	for round := 0; len(all) > 0; round++ {
		if round%3 == 1 {
			clear(table.leaving) // as after a load
		}
		if round%4 == 2 {
			gone(all[1])
			all = slices.Delete(all, 1, 2)
		}
		want := all[:min(most, len(all))]
		got := table.Leaving(1, most)
		if !slices.Equal(got, want) {
			t.Fatalf("%q go next, want %q", got, want)
		}
		gone(got...)
		all = all[len(want):]
	}
	if table.Owns(1) != 0 || len(table.leaving) > 0 {
		t.Errorf("%d are left, and %d heaps", table.Owns(1), len(table.leaving))
	}
}

// A session whose end is decided is refused everything. It ends as was decided, also after a load
// and whatever its member does. Its other shards learn how.
func TestDecideEnd(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, remote := range []bool{false, true} {
			table := NewTable()
			if _, err := table.Register(Origin{Member: 1, Start: 1}); err != nil {
				t.Fatal(err)
			}
			table.Accept(1, 1, 1)
			var attached tree.Zxid
			if remote {
				attached = 10
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(table.Open(10, [16]byte{}, 1, 1, attached, nil))
			must(table.AddShard(10, 1, 2))
			table.DecideEnd(10, 77, lost)
			table.DecideEnd(10, 78, !lost) // too late
			table = reloaded(t, table)
			table.Accept(1, 1, 2)
			if err := table.Usable(10, 1); err != ErrExpired {
				t.Errorf("it is usable: %v", err)
			}
			if err := table.Reattach(10, [16]byte{}, 1, 1, 79, nil); err != ErrExpired {
				t.Errorf("it was reattached: %v", err)
			}
			if _, err := table.Register(Origin{Member: 1, Start: 2}); err != nil {
				t.Fatal(err)
			}
			if due := table.Due(); !slices.Equal(due, []tree.SessionID{10}) || table.Lost(10) != lost || !table.IsEnding(10) {
				t.Errorf("due are %v, lost: %v, want %v", due, table.Lost(10), lost)
			}
			must(table.Verify())
			table.Close(10, 99, lost)
			table = reloaded(t, table)
			if told := table.Ended(2); len(told) != 1 || told[0].Ended != 99 || told[0].Lost != lost || len(told[0].Former) != 1 {
				t.Errorf("shard 2 is told %+v", told)
			}
			table.Purged(10, 2)
			must(table.Verify())
			if len(table.ended)+len(table.sessions) > 0 {
				t.Error("something is left")
			}
		}
	}
}

func reloaded(t *testing.T, table *Table) *Table {
	t.Helper()
	next := NewTable()
	for _, o := range table.Origins() {
		next.LoadOrigin(o)
	}
	for _, r := range table.Sessions(1) {
		if err := next.LoadRecord(r); err != nil {
			t.Fatal(err)
		}
	}
	for id, x := range table.ended {
		if err := next.LoadRecord(x.record(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := next.Verify(); err != nil {
		t.Fatal(err)
	}
	return next
}
