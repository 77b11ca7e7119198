package tree

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A small request must not become large on every replica: "auth" stands for as many entries as
// there are identities.
func TestStoredACLsAreBounded(t *testing.T) {
	who := func(n, length int) (list []Identity) {
		for i := range n {
			list = append(list, Identity{Scheme: "digest", ID: fmt.Sprintf("%d:%s", i, strings.Repeat("x", length))})
		}
		return list
	}
	auth := func(n int) (list []ACL) {
		for i := range n {
			list = append(list, ACL{Perms: Perms(i), Scheme: "auth"})
		}
		return list
	}
	for _, c := range []struct {
		entries, identities, length int
		want                        error
	}{
		{10, 10, 10, nil},
		{11, 10, 10, ErrInvalidACL},
		{10_000, 100, 10, ErrInvalidACL},
		{8, 8, 900, nil},
		{8, 8, 1100, ErrInvalidACL},
	} {
		tree := New(nil)
		_, err := tree.Apply(Header{Zxid: 1, Identities: who(c.identities, c.length)}, []Op{{Kind: KindCreate, Path: "/a", ACL: auth(c.entries)}})
		if !errors.Is(err, c.want) {
			t.Errorf("%d entries for %d identities of %d bytes: %v, want %v", c.entries, c.identities, c.length, err, c.want)
		}
	}
}

// A text of limits or usage that is longer than any useful one is ignored. Otherwise every write
// below would pay for it.
func TestLongQuotaTextsAreNone(t *testing.T) {
	tree := New(nil)
	apply := func(op Op) error {
		_, err := tree.Apply(Header{Zxid: tree.applied + 1}, []Op{op})
		tree.Publish()
		return err
	}
	create := func(path, data string) error { return apply(Op{Kind: KindCreate, Path: path, Data: []byte(data)}) }
	long := strings.Repeat("k=1;", trackMax)
	for _, err := range []error{
		create("/a", ""), create("/zookeeper/quota/a", ""),
		create("/zookeeper/quota/a/zookeeper_limits", "countHardLimit=1;"+long), create("/zookeeper/quota/a/zookeeper_stats", ""),
		create("/a/b", ""), // there is no limit
		apply(Op{Kind: KindSet, Path: "/zookeeper/quota/a/zookeeper_stats", Data: []byte(long), Version: AnyVersion}),
		create("/a/c", ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if data, _, _ := tree.Get("/zookeeper/quota/a/zookeeper_stats"); string(data) != long {
		t.Errorf("the usage became %d bytes", len(data))
	}
}

// Counting the usage of a subtree walks all of it, so a transaction may do that only once.
func TestATransactionCountsOneSubtree(t *testing.T) {
	tree := New(nil)
	create := func(path string) Op { return Op{Kind: KindCreate, Path: path} }
	apply := func(ops ...Op) error {
		_, err := tree.Apply(Header{Zxid: tree.applied + 1}, ops)
		tree.Publish()
		return err
	}
	stats := create("/zookeeper/quota/a/zookeeper_stats")
	if err := apply(create("/zookeeper/quota/a"), create("/zookeeper/quota/b")); err != nil {
		t.Fatal(err)
	}
	for _, again := range [][]Op{
		{stats, create("/zookeeper/quota/b/zookeeper_stats")},
		{stats, {Kind: KindDelete, Path: stats.Path, Version: AnyVersion}, stats},
	} {
		if err := apply(again...); !errors.Is(err, ErrQuotaExceeded) {
			t.Errorf("counted twice: %v", err)
		}
	}
	for range 2 {
		if err := apply(stats, Op{Kind: KindDelete, Path: stats.Path, Version: AnyVersion}); err != nil {
			t.Error(err)
		}
	}
}
