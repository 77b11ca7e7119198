package tree

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// The caller may reuse data that it passed in, owns data that it receives, and may pass a path that
// lies in a buffer.
func TestNothingIsShared(t *testing.T) {
	tree, h := New(nil), &Header{}
	path, data := []byte("/a"), []byte("one")
	result := tree.must(t, h, Op{Kind: KindCreate, Path: unsafe.String(&path[0], len(path)), Data: data})[0]
	changes := tree.Changes()
	copy(path, "??")
	copy(data, "???")
	if result.Path != "/a" || changes[0].Path != "/a" {
		t.Errorf("result of %q, change of %q", result.Path, changes[0].Path)
	}
	got, _, err := tree.Get("/a")
	if err != nil || string(got) != "one" {
		t.Fatalf("got %q, %v", got, err)
	}
	copy(got, "???")
	if got, _, _ = tree.Get("/a"); string(got) != "one" {
		t.Errorf("got %q after the first copy was changed", got)
	}
	names, _, _ := tree.Children("/")
	names[0] = "?"
	if names, _, _ = tree.Children("/"); names[0] != "a" {
		t.Errorf("children %q after the first copy was changed", names)
	}
}

func TestStatTimesAreUTC(t *testing.T) {
	tree := New(nil)
	at := time.Date(2026, 7, 17, 12, 0, 0, 345_000_000, time.UTC)
	if _, err := tree.Apply(Header{Zxid: 1, Time: at.UnixMilli()}, []Op{{Kind: KindCreate, Path: "/a"}}); err != nil {
		t.Fatal(err)
	}
	tree.Publish()
	stat, _ := tree.Exists("/a")
	if stat.Ctime != at || stat.Mtime != at {
		t.Errorf("ctime %v, mtime %v, want %v", stat.Ctime, stat.Mtime, at)
	}
}

// A failed transaction has no changes, publishes nothing, and does not use up its zxid.
func TestFailedApply(t *testing.T) {
	tree := New(nil)
	create := []Op{{Kind: KindCreate, Path: "/a"}}
	if _, err := tree.Apply(Header{Zxid: 3}, create); err != nil {
		t.Fatal(err)
	}
	tree.Publish()
	if _, err := tree.Apply(Header{Zxid: 5}, create); err != ErrNodeExists {
		t.Fatalf("got %v", err)
	}
	if len(tree.Changes()) != 0 {
		t.Errorf("changes %v", tree.Changes())
	}
	tree.Publish()
	if tree.Visible() != 3 {
		t.Errorf("visible %d", tree.Visible())
	}
	if _, err := tree.Apply(Header{Zxid: 5}, []Op{{}}); !errors.Is(err, ErrInvalidKind) {
		t.Fatalf("the zero Op ended with %v", err)
	}
	if _, err := tree.Apply(Header{Zxid: 5}, []Op{{Kind: KindDelete, Path: "/a", Version: AnyVersion}}); err != nil {
		t.Fatal(err)
	}
}

// Bugs of the caller that would make replicas differ are detected.
func TestApplyOutOfOrderPanics(t *testing.T) {
	panics := func(name string, h Header, tree *Tree) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		_, _ = tree.Apply(h, nil)
	}
	tree := New(nil)
	panics("zero zxid", Header{}, tree)
	if _, err := tree.Apply(Header{Zxid: 2}, nil); err != nil {
		t.Fatal(err)
	}
	panics("unpublished", Header{Zxid: 3}, tree)
	tree.Publish()
	panics("same zxid", Header{Zxid: 2}, tree)
}

// Everything that Drain and Walk cannot have produced is refused, with its path.
func TestLoaderRefuses(t *testing.T) {
	tests := []struct {
		name, path string
		edit       func(znodes map[string]Znode)
	}{
		{"invalid path", "/a/", func(m map[string]Znode) { m["/a/"] = Znode{} }},
		{"no parent", "/x/y", func(m map[string]Znode) { m["/x/y"] = Znode{} }},
		{"ephemeral parent", "/e/y", func(m map[string]Znode) { m["/e/y"] = Znode{} }},
		{"ephemeral root", "/", func(m map[string]Znode) { m["/"] = Znode{Owner: 1, Created: 9} }},
		{"later zxid", "/a", func(m map[string]Znode) { m["/a"] = Znode{Pzxid: 10} }},
		{"ephemeral container", "/e", func(m map[string]Znode) { m["/e"] = Znode{Owner: 7, Container: true} }},
		{"ephemeral with a negative TTL", "/e", func(m map[string]Znode) { m["/e"] = Znode{Owner: 7, TTL: -1} }},
		{"ephemeral with a long TTL", "/e", func(m map[string]Znode) { m["/e"] = Znode{Owner: 7, TTL: MaxTTL + 1} }},
		{"container with TTL", "/a", func(m map[string]Znode) { m["/a"] = Znode{Container: true, TTL: 1} }},
		{"negative TTL", "/a", func(m map[string]Znode) { m["/a"] = Znode{TTL: -1} }},
		{"long TTL", "/a", func(m map[string]Znode) { m["/a"] = Znode{TTL: MaxTTL + 1} }},
		{"container root", "/", func(m map[string]Znode) { m["/"] = Znode{Created: 9, Container: true} }},
		{"config with TTL", "/zookeeper/config", func(m map[string]Znode) { m["/zookeeper/config"] = Znode{TTL: 1} }},
		{"empty ACL", "/a", func(m map[string]Znode) { m["/a"] = Znode{ACL: []ACL{}} }},
		{"open ACL", "/a", func(m map[string]Znode) { m["/a"] = Znode{ACL: OpenACL()} }},
		{"ACL not expanded", "/a", func(m map[string]Znode) { m["/a"] = Znode{ACL: CreatorACL()} }},
		{"ACL of no scheme", "/a", func(m map[string]Znode) { m["/a"] = Znode{ACL: []ACL{{Perms: Read}}} }},
		{"ACL of another world", "/a", func(m map[string]Znode) { m["/a"] = Znode{ACL: []ACL{{Read, "world", "a"}}} }},
		{"negative counter", "/a", func(m map[string]Znode) { m["/a"] = Znode{Created: -1} }},
		{"counter too small", "/", func(m map[string]Znode) { m["/"] = Znode{Created: 1} }},
		{"missing quota", "/zookeeper/quota", func(m map[string]Znode) { delete(m, "/zookeeper/quota") }},
		{"missing root", "/", func(m map[string]Znode) { delete(m, "/") }},
	}
	for _, test := range tests {
		znodes := map[string]Znode{
			"/": {Created: 2}, "/zookeeper": {}, "/zookeeper/quota": {}, "/zookeeper/config": {},
			"/a": {Czxid: 9}, "/e": {Owner: 7},
		}
		test.edit(znodes)
		_, err := load(znodes, 9)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("%q", test.path)) {
			t.Errorf("%s: got %v", test.name, err)
		}
	}
	l := NewLoader(nil)
	if err := errors.Join(l.Add("/", Znode{}), l.Add("/a", Znode{}), l.Add("/", Znode{})); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(0); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "twice") {
		t.Errorf("twice: got %v", err)
	}
}

func load(znodes map[string]Znode, visible Zxid) (*Tree, error) {
	l := NewLoader(nil)
	for path, z := range znodes {
		if err := l.Add(path, z); err != nil {
			return nil, err
		}
	}
	return l.Finish(visible)
}

// The costs that the package promises. They are counted in allocations and bytes, which do not
// depend on the machine.

func TestAllocations(t *testing.T) {
	if invariants {
		t.Skip("the checks after every transaction cost more than it does")
	}
	tree, h := newTree(t, 1000)
	const path = "/dir/node-0000000500"
	set := []Op{{Kind: KindSet, Path: path, Data: make([]byte, 100), Version: AnyVersion}}
	view := tree.As([]Identity{{"digest", "u:1"}})
	for _, test := range []struct {
		name string
		most float64
		run  func()
	}{
		{"get", 1, func() { _, _, _ = tree.Get(path) }},
		{"get as somebody", 1, func() { _, _, _ = view.Get(path) }},
		{"exists", 0, func() { tree.Exists(path) }},
		{"before", 0, func() { _, _, _ = tree.Before(path, "node") }},
		{"children", 1, func() { _, _, _ = tree.Children("/dir") }},
		{"set", 3, func() { tree.must(t, h, set...) }},
	} {
		if got := testing.AllocsPerRun(100, test.run); got > test.most {
			t.Errorf("%s: %v allocations, want at most %v", test.name, got, test.most)
		}
	}
}

// A million znodes must fit into memory. One with 100 bytes of data and a short path takes at most
// 300 bytes, created or loaded.
func TestZnodeIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	const n, most = 50_000, 300
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	if invariants {
		t.Skip("the checks after every transaction take too long")
	}
	data := make([]byte, 100)
	before := live()
	tree, h := newTree(t, 0)
	for i := range n {
		if i%1000 == 0 {
			tree.must(t, h, Op{Kind: KindCreate, Path: fmt.Sprint("/p", i/1000)})
		}
		tree.must(t, h, Op{Kind: KindCreate, Path: fmt.Sprintf("/p%d/z%d", i/1000, i), Data: data})
	}
	tree.forgetDirty()
	if each := (live() - before) / n; each > most {
		t.Errorf("created: %d bytes a znode, want at most %d", each, most)
	}
	before = live()
	l := NewLoader(nil)
	if err := tree.Walk(func(path string, z Znode) error { return l.Add(strings.Clone(path), z) }); err != nil {
		t.Fatal(err)
	}
	loaded, err := l.Finish(h.Zxid)
	if err != nil {
		t.Fatal(err)
	}
	if each := (live() - before) / n; each > most {
		t.Errorf("loaded: %d bytes a znode, want at most %d", each, most)
	}
	runtime.KeepAlive(tree)
	runtime.KeepAlive(loaded)
}

// allocated returns how many bytes fn allocates.
func allocated(t *testing.T, fn func()) uint64 {
	if invariants {
		t.Skip("the checks after every transaction cost more than it does")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A transaction with four times as many operations costs about four times as much, not sixteen
// times.
func TestLongMultiIsLinear(t *testing.T) {
	cost := func(n int) uint64 {
		tree, h := newTree(t, 0)
		var ops []Op
		for i := range n {
			path := fmt.Sprintf("/dir/%d", i*7919%n)
			ops = append(ops,
				Op{Kind: KindCreate, Path: path},
				Op{Kind: KindCreate, Path: "/dir/n-", Mode: Sequential},
				Op{Kind: KindSet, Path: path, Version: 0})
			if i%2 == 0 {
				ops = append(ops, Op{Kind: KindDelete, Path: path, Version: 1})
			}
		}
		return allocated(t, func() { tree.must(t, h, ops...) })
	}
	if small, large := cost(2003), cost(4*2003); large > 6*small {
		t.Errorf("%d bytes for %d rounds, %d for four times as many", small, 2003, large)
	}
}

// A child among many costs a few pages more than a child among few.
func TestCreateAmongManyIsLogarithmic(t *testing.T) {
	tree, h := newTree(t, 20_000)
	const rounds = 100
	got := allocated(t, func() {
		for range rounds {
			path := tree.must(t, h, Op{Kind: KindCreate, Path: "/dir/middle-", Mode: Sequential})[0].Path
			tree.must(t, h, Op{Kind: KindDelete, Path: path, Version: AnyVersion})
		}
	}) / rounds
	if got > 20_000 {
		t.Errorf("%d bytes to create and delete a child", got)
	}
}

// What a transaction replaced is kept only until the next transaction.
func TestOldDataIsLetGo(t *testing.T) {
	tree, h := newTree(t, 2)
	big := make([]byte, 1<<20)
	for i := range 100 {
		path := fmt.Sprintf("/dir/node-%010d", i%2)
		tree.must(t, h, Op{Kind: KindSet, Path: path, Data: big, Version: AnyVersion})
	}
	tree.must(t, h, Op{Kind: KindDelete, Path: "/dir/node-0000000000", Version: AnyVersion})
	tree.must(t, h)
	tree.forgetDirty()
	if tree.index.get("/dir/node-0000000000") != nil {
		t.Error("a deleted znode is in the index two transactions later")
	}
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 30<<20 {
		t.Errorf("%d MiB in use", m.HeapAlloc>>20)
	}
	runtime.KeepAlive(tree)
}
