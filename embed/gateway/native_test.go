package gateway

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

func ofNative(n wire.Native) wire.Request {
	return wire.Request{Operation: wire.Operation{Op: wire.OpNative}, Native: n}
}

// native makes a request of package embed/client.
func (c *client) native(n wire.Native) wire.NativeReply {
	c.t.Helper()
	r := c.call(ofNative(n))
	if r.Err != wire.OK || r.Native.Kind != n.Kind {
		c.t.Fatalf("kind %d: code %d, kind %d", n.Kind, r.Err, r.Native.Kind)
	}
	return r.Native
}

// mustNative is native for a request that has to succeed.
func (c *client) mustNative(n wire.Native) wire.NativeReply {
	c.t.Helper()
	r := c.native(n)
	if r.Failure != 0 {
		c.t.Fatalf("kind %d of %q: failure %d, %s", n.Kind, n.Path, r.Failure, r.Text)
	}
	return r
}

// refusedNative makes a request that has to fail with an error, at an operation or at -1 for none.
func (c *client) refusedNative(what string, n wire.Native, want error, index int32) {
	c.t.Helper()
	if r := c.native(n); r.Failure != native.Number(want) || r.Index != index || r.Text == "" {
		c.t.Errorf("%s: failure %d at %d, %q, want %d at %d", what, r.Failure, r.Index, r.Text, native.Number(want), index)
	}
}

func submit(ops ...tree.Op) wire.Native {
	return wire.Native{Kind: wire.NativeSubmit, Ops: native.AppendOps(nil, ops)}
}

func creates(path, data string, mode tree.CreateMode) tree.Op {
	return tree.Op{Kind: tree.KindCreate, Path: path, Data: []byte(data), Mode: mode}
}

// connectNative opens a session of a client that has said hello.
func connectNative(t testing.TB, g *Gateway) *client {
	t.Helper()
	c := connect(t, g)
	c.mustNative(wire.Native{Kind: wire.NativeHello})
	return c
}

// What a client asks for is what a session in the process would get.
func TestNative(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startNode(t, nil)
		g := startOn(t, n, Config{FrameSize: 2 << 20})
		c := connect(t, g)
		if r := c.mustNative(wire.Native{Kind: wire.NativeHello}); r.Zxid != embed.DefaultMaxDataSize || r.Count != 2<<20 {
			t.Errorf("hello: %+v", r)
		}
		r := c.mustNative(submit(
			creates("/a", "x", tree.Persistent), creates("/a/e-", "", tree.EphemeralSequential), creates("/a/e-", "", tree.EphemeralSequential),
			tree.Op{Kind: tree.KindSet, Path: "/a", Data: []byte("41"), Version: 0}, tree.Op{Kind: tree.KindAdd, Path: "/a", Width: tree.Text, Delta: 1},
			tree.Op{Kind: tree.KindEnsure, Path: "/a/parent"}, tree.Op{Kind: tree.KindCheckChildren, Path: "/a", Version: 3}))
		if len(r.Results) != 7 || r.Results[1].Path != "/a/e-0000000000" || r.Results[1].Stat.EphemeralOwner != c.SessionID || r.Results[4].Value != 42 {
			t.Fatalf("submit: %+v", r.Results)
		}
		data := c.must(op(wire.OpGetData, "/a"))
		if string(data.Data) != "42" {
			t.Errorf("the data: %q", data.Data)
		}
		if acl := c.must(op(wire.OpGetACL, "/a")).ACL; !slices.Equal(acl, openACL()) {
			t.Errorf("the ACL of a create without one: %v", acl)
		}
		if r := c.mustNative(submit()); len(r.Results) != 0 {
			t.Errorf("no operations: %+v", r)
		}
		if r := c.mustNative(wire.Native{Kind: wire.NativePage, Path: "/a", After: "e-0000000000", Count: 1}); !slices.Equal(r.Names, []string{"e-0000000001"}) {
			t.Errorf("page: %q", r.Names)
		}
		before := wire.Native{Kind: wire.NativeBefore, Path: "/a/e-0000000001", Names: []string{"e-"}}
		if r := c.mustNative(before); !r.Flag || !slices.Equal(r.Names, []string{"e-0000000000"}) {
			t.Errorf("before: %+v", r)
		}
		before.Path = "/a/e-0000000000"
		if r := c.mustNative(before); r.Flag || len(r.Names) > 0 {
			t.Errorf("before the first: %+v", r)
		}
		walked := c.mustNative(wire.Native{Kind: wire.NativeWalk, Path: "/a"})
		if z := walked.Znodes; len(z) != 4 || z[0].Path != "/a" || string(z[0].Data) != "42" || z[0].Stat != data.Stat || walked.Zxid < data.Stat.Mzxid {
			t.Errorf("walk: %+v", walked)
		}
		if r := c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/a"}); r.Zxid < data.Stat.Mzxid {
			t.Errorf("sync: %#x", r.Zxid)
		}
		await := wire.Native{Kind: wire.NativeAwait, Path: "/a", Zxid: data.Stat.Mzxid, Count: 50}
		if r := c.mustNative(await); !r.Flag {
			t.Error("it does not show what it has shown")
		}
		await.Zxid += 1 << 40
		if r := c.mustNative(await); r.Flag {
			t.Error("it shows what nobody has written")
		}
		if r := c.mustNative(wire.Native{Kind: wire.NativeMember, Zxid: c.SessionID}); r.Zxid != 1 {
			t.Errorf("the session is with member %d", r.Zxid)
		}
		if answered := read(g)["vivarium_gateway_requests_total native"]; answered < 9 {
			t.Errorf("%v requests are counted", answered)
		}
	})
}

// A client may be out to do harm. Each request that a session in the process could not make is
// refused, and the connection stays.
func TestNative_Refusals(t *testing.T) {
	g := start(t, Config{FrameSize: 4 << 20})
	c := connectNative(t, g)
	c.mustNative(submit(creates("/a", "", tree.Persistent)))
	long := "/" + strings.Repeat("x", engine.PathMax)
	fine := creates("/a/fine", "", tree.Persistent)
	for name, o := range map[string]struct {
		op   tree.Op
		want error
	}{
		"no kind":            {tree.Op{Path: "/a"}, tree.ErrInvalidKind},
		"the ensemble's":     {tree.Op{Kind: tree.KindLose, Path: "/a"}, tree.ErrInvalidKind},
		"configure":          {tree.Op{Kind: tree.KindConfigure, Path: tree.ConfigPath, Data: []byte("x")}, tree.ErrInvalidKind},
		"a kind of tomorrow": {tree.Op{Kind: 200, Path: "/a"}, tree.ErrInvalidKind},
		"path":               {creates("a/b", "", tree.Persistent), tree.ErrInvalidPath},
		"no path":            {tree.Op{Kind: tree.KindDelete}, tree.ErrInvalidPath},
		"null path":          {tree.Op{Kind: tree.KindCheck, Path: wire.Null}, tree.ErrInvalidPath},
		"mode":               {creates("/a/c", "", 77), tree.ErrInvalidMode},
		"TTL":                {tree.Op{Kind: tree.KindCreate, Path: "/a/c", Mode: tree.TTL}, tree.ErrInvalidTTL},
		"width":              {tree.Op{Kind: tree.KindAdd, Path: "/a", Width: 9}, tree.ErrInvalidMode},
		"most children":      {tree.Op{Kind: tree.KindCheckChildren, Path: "/a", Version: -1}, embed.ErrInvalidArgument},
		"data":               {creates("/a/c", strings.Repeat("x", embed.DefaultMaxDataSize+1), tree.Persistent), engine.ErrTooLarge},
		"ACL":                {tree.Op{Kind: tree.KindCreate, Path: "/a/c", ACL: []tree.ACL{}}, tree.ErrInvalidACL},
		"missing":            {tree.Op{Kind: tree.KindSet, Path: "/a/none", Version: -1}, tree.ErrNoNode},
		"not held":           {tree.Op{Kind: tree.KindGuard, Path: "/a", Czxid: 1}, tree.ErrNotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			c.t = t
			c.refusedNative(name, submit(fine, o.op), o.want, 1)
		})
	}
	c.t = t
	for _, field := range []func(*wire.NativeOp){
		func(o *wire.NativeOp) { o.Kind += 256 }, func(o *wire.NativeOp) { o.Mode += 256 }, func(o *wire.NativeOp) { o.Width += 256 },
	} {
		n := submit(fine)
		field(&n.Ops[0])
		if r := c.native(n); r.Failure == 0 {
			t.Errorf("a number that is too large: %+v", n.Ops[0])
		}
	}
	c.refusedNative("a long path", submit(creates(long, "", tree.Persistent)), engine.ErrTooLarge, -1)
	for _, kind := range []wire.NativeKind{wire.NativeRelease, wire.NativeArm, wire.NativePage, wire.NativeBefore, wire.NativeWalk, wire.NativeAwait, wire.NativeSync} {
		n := wire.Native{Kind: kind, Count: 1, Mode: int32(watch.Persistent), Zxid: 1}
		for path, want := range map[string]error{"": tree.ErrInvalidPath, wire.Null: tree.ErrInvalidPath, "a": tree.ErrInvalidPath, "/a/../b": tree.ErrInvalidPath, long: engine.ErrTooLarge} {
			n.Path = path
			c.refusedNative(fmt.Sprintf("kind %d of %.10q", kind, path), n, want, -1)
		}
	}
	for what, n := range map[string]wire.Native{
		"an unknown kind": {Kind: 99, Path: "/a"}, "no kind": {}, "a negative kind": {Kind: -1},
		"many names":     {Kind: wire.NativeBefore, Path: "/a", Names: make([]string, namesMax+1)},
		"a page of none": {Kind: wire.NativePage, Path: "/a"}, "a negative depth": {Kind: wire.NativeWalk, Path: "/a", Count: -1},
	} {
		c.refusedNative(what, n, embed.ErrInvalidArgument, -1)
	}
	for _, mode := range []int32{int32(watch.Once), int32(watch.Data), int32(watch.Children), int32(watch.Persistent) + 256, -1} {
		c.refusedNative(fmt.Sprint("mode ", mode), wire.Native{Kind: wire.NativeArm, Path: "/a", Mode: mode}, tree.ErrInvalidMode, -1)
	}
	c.refusedNative("nobody's session", wire.Native{Kind: wire.NativeMember, Zxid: 7}, engine.ErrNoSession, -1)
	c.refusedNative("a page of a missing znode", wire.Native{Kind: wire.NativePage, Path: "/none", Count: 1}, tree.ErrNoNode, -1)
	if r := c.native(wire.Native{Kind: wire.NativeWalk, Path: "/none"}); r.Failure != native.Number(tree.ErrNoNode) || r.Zxid == 0 {
		t.Errorf("a walk of a missing znode: %+v", r)
	}
	if r := c.must(op(wire.OpGetChildren, "/a")); len(r.Names) > 0 {
		t.Errorf("a transaction was applied in part: %q", r.Names)
	}
}

// An event has the znode as its change left it. It comes before the answer that shows the change,
// and after the answer that arms its watch.
func TestNative_Events(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connectNative(t, g), connect(t, g)
		other.must(create("/a", nil, 0)) // so that its shard has a zxid
		other.must(op(wire.OpDelete, "/a"))
		c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/a"})
		r := c.mustNative(wire.Native{Kind: wire.NativeArm, Path: "/a", Mode: int32(watch.Recursive), Flag: true})
		if r.Flag || r.Zxid == 0 {
			t.Errorf("a watch of a missing znode: %+v", r)
		}
		own := c.mustNative(submit(creates("/a", "1", tree.Persistent))).Results[0].Stat
		if len(c.events) != 1 {
			t.Fatalf("events before the answer: %+v", c.events)
		}
		set := other.must(with(op(wire.OpSetData, "/a"), func(o *wire.Operation) { o.Data = []byte("2") }))
		other.must(create("/a/b", nil, 0))
		other.must(op(wire.OpDelete, "/a/b"))
		c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/a"})
		if r := c.mustNative(wire.Native{Kind: wire.NativePage, Path: "/a", Count: 9}); len(r.Names) > 0 {
			t.Errorf("children: %q", r.Names)
		}
		want := []wire.Event{
			{Type: wire.NodeCreated, Path: "/a", Znode: wire.NativeZnode{Data: []byte("1"), Stat: own}},
			{Type: wire.NodeDataChanged, Path: "/a", Znode: wire.NativeZnode{Data: []byte("2"), Stat: set.Stat}},
			{Type: wire.NodeCreated, Path: "/a/b"},
			{Type: wire.NodeDeleted, Path: "/a/b"},
		}
		if len(c.events) != len(want) {
			t.Fatalf("events: %+v", c.events)
		}
		for i, e := range c.events {
			if e.Type != want[i].Type || e.Path != want[i].Path || string(e.Znode.Data) != string(want[i].Znode.Data) {
				t.Errorf("event %d: %+v", i, e)
			}
			if stat := want[i].Znode.Stat; stat.Czxid != 0 && e.Znode.Stat != stat {
				t.Errorf("event %d: %+v, want %+v", i, e.Znode.Stat, stat)
			}
		}
		if e := c.events[3]; e.Znode.Stat != (wire.Stat{}) || e.Znode.Data != nil {
			t.Errorf("a deletion: %+v", e)
		}
		r = c.mustNative(wire.Native{Kind: wire.NativeArm, Path: "/a", Mode: int32(watch.Persistent)})
		if !r.Flag || r.Stat.Mzxid != set.Stat.Mzxid || r.Zxid < set.Stat.Mzxid {
			t.Errorf("a watch of what exists: %+v", r)
		}
		c.must(with(op(wire.OpRemoveWatches, "/a"), func(o *wire.Operation) { o.Kind = wire.KindPersistent }))
		c.must(with(op(wire.OpRemoveWatches, "/a"), func(o *wire.Operation) { o.Kind = wire.KindRecursive }))
		c.events = nil
		c.must(op(wire.OpDelete, "/a"))
		if len(c.events) > 0 {
			t.Errorf("events of no watch: %+v", c.events)
		}
	})
}

// A client of ZooKeeper's gets ZooKeeper's events. A hello must come before the first watch, or
// events of either form could be on their way.
func TestNative_HelloComesFirst(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connect(t, g)
		c.must(create("/a", nil, 0))
		c.must(watching(op(wire.OpGetData, "/a")))
		c.refusedNative("a late hello", wire.Native{Kind: wire.NativeHello}, embed.ErrInvalidArgument, -1)
		c.must(op(wire.OpDelete, "/a"))
		c.wantTold("afterwards", "2 /a")
		if c.events = nil; len(c.events) > 0 || g.connections()[0].isNative.Load() {
			t.Error("the connection has changed")
		}
	})
}

// Beyond the bound a watch is refused, and the connection stays.
func TestNative_WatchesAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connectNative(t, start(t, Config{Watches: 3}))
		c.mustNative(wire.Native{Kind: wire.NativeArm, Path: "/a/a", Mode: int32(watch.Persistent)})
		c.refusedNative("one too many", wire.Native{Kind: wire.NativeArm, Path: "/a/b", Mode: int32(watch.Persistent)}, watch.ErrTooHeavy, -1)
		c.mustNative(wire.Native{Kind: wire.NativeArm, Path: "/a/b", Mode: int32(watch.Recursive)})
	})
}

// A release ends the znode that the claim made, and no other. What was lost lingers if it has a
// TTL.
func TestNative_Release(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connectNative(t, g), connectNative(t, g)
		lingering := creates("/a/ttl", "mine", tree.Ephemeral)
		lingering.TTL = 60_000
		c.mustNative(submit(creates("/a", "", tree.Persistent)))
		made := func() map[string]int64 {
			zxids := make(map[string]int64)
			for _, r := range c.mustNative(submit(lingering, creates("/a/plain", "", tree.Ephemeral))).Results {
				zxids[r.Path] = r.Stat.Czxid
			}
			return zxids
		}
		release := func(c *client, path string, czxid int64, lost bool) {
			t.Helper()
			c.mustNative(wire.Native{Kind: wire.NativeRelease, Path: path, Zxid: czxid, Flag: lost})
		}
		children := func(what string, want ...string) {
			t.Helper()
			r := c.must(op(wire.OpGetChildren, "/a"))
			if slices.Sort(r.Names); !slices.Equal(r.Names, want) {
				t.Errorf("%s: %q, want %q", what, r.Names, want)
			}
		}
		first := made()
		for path, czxid := range first {
			release(c, path, czxid+1<<40, false)
			release(other, path, czxid, false)
		}
		children("of another creation or session", "plain", "ttl")
		for path, czxid := range first {
			release(c, path, czxid, false)
			release(c, path, czxid, false)
		}
		children("given up")
		for path, czxid := range made() {
			release(c, path, czxid, true)
		}
		children("lost", "ttl")
		if r := c.must(op(wire.OpGetData, "/a/ttl")); r.Stat.EphemeralOwner != 0 || string(r.Data) != "mine" {
			t.Errorf("what lingers: %+v", r)
		}
		// The znode is no ephemeral any more.
		release(c, "/a/ttl", first["/a/ttl"], false)
		release(c, "/a", 1, false)
		children("afterwards", "ttl")
	})
}

// Releases and submits are in flight together, and keep their order.
func TestNative_Pipelined(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connectNative(t, g)
		c.mustNative(submit(creates("/a", "", tree.Persistent)))
		refused := submit(tree.Op{Kind: tree.KindSet, Path: "/a", Data: make([]byte, embed.DefaultMaxDataSize+1)})
		refused.Ops[0].Data = []byte("x")
		refused.Ops[0].Version = 99
		var sent []wire.Request
		var b []byte
		for i := range 100 {
			sent = append(sent, ofNative(submit(creates(fmt.Sprintf("/a/%03d", i), "", tree.Persistent))), ofNative(refused))
		}
		sent = append(sent, ofNative(wire.Native{Kind: wire.NativePage, Path: "/a", Count: 1000}))
		for i := range sent {
			sent[i].Xid = int32(i + 10)
			b = sent[i].AppendFrame(b)
		}
		c.write(b)
		for i, q := range sent {
			r := c.receive(q).Native
			switch {
			case i == len(sent)-1:
				if len(r.Names) != 100 {
					t.Errorf("%d children behind the writes", len(r.Names))
				}
			case i%2 == 0 && r.Failure != 0, i%2 == 1 && r.Failure != native.Number(tree.ErrBadVersion):
				t.Fatalf("answer %d: %+v", i, r)
			}
		}
	})
}

// Everything that a request holds is given back, exactly.
func TestNative_MemoryIsGivenBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connectNative(t, g)
		conn := g.connections()[0]
		settled := func(what string) {
			t.Helper()
			wait(t, what, func() bool {
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.bytes == 0 && conn.held.Load() == 0 && g.held.Load() == 0
			})
		}
		settled("the hello")
		ops := []tree.Op{creates("/a", strings.Repeat("x", 100_000), tree.Persistent)}
		for i := range 100 {
			ops = append(ops, creates(fmt.Sprint("/a/", i), "", tree.Ephemeral))
		}
		c.mustNative(submit(ops...))
		settled("a transaction")
		c.native(submit(ops...))
		settled("a refused transaction")
		c.mustNative(wire.Native{Kind: wire.NativeWalk, Path: "/a"})
		settled("a walk")
		c.mustNative(wire.Native{Kind: wire.NativePage, Path: "/a", Count: 100})
		settled("a page")
		c.mustNative(wire.Native{Kind: wire.NativeRelease, Path: "/a/1", Zxid: 1})
		settled("a release")
	})
}

// The data of events that wait count too.
func TestNative_EventsCountWithTheirData(t *testing.T) {
	g := start(t, Config{})
	c, other := connectNative(t, g), connect(t, g)
	c.mustNative(wire.Native{Kind: wire.NativeArm, Path: "/a", Mode: int32(watch.Persistent), Flag: true})
	conn := g.connections()[0]
	wait(t, "the answer", func() bool { return conn.queued() == 0 })
	conn.startDeferring() // from now on events wait
	const data, sets = 10_000, 10
	other.must(create("/a", nil, 0))
	for range sets {
		other.must(with(op(wire.OpSetData, "/a"), func(o *wire.Operation) { o.Data = make([]byte, data) }))
	}
	if held := conn.held.Load(); held < data*sets {
		t.Errorf("%d bytes are held", held)
	}
	c.must(op(wire.OpPing, ""))
	if len(c.events) != sets+1 || len(c.events[sets].Znode.Data) != data {
		t.Errorf("%d events", len(c.events))
	}
}

// D7: a large subtree is shown in portions, all as of one zxid, whatever is written meanwhile.
func TestNative_WalkInPortions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connectNative(t, g), connectNative(t, g)
		other.mustNative(submit(creates("/a", "", tree.Persistent), creates("/a/b", "", tree.Persistent)))
		const n = 3*walkBytes/400_000 + 1
		for i := range n {
			other.mustNative(submit(creates(fmt.Sprint("/a/b/", i), strings.Repeat("x", 400_000), tree.Persistent)))
		}
		c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/a"})
		first := wire.Native{Kind: wire.NativeWalk, Path: "/a"}
		r := c.mustNative(first)
		zxid, znodes, portions := r.Zxid, len(r.Znodes), 1
		for next := first; r.Flag; portions++ {
			other.mustNative(submit(creates(fmt.Sprint("/a/b/later", portions), "", tree.Persistent)))
			next.After, next.Zxid = r.Znodes[len(r.Znodes)-1].Path, r.Zxid
			r = c.mustNative(next)
			if znodes += len(r.Znodes); r.Zxid != zxid {
				t.Errorf("a portion of %d, the first was of %d", r.Zxid, zxid)
			}
		}
		if znodes != n+2 || portions < 3 {
			t.Errorf("%d znodes in %d portions", znodes, portions)
		}
		if r := c.mustNative(wire.Native{Kind: wire.NativeWalk, Path: "/a", Count: 1}); len(r.Znodes) != 2 || r.Flag {
			t.Errorf("one level: %d znodes", len(r.Znodes))
		}
	})
}

// D7: a walk that takes too long is over, and keeps nothing in memory. So is one of another
// connection, of another znode, or after another walk.
func TestNative_AWalkThatIsOver(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connectNative(t, g)
		half := strings.Repeat("x", walkBytes/2)
		c.mustNative(submit(creates("/a", half, tree.Persistent)))
		c.mustNative(submit(creates("/a/b", half, tree.Persistent), creates("/a/c", "", tree.Persistent)))
		first := wire.Native{Kind: wire.NativeWalk, Path: "/a"}
		begin := func() wire.Native {
			t.Helper()
			r := c.mustNative(first)
			if !r.Flag || len(r.Znodes) != 2 {
				t.Fatalf("%d znodes, and more: %v", len(r.Znodes), r.Flag)
			}
			return wire.Native{Kind: wire.NativeWalk, Path: "/a", After: "/a/b", Zxid: r.Zxid}
		}
		next := begin()
		if r := c.mustNative(next); len(r.Znodes) != 1 || r.Flag {
			t.Errorf("the rest: %d znodes", len(r.Znodes))
		}
		c.refusedNative("at its end", next, engine.ErrUnavailable, -1)
		next = begin()
		c.mustNative(wire.Native{Kind: wire.NativeWalk, Path: "/a/b"})
		c.refusedNative("after another walk", next, engine.ErrUnavailable, -1)
		for what, change := range map[string]func(n *wire.Native){
			"of another znode": func(n *wire.Native) { n.Path = "/" }, "after another path": func(n *wire.Native) { n.After = "/a" },
			"of another zxid": func(n *wire.Native) { n.Zxid++ }, "of another depth": func(n *wire.Native) { n.Count = 1 },
		} {
			n := begin()
			change(&n)
			c.refusedNative(what, n, engine.ErrUnavailable, -1)
		}
		next = begin()
		connectNative(t, g).refusedNative("of another connection", next, engine.ErrUnavailable, -1)
		for range 2 * walkTimeMax / time.Second {
			<-time.After(time.Second)
			c.must(op(wire.OpPing, ""))
		}
		if conn := g.connections()[0]; conn.walk != nil {
			t.Error("an old walk is kept")
		}
		c.refusedNative("after its time", next, engine.ErrUnavailable, -1)
	})
}

// A malformed request gets ZooKeeper's answer, and the connection stays.
func TestNative_Malformed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connectNative(t, start(t, Config{}))
		whole := raw(wire.Request{Xid: 7, Operation: wire.Operation{Op: wire.OpNative}, Native: submit(creates("/a", "x", tree.Persistent))})
		for _, b := range [][]byte{whole[:12], whole[:len(whole)-1], append(slices.Clone(whole[:16]), 0x7f, 0xff, 0xff, 0xff)} {
			b = slices.Clone(b)
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
			c.write(b)
			if r := c.receive(wire.Request{Xid: 7, Operation: wire.Operation{Op: wire.OpNative}}); r.Err != wire.MarshallingError {
				t.Errorf("%x: code %d", b, r.Err)
			}
		}
		c.must(op(wire.OpPing, ""))
	})
}

// A transaction that is refused at once is answered. The connection stays as long as its session is
// safe.
func TestNative_SubmitWithoutAQuorum(t *testing.T) {
	oneShard(t) // the member must not lead the shard of the znode
	inBubble(t, embedtest.Options{}, Config{}, func(e *cutEnsemble) {
		at := e.Leader()%3 + 1 // a follower
		c := e.open(at, asks(false))
		c.mustNative(wire.Native{Kind: wire.NativeHello})
		c.mustNative(submit(creates("/a", "", tree.Persistent)))
		busy, err := e.Node(at).NewSession(e.t.Context(), embed.SessionOptions{Timeout: time.Minute})
		if err != nil {
			e.t.Fatal(err)
		}
		e.Isolate(at)
		for range 17_000 { // until the queue is full
			busy.Submit(e.t.Context(), embed.OpCheck("/a", embed.AnyVersion))
		}
		c.refusedNative("a full queue", submit(tree.Op{Kind: tree.KindCheck, Path: "/a", Version: -1}), engine.ErrUnavailable, -1)
		c.must(op(wire.OpPing, ""))
		e.HealAll()
		e.Until("a transaction", func() bool {
			return c.native(submit(tree.Op{Kind: tree.KindCheck, Path: "/a", Version: -1})).Failure == 0
		})
	})
}

// Requests that wait for a transaction hold up nothing that comes behind them.
func TestNative_AwaitsHoldUpNothing(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{}, func(e *cutEnsemble) {
		c := e.open(1, asks(false))
		c.mustNative(wire.Native{Kind: wire.NativeHello})
		c.mustNative(submit(creates("/a", "", tree.Persistent)))
		var b []byte
		var sent []wire.Request
		const many = 500
		for i := range many {
			q := ofNative(wire.Native{Kind: wire.NativeAwait, Path: "/a", Zxid: 1 << 50, Count: 50})
			q.Xid = int32(i + 10)
			sent, b = append(sent, q), q.AppendFrame(b)
		}
		begun := time.Now()
		c.write(b)
		for _, q := range sent {
			if r := c.receive(q).Native; r.Failure != 0 || r.Flag {
				e.t.Fatalf("%+v", r)
			}
		}
		if took := time.Since(begun); took > many*awaitMax/5 {
			e.t.Errorf("they took %v", took)
		}
	})
}

// G10: a request that waits for no time is told the truth, too.
func TestNative_AwaitForNoTime(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{}, func(e *cutEnsemble) {
		c := e.open(1, asks(false))
		c.mustNative(wire.Native{Kind: wire.NativeHello})
		c.mustNative(submit(creates("/a", "", tree.Persistent)))
		shown := c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/a"}).Zxid
		for range 100 {
			if r := c.mustNative(wire.Native{Kind: wire.NativeAwait, Path: "/a", Zxid: shown}); !r.Flag {
				e.t.Fatal("what is shown is said to be to come")
			}
			if r := c.mustNative(wire.Native{Kind: wire.NativeAwait, Path: "/a", Zxid: 1 << 50}); r.Flag {
				e.t.Fatal("what is to come is said to be shown")
			}
		}
	})
}

// In read-only mode there is nothing for such a client, which looks for another member.
func TestNative_ReadOnly(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		e.Isolate(1)
		e.readOnlyBegins(1)
		c := e.open(1, asks(true))
		for kind := wire.NativeHello; kind <= wire.NativeMember; kind++ {
			c.refusedNative(fmt.Sprint("kind ", kind), wire.Native{Kind: kind, Path: "/", Count: 1}, engine.ErrUnavailable, -1)
		}
		c.must(op(wire.OpPing, ""))
	})
}
