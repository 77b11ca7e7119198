package gateway

import (
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
		hidden := with(create("/secret/none", nil, 0), of(wire.OpCreate2))
		hidden.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		created := owner.must(hidden).Stat
		owner.must(with(op(wire.OpSetACL, "/secret"), acls(wire.ACL{Perms: wire.PermAll &^ wire.PermDelete, Scheme: "auth"})))
		c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/secret"})
		c.wantTold("who may not read", "130 /secret/none")
		if !slices.Equal(c.zxids, []int64{created.Czxid}) {
			t.Errorf("it is told the zxids %d, and may know %d", c.zxids, created.Czxid)
		}
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

// M129: who may delete a znode, or guard a transaction by it, and not read it, does not find its creation
// by asking for one after the other. Nor does a client find the sessions of others.
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
