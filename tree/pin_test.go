package tree

import (
	"fmt"
	"runtime"
	"testing"
)

// M128: who reads at one zxid and takes its time keeps what is replaced only up to a bound. Then the
// oldest is lost, and what it kept is free; a younger one goes on.
func TestPin_IsLost(t *testing.T) {
	tree, h := New(nil), &Header{}
	tree.must(t, h, Op{Kind: KindCreate, Path: "/a"}, Op{Kind: KindCreate, Path: "/b"})
	set := func(n int) {
		for range n {
			tree.must(t, h, Op{Kind: KindSet, Path: "/a", Version: AnyVersion, Data: make([]byte, 1000)})
		}
	}
	walk := func(p *Pin, at func(path string)) error {
		return p.As(nil).Walk("/", 0, func(path string, _ Found) bool { at(path); return true })
	}
	const most = 100_000
	oldest, sibling := tree.PinWithin(most), tree.PinWithin(most)
	set(60)
	younger := tree.PinWithin(most)
	if err := walk(oldest, func(string) {}); err != nil {
		t.Errorf("within the bound: %v", err)
	}
	paths := 0
	err := walk(sibling, func(path string) {
		if paths++; path == "/a" {
			set(60)
		}
	})
	if paths != 2 || err != ErrPinLost {
		t.Errorf("a walk that is overtaken shows %d paths: %v", paths, err)
	}
	if err := walk(oldest, func(string) { t.Error("something is shown") }); err != ErrPinLost {
		t.Errorf("a walk that begins too late: %v", err)
	}
	if err := walk(younger, func(string) {}); err != nil {
		t.Errorf("the younger one: %v", err)
	}
	if limit := most + tree.weight + 2000; tree.kept > limit {
		t.Errorf("%d bytes are kept, of %d", tree.kept, limit)
	}
	for _, p := range []*Pin{oldest, sibling, younger} {
		p.Release()
	}
	set(2)
	if len(tree.recent) > 1 || tree.kept > 2000 {
		t.Errorf("%d versions, %d bytes are kept for nobody", len(tree.recent), tree.kept)
	}
	short := tree.Pin()
	defer short.Release()
	set(200)
	if err := walk(short, func(string) {}); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}

// What counts for a pin is about what is kept, whatever replaces it.
func TestPin_CountsWhatItKeeps(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, op := range map[string]func(i int) Op{
		"set": func(int) Op {
			return Op{Kind: KindSet, Path: "/d", Version: AnyVersion, Data: make([]byte, 2000)}
		},
		"create":     func(i int) Op { return Op{Kind: KindCreate, Path: fmt.Sprintf("/d/b%07d", i*7919%1000003)} },
		"sequential": func(int) Op { return Op{Kind: KindCreate, Path: "/d/c-", Mode: Sequential} },
	} {
		tree, h := New(nil), &Header{}
		tree.must(t, h, Op{Kind: KindCreate, Path: "/d"})
		pin := tree.Pin()
		for i := range 10_000 {
			tree.must(t, h, op(i))
		}
		with, counted := heap(), tree.kept
		pin.Release()
		tree.must(t, h, Op{Kind: KindCheck, Path: "/d", Version: AnyVersion})
		tree.must(t, h, Op{Kind: KindCheck, Path: "/d", Version: AnyVersion})
		if kept := with - heap(); kept > 2*counted || counted > 2*kept {
			t.Errorf("%s: %d bytes are kept, %d count", name, kept, counted)
		}
	}
}

// M134: a create below a znode with much data keeps nothing of that: both versions of the znode have it.
func TestPin_CountsNoDataThatVersionsShare(t *testing.T) {
	tree, h := New(nil), &Header{}
	tree.must(t, h, Op{Kind: KindSet, Path: "/", Version: AnyVersion, Data: make([]byte, 1<<20-1)}, Op{Kind: KindCreate, Path: "/a"})
	p := tree.PinWithin(64 << 20)
	defer p.Release()
	for n := range 1000 {
		tree.must(t, h, Op{Kind: KindCreate, Path: fmt.Sprintf("/a/%d", n)})
	}
	if p.lost.Load() {
		t.Error("a thousand empty znodes have ended a walk")
	}
}
