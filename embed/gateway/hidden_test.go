package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// ownerOf opens a session with an identity of its own, and creates /secret and its ephemeral
// /secret/e for that identity alone.
func ownerOf(t *testing.T, g *Gateway) *client {
	t.Helper()
	c := connectNative(t, g)
	if r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "digest", Proof: []byte("alice:secret")}}); r.Err != wire.OK {
		t.Fatalf("auth: code %d", r.Err)
	}
	for _, o := range []wire.Operation{create("/secret", []byte("0123456789"), 0), create("/secret/e", nil, 1)} {
		o.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		c.must(o)
	}
	return c
}

// A native arm tells no Stat of a znode that may not be read, and its watch no event of it, not even
// that there was one. That such a znode is created at its path, it tells: that it exists, everybody may
// know.
func TestNative_TellsNothingHidden(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		owner, c := ownerOf(t, g), connectNative(t, g)
		for path, exists := range map[string]bool{"/secret": true, "/secret/e": true, "/secret/none": false} {
			for _, mode := range []watch.Mode{watch.Persistent, watch.Recursive} {
				arm := wire.Native{Kind: wire.NativeArm, Path: path, Mode: int32(mode)}
				if r := c.mustNative(arm); r.Flag != exists || r.Stat != (wire.Stat{}) {
					t.Errorf("%s is there: %v, %+v", path, r.Flag, r.Stat)
				}
				if r := owner.mustNative(arm); r.Flag != exists || exists && r.Stat == (wire.Stat{}) {
					t.Errorf("%s is there for its owner: %v, %+v", path, r.Flag, r.Stat)
				}
			}
		}
		owner.must(op(wire.OpSetData, "/secret"))
		owner.must(op(wire.OpSetData, "/secret/e"))
		owner.must(op(wire.OpDelete, "/secret/e"))
		hidden := create("/secret/none", nil, 0)
		hidden.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		owner.must(hidden)
		owner.must(with(op(wire.OpSetACL, "/secret"), acls(wire.ACL{Perms: wire.PermAll &^ wire.PermDelete, Scheme: "auth"})))
		c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/secret"})
		c.wantTold("who may not read", "130 /secret/none")
		want := []string{"3 /secret", "3 /secret/e", "2 /secret/e", "4 /secret", "1 /secret/none", "4 /secret"}
		if got := owner.told(); len(got) != len(want) {
			t.Errorf("the owner is told %q, want %q", got, want)
		}
	})
}

// M115: a native client is told when it may no longer read what it watches, and when it may again, and
// nothing in between. It would learn both by reading. Other clients are told nothing.
func TestNative_TellsWhoMayRead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		owner, c, other := ownerOf(t, g), connectNative(t, g), connect(t, g)
		for _, path := range []string{"/open", "/open/below"} {
			owner.must(create(path, nil, 0))
		}
		for mode, path := range map[watch.Mode]string{watch.Persistent: "/open/below", watch.Recursive: "/open"} {
			c.mustNative(wire.Native{Kind: wire.NativeArm, Path: path, Mode: int32(mode)})
			other.must(with(op(wire.OpAddWatch, path), func(o *wire.Operation) {
				o.Mode = map[watch.Mode]wire.WatchMode{watch.Persistent: wire.WatchPersistent, watch.Recursive: wire.WatchRecursive}[mode]
			}))
		}
		setACL := func(list ...wire.ACL) { owner.must(with(op(wire.OpSetACL, "/open/below"), acls(list...))) }
		setACL(wire.ACL{Perms: wire.PermAll, Scheme: "auth"})
		owner.must(op(wire.OpSetData, "/open/below"))
		setACL(wire.ACL{Perms: wire.PermRead | wire.PermAdmin, Scheme: "auth"})
		setACL(openACL()...)
		setACL(wire.ACL{Perms: wire.PermRead | wire.PermAdmin, Scheme: "world", ID: "anyone"})
		for _, who := range []*client{c, other} {
			who.must(op(wire.OpSync, "/open"))
		}
		c.wantTold("who is native", "128 /open/below", "129 /open/below")
		other.wantTold("who is not")
	})
}

// A session is told of its own ephemeral although it may not read it: a claim has to learn of its
// end. Its value is not told.
func TestNative_TellsOfItsOwnEphemeral(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connectNative(t, g), connectNative(t, g)
		blind := create("/e", []byte("x"), 1)
		blind.ACL = []wire.ACL{{Perms: wire.PermWrite, Scheme: "world", ID: "anyone"}}
		c.must(blind)
		arm := wire.Native{Kind: wire.NativeArm, Path: "/e", Mode: int32(watch.Persistent)}
		if r := c.mustNative(arm); r.Stat.EphemeralOwner != c.SessionID {
			t.Errorf("the owner is told %+v", r.Stat)
		}
		other.mustNative(arm)
		set := op(wire.OpSetData, "/e")
		set.Data = []byte("y")
		other.must(set)
		other.must(op(wire.OpDelete, "/e"))
		other.wantTold("another session")
		c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/e"})
		c.wantTold("the owner", "3 /e", "2 /e")
	})
}

// setWatches tells of a znode that may not be read only whether it exists, whatever zxid the client
// names. Otherwise it could find the zxids of that znode's changes by bisection.
func TestSetWatches_TellsNothingHidden(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		owner, c := ownerOf(t, g), connect(t, g)
		owner.must(op(wire.OpSetData, "/secret"))
		top := owner.must(op(wire.OpGetData, "/secret")).Zxid
		for _, zxid := range []int64{0, top - 2, top - 1, top, top + 1} {
			r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpSetWatches}, Watches: wire.Watches{
				Zxid: zxid, Data: []string{"/secret", "/gone"}, Child: []string{"/secret"}, Exist: []string{"/secret/e", "/none"}}})
			if r.Err != wire.OK {
				t.Fatalf("code %d", r.Err)
			}
			if got, want := c.told(), []string{"2 /gone", "1 /secret/e"}; !slices.Equal(got, want) {
				t.Fatalf("with zxid %d: told %q, want %q", zxid, got, want)
			}
		}
		owner.must(op(wire.OpSetData, "/secret"))
		c.must(op(wire.OpSync, "/secret"))
		c.wantTold("after a change")
	})
}

// submits makes a request of one native operation, or of one between two that pass.
func submits(o wire.NativeOp) []wire.Request {
	pass := wire.NativeOp{Kind: int32(tree.KindCheck), Path: "/", Version: -1}
	return []wire.Request{
		ofNative(wire.Native{Kind: wire.NativeSubmit, Ops: []wire.NativeOp{o}}),
		ofNative(wire.Native{Kind: wire.NativeSubmit, Ops: []wire.NativeOp{pass, o, pass}}),
	}
}

// guesses are all requests that a client can make of a znode that it may not read, with what it guesses
// of the znode's Stat.
func guesses(path string, s wire.Stat) (list []wire.Request) {
	for kind := tree.KindCreate; kind <= tree.KindEnsure; kind++ {
		o := wire.NativeOp{Kind: int32(kind), Path: path, Version: -1, ACL: openACL()}
		if kind != tree.KindCreate && kind != tree.KindSetACL {
			o.ACL = nil
		}
		switch kind {
		case tree.KindLose, tree.KindConfigure: // no client has them
			continue
		case tree.KindGuard:
			o.Czxid = s.Czxid
		case tree.KindCheckMzxid:
			o.Mzxid = s.Mzxid
		case tree.KindCheckChildren:
			o.Version = s.NumChildren
		case tree.KindDelete:
			list = append(list, submits(o)...)
			o.Czxid = s.Czxid
			list = append(list, submits(o)...)
			o.Version = s.Version + 1
		case tree.KindSet, tree.KindCheck:
			list = append(list, submits(o)...)
			o.Version = s.Version
		}
		list = append(list, submits(o)...)
	}
	for _, n := range []wire.Native{
		{Kind: wire.NativeArm, Mode: int32(watch.Persistent)}, {Kind: wire.NativePage, Count: s.NumChildren + 1}, {Kind: wire.NativeWalk},
		{Kind: wire.NativeBefore, Names: []string{"a"}}, {Kind: wire.NativeRelease, Zxid: s.Czxid},
		{Kind: wire.NativeMember, Zxid: s.EphemeralOwner},
	} {
		n.Path = path
		list = append(list, ofNative(n))
	}
	for _, o := range []wire.Op{
		wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetACL, wire.OpGetAllChildrenNumber, wire.OpGetEphemerals,
		wire.OpSync, wire.OpSetData, wire.OpSetACL, wire.OpDelete, wire.OpCreate, wire.OpCreate2,
	} {
		for _, version := range []int32{-1, s.Version, s.Aversion} {
			q := wire.Request{Operation: wire.Operation{Op: o, Path: path, Version: version, ACL: openACL()}}
			list = append(list, q)
			q.Watch = true
			list = append(list, q)
		}
	}
	for _, o := range []wire.Op{wire.OpCheck, wire.OpSetData, wire.OpDelete, wire.OpCreate} {
		one := wire.Operation{Op: o, Path: path, Version: s.Version, ACL: openACL()}
		list = append(list, wire.Request{Operation: wire.Operation{Op: wire.OpMulti}, Ops: []wire.Operation{op(wire.OpCheck, "/"), one}})
	}
	return append(list, wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{op(wire.OpGetData, path), op(wire.OpGetChildren, path)}})
}

// M127: whatever a client asks of a znode that it may not read, and however well it guesses, the answer
// is the one that it gets for another such znode of another age, size and owner.
func TestHidden_NoAnswerTells(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		owner, other, c := ownerOf(t, g), connectNative(t, g), connectNative(t, g)
		other.auth("digest", "alice:secret")
		closed := []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		make := func(by *client, path string, data string, flags wire.CreateFlags) {
			by.must(with(create(path, []byte(data), flags), func(o *wire.Operation) { o.ACL = closed }))
		}
		for _, flags := range []wire.CreateFlags{0, 1} {
			known, guessed := fmt.Sprint("/secret/x", flags), fmt.Sprint("/secret/y", flags)
			make(owner, known, "some data", flags)
			for range 3 {
				owner.must(op(wire.OpSetData, known))
			}
			owner.must(with(op(wire.OpSetACL, known), func(o *wire.Operation) { o.ACL = closed }))
			if flags == 0 {
				make(owner, known+"/child", "", 0)
			}
			make(other, guessed, "", flags)
			stats := func() [2]wire.Stat {
				return [2]wire.Stat{owner.must(op(wire.OpExists, known)).Stat, owner.must(op(wire.OpExists, guessed)).Stat}
			}
			before := stats()
			right, wrong := guesses(known, before[0]), guesses(guessed, before[0])
			for i := range right {
				got, want := c.call(right[i]), c.call(wrong[i])
				for _, r := range []*wire.Reply{&got, &want} {
					r.Xid, r.Zxid, r.Path, r.Native.Zxid = 0, 0, "", 0
				}
				if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); got != want {
					t.Errorf("%+v\n   of one: %s\nof another: %s", right[i], got, want)
				}
			}
			if after := stats(); after != before {
				t.Errorf("it has changed something: %+v, was %+v", after, before)
			}
		}
	})
}

// M127: neither does who may delete the znode, or guard a transaction by it, find its creation; nor does
// a client find the sessions of others.
func TestHidden_NoCreationIsFound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		owner, c := ownerOf(t, g), connectNative(t, g)
		c.must(create("/open", nil, 0))
		secret := with(create("/open/e", nil, 1), of(wire.OpCreate2))
		secret.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		stat := owner.must(secret).Stat
		for _, o := range []wire.NativeOp{
			{Kind: int32(tree.KindDelete), Version: -1}, {Kind: int32(tree.KindDelete), Version: 7}, {Kind: int32(tree.KindGuard)},
		} {
			o.Path = "/open/e"
			for o.Czxid = stat.Czxid - 1; o.Czxid <= stat.Czxid+1; o.Czxid++ {
				for i, q := range submits(o) {
					if r := c.call(q).Native; tree.ErrNotHeld.Error() != r.Text || int(r.Index) != i && r.Index != -1 {
						t.Errorf("%+v: failure %d of %d, %s", o, r.Failure, r.Index, r.Text)
					}
				}
			}
		}
		member := wire.Native{Kind: wire.NativeMember, Zxid: owner.SessionID}
		if r := c.native(member); r.Failure == 0 {
			t.Errorf("it learns that a session is there: %+v", r)
		}
		for _, who := range []*client{owner, c} {
			who.mustNative(wire.Native{Kind: wire.NativeMember, Zxid: who.SessionID})
		}
		owner.must(create("/open/shown", nil, 1))
		c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/"})
		c.mustNative(member)
	})
}
