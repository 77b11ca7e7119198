package gateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// with returns a changed copy of an operation.
func with(o wire.Operation, change func(*wire.Operation)) wire.Operation {
	change(&o)
	return o
}

func of(o wire.Op) func(*wire.Operation) { return func(x *wire.Operation) { x.Op = o } }

// Section 3 and 1.2: what each op answers. Each line sees the znodes that the lines before it made.
func TestOps(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		noACL := func(o *wire.Operation) { o.ACL = nil }
		acl := func(scheme, id string) func(*wire.Operation) {
			return func(o *wire.Operation) { o.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: scheme, ID: id}} }
		}
		version := func(v int32) func(*wire.Operation) { return func(o *wire.Operation) { o.Version = v } }
		data := func(b []byte) func(*wire.Operation) { return func(o *wire.Operation) { o.Data = b } }
		ttl := func(ms int64) func(*wire.Operation) {
			return func(o *wire.Operation) { o.Op, o.TTL = wire.OpCreateTTL, ms }
		}
		for _, test := range []struct {
			name string
			op   wire.Operation
			want wire.Code
		}{
			{"create", create("/a", []byte("x"), 0), wire.OK},
			{"create again", create("/a", nil, 0), wire.NodeExists},
			{"create without parent", create("/missing/b", nil, 0), wire.NoNode},
			{"create of the root", create("/", nil, 0), wire.NodeExists},
			{"create without slash", create("foo", nil, 0), wire.BadArguments},
			{"create of nothing", create("", nil, 0), wire.BadArguments},
			{"create of null", create(wire.Null, nil, 0), wire.MarshallingError},
			{"create of null with bad flags", create(wire.Null, nil, 7), wire.BadArguments},
			{"create of null with a TTL of zero", with(create(wire.Null, nil, 5), ttl(0)), wire.BadArguments},
			{"create with NUL", create("/a\x00", nil, 0), wire.BadArguments},
			{"create below missing/", create("/missing/", nil, 0), wire.NoNode},
			{"create with slash at the end", create("/a/", nil, 0), wire.BadArguments},
			{"create of two slashes", create("//x", nil, 0), wire.BadArguments},
			{"create with two slashes", create("/a//b", nil, 0), wire.NoNode},
			{"create of dots", create("/a/..", nil, 0), wire.BadArguments},
			{"create of an emoji", create("/a/\U0001f600", nil, 0), wire.BadArguments},
			{"create with bad flags", create("/f", nil, 7), wire.BadArguments},
			{"create with negative flags", create("/f", nil, -1), wire.BadArguments},
			{"TTL with container's flags", with(create("/f", nil, 4), ttl(1)), wire.BadArguments},
			{"create with TTL's flags", create("/f", nil, 5), wire.BadArguments},
			{"create2 with TTL's flags", with(create("/f", nil, 6), of(wire.OpCreate2)), wire.BadArguments},
			{"container without flags", with(create("/f", nil, 0), of(wire.OpCreateContainer)), wire.BadArguments},
			{"TTL without flags", with(create("/f", nil, 0), ttl(-1)), wire.BadArguments},
			{"TTL of zero", with(create("/f", nil, 5), ttl(0)), wire.BadArguments},
			{"TTL too long", with(create("/f", nil, 5), ttl(1<<40)), wire.BadArguments},
			{"TTL", with(create("/ttl", nil, 5), ttl(1<<40-1)), wire.OK},
			{"container", with(create("/container", nil, 4), of(wire.OpCreateContainer)), wire.OK},
			{"invalid ACL before NoNode", with(create("/missing/b", nil, 0), acl("nonsense", "x")), wire.InvalidACL},
			{"null ACL", with(create("/f", nil, 0), noACL), wire.InvalidACL},
			{"ACL with null id", with(create("/f", nil, 0), acl("digest", wire.Null)), wire.InvalidACL},
			{"ACL with null scheme", with(create("/f", nil, 0), acl(wire.Null, "x")), wire.InvalidACL},
			{"ACL of auth without any", with(create("/f", nil, 0), acl("auth", "")), wire.InvalidACL},
			{"ephemeral", create("/e", nil, 1), wire.OK},
			{"child of an ephemeral", create("/e/x", nil, 0), wire.NoChildrenForEphemerals},
			{"create2", with(create("/two", []byte("22"), 0), of(wire.OpCreate2)), wire.OK},
			{"no permission below", with(create("/closed", nil, 0), acl("ip", "10.9.8.7")), wire.OK},
			{"NoAuth before NodeExists", create("/closed/x", nil, 0), wire.NoAuth},
			{"sequential", create("/a/s-", nil, 2), wire.OK},

			{"delete with a wrong version", with(op(wire.OpDelete, "/a"), version(7)), wire.BadVersion},
			{"delete with children", op(wire.OpDelete, "/a"), wire.NotEmpty},
			{"delete of the root", op(wire.OpDelete, "/"), wire.BadArguments},
			{"delete of zookeeper", op(wire.OpDelete, "/zookeeper"), wire.BadArguments},
			{"delete of nothing", op(wire.OpDelete, ""), wire.BadArguments},
			{"delete of null", op(wire.OpDelete, wire.Null), wire.MarshallingError},
			{"delete of a malformed path", op(wire.OpDelete, "/a//"), wire.NoNode},
			{"delete of what is missing", op(wire.OpDelete, "/missing"), wire.NoNode},
			{"delete in the closed", op(wire.OpDelete, "/closed/x"), wire.NoAuth},
			{"delete", op(wire.OpDelete, "/two"), wire.OK},

			{"exists", op(wire.OpExists, "/a"), wire.OK},
			{"exists of nothing", op(wire.OpExists, ""), wire.OK},
			{"exists of the missing", op(wire.OpExists, "/missing"), wire.NoNode},
			{"exists with NUL", op(wire.OpExists, "/\x00"), wire.BadArguments},
			{"exists of null", op(wire.OpExists, wire.Null), wire.MarshallingError},
			{"exists of the closed", op(wire.OpExists, "/closed"), wire.NoAuth},
			{"exists of nonsense", op(wire.OpExists, "no slash"), wire.NoNode},

			{"getData", op(wire.OpGetData, "/a"), wire.OK},
			{"getData of nothing", op(wire.OpGetData, ""), wire.OK},
			{"getData with NUL", op(wire.OpGetData, "/\x00"), wire.NoNode},
			{"getData of null", op(wire.OpGetData, wire.Null), wire.MarshallingError},
			{"getData of the closed", op(wire.OpGetData, "/closed"), wire.NoAuth},
			{"getChildren", op(wire.OpGetChildren, "/a"), wire.OK},
			{"getChildren of null", op(wire.OpGetChildren, wire.Null), wire.MarshallingError},
			{"getChildren2 of the missing", op(wire.OpGetChildren2, "/missing"), wire.NoNode},
			{"getACL of the closed", op(wire.OpGetACL, "/closed"), wire.NoAuth},
			{"getACL of null", op(wire.OpGetACL, wire.Null), wire.MarshallingError},
			{"getAllChildrenNumber of null", op(wire.OpGetAllChildrenNumber, wire.Null), wire.MarshallingError},
			{"getAllChildrenNumber of the missing", op(wire.OpGetAllChildrenNumber, "/missing"), wire.NoNode},
			{"getEphemerals of null", op(wire.OpGetEphemerals, wire.Null), wire.OK},
			{"sync", op(wire.OpSync, "/any where"), wire.OK},
			{"sync of null", op(wire.OpSync, wire.Null), wire.OK},

			{"setData", with(op(wire.OpSetData, "/a"), data([]byte("y"))), wire.OK},
			{"setData with a wrong version", with(op(wire.OpSetData, "/a"), version(0)), wire.BadVersion},
			{"setData of the missing", op(wire.OpSetData, "/missing"), wire.NoNode},
			{"setData of nothing", op(wire.OpSetData, ""), wire.BadArguments},
			{"setData of null", op(wire.OpSetData, wire.Null), wire.BadArguments},
			{"setData of the config", op(wire.OpSetData, "/zookeeper/config"), wire.NoAuth},
			{"setACL with a bad list", with(op(wire.OpSetACL, "/missing"), acl("nonsense", "x")), wire.InvalidACL},
			{"setACL of null", with(op(wire.OpSetACL, wire.Null), acl("world", "anyone")), wire.BadArguments},
			{"setACL of the missing", with(op(wire.OpSetACL, "/missing"), acl("world", "anyone")), wire.NoNode},
			{"setACL with a wrong version", with(with(op(wire.OpSetACL, "/a"), acl("world", "anyone")), version(3)), wire.BadVersion},
			{"setACL", with(op(wire.OpSetACL, "/a"), acl("world", "anyone")), wire.OK},

			{"reconfig", op(wire.OpReconfig, ""), wire.ReconfigDisabled},
			{"sasl", op(wire.OpSASL, ""), wire.OK},
			{"ping", op(wire.OpPing, ""), wire.OK},
			{"addWatch of an unknown mode", with(op(wire.OpAddWatch, "/a"), func(o *wire.Operation) { o.Mode = 2 }), wire.MarshallingError},
			{"checkWatches of an unknown kind", with(op(wire.OpCheckWatches, "/a"), func(o *wire.Operation) { o.Kind = 6 }), wire.MarshallingError},
			{"removeWatches of none", with(op(wire.OpRemoveWatches, "/a"), func(o *wire.Operation) { o.Kind = wire.KindAny }), wire.NoWatcher},
		} {
			if r := c.do(test.op); r.Err != test.want {
				t.Errorf("%s: code %d, want %d", test.name, r.Err, test.want)
			}
		}
	})
}

// Answers have the right contents.
func TestAnswers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		now := time.Now().UnixMilli()
		r := c.must(with(create("/a", []byte("abc"), 0), of(wire.OpCreate2)))
		s := r.Stat
		if r.Path != "/a" || s.Czxid != r.Zxid || s.Mzxid != s.Czxid || s.Pzxid != s.Czxid || s.DataLength != 3 || s.Version != 0 || s.Ctime != s.Mtime ||
			s.Ctime < now-60_000 || s.Ctime > now+60_000 || s.EphemeralOwner != 0 {
			t.Errorf("create2: %+v", r)
		}
		for i := range 3 {
			if r := c.must(create("/a/s-", nil, 3)); r.Path != fmt.Sprintf("/a/s-%010d", i) {
				t.Errorf("sequential: %q", r.Path)
			}
		}
		if r := c.must(op(wire.OpGetData, "/a/s-0000000001")); r.Data != nil || r.Stat.EphemeralOwner != c.SessionID {
			t.Errorf("null data of an ephemeral of %#x: %+v", c.SessionID, r)
		}
		c.must(create("/a/empty", []byte{}, 0))
		if r := c.must(op(wire.OpGetData, "/a/empty")); r.Data == nil || len(r.Data) != 0 {
			t.Errorf("empty data: %v", r.Data)
		}
		if r := c.must(op(wire.OpGetChildren, "/a")); !slices.Equal(r.Names, []string{"empty", "s-0000000000", "s-0000000001", "s-0000000002"}) {
			t.Errorf("getChildren: %q", r.Names)
		}
		if r := c.must(op(wire.OpGetChildren2, "/a/empty")); r.Names == nil || len(r.Names) != 0 || r.Stat.DataLength != 0 {
			t.Errorf("getChildren2: %+v", r)
		}
		if r := c.must(op(wire.OpGetACL, "/a")); !slices.Equal(r.ACL, openACL()) {
			t.Errorf("getACL: %+v", r.ACL)
		}
		if r := c.must(op(wire.OpGetAllChildrenNumber, "/a")); r.Count != 4 {
			t.Errorf("getAllChildrenNumber: %d", r.Count)
		}
		if r := c.must(op(wire.OpGetAllChildrenNumber, "/")); r.Count != 4+1+3 {
			t.Errorf("getAllChildrenNumber of the root: %d", r.Count)
		}
		for prefix, n := range map[string]int{wire.Null: 3, "": 3, "/": 3, "  ": 3, "/a": 3, "/a/s-000000000": 3, "/a/s-0000000001": 1, "/b": 0} {
			if r := c.must(op(wire.OpGetEphemerals, prefix)); len(r.Names) != n || r.Names == nil {
				t.Errorf("getEphemerals of %q: %q", prefix, r.Names)
			}
		}
		if r := c.must(op(wire.OpSync, "/x/y")); r.Path != "/x/y" {
			t.Errorf("sync: %q", r.Path)
		}
		if r := c.must(op(wire.OpSync, wire.Null)); r.Path != wire.Null {
			t.Errorf("sync of null: %q", r.Path)
		}
		if r := c.must(op(wire.OpSASL, "")); r.Data != nil || r.Zxid != 0 {
			t.Errorf("sasl: %+v", r)
		}
		r = c.must(with(op(wire.OpSetData, "/a"), func(o *wire.Operation) { o.Data, o.Version = []byte("12345"), 0 }))
		if r.Stat.Version != 1 || r.Stat.DataLength != 5 || r.Stat.Mzxid != r.Zxid {
			t.Errorf("setData: %+v", r)
		}
		if got := c.must(op(wire.OpExists, "/a")); got.Stat != r.Stat || got.Zxid < r.Zxid {
			t.Errorf("exists: %+v, want %+v", got, r)
		}
	})
}

// 3.15: the answers of multi.
func TestMulti(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		c := connect(t, start(t, Config{}))
		multi := func(ops ...wire.Operation) wire.Reply {
			return c.call(wire.Request{Operation: wire.Operation{Op: wire.OpMulti}, Ops: ops})
		}
		set := with(op(wire.OpSetData, "/m"), func(o *wire.Operation) { o.Data = []byte("new") })
		r := multi(create("/m", nil, 0), with(create("/m/s", nil, 2), of(wire.OpCreate2)), with(create("/c", nil, 4), of(wire.OpCreate)),
			with(create("/t", nil, 5), func(o *wire.Operation) { o.Op, o.TTL = wire.OpCreateTTL, 60_000 }),
			with(create("/plain", nil, 0), func(o *wire.Operation) { o.Op, o.TTL = wire.OpCreateTTL, -5 }),
			set, op(wire.OpCheck, "/m"), op(wire.OpDelete, "/plain"))
		var got []string
		for _, x := range r.Results {
			got = append(got, fmt.Sprintf("%d %s %d", x.Op, x.Path, x.Stat.DataLength))
		}
		want := []string{"1 /m 0", "15 /m/s0000000000 0", "15 /c 0", "15 /t 0", "1 /plain 0", "5  3", "13  0", "2  0"}
		if r.Err != wire.OK || !slices.Equal(got, want) {
			t.Errorf("code %d, results %q, want %q", r.Err, got, want)
		}
		for _, x := range r.Results {
			if x.Stat.Mzxid != 0 && x.Stat.Mzxid != r.Zxid {
				t.Errorf("a result of zxid %d in a reply of %d", x.Stat.Mzxid, r.Zxid)
			}
		}

		failed := func(name string, at int, code wire.Code, ops ...wire.Operation) {
			t.Helper()
			r := multi(ops...)
			if r.Err != wire.OK || len(r.Results) != len(ops) {
				t.Fatalf("%s: code %d, %d results", name, r.Err, len(r.Results))
			}
			for i, x := range r.Results {
				want := map[bool]wire.Code{true: wire.OK, false: wire.RuntimeInconsistency}[i < at]
				if i == at {
					want = code
				}
				if x.Op != wire.OpError || x.Err != want {
					t.Errorf("%s: result %d is %+v, want code %d", name, i, x, want)
				}
			}
		}
		failed("one", 0, wire.NoNode, op(wire.OpCheck, "/missing"))
		failed("check", 1, wire.BadVersion, create("/x", nil, 0), with(op(wire.OpCheck, "/m"), func(o *wire.Operation) { o.Version = 9 }), op(wire.OpDelete, "/m"))
		failed("TTL out of range", 1, wire.BadArguments, create("/x", nil, 0), with(create("/y", nil, 5), func(o *wire.Operation) { o.Op, o.TTL = wire.OpCreateTTL, 0 }))
		failed("TTL's flags out of range", 1, wire.BadArguments, create("/x", nil, 0), with(create("/y", nil, 9), func(o *wire.Operation) { o.Op, o.TTL = wire.OpCreateTTL, 5 }))
		failed("the first of two that fail", 0, wire.NodeExists, create("/m", nil, 0), with(create("/y", nil, 9), func(o *wire.Operation) { o.Op, o.TTL = wire.OpCreateTTL, 5 }))
		failed("delete of the root", 0, wire.BadArguments, op(wire.OpDelete, "/"))
		failed("empty ACL", 0, wire.InvalidACL, with(create("/x", nil, 0), func(o *wire.Operation) { o.ACL = []wire.ACL{} }))
		if r := c.do(op(wire.OpExists, "/x")); r.Err != wire.NoNode {
			t.Errorf("a failed multi left something: %d", r.Err)
		}
		if r := multi(); r.Err != wire.OK || len(r.Results) != 0 {
			t.Errorf("empty multi: %+v", r)
		}
		// A malformed multi gets the same answer as a record that cannot be decoded, and the
		// connection stays.
		for name, o := range map[string]wire.Operation{
			"setACL":               with(op(wire.OpSetACL, "/m"), func(o *wire.Operation) { o.ACL = openACL() }),
			"a read":               op(wire.OpGetData, "/m"),
			"a create of null":     create(wire.Null, nil, 0),
			"a create without ACL": with(create("/x", nil, 0), func(o *wire.Operation) { o.ACL = nil }),
			"flags of TTL":         create("/x", nil, 5),
			"the reaper's":         op(wire.OpDeleteContainer, "/m"),
		} {
			if r := multi(op(wire.OpCheck, "/m"), o); r.Err != wire.MarshallingError {
				t.Errorf("%s in a multi: code %d", name, r.Err)
			}
		}
	})
}

// 3.16: a read that fails does not affect the others.
func TestMultiRead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		c.must(create("/a", []byte("x"), 0))
		r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{
			op(wire.OpGetData, "/a"), op(wire.OpGetData, "/missing"), op(wire.OpGetChildren, "/"), op(wire.OpGetChildren, "/missing"),
		}})
		if r.Err != wire.OK || len(r.Results) != 4 || string(r.Results[0].Data) != "x" || r.Results[1].Err != wire.NoNode || r.Results[1].Op != wire.OpError ||
			!slices.Equal(r.Results[2].Names, []string{"a", "zookeeper"}) || r.Results[3].Err != wire.NoNode {
			t.Errorf("%+v", r)
		}
		if r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}}); r.Err != wire.OK || len(r.Results) != 0 {
			t.Errorf("empty: %+v", r)
		}
	})
}

// A znode may be as large as the node allows and no larger, whatever the limit for frames.
func TestDataTooLarge(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startNode(t, func(c *embed.Config) { c.MaxDataSize = 1000 })
		c := connect(t, startOn(t, n, Config{}))
		c.must(create("/a", make([]byte, 1000), 0))
		big := with(op(wire.OpSetData, "/a"), func(o *wire.Operation) { o.Data = make([]byte, 1001) })
		for name, r := range map[string]wire.Reply{
			"create": c.do(create("/b", make([]byte, 1001), 0)),
			"set":    c.do(big),
			"path":   c.do(create("/"+strings.Repeat("p", 70_000), nil, 0)),
		} {
			if r.Err != wire.BadArguments {
				t.Errorf("%s: code %d", name, r.Err)
			}
		}
		r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpMulti}, Ops: []wire.Operation{create("/b", nil, 0), big}})
		if len(r.Results) != 2 || r.Results[0].Err != wire.OK || r.Results[1].Err != wire.BadArguments {
			t.Errorf("multi: %+v", r)
		}
	})
}

// As in a multi, create and create2 make containers if their flags say so. Users of Go's client
// know no other way.
func TestContainerByItsFlags(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connect(t, g)
		served := g.connections()[0]
		for _, by := range []wire.Op{wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer} {
			o := with(create("/"+strconv.Itoa(int(by)), nil, wire.FlagsContainer), of(by))
			c.must(o)
			if made, err := served.create(&o); err != nil || made.Mode != tree.Container {
				t.Errorf("op %d makes a znode of mode %v, error %v", by, made.Mode, err)
			}
		}
	})
}
