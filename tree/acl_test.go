package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestPredefinedACLs(t *testing.T) {
	who := []Identity{{"digest", "u:1"}, {"ip", "10.0.0.1"}}
	for _, test := range []struct {
		asked, stored []ACL
	}{
		{OpenACL(), nil},
		{ReadACL(), []ACL{{Read, "world", "anyone"}}},
		{CreatorACL(), []ACL{{PermsAll, "digest", "u:1"}}},
	} {
		tree := New(nil)
		if _, err := tree.Apply(Header{Zxid: 1, Identities: who}, []Op{{Kind: KindCreate, Path: "/a", ACL: test.asked}}); err != nil {
			t.Fatal(err)
		}
		tree.Publish()
		err := tree.Walk(func(path string, z Znode) error {
			if path == "/a" && !slices.Equal(z.ACL, test.stored) {
				return fmt.Errorf("%v is stored as %v, want %v", test.asked, z.ACL, test.stored)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A znode without a list allows everybody everything, like one with the open entry.
func TestEmptyACLAllowsAll(t *testing.T) {
	view := New(nil).As(nil)
	if !view.MayRead(nil) || !view.MayRead([]ACL{}) || !view.MayRead(OpenACL()) || view.MayRead([]ACL{{Perms: Read}}) {
		t.Error("the absent, the empty and the open list allow reading, one for nobody does not")
	}
}

// emailScheme is an example of a service's own scheme. Its ACLs name a domain or an address.
type emailScheme struct{}

func (emailScheme) Valid(id string) bool { return strings.Contains(id, "@") }
func (emailScheme) Expands() bool        { return true }
func (emailScheme) Matches(identity, id string) bool {
	return identity == id || strings.HasPrefix(id, "@") && strings.HasSuffix(identity, id)
}

// A service adds its own schemes and leaves out those it does not want. The tree's own words keep
// their meaning.
func TestOwnSchemes(t *testing.T) {
	schemes := Schemes{"email": emailScheme{}, "world": emailScheme{}, "auth": emailScheme{}, "none": nil}
	tree := New(schemes)
	schemes["digest"] = BuiltinSchemes()["digest"] // too late to have an effect
	me := []Identity{{"email", "me@here"}, {"world", "x@y"}, {"auth", "x@y"}, {"none", "x@y"}}
	zxid := Zxid(0)
	create := func(acl ...ACL) error {
		zxid++
		_, err := tree.Apply(Header{Zxid: zxid, Identities: me}, []Op{{Kind: KindCreate, Path: "/x", Mode: Sequential, ACL: acl}})
		tree.Publish()
		return err
	}
	for _, bad := range []ACL{{31, "email", "here"}, {31, "digest", "u:1"}, {31, "none", "x@y"}, {31, "world", "x@y"}} {
		if err := create(bad); !errors.Is(err, ErrInvalidACL) {
			t.Errorf("%v: got %v", bad, err)
		}
	}
	if err := errors.Join(create(ACL{31, "email", "@here"}), create(ACL{31, "auth", ""}), create(ACL{31, "world", "anyone"})); err != nil {
		t.Fatal(err)
	}
	got, _, err := tree.As(me).ACL("/x0000000001")
	if want := (ACL{31, "email", "me@here"}); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("auth stands for %v, %v", got, err)
	}
	if _, _, err := tree.As([]Identity{{"email", "you@here"}}).Get("/x0000000000"); err != nil {
		t.Error(err)
	}
	if _, _, err := tree.As([]Identity{{"email", "me@there"}}).Get("/x0000000000"); err != ErrNoAuth {
		t.Errorf("got %v", err)
	}
}

// A tree can be loaded even if a scheme in its lists no longer exists. Then nobody matches these
// entries.
func TestSchemeGone(t *testing.T) {
	znodes := bornZnodes()
	znodes["/a"] = Znode{Czxid: 1, ACL: []ACL{{31, "email", "me@here"}, {1, "digest", "no-colon"}, {1, "world", "anyone"}}}
	root := znodes["/"]
	root.Created = 1
	znodes["/"] = root
	tree, err := load(znodes, 1)
	if err != nil {
		t.Fatal(err)
	}
	me := []Identity{{"email", "me@here"}}
	if _, _, err := tree.As(me).Get("/a"); err != nil {
		t.Error(err)
	}
	set := Op{Kind: KindSet, Path: "/a", Version: AnyVersion}
	if _, err := tree.Apply(Header{Zxid: 2, Identities: me}, []Op{set}); err != ErrNoAuth {
		t.Errorf("got %v", err)
	}
	if got, _, err := tree.As(me).ACL("/a"); err != nil || got[1].ID != "no-colon:x" {
		t.Errorf("got %v, %v", got, err)
	}
}

// Who has no Admin on a subtree limits nothing there, takes no limit away, and keeps nobody else from
// doing so. Where nothing is, the nearest ancestor decides.
func TestQuotaNeedsAdmin(t *testing.T) {
	limits, stats := "/zookeeper/quota/bank/a/zookeeper_limits", "/zookeeper/quota/bank/a/zookeeper_stats"
	owner, other := []Identity{{"digest", "owner:x"}}, []Identity{{"digest", "other:x"}}
	tree, zxid := New(nil), Zxid(0)
	apply := func(who []Identity, op Op) error {
		zxid++
		_, err := tree.Apply(Header{Zxid: zxid, Identities: who}, []Op{op})
		tree.Publish()
		return err
	}
	own := []ACL{{31, "auth", ""}}
	for _, path := range []string{"/bank", "/bank/a"} {
		if err := apply(owner, Op{Kind: KindCreate, Path: path, ACL: own}); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/zookeeper/quota/bank", "/zookeeper/quota/bank/a", "/zookeeper/quota/bank/b", limits, stats} {
		op := Op{Kind: KindCreate, Path: path, Data: []byte("count=1,bytes=-1")}
		if err := apply(other, op); err != ErrNoAuth {
			t.Errorf("create %s: %v", path, err)
		}
		if err := apply(owner, op); err != nil {
			t.Errorf("the owner creates %s: %v", path, err)
		}
	}
	for _, op := range []Op{
		{Kind: KindSet, Path: limits, Version: AnyVersion}, {Kind: KindSet, Path: stats, Version: AnyVersion},
		{Kind: KindAdd, Path: limits, Delta: 1},
		{Kind: KindDelete, Path: limits, Version: AnyVersion}, {Kind: KindDelete, Path: "/zookeeper/quota/bank/b", Version: AnyVersion},
		{Kind: KindSetACL, Path: limits, ACL: own, Version: AnyVersion}, {Kind: KindSetACL, Path: "/zookeeper/quota/bank", ACL: own, Version: AnyVersion},
	} {
		if err := apply(other, op); err != ErrNoAuth {
			t.Errorf("%v %s: %v", op.Kind, op.Path, err)
		}
	}
	if err := apply(owner, Op{Kind: KindDelete, Path: limits, Version: AnyVersion}); err != nil {
		t.Error(err)
	}
	if err := apply(other, Op{Kind: KindCreate, Path: "/zookeeper/quota/bankers"}); err != nil {
		t.Errorf("below the root, where anybody has Admin: %v", err)
	}
}

func bornZnodes() map[string]Znode {
	znodes := map[string]Znode{}
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"} {
		znodes[path] = initialZnode(path)
	}
	return znodes
}

// Lists have one owner: the caller may reuse a list it passed in, and change a list it received.
func TestACLsAreNotShared(t *testing.T) {
	tree, h := New(nil), &Header{}
	word := []byte("digestu:1")
	scheme, id := unsafe.String(&word[0], 6), unsafe.String(&word[6], 3)
	asked := []ACL{{31, scheme, id}, {1, "world", "anyone"}}
	h.Identities = []Identity{{scheme, id}}
	tree.must(t, h, Op{Kind: KindCreate, Path: "/a", ACL: asked})
	tree.must(t, h, Op{Kind: KindCreate, Path: "/b", ACL: CreatorACL()})
	tree.must(t, h, Op{Kind: KindCreate, Path: "/c"})
	tree.must(t, h, Op{Kind: KindSetACL, Path: "/c", ACL: asked, Version: AnyVersion})
	asked[0].Perms = 0
	copy(word, "?????????")
	for path, want := range map[string]ACL{"/a": {31, "digest", "u:1"}, "/b": {31, "digest", "u:1"}, "/c": {31, "digest", "u:1"}} {
		for range 2 {
			got, _, err := tree.As([]Identity{{"super", ""}}).ACL(path)
			if err != nil || got[0] != want {
				t.Errorf("%s: %v, %v", path, got, err)
			}
			got[0] = ACL{}
		}
	}
}

// A parent and its children share one copy of an equal list, also after loading.
func TestEqualACLsAreOne(t *testing.T) {
	tree, h := New(nil), &Header{Identities: []Identity{{"digest", "u:1"}}}
	tree.must(t, h, Op{Kind: KindCreate, Path: "/a", ACL: CreatorACL()})
	tree.must(t, h, Op{Kind: KindCreate, Path: "/a/b", ACL: CreatorACL()})
	tree.must(t, h, Op{Kind: KindCreate, Path: "/a/c", ACL: CreatorACL(), Mode: Container})
	tree.must(t, h, Op{Kind: KindCreate, Path: "/a/d"})
	tree.must(t, h, Op{Kind: KindSetACL, Path: "/a/d", ACL: CreatorACL(), Version: AnyVersion})
	znodes := map[string]Znode{}
	if err := tree.Walk(func(path string, z Znode) error { znodes[path] = z; return nil }); err != nil {
		t.Fatal(err)
	}
	loaded, err := load(znodes, h.Zxid)
	if err != nil {
		t.Fatal(err)
	}
	for name, tree := range map[string]*Tree{"applied": tree, "loaded": loaded} {
		one := &tree.index.get("/a").current().acl()[0]
		for _, path := range []string{"/a/b", "/a/c", "/a/d"} {
			if &tree.index.get(path).current().acl()[0] != one {
				t.Errorf("%s: %s has a list of its own", name, path)
			}
		}
		if tree.index.get("/a/b").current().rest().traits != tree.index.get("/a").current().rest().traits {
			t.Errorf("%s: /a/b has traits of its own", name)
		}
	}
}
