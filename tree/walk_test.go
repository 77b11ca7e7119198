package tree

import (
	"fmt"
	"slices"
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
	for w := (tour{view: view, at: "/", levels: []level{{}}}); w.next(); {
		if n := cap(w.levels[0].names); n > 2*walkPage {
			t.Fatalf("%d names are kept", n)
		}
	}
}
