package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// undone is a multi that changes nothing, because its last operation fails.
func undone(o wire.Operation) wire.Request {
	return multi(o, wire.Operation{Op: wire.OpCheck, Path: "/", Version: 1 << 20})
}

func undoneNative(o wire.NativeOp) wire.Request {
	return ofNative(wire.Native{Kind: wire.NativeSubmit, Ops: []wire.NativeOp{o, {Kind: int32(tree.KindCheck), Path: "/", Version: 1 << 20}}})
}

// questions has a request of each kind that names a znode, with a guess: of a version, a zxid or a
// number of children. None of them changes a znode that the client may not change.
func questions(path string, guess int64) map[string]wire.Request {
	v, c := int32(guess), path+"/c"
	all := make(map[string]wire.Request)
	for name, o := range map[string]wire.Operation{
		"exists": op(wire.OpExists, path), "getData": op(wire.OpGetData, path), "getChildren": op(wire.OpGetChildren, path),
		"getChildren2": op(wire.OpGetChildren2, path), "getACL": op(wire.OpGetACL, path),
		"getAllChildrenNumber": op(wire.OpGetAllChildrenNumber, path), "getEphemerals": op(wire.OpGetEphemerals, path),
	} {
		all[name] = wire.Request{Operation: o}
		all[name+" with a watch"] = wire.Request{Operation: watching(o)}
	}
	all["addWatch"] = wire.Request{Operation: op(wire.OpAddWatch, path)}
	for _, o := range []wire.Op{wire.OpSetWatches, wire.OpSetWatches2} {
		all[fmt.Sprintf("watch op %d", o)] = wire.Request{Operation: wire.Operation{Op: o}, Watches: wire.Watches{Zxid: guess, Data: []string{path}, Child: []string{path}, Persistent: []string{path}, Recursive: []string{path}}}
	}
	for name, o := range map[string]wire.Operation{
		"setData": with(op(wire.OpSetData, path), ofVersion(v)), "delete": with(op(wire.OpDelete, path), ofVersion(v)),
		"check": with(op(wire.OpCheck, path), ofVersion(v)), "create": create(path, nil, 0), "create below": create(c, nil, 0),
	} {
		all["multi "+name] = undone(o)
	}
	all["setACL"] = wire.Request{Operation: with(with(op(wire.OpSetACL, path), acls(allow(wire.PermAll, "world", "nobody"))), ofVersion(v))}
	all["multiRead"] = wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{op(wire.OpGetData, path), op(wire.OpGetChildren, path)}}
	for kind := tree.KindCreate; kind <= tree.KindEnsure; kind++ {
		o := wire.NativeOp{Kind: int32(kind), Path: path, Version: v, Czxid: guess, Mzxid: guess, Delta: 1}
		switch kind {
		case tree.KindCreate, tree.KindEnsure:
			o.Version, o.Czxid, o.Mzxid, o.Delta = 0, 0, 0, 0
		case tree.KindSetACL:
			continue // must be alone; see setACL
		case tree.KindDelete:
			all["native plain delete"] = undoneNative(wire.NativeOp{Kind: int32(kind), Path: path, Version: v})
			o.Version, o.Czxid = -1, max(guess, 1) // zero is a plain one
		}
		all["native "+kind.String()] = undoneNative(o)
	}
	for name, n := range map[string]wire.Native{
		"release": {Kind: wire.NativeRelease, Zxid: guess}, "page": {Kind: wire.NativePage, Count: 9}, "before": {Kind: wire.NativeBefore},
		"walk": {Kind: wire.NativeWalk}, "arm": {Kind: wire.NativeArm, Mode: int32(watch.Persistent)},
	} {
		n.Path = path
		all["native "+name] = ofNative(n)
	}
	return all
}

// told is what an answer tells, without the path and the zxid of now.
func told(path string, r wire.Reply) string {
	r.Xid, r.Zxid, r.Native.Zxid = 0, 0, 0
	return strings.ReplaceAll(fmt.Sprintf("%+v", r), path, "X")
}

// tellers returns the questions to which the answers about the paths differ, for some guess.
func (c *client) tellers(guesses []int64, paths ...string) []string {
	answers := make(map[string]map[string]bool)
	for _, guess := range guesses {
		for _, path := range paths {
			for name, q := range questions(path, guess) {
				name := fmt.Sprint(name, "=", guess)
				if answers[name] == nil {
					answers[name] = make(map[string]bool)
				}
				answers[name][told(path, c.call(q))] = true
			}
		}
	}
	found := make(map[string]bool)
	for name, all := range answers {
		if len(all) > 1 {
			found[name[:strings.Index(name, "=")]] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// M127: who may not read a znode learns only that it exists, whatever it asks for and whatever it
// guesses: the answers about three that differ in all their Stat are the same. A right besides Read
// tells what it takes to use it.
func TestHidden_AllRequests(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		for _, test := range []struct {
			name       string
			room, item wire.Perms // of everybody on the parent, and on the znodes
			tell       []string
		}{
			{"nothing", 0, 0, nil},
			{"list", wire.PermRead, 0, nil},
			{"delete", wire.PermDelete, 0, []string{"multi delete", "native plain delete"}},
			{"write", 0, wire.PermWrite, []string{"multi setData", "native set"}},
			{"create", 0, wire.PermCreate, []string{"multi create below"}},
		} {
			owner, c := connectNative(t, g), connectNative(t, g)
			owner.auth("digest", "alice:secret")
			mine := allow(wire.PermAll, "auth", "")
			room := "/" + test.name
			make := func(path string, perms wire.Perms, flags wire.CreateFlags) int64 {
				return owner.must(with(create(path, []byte("7"), flags), func(o *wire.Operation) {
					o.Op, o.ACL = wire.OpCreate2, []wire.ACL{mine, allow(perms, "world", "anyone")}
				})).Stat.Czxid
			}
			make(room, test.room, 0)
			guesses := []int64{0, 1, 2, 3}
			guesses = append(guesses, make(room+"/a-0000000001", test.item, 0), make(room+"/b-0000000002", test.item, 0), make(room+"/e-0000000003", test.item, 1))
			for range 2 {
				guesses = append(guesses, owner.must(op(wire.OpSetData, room+"/b-0000000002")).Zxid)
			}
			owner.must(with(op(wire.OpSetACL, room+"/b-0000000002"), acls(mine, allow(test.item, "world", "anyone"))))
			make(room+"/b-0000000002/x", 0, 0)
			make(room+"/b-0000000002/y", 0, 0)
			got := c.tellers(guesses, room+"/a-0000000001", room+"/b-0000000002", room+"/e-0000000003")
			if test.room == wire.PermRead { // the children's order is theirs who may read the parent
				got = slices.DeleteFunc(got, func(name string) bool { return name == "native before" })
			}
			if !slices.Equal(got, test.tell) {
				t.Errorf("%s: tell of the hidden: %q, want %q", test.name, got, test.tell)
			}
			_ = c.Close()
			_ = owner.Close()
		}
	})
}

// The table above has every request that names a znode.
func TestHidden_AsksAll(t *testing.T) {
	ops, kinds := make(map[wire.Op]bool), make(map[wire.NativeKind]bool)
	for _, q := range questions("/a", 1) {
		ops[q.Op], kinds[q.Native.Kind] = true, true
		for _, o := range q.Ops {
			ops[o.Op] = true
		}
	}
	for o := range actions {
		switch o {
		case wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL: // as create
		case wire.OpCheckWatches, wire.OpRemoveWatches: // about the client's own watches
		case wire.OpSync, wire.OpReconfig, wire.OpPing, wire.OpWhoAmI, wire.OpSASL, wire.OpAuth, wire.OpCloseSession: // about no znode
		default:
			if !ops[o] {
				t.Errorf("op %d is not asked", o)
			}
		}
	}
	for kind := wire.NativeHello; kind <= wire.NativeMember; kind++ {
		switch kind {
		case wire.NativeHello, wire.NativeAwait, wire.NativeSync, wire.NativeMember: // about no znode
		default:
			if !kinds[kind] {
				t.Errorf("native request %d is not asked", kind)
			}
		}
	}
}
