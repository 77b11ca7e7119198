package tree

import (
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A walk visits all znodes down to its depth, each before its children, in byte order.
func TestView_Walk(t *testing.T) {
	tree, h := New(nil), &Header{}
	var ops []Op
	for i := range 100 {
		ops = append(ops, Op{Kind: KindCreate, Path: fmt.Sprintf("/d%03d", i)})
		for j := range 3 {
			ops = append(ops, Op{Kind: KindCreate, Path: fmt.Sprintf("/d%03d/e-%d", i, j)}, Op{Kind: KindCreate, Path: fmt.Sprintf("/d%03d/e-%d/f", i, j)})
		}
	}
	ops = append(ops, Op{Kind: KindCreate, Path: "/d000-"}) // sorts behind what is below /d000
	tree.must(t, h, ops...)
	pin := tree.Pin()
	defer pin.Release()
	view := pin.As(nil)
	var all func(path string, depth int) []string
	all = func(path string, depth int) []string {
		list := []string{path}
		if depth == 0 {
			return list
		}
		names, _, err := view.Children(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if path == "/" {
				list = append(list, all("/"+name, depth-1)...)
			} else {
				list = append(list, all(path+"/"+name, depth-1)...)
			}
		}
		return list
	}
	for _, root := range []string{"/", "/d001", "/d001/e-1/f"} {
		for depth, most := range []int{100, 1, 2, 3} {
			var got []string
			if err := view.Walk(root, depth, func(path string, f Found) bool {
				got = append(got, path)
				return true
			}); err != nil || !slices.Equal(got, all(root, most)) {
				t.Errorf("%s, depth %d: %d paths, %v", root, depth, len(got), err)
			}
		}
	}
}

// M150: a walk comes back to a level from far below.
func TestView_WalkFarDown(t *testing.T) {
	tree, h := New(nil), &Header{}
	var want []string
	deep := func(path string) {
		for range 24 {
			want = append(want, path)
			tree.must(t, h, Op{Kind: KindCreate, Path: path})
			path += "/a"
		}
	}
	for i := range 3 {
		deep(fmt.Sprintf("/d%d", i))
		above := fmt.Sprintf("/d%d%s", i, strings.Repeat("/a", 9))
		for _, beside := range []string{"/b", "/c"} { // behind all that is below the one in the middle
			want = append(want, above+beside)
			tree.must(t, h, Op{Kind: KindCreate, Path: above + beside})
		}
	}
	pin := tree.Pin()
	defer pin.Release()
	var got []string
	err := pin.As(nil).Walk("/", 0, func(path string, _ Found) bool {
		if path != "/" && !strings.HasPrefix(path, "/zookeeper") {
			got = append(got, path)
		}
		return true
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d of %d paths, %v", len(got), len(want), err)
	}
}

// M164: walks wait that have shown a part, and keep names and data of what is gone, with its pins.
func TestView_AWalkThatWaitsKeepsNothing(t *testing.T) {
	const walks, beside, long, data = 16, 40, 60_000, 1 << 20
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, c := range []struct {
		what        string
		above, name int
	}{{"long names", 0, long}, {"short names below a long one", long, 0}} {
		tree, h := New(nil), &Header{}
		before := heap()
		for i := range walks {
			top := fmt.Sprintf("/w%d%s", i, strings.Repeat("n", c.above))
			ops := []Op{{Kind: KindCreate, Path: top}, {Kind: KindCreate, Path: top + "/0", Data: make([]byte, data)}}
			for j := range beside {
				path := fmt.Sprintf("%s/%02d%s", top, j, strings.Repeat("n", c.name))
				ops = append(ops, Op{Kind: KindCreate, Path: path})
			}
			tree.must(t, h, ops...)
			pin := tree.Pin()
			next, stop := iter.Pull(func(yield func(string) bool) {
				_ = pin.As(nil).Walk(top, 0, func(path string, _ Found) bool { return yield(path) })
			})
			defer stop()
			next()
			next()
			pin.Release()
			slices.Reverse(ops)
			for _, o := range ops {
				tree.must(t, h, Op{Kind: KindDelete, Path: o.Path})
			}
		}
		tree.forgetDirty() // as the image does
		if took := heap() - before; took > walks*(3*long+16<<10) {
			t.Errorf("%s: %d walks take %d KiB", c.what, walks, took>>10)
		}
		runtime.KeepAlive(tree)
	}
}
