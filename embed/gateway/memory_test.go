package gateway

import (
	"bytes"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// heap returns the bytes of the heap that are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves what was in pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// heldCounts waits until the heap has grown by no more than what the gateway counts, and some room for
// what is not for connections.
func heldCounts(t *testing.T, g *Gateway, before int64) {
	t.Helper()
	wait(t, "the memory to be free, or to count", func() bool { return heap()-before < g.held.Load()+8<<20 })
	t.Logf("%d KiB more, %d KiB count", (heap()-before)>>10, g.held.Load()>>10)
}

// What a request takes is free, or counts, while the next one takes its time. A connection once held
// 16 MiB that did not count.
func TestMemory_BehindAPartOfAFrame(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	acl := create("/none/x", nil, 0)
	acl.ACL = slices.Repeat([]wire.ACL{{Scheme: wire.Null, ID: wire.Null}}, 87_000)
	for name, q := range map[string]wire.Request{
		"a multi":         {Operation: wire.Operation{Op: wire.OpMulti}, Ops: slices.Repeat([]wire.Operation{{Op: wire.OpCheck, Path: "", Version: -1}}, 30_000)},
		"a create":        {Operation: acl},
		"watches":         {Operation: wire.Operation{Op: wire.OpSetWatches2}, Watches: wire.Watches{Persistent: slices.Repeat([]string{""}, 250_000)}},
		"names":           ofNative(wire.Native{Kind: wire.NativeBefore, Path: "/", Names: slices.Repeat([]string{""}, 250_000)}),
		"a native submit": ofNative(wire.Native{Kind: wire.NativeSubmit, Ops: slices.Repeat([]wire.NativeOp{{Path: "x"}}, 17_000)}),
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, Config{})
			clients := make([]*client, 5)
			for i := range clients {
				clients[i] = connect(t, g)
			}
			before := heap()
			for _, c := range clients {
				q.Xid = 1
				c.write(append(raw(q), 0)) // with the first byte of the next one
				c.receive(q)
			}
			heldCounts(t, g, before)
			for _, c := range clients {
				_ = c.Close()
			}
			wait(t, "all memory to be given back", func() bool { return g.held.Load() == 0 })
		})
	}
}

// A frame that does not end counts with the room that it takes.
func TestMemory_OfAPartOfAFrame(t *testing.T) {
	g := start(t, Config{})
	clients := make([]*client, 50)
	for i := range clients {
		clients[i] = connect(t, g)
	}
	before := heap()
	const sent = 900_000
	for _, c := range clients {
		c.write(append([]byte{0, 0x0f, 0, 0}, bytes.Repeat([]byte{1}, sent)...))
	}
	wait(t, "all that was sent to count", func() bool { return g.held.Load() >= int64(len(clients))*sent })
	heldCounts(t, g, before)
}

// M150: what a walk that waits takes counts, however deep it is, until it is over.
func TestMemory_OfADeepWalk(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connectNative(t, g)
		path, name := "", "/"+strings.Repeat("n", 10_000)
		for i := range 4 {
			path += name
			c.must(create(path, make([]byte, (i%2)*(1<<20-1)), 0))
		}
		before := g.held.Load()
		walk := wire.Native{Kind: wire.NativeWalk, Path: name}
		for range 2 {
			r := c.mustNative(walk)
			if !r.Flag {
				t.Fatal("all is shown at once")
			}
			walk.Zxid, walk.After = r.Zxid, r.Znodes[len(r.Znodes)-1].Path
			if n := g.held.Load() - before; n < int64(3*len(walk.After)) {
				t.Errorf("at a path of %d bytes, %d count", len(walk.After), n)
			}
		}
		if r := c.mustNative(walk); r.Flag {
			t.Fatal("it goes on")
		}
		wait(t, "nothing to count", func() bool { return g.held.Load() == before })
	})
}

// M128: a walk that waits keeps nothing of the znodes that it has shown. It once kept the last one.
func TestMemory_BetweenPortionsOfAWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	g := start(t, Config{})
	owner := connect(t, g)
	for _, path := range []string{"/w", "/w/a", "/w/b"} {
		owner.must(create(path, make([]byte, 1<<20-1), 0))
	}
	clients := make([]*client, 40)
	for i := range clients {
		clients[i] = connectNative(t, g)
	}
	before := heap()
	for _, c := range clients {
		if r := c.mustNative(wire.Native{Kind: wire.NativeWalk, Path: "/w"}); !r.Flag {
			t.Fatal("all is shown at once")
		}
	}
	for _, c := range clients {
		c.must(op(wire.OpPing, "")) // which ends a walk that is a minute old, and a connection never
	}
	if more, counts := heap()-before, g.held.Load(); more > counts+20<<20 {
		t.Errorf("%d walks take %d KiB, of which %d count", len(clients), more>>10, counts>>10)
	}
}

// While all connections hold too much, none begins a request.
func TestMemory_NoRequestBeginsBeyondTheBound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Memory: 1 << 20})
		c := connect(t, g)
		g.held.Add(1<<20 + 1) // by somebody who is being ended
		c.send(wire.Request{Operation: create("/a", nil, 0)})
		synctest.Wait()
		if n := g.connections()[0].queued(); n > 0 {
			t.Errorf("%d answers are queued", n)
		}
		g.held.Add(-1<<20 - 1)
		c.receive(wire.Request{Xid: c.xid, Operation: create("/a", nil, 0)})
	})
}

// As many connections are ended at once as hold too much, those that hold most first.
func TestMemory_EndsAllThatHoldTooMuch(t *testing.T) {
	g := &Gateway{cfg: Config{Memory: 50}, log: quiet, conns: make(map[*conn]uint64)}
	var conns []*conn
	for i, bytes := range []int64{5, 40, 10, 30, 20} {
		side, other := net.Pipe()
		defer side.Close()
		defer other.Close()
		c := newConn(g, side)
		c.held.Add(bytes)
		g.held.Add(bytes)
		g.conns[c] = uint64(i)
		conns = append(conns, c)
	}
	g.relieve()
	g.goroutines.Wait()
	for i, want := range []bool{false, true, false, true, false} {
		if conns[i].hasEnded() != want {
			t.Errorf("connection %d with %d bytes has ended: %v", i, conns[i].held.Load(), !want)
		}
	}
}

// What a request is about to read counts before it is read, and no more once it is answered.
func TestMemory_CountsBeforeItReads(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Memory: 1 << 20})
		c := connect(t, g)
		c.must(create("/a", make([]byte, 200_000), 0))
		c.must(op(wire.OpGetData, "/a"))
		synctest.Wait()
		if n := g.held.Load(); n != 0 {
			t.Errorf("%d bytes count once all is answered", n)
		}
		many := wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: slices.Repeat([]wire.Operation{op(wire.OpGetData, "/a")}, 100)}
		other := connect(t, g)
		other.send(many) // 20 MB, of which it may read one
		other.endsSilently()
		c.must(op(wire.OpGetData, "/a"))
	})
}

// M128: a client that begins a walk and asks for no more of it keeps what is replaced only up to a bound.
func TestMemory_OfAWalkThatWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connectNative(t, g), connect(t, g)
		for _, path := range []string{"/w", "/w/a", "/w/b", "/w/c"} {
			other.must(create(path, make([]byte, 1<<20-1), 0))
		}
		walk := wire.Native{Kind: wire.NativeWalk, Path: "/w"}
		r := c.mustNative(walk)
		if !r.Flag {
			t.Fatal("all is shown at once")
		}
		set := op(wire.OpSetData, "/w/c")
		set.Data = make([]byte, 1<<20-1)
		for range 80 {
			other.must(set)
		}
		walk.Zxid, walk.After = r.Zxid, r.Znodes[len(r.Znodes)-1].Path
		c.refusedNative("the next portion", walk, engine.ErrUnavailable, -1)
		c.mustNative(wire.Native{Kind: wire.NativeWalk, Path: "/w"})
	})
}
