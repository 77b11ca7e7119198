package tree

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// restorable returns what a backup keeps of a tree: all znodes but the config.
func restorable(t *testing.T, from *Tree) (list []Named) {
	t.Helper()
	err := from.Walk(func(path string, z Znode) error {
		if path != ConfigPath {
			list = append(list, Named{path, z})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// do applies operations as transactions of their own.
func do(t *testing.T, tree *Tree, z Zxid, ops ...Op) Zxid {
	t.Helper()
	for _, op := range ops {
		z++
		if _, err := tree.Apply(Header{Zxid: z, Time: int64(z) * 10, System: true}, []Op{op}); err != nil {
			t.Fatal(op, err)
		}
		tree.Publish()
	}
	return z
}

func usedTree(t *testing.T) *Tree {
	tree := New(nil)
	create := func(path string, mode CreateMode, data string) Op {
		return Op{Kind: KindCreate, Path: path, Mode: mode, Data: []byte(data)}
	}
	ops := []Op{
		{Kind: KindSet, Path: "/", Data: []byte("root"), Version: AnyVersion},
		create("/a", Persistent, "1"), create("/a/b", Container, ""), create("/a/b/c", Persistent, "22"),
		{Kind: KindCreate, Path: "/a/t", Mode: TTL, TTL: 5000},
		{Kind: KindSet, Path: "/a", Data: []byte("11"), Version: 0},
		{Kind: KindSetACL, Path: "/a", ACL: []ACL{{Perms: PermsAll, Scheme: "ip", ID: "10.0.0.7"}}, Version: AnyVersion},
		create("/a!", Persistent, "before the children of /a in byte order"),
	}
	for range 3 {
		ops = append(ops, create("/a/b/n-", Sequential, "x"))
	}
	ops = append(ops, Op{Kind: KindDelete, Path: "/a/b/n-0000000002", Version: AnyVersion},
		create("/zookeeper/quota/a", Persistent, ""),
		create("/zookeeper/quota/a/zookeeper_limits", Persistent, "count=100,bytes=1000"),
		create("/zookeeper/quota/a/zookeeper_stats", Persistent, ""),
		create("/a/more", Persistent, "333"),
		create("/zz", Persistent, "after the quota in byte order"))
	do(t, tree, 0, ops...)
	return tree
}

// A restored tree is the tree that was saved, whole or in parts, also after it went through an
// image.
func TestRestoreGivesTheSameTree(t *testing.T) {
	from := usedTree(t)
	want := restorable(t, from)
	for _, part := range []int{1, 3, len(want)} {
		to, z := New(nil), Zxid(1<<32)
		for at := 0; at < len(want); at += part {
			z++
			if err := to.Restore(Header{Zxid: z}, want[at:min(at+part, len(want))]); err != nil {
				t.Fatal(err)
			}
			to.Publish()
			if err := to.check(); err != nil {
				t.Fatal(err)
			}
		}
		compareTrees(t, to, from, want)
		l := NewLoader(nil)
		if err := to.Walk(l.Add); err != nil {
			t.Fatal(err)
		}
		loaded, err := l.Finish(z)
		if err != nil {
			t.Fatal(err)
		}
		compareTrees(t, loaded, from, want)
		do(t, to, z, Op{Kind: KindCreate, Path: "/a/b/n-", Mode: Sequential})
		if _, ok := to.Exists("/a/b/n-0000000004"); !ok { // after n-, n-, n- and the first child c
			t.Error("the next sequence number is not that of the source")
		}
	}
}

func compareTrees(t *testing.T, got, from *Tree, want []Named) {
	t.Helper()
	if list := restorable(t, got); !reflect.DeepEqual(list, want) {
		t.Fatalf("restored\n%+v, want\n%+v", list, want)
	}
	if got.Len() != from.Len() || got.Size() != from.Size() || got.Weight() != from.Weight() || len(got.mortals) != len(from.mortals) {
		t.Errorf("%d znodes of %d bytes, weight %d, %d mortals, want %d, %d, %d, %d", got.Len(), got.Size(), got.Weight(), len(got.mortals),
			from.Len(), from.Size(), from.Weight(), len(from.mortals))
	}
	for _, n := range want {
		a, _ := got.Exists(n.Path)
		b, _ := from.Exists(n.Path)
		if a != b {
			t.Errorf("%s: %+v, want %+v", n.Path, a, b)
		}
	}
}

// What cannot be restored is refused, and the znodes before it in the same transaction too.
func TestRestoreRefuses(t *testing.T) {
	to := New(nil)
	do(t, to, 0, Op{Kind: KindCreate, Path: "/there"})
	before := to.Len()
	for name, n := range map[string]Named{
		"a config":             {Path: ConfigPath},
		"an ephemeral":         {Path: "/e", Znode: Znode{Owner: 5}},
		"an orphan":            {Path: "/x/y"},
		"a second one":         {Path: "/there"},
		"an invalid path":      {Path: "/a//b"},
		"two modes":            {Path: "/m", Znode: Znode{Container: true, TTL: 5}},
		"a zxid of the future": {Path: "/f", Znode: Znode{Mzxid: 1 << 40}},
	} {
		err := to.Restore(Header{Zxid: 1 << 40}, []Named{{Path: "/good"}, n})
		if !errors.Is(err, ErrCorrupt) || to.Len() != before || len(to.Changes()) != 0 {
			t.Errorf("%s: %v, %d znodes", name, err, to.Len())
		}
		if err := to.check(); err != nil {
			t.Fatal(name, err)
		}
	}
}

// A create counter below the number of children would make an image that nobody can load.
func TestRestoreCountsAtLeastTheChildren(t *testing.T) {
	to, list := New(nil), []Named{{Path: "/p"}}
	for i := range 5 {
		list = append(list, Named{Path: fmt.Sprintf("/p/%d", i)})
	}
	if err := to.Restore(Header{Zxid: 1}, list); err != nil {
		t.Fatal(err)
	}
	to.Publish()
	l := NewLoader(nil)
	if err := to.Walk(l.Add); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Finish(1); err != nil {
		t.Fatal(err)
	}
}

// The usage of a quota is that of the restored znodes, whatever the source counted: ephemerals stay
// behind.
func TestRestoreCountsQuotasAnew(t *testing.T) {
	from, to := usedTree(t), New(nil)
	z := from.applied + 1
	if _, err := from.Apply(Header{Zxid: z, Session: 9, System: true}, []Op{{Kind: KindCreate, Path: "/a/e", Mode: Ephemeral, Data: []byte("gone")}}); err != nil {
		t.Fatal(err)
	}
	from.Publish()
	var list []Named
	for _, n := range restorable(t, from) {
		if n.Owner == 0 {
			list = append(list, n)
		}
	}
	if err := to.Restore(Header{Zxid: 1 << 32}, list); err != nil {
		t.Fatal(err)
	}
	to.Publish()
	const stats = "/zookeeper/quota/a/zookeeper_stats"
	was, _, _ := from.Get(stats)
	is, _, _ := to.Get(stats)
	if string(was) != "count=8,bytes=13" || string(is) != "count=7,bytes=9" {
		t.Errorf("the usage was %q, is %q", was, is)
	}
}
