package tree

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A walk visits all znodes down to its depth, each before its children, in byte order. Between two of
// them it keeps few names, however many children there are.
func TestView_Walk(t *testing.T) {
	tree, h := New(nil), &Header{}
	var ops []Op
	for i := range 3 * walkPage {
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
	for w := (tour{view: view, at: "/"}); w.next(true); {
		for _, r := range w.rows {
			if n := cap(r.names); n > 2*walkPage {
				t.Fatalf("%d names are kept", n)
			}
		}
	}
}

// M150: a walk comes back to a level whose names it no longer keeps, because it was far below.
func TestView_WalkFarDown(t *testing.T) {
	tree, h := New(nil), &Header{}
	var want []string
	deep := func(path string) {
		for range 3 * tourRows {
			want = append(want, path)
			tree.must(t, h, Op{Kind: KindCreate, Path: path})
			path += "/a"
		}
	}
	for i := range 3 {
		deep(fmt.Sprintf("/d%d", i))
		above := fmt.Sprintf("/d%d%s", i, strings.Repeat("/a", tourRows+1))
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

// M164: between two znodes a walk keeps few bytes of names, however long they are.
func TestView_WalkOfLongNames(t *testing.T) {
	tree, h := New(nil), &Header{}
	above := ""
	for level := range tourRows {
		for i := range 3 * walkPage {
			tree.must(t, h, Op{Kind: KindCreate, Path: fmt.Sprintf("%s/%d-%03d%s", above, level, i, strings.Repeat("n", 3000))})
		}
		above += fmt.Sprintf("/%d-000%s", level, strings.Repeat("n", 3000))
	}
	visited := 0
	for w := (tour{view: tree.As(nil), at: "/"}); w.next(true); visited++ {
		kept := 0
		for _, r := range w.rows {
			for _, name := range r.names[:cap(r.names)] {
				kept += len(name)
			}
		}
		if kept > tourRows*rowBytes {
			t.Fatalf("after %d znodes it keeps %d bytes", visited, kept)
		}
	}
	if visited < tourRows*3*walkPage {
		t.Errorf("%d visited", visited)
	}
}
