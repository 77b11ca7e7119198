package view

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// check returns the first invariant of a table that does not hold.
func (t table[T]) check() error {
	n, last := 0, ""
	for _, b := range t.blocks {
		if len(b.items) == 0 || len(b.items) > blockLen {
			return fmt.Errorf("a block of %d", len(b.items))
		}
		for _, it := range b.items {
			if n > 0 && it.path <= last {
				return fmt.Errorf("%q after %q", it.path, last)
			}
			last = it.path
			n++
		}
	}
	if n != t.len {
		return fmt.Errorf("len is %d, not %d", t.len, n)
	}
	return nil
}

func (t table[T]) toMap() map[string]*Entry[T] {
	all := make(map[string]*Entry[T])
	for it := range t.all {
		all[it.path] = it.entry
	}
	return all
}

// Random edits agree with a map, and no edit changes a table that was made before.
func TestTable_AgainstAMap(t *testing.T) {
	rng := testkit.Rand(t)
	type made struct {
		table[int]
		want map[string]*Entry[int]
	}
	now := made{want: make(map[string]*Entry[int])}
	var all []made
	for number := range 400 {
		e := edit[int]{table: now.table, number: uint64(number + 1)}
		want := maps.Clone(now.want)
		grows := number/100%2 == 0
		for range rng.IntN(60) {
			path := fmt.Sprint("/", rng.IntN(3000))
			if _, there := want[path]; there && (!grows || rng.IntN(4) == 0) {
				e.remove(path)
				delete(want, path)
			} else if there || grows {
				want[path] = &Entry[int]{Value: rng.Int()}
				e.put(path, want[path])
			}
		}
		now = made{e.table, want}
		all = append(all, now)
	}
	for i, m := range all {
		if err := m.check(); err != nil {
			t.Fatalf("after edit %d: %v", i, err)
		}
		if !maps.Equal(m.toMap(), m.want) {
			t.Fatalf("after edit %d: %d entries, want %d", i, m.len, len(m.want))
		}
	}
	for path := range now.want {
		if now.get(path) != now.want[path] {
			t.Errorf("%s is not found", path)
		}
	}
	for _, path := range []string{"", "/", "/1.5", "/9999", "~"} {
		if now.get(path) != nil || (table[int]{}).get(path) != nil {
			t.Errorf("%s is found", path)
		}
	}
	var items []item[int]
	for it := range now.all {
		items = append(items, it)
	}
	if built := tableOf(items); built.check() != nil || !maps.Equal(built.toMap(), now.want) {
		t.Errorf("built: %v", built.check())
	}
}

// Merge tells of every path once, in order, with both entries.
func TestMerge(t *testing.T) {
	of := func(paths ...string) table[int] {
		var items []item[int]
		for _, p := range paths {
			items = append(items, item[int]{p, new(Entry[int])})
		}
		return tableOf(items)
	}
	var got []string
	merge(of("/a", "/b", "/d"), of("/b", "/c", "/d", "/e"), func(path string, a, b *Entry[int]) {
		got = append(got, fmt.Sprint(path, " ", a != nil, b != nil))
	})
	want := []string{"/a true false", "/b true true", "/c false true", "/d true true", "/e false true"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A history drops whole transactions, keeps the newest one whatever its size, and tells those who
// are behind.
func TestHistory_Bounds(t *testing.T) {
	h := history[int]{max: 5, floor: 10}
	txn := func(z embed.Zxid, n int) (records []record[int]) {
		for i := range n {
			records = append(records, record[int]{zxid: z, last: i == n-1})
		}
		return records
	}
	h.add(txn(11, 3))
	h.add(append(txn(12, 2), txn(14, 1)...))
	if h.floor != 11 || len(h.records) != 3 || h.first != 3 {
		t.Errorf("%+v", h)
	}
	if _, kept := h.find(10); kept {
		t.Error("what was dropped is found")
	}
	if at, kept := h.find(13); !kept || at != 5 {
		t.Errorf("%d, %v", at, kept)
	}
	if _, kept := h.read(2); kept {
		t.Error("what was dropped is read")
	}
	if some, kept := h.read(6); !kept || len(some) > 0 {
		t.Errorf("%v, %v", some, kept)
	}
	h.add(txn(20, 2*readLen))
	if h.floor != 14 || len(h.records) != 2*readLen || h.first != 6 {
		t.Errorf("floor %d, %d records after %d", h.floor, len(h.records), h.first)
	}
	if some, kept := h.read(6); !kept || len(some) != 2*readLen {
		t.Errorf("%d of a transaction, %v", len(some), kept)
	}
}
