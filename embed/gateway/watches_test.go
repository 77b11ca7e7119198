package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/internal/wire/wiretest"
)

func watching(o wire.Operation) wire.Operation {
	o.Watch = true
	return o
}

// told returns the events that came so far. It sends a request and waits for its answer, which
// comes after all of them.
func (c *client) told() []string {
	c.t.Helper()
	c.must(op(wire.OpPing, ""))
	var list []string
	for _, e := range c.events {
		if e.State != wire.StateSyncConnected {
			c.t.Errorf("an event with state %d", e.State)
		}
		list = append(list, fmt.Sprintf("%d %s", e.Type, e.Path))
	}
	c.events = nil
	return list
}

func (c *client) wantTold(what string, want ...string) {
	c.t.Helper()
	if got := c.told(); !slices.Equal(got, want) {
		c.t.Errorf("%s: told %q, want %q", what, got, want)
	}
}

// Appendix A with watches, and 6.4: a client's own event comes before its own answer.
func TestGoldenWatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		frames := wiretest.Golden(t)
		c := connect(t, start(t, Config{}))
		c.must(create("/a", nil, 0))
		before := c.must(op(wire.OpPing, "")).Zxid
		masked := func(b []byte) []byte {
			b = slices.Clone(b)
			if string(b[4:12]) != "\xff\xff\xff\xff\xff\xff\xff\xff" {
				clear(b[4:12])
			}
			return b
		}
		expect := func(name string) {
			t.Helper()
			if frames[name] == nil {
				t.Fatalf("no golden frame %q", name)
			}
			equal(t, name, masked(c.read()), masked(frames[name][4:]))
		}
		c.write(frames["exists"])
		expect("exists refused")
		q := wire.Request{Xid: 4, Operation: create("/n", nil, 0)}
		c.write(raw(q))
		expect("created event")
		expect("create reply with event")
		c.write(frames["addWatch"])
		expect("addWatch reply")
		c.write(frames["setWatches"])
		expect("missed event")
		expect("setWatches reply")
		if z := c.must(op(wire.OpPing, "")).Zxid; z != before+1 {
			t.Errorf("zxid %d, want %d", z, before+1)
		}
	})
}

// 3.4 and 3.5: which reads arm watches, and which events fire them.
func TestReadsArm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connect(t, g), connect(t, g)
		other.must(create("/a", nil, 0))
		c.must(watching(op(wire.OpExists, "/a")))
		c.must(watching(op(wire.OpGetData, "/a")))
		c.must(watching(op(wire.OpGetChildren, "/a")))
		c.must(watching(op(wire.OpGetChildren2, "/a")))
		for _, o := range []wire.Op{wire.OpGetData, wire.OpGetChildren, wire.OpExists} {
			if r := c.do(watching(op(o, "/missing"))); r.Err != wire.NoNode {
				t.Errorf("op %d of the missing: %d", o, r.Err)
			}
		}
		c.must(op(wire.OpGetData, "/zookeeper"))
		c.wantTold("at first")
		other.must(op(wire.OpSetData, "/a"))
		c.wantTold("after a set", "3 /a")
		other.must(op(wire.OpSetData, "/a"))
		c.wantTold("after a second set")
		other.must(create("/a/b", nil, 0))
		c.wantTold("after a child's create", "4 /a")
		other.must(create("/missing", nil, 0))
		c.wantTold("after the create of what was missing", "1 /missing")
		other.must(op(wire.OpDelete, "/missing"))
		c.wantTold("after its delete")
		// 6.3: a data watch and a child watch together get one NodeDeleted.
		c.must(watching(op(wire.OpGetData, "/a/b")))
		c.must(watching(op(wire.OpGetChildren, "/a/b")))
		c.must(watching(op(wire.OpGetChildren, "/a")))
		other.must(op(wire.OpDelete, "/a/b"))
		c.wantTold("after a delete", "2 /a/b", "4 /a")
	})
}

// 3.17, 3.18 and 6.1: addWatch, checkWatches, removeWatches.
func TestAddAndRemoveWatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Words: []string{"*"}})
		c, other := connect(t, g), connect(t, g)
		add := func(path string, mode wire.WatchMode) {
			t.Helper()
			c.must(with(op(wire.OpAddWatch, path), func(o *wire.Operation) { o.Mode = mode }))
		}
		kind := func(o wire.Op, path string, k wire.WatchKind) wire.Code {
			t.Helper()
			return c.do(with(op(o, path), func(x *wire.Operation) { x.Kind = k })).Err
		}
		add("/p", wire.WatchPersistent)
		add("/r", wire.WatchRecursive)
		add("/r", wire.WatchRecursive)
		for _, path := range []string{"/p", "/p/x", "/p/x/y", "/r", "/r/x", "/r/x/y"} {
			other.must(create(path, nil, 0))
		}
		c.wantTold("persistent ones", "1 /p", "4 /p", "1 /r", "1 /r/x", "1 /r/x/y")
		c.must(watching(op(wire.OpGetData, "/p")))
		sid := fmt.Sprintf("0x%x", uint64(c.SessionID))
		for word, want := range map[string]string{
			"wchs": "1 connections watching 2 paths\nTotal watches:2\n",
			"wchc": sid + "\n\t/p\n\t/r\n\n",
			"wchp": "/p\n\t" + sid + "\n/r\n\t" + sid + "\n\n",
		} {
			if got := ask(t, g, word); got != want {
				t.Errorf("%s: %q, want %q", word, got, want)
			}
		}
		if got := ask(t, g, "mntr"); !strings.Contains(got, "zk_watch_count\t3\n") {
			t.Errorf("mntr: %s", got)
		}
		for _, test := range []struct {
			o    wire.Op
			path string
			kind wire.WatchKind
			want wire.Code
		}{
			{wire.OpCheckWatches, "/p", wire.KindPersistent, wire.OK},
			{wire.OpCheckWatches, "/p", wire.KindData, wire.OK},
			{wire.OpCheckWatches, "/p", wire.KindChildren, wire.NoWatcher},
			{wire.OpCheckWatches, "/p", wire.KindRecursive, wire.NoWatcher},
			{wire.OpCheckWatches, "/r", wire.KindRecursive, wire.OK},
			{wire.OpCheckWatches, "/r", wire.KindAny, wire.OK},
			{wire.OpCheckWatches, "/r/x", wire.KindAny, wire.NoWatcher},
			{wire.OpRemoveWatches, "/p", wire.KindChildren, wire.NoWatcher},
			{wire.OpRemoveWatches, "/p", wire.KindPersistent, wire.OK},
			{wire.OpRemoveWatches, "/p", wire.KindPersistent, wire.NoWatcher},
			{wire.OpRemoveWatches, "/r", wire.KindAny, wire.OK},
		} {
			if got := kind(test.o, test.path, test.kind); got != test.want {
				t.Errorf("op %d, kind %d of %s: code %d, want %d", test.o, test.kind, test.path, got, test.want)
			}
		}
		other.must(op(wire.OpSetData, "/p"))
		other.must(op(wire.OpSetData, "/r"))
		c.wantTold("what was left", "3 /p") // of the watch by getData
	})
}

// 6.6: what a client that comes back has missed.
func TestSetWatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		g := start(t, Config{})
		c, other := connect(t, g), connect(t, g)
		for _, path := range []string{"/same", "/changed", "/children", "/there"} {
			other.must(create(path, nil, 0))
		}
		since := other.must(op(wire.OpPing, "")).Zxid
		other.must(op(wire.OpSetData, "/changed"))
		other.must(create("/children/x", nil, 0))
		r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpSetWatches2}, Watches: wire.Watches{Zxid: since,
			Data: []string{"/same", "/changed", "/gone"}, Exist: []string{"/there", "/not yet"}, Child: []string{"/same", "/children", "/gone"},
			Persistent: []string{"/changed"}, Recursive: []string{"/there"}}})
		if r.Err != wire.OK {
			t.Fatalf("code %d", r.Err)
		}
		c.wantTold("catch-up", "3 /changed", "2 /gone", "1 /there", "4 /children", "2 /gone")
		other.must(op(wire.OpSetData, "/same"))
		other.must(create("/same/x", nil, 0))
		other.must(create("/not yet", nil, 0))
		other.must(op(wire.OpSetData, "/changed"))
		other.must(create("/there/x", nil, 0))
		c.wantTold("afterwards", "3 /same", "4 /same", "1 /not yet", "3 /changed", "1 /there/x")
	})
}

// 6.8: a client that may not read a znode gets no event of it. Its identities at that moment count.
func TestWatchesAskForPermission(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, owner := connect(t, g), connect(t, g)
		owner.auth("digest", "bob:pw")
		mine := []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		c.must(with(op(wire.OpAddWatch, "/"), func(o *wire.Operation) { o.Mode = wire.WatchRecursive }))
		owner.must(with(create("/secret", nil, 0), func(o *wire.Operation) { o.ACL = mine }))
		owner.must(create("/open", nil, 0))
		c.wantTold("before", "1 /open")
		c.auth("digest", "bob:pw")
		owner.must(op(wire.OpSetData, "/secret"))
		c.wantTold("after auth", "3 /secret")
	})
}

// 6.4 and 3.24: when a session closes, its own watches fire for its ephemerals before the answer.
func TestCloseFiresOwnWatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		c.must(create("/e", nil, 1))
		c.must(watching(op(wire.OpExists, "/e")))
		c.must(op(wire.OpCloseSession, ""))
		if len(c.events) != 1 || c.events[0].Type != wire.NodeDeleted || c.events[0].Path != "/e" {
			t.Errorf("events %+v", c.events)
		}
		c.endsSilently()
	})
}

// A client gets one event for each change that its watch sees. The event comes after the answer
// that armed the watch, and before any answer that shows the change. Here the client pipelines its
// requests, and another client writes all the time.
func TestEventsAndAnswersAreInOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, writer, own := connect(t, g), connect(t, g), connect(t, g)
		own.must(create("/n", nil, 0))
		stop := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			set := raw(wire.Request{Xid: 1, Operation: op(wire.OpSetData, "/n")})
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := writer.Write(set); err != nil {
					return
				}
				if _, err := wire.ReadFrame(writer, nil, 1<<10); err != nil {
					return
				}
			}
		}()
		const ahead, rounds = 8, 3000
		requests := make(map[int32]wire.Operation)
		ask := func(xid int32) {
			o := watching(op(wire.OpGetData, "/n"))
			switch xid % 5 {
			case 1:
				o = op(wire.OpSetData, "/n")
			case 2:
				o = op(wire.OpExists, "/n")
			case 3:
				o = op(wire.OpPing, "")
			}
			requests[xid] = o
			c.write(raw(wire.Request{Xid: xid, Operation: o}))
		}
		for xid := range int32(ahead) {
			ask(xid)
		}
		armed, version, events := false, int32(-1), 0
		for next := int32(0); next < rounds; {
			var r wire.Reply
			body, err := r.DecodeHeader(c.read())
			if err != nil {
				t.Fatal(err)
			}
			if r.Xid == wire.XidEvent {
				if !armed {
					t.Fatalf("before answer %d: an event without a watch", next)
				}
				armed = false
				events++
				continue
			}
			if r.Xid != next || r.Err != wire.OK {
				t.Fatalf("got the answer to %d with code %d, want the answer to %d", r.Xid, r.Err, next)
			}
			o := requests[next]
			delete(requests, next)
			if err := r.DecodeBody(o.Op, body); err != nil {
				t.Fatal(err)
			}
			if o.Op != wire.OpPing {
				if armed && r.Stat.Version != version {
					t.Fatalf("answer %d shows version %d before the event after %d", next, r.Stat.Version, version)
				}
				version = r.Stat.Version
			}
			armed = armed || o.Watch
			next++
			ask(next + ahead - 1)
		}
		close(stop)
		_ = writer.Close()
		<-stopped
		if events < rounds/20 {
			t.Errorf("only %d events", events)
		}
	})
}

// The empty path reads the root. A watch of it keeps that name and never fires.
func TestWatchOfTheEmptyPath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connect(t, g)
		for _, o := range []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren} {
			c.must(watching(op(o, "")))
		}
		for _, mode := range []wire.WatchMode{wire.WatchPersistent, wire.WatchRecursive} {
			c.must(with(op(wire.OpAddWatch, ""), func(o *wire.Operation) { o.Mode = mode }))
		}
		if r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpSetWatches}, Watches: wire.Watches{Data: []string{""}}}); r.Err != wire.OK {
			t.Errorf("setWatches: code %d", r.Err)
		}
		c.must(op(wire.OpSetData, "/"))
		c.must(create("/a", nil, 0))
		c.wantTold("of the root")
		for path, want := range map[string]wire.Code{"": wire.OK, "/": wire.NoWatcher} {
			if r := c.do(with(op(wire.OpCheckWatches, path), func(o *wire.Operation) { o.Kind = wire.KindAny })); r.Err != want {
				t.Errorf("watches of %q: code %d, want %d", path, r.Err, want)
			}
		}
	})
}
