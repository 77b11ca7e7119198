package tree

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// If an operation would make the whole tree too heavy, it is refused, for every kind and every
// requester. An operation that makes the tree lighter never is.
func TestWeightMax(t *testing.T) {
	tree, h := New(nil), &Header{Session: 7, Identities: []Identity{{"digest", "bob:pw"}}}
	create := func(path, data string) Op {
		return Op{Kind: KindCreate, Path: path, Data: []byte(data), Version: AnyVersion}
	}
	set := func(path, data string) Op {
		return Op{Kind: KindSet, Path: path, Data: []byte(data), Version: AnyVersion}
	}
	del := func(path string) Op { return Op{Kind: KindDelete, Path: path, Version: AnyVersion} }
	tree.must(t, h, create("/a", "12345"))
	tree.must(t, h, Op{Kind: KindCreate, Path: "/e", Mode: Ephemeral, TTL: 1000})
	full := tree.Weight()
	tree.SetWeightMax(full)
	for name, c := range map[string]struct {
		ops   []Op
		index int
	}{
		"one znode more":         {[]Op{create("/b", "")}, 0},
		"one byte more":          {[]Op{set("/a", "123456")}, 0},
		"an ACL":                 {[]Op{{Kind: KindSetACL, Path: "/a", ACL: CreatorACL(), Version: AnyVersion}}, 0},
		"other bytes":            {[]Op{set("/a", "54321")}, -1},
		"what another gives":     {[]Op{set("/a", "1234"), set("/e", "5")}, -1},
		"more than another":      {[]Op{set("/a", "123"), set("/e", "1234"), del("/e")}, -1},
		"in the place of one":    {[]Op{create("/b", ""), del("/e")}, -1},
		"in the place of two":    {[]Op{del("/e"), create("/b", "12345"), create("/c", ""), del("/a")}, -1},
		"one too many of two":    {[]Op{del("/e"), create("/b", ""), create("/c", ""), {Kind: KindCheck, Path: "/c"}}, 2},
		"a longer path":          {[]Op{del("/e"), create("/ee", "")}, 1},
		"a delete":               {[]Op{del("/a")}, -1},
		"what fails of its own":  {[]Op{create("/b", ""), del("/missing")}, 1},
		"nothing but a question": {[]Op{{Kind: KindCheck, Path: "/a", Version: 0}}, -1},
	} {
		back := tree.Weight()
		tree := reloaded(t, tree)
		if tree.Weight() != back {
			t.Fatalf("a loaded tree weighs %d, not %d", tree.Weight(), back)
		}
		tree.SetWeightMax(full)
		h := *h
		h.Zxid++
		_, err := tree.Apply(h, c.ops)
		var multi *MultiError
		switch {
		case c.index < 0 && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.index >= 0 && name != "what fails of its own" && !errors.Is(err, ErrQuotaExceeded):
			t.Errorf("%s: %v", name, err)
		case c.index >= 0 && len(c.ops) > 1 && (!errors.As(err, &multi) || multi.Index != c.index):
			t.Errorf("%s: %v does not name operation %d", name, err, c.index)
		case err != nil && len(tree.Changes()) > 0:
			t.Errorf("%s: refused, and yet there are changes %v", name, tree.Changes())
		}
		tree.Publish()
		if err := tree.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if tree.Weight() > full {
			t.Errorf("%s: the tree weighs %d", name, tree.Weight())
		}
	}
	tree.SetWeightMax(1) // the tree already weighs more
	h.System = true
	tree.must(t, h, Op{Kind: KindLose, Path: "/e"}, create("/s", "x")) // the ensemble's own transactions are not limited
	h.System = false
	tree.must(t, h, set("/a", ""), del("/e"))
	tree.must(t, h, del("/a"))
	tree.SetWeightMax(0)
	tree.must(t, h, create("/b", strings.Repeat("x", 1<<20)))
}

// reloaded returns a tree with the same znodes, as on a member that has just started.
func reloaded(t *testing.T, old *Tree) *Tree {
	t.Helper()
	l := NewLoader(nil)
	if err := old.Walk(l.Add); err != nil {
		t.Fatal(err)
	}
	next, err := l.Finish(old.Visible())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// The weight is close to the memory of a tree, whatever its znodes are like.
func TestWeightIsThatOfTheMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("makes trees of 100,000 znodes")
	}
	for name, op := range map[string]Op{
		"small":              {Data: make([]byte, 10)},
		"of a hundred bytes": {Data: make([]byte, 100)},
		"of a thousand":      {Data: make([]byte, 1000)},
		"ephemerals":         {Data: make([]byte, 20), Mode: Ephemeral},
		"TTL znodes":         {Mode: TTL, TTL: 1000},
	} {
		before := testkit.Heap()
		tree, h := New(nil), &Header{Session: 7}
		for i := range 100_000 {
			op.Kind, op.Path, op.Data = KindCreate, fmt.Sprintf("/path-of-%d", i), bytes.Clone(op.Data)
			tree.must(t, h, op)
		}
		_ = tree.Drain(func(string, Znode, bool) error { return nil })
		took := testkit.Heap() - before
		t.Logf("%s: a weight of %d for %d bytes", name, tree.Weight(), took)
		if w := tree.Weight(); w < took*2/3 || w > took*3/2 {
			t.Errorf("%s: a weight of %d for %d bytes", name, w, took)
		}
		runtime.KeepAlive(tree)
	}
}

// What the members write for one another has room in a full tree, and nothing beside it.
func TestWeightMax_LeavesRoomForMembers(t *testing.T) {
	tree, h := New(nil), &Header{}
	tree.SetWeightMax(tree.Weight())
	for _, path := range []string{"/zookeeper/vivarium", "/zookeeper/vivarium/backup"} {
		tree.must(t, h, Op{Kind: KindCreate, Path: path, Data: []byte("data")})
	}
	for _, path := range []string{"/zookeeper/vivariums", "/a"} {
		h := Header{Zxid: h.Zxid + 1}
		if _, err := tree.Apply(h, []Op{{Kind: KindCreate, Path: path}}); !errors.Is(err, ErrQuotaExceeded) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
