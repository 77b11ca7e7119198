package tree

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The index must hold exactly what was added, after any splits and joins. It must free the memory
// of what was removed.
func TestIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	x, has, r := newIndex(0), map[string]*entry{}, rand.New(rand.NewPCG(1, 2))
	path := func() string { return fmt.Sprintf("/%d", r.IntN(20_000)) }
	check := func() {
		t.Helper()
		if all := x.all(); len(all) != len(has) {
			t.Fatalf("%d entries, want %d", len(all), len(has))
		}
		d := *x.directory.Load()
		for i := range d {
			b := d[i].Load()
			for _, e := range b.entries[:b.n] {
				if has[e.path] != e || x.get(e.path) != e {
					t.Fatalf("%s is there and should not be, or is not found", e.path)
				}
			}
			if first := d[i&(1<<b.bits-1)].Load(); first != b {
				t.Fatalf("place %d of %d has another bucket than the first of its %d bits", i, len(d), b.bits)
			}
		}
	}
	for _, grow := range []int{1, 95, 50, 5, 95, 0} {
		for range 60_000 {
			if p := path(); r.IntN(100) < grow && has[p] == nil {
				has[p] = &entry{path: p}
				x.add(has[p])
			} else if grow < 100 && r.IntN(100) >= grow && has[p] != nil {
				x.remove(p)
				delete(has, p)
			} else if x.get(p) != has[p] {
				t.Fatalf("%s: found %v, want %v", p, x.get(p), has[p])
			}
		}
		check()
	}
	for p := range has {
		x.remove(p)
		delete(has, p)
	}
	check()
	buckets := map[*bucket]bool{}
	d := *x.directory.Load()
	for i := range d {
		buckets[d[i].Load()] = true
	}
	if len(buckets) > 1 {
		t.Errorf("an empty index has %d buckets", len(buckets))
	}
}

// Entries loaded in place are found like added ones, whatever number was expected.
func TestIndexLoad(t *testing.T) {
	for _, n := range []int{0, 100, 10_000, 100_000} {
		x := newIndex(n)
		for i := range 10_000 {
			e := &entry{path: fmt.Sprint("/", i)}
			x.load(e)
			if x.get(e.path) != e {
				t.Fatalf("%s is not there", e.path)
			}
		}
		if all := x.all(); len(all) != 10_000 {
			t.Errorf("%d entries", len(all))
		}
	}
}
