package tree

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// This package has no limit on paths, depth, data or lists. The code that receives requests sets
// limits.
func TestLimits(t *testing.T) {
	tree, h := New(nil), &Header{Session: 7}
	name := "/" + strings.Repeat("n", 1<<20)
	big := bytes.Repeat([]byte{'x'}, 16<<20)
	tree.must(t, h, Op{Kind: KindCreate, Path: name, Data: big})
	if data, stat, err := tree.Get(name); err != nil || !bytes.Equal(data, big) || stat.DataLength != 16<<20 {
		t.Errorf("%d bytes, %+v, %v", len(data), stat, err)
	}
	tree.must(t, h, Op{Kind: KindCreate, Path: name + "/", Mode: EphemeralSequential})
	if names, _, err := tree.Children(name); err != nil || !slices.Equal(names, []string{"0000000000"}) {
		t.Errorf("children %q, %v", names, err)
	}
	const depth = 5000
	var ops []Op
	for i := 1; i <= depth; i++ {
		ops = append(ops, Op{Kind: KindCreate, Path: strings.Repeat("/d", i)})
	}
	tree.must(t, h, ops...)
	if n, err := tree.As(nil).Descendants("/d"); n != depth-1 || err != nil {
		t.Errorf("%d descendants, %v", n, err)
	}
	var list []ACL
	for i := range aclMax {
		list = append(list, ACL{Perms(i), "digest", fmt.Sprint("user:", i)})
	}
	tree.must(t, h, Op{Kind: KindCreate, Path: "/acl", ACL: append(list, list...)})
	if got, _, err := tree.As([]Identity{{"digest", "user:99"}}).ACL("/acl"); err != nil || len(got) != len(list) {
		t.Errorf("a list of %d entries, %v", len(got), err)
	}
}

func TestBirth(t *testing.T) {
	tree := New(nil)
	if tree.Len() != 4 || tree.Visible() != 0 || len(tree.Changes())+len(tree.Over()) != 0 {
		t.Errorf("%d znodes at zxid %d, changes %v, over %v", tree.Len(), tree.Visible(), tree.Changes(), tree.Over())
	}
	tree.Mortals(func(m Mortal) bool { t.Errorf("mortal %+v", m); return true })
}

// Any requester who may read can ask again and again how many znodes are below one. So the cost
// must not grow with that number. Nor may a create make the znodes above it be stored again.
func TestDescendantsCostsNothing(t *testing.T) {
	tree, _ := newTree(t, 10_000)
	if n := testing.AllocsPerRun(10, func() {
		if n, err := tree.As(nil).Descendants("/"); n != 10_004 || err != nil {
			t.Errorf("%d descendants, %v", n, err)
		}
	}); n > 0 {
		t.Errorf("a count of 10,000 znodes allocates %v times", n)
	}
	h := &Header{Zxid: 1}
	tree.must(t, h, Op{Kind: KindCreate, Path: "/dir/a"}, Op{Kind: KindCreate, Path: "/dir/a/b"})
	var drained []string
	if err := tree.Drain(func(path string, _ Znode, _ bool) error { drained = append(drained, path); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/dir", "/dir/a", "/dir/a/b"}; !slices.Equal(drained, want) {
		t.Errorf("to be stored are %q, want %q", drained, want)
	}
}

// A parent with a thousand times as many children costs only the additional depth of its pages. A
// create or delete of a child makes as many new pages as the set is deep, and what it allocates
// grows no faster.
//
// (CURATOR-690: more than 65,535 were too many.)
func TestMillionChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a tree of a million znodes")
	}
	cost := func(n int) (depth int, perRound uint64) {
		tree, h := newTree(t, n)
		const rounds = 1000
		bytes := allocated(t, func() {
			for range rounds {
				path := tree.must(t, h, Op{Kind: KindCreate, Path: "/dir/node-", Mode: Sequential})[0].Path
				tree.must(t, h, Op{Kind: KindDelete, Path: path, Version: AnyVersion})
			}
		})
		for p := tree.index.get("/dir").current().rest().children.byName; p != nil; depth++ {
			if p.kids == nil {
				p = nil
			} else {
				p = p.kids[0]
			}
		}
		return depth, bytes / rounds
	}
	fewDepth, few := cost(1000)
	manyDepth, many := cost(1_000_000)
	t.Logf("1,000 children: pages %d deep, %d bytes for a create and a delete; 1,000,000: %d deep, %d bytes", fewDepth, few, manyDepth, many)
	if most := 1 + int(math.Ceil(math.Log(1_000_000)/math.Log(pageMax-pageMin))); manyDepth > most {
		t.Errorf("pages are %d deep, want at most %d", manyDepth, most)
	}
	if many*uint64(fewDepth) > 2*few*uint64(manyDepth) {
		t.Errorf("%d bytes at a depth of %d, %d at %d", few, fewDepth, many, manyDepth)
	}
}

// E2: A waiter looks for its predecessor each time the queue changes. The cost of that grows with
// the logarithm of the queue's length: in a queue five hundred times as long, it is less than a
// hundred times as high.
func TestBeforeAmongManyIsLogarithmic(t *testing.T) {
	cost := func(n int) time.Duration {
		tree, _ := newTree(t, n)
		last := fmt.Sprintf("/dir/node-%010d", n-1)
		least := time.Hour // of many attempts, because other load on the machine only adds time
		for range 50 {
			begin := time.Now()
			for range 10 {
				if _, ok, err := tree.Before(last, "node"); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			least = min(least, time.Since(begin))
		}
		return least
	}
	few, many := cost(100), cost(50_000)
	t.Logf("ten looks among 100 take %v, among 50,000 %v", few, many)
	if many > 100*few {
		t.Errorf("ten looks among 100 take %v, among 50,000 %v", few, many)
	}
}

func TestChildrenOfMany(t *testing.T) {
	tree, h := newTree(t, 100_000)
	tree.must(t, h, Op{Kind: KindCreate, Path: "/dir/a"}, Op{Kind: KindCreate, Path: "/dir/z"})
	names, stat, err := tree.Children("/dir")
	if err != nil || len(names) != 100_002 || stat.NumChildren != 100_002 || !slices.IsSorted(names) {
		t.Errorf("%d names, sorted %v, %+v, %v", len(names), slices.IsSorted(names), stat, err)
	}
}

// walk counts the znodes below one by reading all lists of children.
func walk(v View, path string) (int, error) {
	names, _, err := v.Children(path)
	n := len(names)
	for _, name := range names {
		if err == nil {
			var below int
			below, err = walk(v, path+"/"+name)
			n += below
		}
	}
	return n, err
}

// A count of znodes below is taken at one zxid, and so is everything that a pin shows. A branch
// moves back and forth meanwhile, and is never seen twice or not at all. Several pins exist at a
// time.
func TestDescendantsWhileWriting(t *testing.T) {
	tree, h := New(nil), &Header{}
	const znodes = 200
	branch := func(root string, kind OpKind) []Op {
		ops := []Op{{Kind: kind, Path: root, Version: AnyVersion}}
		for i := range znodes - 1 {
			ops = append(ops, Op{Kind: kind, Path: fmt.Sprintf("%s/%d", root, i), Version: AnyVersion})
		}
		if kind == KindDelete {
			slices.Reverse(ops)
		}
		return ops
	}
	tree.must(t, h, append(branch("/top", KindCreate), branch("/top/here", KindCreate)...)...)
	from, to := "/top/here", "/top/there"
	counted := make(chan error)
	for range 4 {
		go func() {
			for range 200 {
				n, err := tree.As(nil).Descendants("/top")
				pin := tree.Pin()
				walked, walkErr := walk(pin.As(nil), "/top")
				pin.Release()
				if err = errors.Join(err, walkErr); err == nil && (n != 2*znodes-1 || walked != n) {
					err = fmt.Errorf("counted %d, walked over %d, want %d", n, walked, 2*znodes-1)
				}
				if err != nil {
					counted <- err
					return
				}
			}
			counted <- nil
		}()
	}
	for running := 4; running > 0; {
		select {
		case err := <-counted:
			running--
			if err != nil {
				t.Error(err)
			}
		default:
			tree.must(t, h, append(branch(from, KindDelete), branch(to, KindCreate)...)...)
			from, to = to, from
		}
	}
	tree.must(t, h)
	tree.must(t, h)
	if err := tree.check(); err != nil {
		t.Error(err)
	}
	if len(tree.recent) > 0 {
		t.Errorf("%d versions are kept for nobody", len(tree.recent))
	}
}
