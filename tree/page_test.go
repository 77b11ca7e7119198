package tree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A pageModel is the same set as a sorted slice.
type pageModel struct {
	root  *page
	names []string
}

// Compares sets in both orders with sorted slices, in phases that grow and shrink them, in
// transactions of several changes. Roots of earlier transactions are kept. At the end they must
// show what they showed at first.
func TestPageAgainstSlice(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	orders := map[string]order{"name": strings.Compare, "suffix": compareSuffix}
	for label, cmp := range orders {
		for _, ascending := range []bool{false, true} {
			t.Run(fmt.Sprintf("order=%s/ascending=%v", label, ascending), func(t *testing.T) {
				seed := testkit.Seed(t)
				testPage(t, rand.New(rand.NewPCG(seed, 1)), cmp, ascending)
			})
		}
	}
}

func testPage(t *testing.T, rnd *rand.Rand, cmp order, ascending bool) {
	var now pageModel
	var kept []pageModel
	next := 0
	for edit := uint64(1); edit < 4000; edit++ {
		growing := edit%2000 < 1200
		for range 1 + rnd.IntN(4) {
			if add := rnd.IntN(10) < 7; add == growing || len(now.names) == 0 {
				name := fmt.Sprintf("%c%010d", 'a'+rune(rnd.IntN(3)), rnd.IntN(100_000))
				if ascending {
					name = fmt.Sprintf("n%010d", next)
					next++
				}
				if rnd.IntN(100) == 0 {
					name = rare + name[1:]
				}
				now.add(name, edit, cmp)
				continue
			}
			i := rnd.IntN(len(now.names))
			if ascending {
				i = 0
			}
			now.remove(i, edit, cmp)
		}
		if edit%37 == 0 {
			now.verify(t, cmp)
			kept = append(kept, pageModel{now.root, slices.Clone(now.names)})
		}
		now.verifyAround(t, rnd, cmp)
	}
	for len(now.names) > 0 {
		now.remove(rnd.IntN(len(now.names)), 4000, cmp)
	}
	if now.root != nil {
		t.Fatal("an empty set has a page left")
	}
	for _, old := range kept {
		old.verify(t, cmp)
	}
}

func (m *pageModel) add(name string, edit uint64, cmp order) {
	i, found := slices.BinarySearchFunc(m.names, name, cmp)
	if found {
		return
	}
	m.names = slices.Insert(m.names, i, name)
	m.root = insert(m.root, name, edit, cmp)
}

func (m *pageModel) remove(i int, edit uint64, cmp order) {
	m.root = remove(m.root, m.names[i], edit, cmp)
	m.names = slices.Delete(m.names, i, i+1)
}

func (m *pageModel) verify(t *testing.T, cmp order) {
	t.Helper()
	if err := m.root.check(cmp); err != nil {
		t.Fatal(err)
	}
	if got := m.root.appendTo(nil); !slices.Equal(got, m.names) {
		t.Fatalf("set holds\n%q, want\n%q", got, m.names)
	}
}

// verifyAround compares membership, and the descent, at a random name that may or may not be in the
// set.
func (m *pageModel) verifyAround(t *testing.T, rnd *rand.Rand, cmp order) {
	t.Helper()
	name := fmt.Sprintf("b%010d", rnd.IntN(100_000))
	if len(m.names) > 0 && rnd.IntN(2) == 0 {
		name = m.names[rnd.IntN(len(m.names))]
	}
	i, found := slices.BinarySearchFunc(m.names, name, cmp)
	if got := m.root.has(name, cmp); got != found {
		t.Fatalf("has(%q) = %v, want %v", name, got, found)
	}
	want := slices.Clone(m.names[max(0, i-50):i])
	slices.Reverse(want)
	var got []string
	m.root.descend(name, nil, cmp, func(other string) bool {
		if len(got) == len(want) {
			return false
		}
		got = append(got, other)
		return len(got) < 50
	})
	if !slices.Equal(got, want) {
		t.Fatalf("before %q come\n%q, want\n%q", name, got, want)
	}
	match := []string{rare + "0", "ab"} // no name contains it
	has := func(name string) bool { return matches(name, match) }
	want, got = slices.DeleteFunc(slices.Clone(m.names[:i]), func(name string) bool { return !has(name) }), nil
	m.root.descend(name, match, cmp, func(other string) bool {
		if has(other) {
			got = append(got, other)
		}
		return true
	})
	if slices.Reverse(want); !slices.Equal(got, want) {
		t.Fatalf("before %q come of %q\n%q, want\n%q", name, match, got, want)
	}
}

// rare is the first letter of one name in a hundred.
const rare = "W"

// A search for one of a few names among thousands of others looks at few of them. That holds
// directly after names were added or removed.
func TestPagesWithoutAMatchAreLeftOut(t *testing.T) {
	const n = 10_000
	var root *page
	for i := range n {
		kind := "__READ__"
		if i == 0 {
			kind = "__WRIT__"
		}
		root = insert(root, fmt.Sprintf("%s%010d", kind, i), uint64(i), compareSuffix)
	}
	looks := func(want bool) {
		t.Helper()
		seen, found := 0, false
		root.descend(fmt.Sprintf("__READ__%010d", n-1), []string{"__WRIT__"}, compareSuffix, func(name string) bool {
			seen++
			found = strings.Contains(name, "__WRIT__")
			return !found
		})
		if most := 2 * pageMax; found != want || seen > most {
			t.Errorf("found is %v after %d names, want %v after %d at most", found, seen, want, most)
		}
	}
	looks(true)
	root = remove(root, fmt.Sprintf("__WRIT__%010d", 0), n, compareSuffix)
	looks(false)
	root = insert(root, fmt.Sprintf("__WRIT__%010d", n/2), n+1, compareSuffix)
	looks(true)
}

// Names created in order leave pages three quarters full, not half full.
func TestPageAscendingFill(t *testing.T) {
	var root *page
	const n = 20_000
	for i := range n {
		root = insert(root, fmt.Sprintf("%010d", i), uint64(i), strings.Compare)
	}
	leaves := 0
	var count func(p *page)
	count = func(p *page) {
		if p.kids == nil {
			leaves++
		}
		for _, kid := range p.kids {
			count(kid)
		}
	}
	count(root)
	if most := n/(pageMax-pageMin) + 1; leaves > most {
		t.Fatalf("%d leaves for %d names, want at most %d", leaves, n, most)
	}
}

// A set built at once is as valid as one grown by inserts, and can be changed like it.
func TestBuiltPages(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	for n := 0; n < 20_000; n += 1 + n/20 {
		var c children
		for i := range n {
			c.gather(fmt.Sprintf("%05d-%010d", i, n-i))
		}
		c = c.built()
		if err := c.check(); err != nil || len(c.list(n)) != n {
			t.Fatalf("%d names: %d are there, %v", n, len(c.list(n)), err)
		}
		grown := c.add("00000-", 1).add("99999-0000000000", 1)
		if err := grown.check(); err != nil {
			t.Fatalf("%d names and two: %v", n, err)
		}
		if n > 0 {
			if err := c.remove(c.list(n)[n/2], 2).check(); err != nil {
				t.Fatalf("%d names less one: %v", n, err)
			}
		}
	}
}
