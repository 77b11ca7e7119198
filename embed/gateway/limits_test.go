package gateway

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/crowd"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/internal/wire/wiretest"
	"github.com/vivarium-go/vivarium/tree"
)

// Validate reports every problem of a Config with the name of its field.
func TestConfigValidate(t *testing.T) {
	err := Config{Listen: "nowhere", FrameSize: 3, Outstanding: -1, WriteTimeout: -1, FirstFrame: -1, Words: []string{"srvr", "hash"},
		TLS: &TLS{ClientCertRequired: true}}.Validate()
	for _, field := range []string{"Listen", "FrameSize", "Outstanding", "WriteTimeout", "FirstFrame", "Words[1]", "TLS."} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
	if err := (Config{Listen: ":0"}).Validate(); err != nil {
		t.Error(err)
	}
}

// 5.8: a connection beyond the limit is closed at once.
func TestConnectionLimits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for _, cfg := range []Config{{ConnectionsPerAddress: 2}, {Connections: 2, ConnectionsPerAddress: -1}} {
			g := start(t, cfg)
			first := connect(t, g)
			connect(t, g)
			dial(t, g).endsSilently()
			first.must(op(wire.OpPing, ""))
			// After one connection has ended there is room for another.
			first.must(op(wire.OpCloseSession, ""))
			first.endsSilently()
			wait(t, "the place of a closed connection", func() bool { return len(g.connections()) == 1 })
			connect(t, g).must(op(wire.OpPing, ""))
		}
	})
}

// M125: at a bound, who has asked for nothing yet makes room for who comes, the oldest first. So a
// stranger with many addresses keeps nobody out, whatever part of a request it has sent. Sessions stay.
func TestConnectionLimits_StrangersMakeRoom(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for _, cfg := range []Config{{ConnectionsPerAddress: 4}, {Connections: 4, ConnectionsPerAddress: -1}} {
			g := start(t, cfg)
			first := connect(t, g)
			silent, half := dial(t, g), dial(t, g)
			half.write([]byte{0, 0, 0, 45, 1})
			last := dial(t, g)
			for _, stranger := range []*client{silent, half} {
				connect(t, g)
				stranger.endsSilently()
			}
			last.open(hello())
			dial(t, g).endsSilently()
			for _, c := range []*client{first, last} {
				c.must(op(wire.OpPing, ""))
			}
			if n := len(g.connections()); n != 4 || g.refused.Load() != 3 {
				t.Errorf("%d connections, %d refused", n, g.refused.Load())
			}
		}
	})
}

// M125: with RequireSASL, a stranger is who has not proved a name.
func TestConnectionLimits_StrangersWithoutAName(t *testing.T) {
	g := startOn(t, startSASL(t, nil), Config{SASL: DigestMD5(peoplesHA1), RequireSASL: true, ConnectionsPerAddress: 2})
	alice, stranger := connect(t, g), connect(t, g)
	alice.logIn("alice")
	other := connect(t, g)
	stranger.endsSilently()
	other.logIn("alice")
	dial(t, g).endsSilently()
	alice.must(op(wire.OpPing, ""))
}

// M151: one address opens connections as fast as it can, up to the bound in total. Clients of other
// addresses get in, although they need some round trips until they are known: for TLS, or for SASL.
func TestConnectionLimits_OneGreedyAddress(t *testing.T) {
	ca := testkit.NewAuthority(t, "authority")
	for name, cfg := range map[string]Config{
		"TLS":  {TLS: &TLS{Config: &tls.Config{Certificates: []tls.Certificate{ca.Issue(t)}}}},
		"SASL": {SASL: DigestMD5(peoplesHA1), RequireSASL: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Connections, cfg.ConnectionsPerAddress = 2, -1
			g := startOn(t, startSASL(t, nil), cfg)
			storm := func() {
				for before := g.refused.Load(); g.refused.Load() < before+10; {
					greedy := greedily(t, g)
					t.Cleanup(func() { _ = greedy.Close() })
				}
			}
			c := dial(t, g)
			wait(t, "the client's connection", func() bool { return len(g.connections()) == 1 })
			storm()
			if cfg.TLS != nil {
				c.Conn = tls.Client(c.Conn, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"})
				if err := c.Conn.(*tls.Conn).HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				storm()
				c.open(hello())
			} else {
				c.open(hello())
				storm()
				c.logIn("alice")
			}
			storm()
			c.must(op(wire.OpPing, ""))
		})
	}
}

// greedily opens a connection from another address than clients have.
func greedily(t *testing.T, g *Gateway) net.Conn {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := d.DialContext(t.Context(), "tcp", g.Addr().String())
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Skip("this system has one address only")
	} else if err != nil {
		t.Fatal(err)
	}
	return c
}

// G1: a frame may be as long as the limit.
func TestFrameSize(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{FrameSize: 10_000})
		frame := func(n int) []byte {
			q := wire.Request{Xid: 1, Operation: create("/f", nil, 0)}
			q.Data = make([]byte, n-(len(raw(q))-4))
			return raw(q)
		}
		c := connect(t, g)
		c.write(frame(10_000))
		if r := c.receive(wire.Request{Xid: 1, Operation: wire.Operation{Op: wire.OpCreate}}); r.Err != wire.OK {
			t.Errorf("at the limit: code %d", r.Err)
		}
		c.write(frame(10_001)[:100])
		c.endsSilently()
	})
}

// 10.7: malformed input costs its connection at most.
func TestMalformedRequests(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		fine := connect(t, g)
		for name, b := range map[string][]byte{
			"negative length": {0xff, 0xff, 0xff, 0xfe},
			"too long":        {0x7f, 0xff, 0xff, 0xff},
			"no header":       {0, 0, 0, 4, 0, 0, 0, 1},
			"empty":           {0, 0, 0, 0},
			"a word":          []byte("ruok"),
		} {
			t.Log(name)
			c := connect(t, g)
			c.write(b)
			c.endsSilently()
		}
		// A malformed body gets an answer, and the connection stays.
		c := connect(t, g)
		for xid, body := range [][]byte{
			{0, 0, 0, 1}, // create without a body
			{0, 0, 0, 4, 0, 0, 0, 9, '/'},
			{0, 0, 0, 4, 0xff, 0xff, 0xff, 0xf0, '/', 1},
			{0, 0, 0, 12, 0x7f, 0xff, 0xff, 0xff},
			{0, 0, 0, 14, 0, 0, 0, 99, 0, 0, 0, 0, 0},
			{0, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff},
		} {
			b := append([]byte{0, 0, 0, byte(4 + len(body)), 0, 0, 0, byte(xid)}, body...)
			c.write(b)
			r := c.receive(wire.Request{Xid: int32(xid), Operation: wire.Operation{Op: wire.OpPing}})
			if r.Err != wire.MarshallingError {
				t.Errorf("body %x: code %d", body, r.Err)
			}
		}
		// Bytes behind a record are ignored.
		b := raw(wire.Request{Xid: 77, Operation: op(wire.OpExists, "/")})
		b[3] += 5
		c.write(append(b, "extra"...))
		if r := c.receive(wire.Request{Xid: 77, Operation: wire.Operation{Op: wire.OpExists}}); r.Err != wire.OK {
			t.Errorf("extra bytes: code %d", r.Err)
		}
		fine.must(op(wire.OpPing, ""))
	})
}

// The results of one request are bounded, even though a frame can ask for the same znode many
// times.
func TestMultiReadIsBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		fine := connect(t, g)
		fine.must(create("/big", make([]byte, 900_000), 0))
		read := func(n int) wire.Request {
			q := wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}}
			for range n {
				q.Ops = append(q.Ops, op(wire.OpGetData, "/big"))
			}
			return q
		}
		c := connect(t, g)
		if r := c.call(read(4)); r.Err != wire.OK || len(r.Results) != 4 || len(r.Results[3].Data) != 900_000 {
			t.Errorf("code %d, %d results", r.Err, len(r.Results))
		}
		c.send(read(400))
		c.endsSilently()
		fine.must(op(wire.OpPing, ""))
	})
}

// A setWatches counts with the size of its frame until it is answered. It makes a proportional
// number of events, which no other limit bounds.
func TestUnsentSetWatchesAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connect(t, g)
		c.must(op(wire.OpPing, ""))
		conn := g.connections()[0]
		wait(t, "the baton", conn.baton.pickUp) // so nothing is sent
		q := wire.Request{Operation: wire.Operation{Op: wire.OpSetWatches}}
		for i := range 10_000 {
			q.Watches.Data = append(q.Watches.Data, fmt.Sprint("/not-there-", i))
		}
		c.xid = 100
		q = c.send(q)
		var bytes int
		wait(t, "the answer", func() bool {
			conn.mu.Lock()
			defer conn.mu.Unlock()
			bytes = conn.bytes
			return len(conn.queue) > conn.head
		})
		if size := len(raw(q)) - 4; bytes < size {
			t.Errorf("it counts for %d bytes, its frame has %d", bytes, size)
		}
		go conn.sendLoop()
		c.receive(q)
		if len(c.events) != 10_000 {
			t.Errorf("%d events", len(c.events))
		}
	})
}

// A path is no longer than those of znodes. Otherwise each watch could take a megabyte.
func TestPathsAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connect(t, g)
		long := "/" + strings.Repeat("x", engine.PathMax)
		for _, o := range []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2} {
			for _, watch := range []bool{false, true} {
				o := op(o, long)
				o.Watch = watch
				if r := c.do(o); r.Err != wire.BadArguments {
					t.Errorf("op %d, watch %v: code %d", o.Op, watch, r.Err)
				}
			}
		}
		for _, o := range []wire.Op{wire.OpGetACL, wire.OpGetAllChildrenNumber, wire.OpAddWatch, wire.OpDelete} {
			if r := c.do(op(o, long)); r.Err != wire.BadArguments {
				t.Errorf("op %d: code %d", o, r.Err)
			}
		}
		if r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpSetWatches}, Watches: wire.Watches{Exist: []string{long}}}); r.Err != wire.BadArguments {
			t.Errorf("setWatches: code %d", r.Err)
		}
		if n := g.connections()[0].watches.Paths(); len(n) > 0 {
			t.Errorf("%d paths are watched", len(n))
		}
		if r := c.do(watching(op(wire.OpExists, long[:engine.PathMax]))); r.Err != wire.NoNode {
			t.Errorf("at the limit: code %d", r.Err)
		}
	})
}

// A connection whose watches take too much is ended, and their memory is free again.
func TestWatchBytes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const most = 1 << 20
		g := start(t, Config{WatchBytes: most})
		fine, c := connect(t, g), connect(t, g)
		exists := watching(op(wire.OpExists, "/"+strings.Repeat("x", 50_000)))
		for i := range most / 50_400 {
			o := exists
			o.Path += fmt.Sprint(i)
			if r := c.do(o); r.Err != wire.NoNode {
				t.Fatalf("watch %d: code %d", i, r.Err)
			}
		}
		served := g.connections()[1]
		wait(t, "the last request to be let go", func() bool { return served.held.Load() <= most })
		if held := served.held.Load(); held < most*9/10 {
			t.Errorf("%d bytes are held, of at most %d", held, most)
		}
		exists.Path += "y"
		c.send(wire.Request{Operation: exists})
		c.endsSilently()
		fine.must(op(wire.OpPing, ""))
		wait(t, "the memory of the connection", func() bool { return len(g.connections()) == 1 && g.held.Load() < 1<<10 })
	})
}

// The memory of all connections together is bounded. The connection that holds most is ended, and
// the log says why. A connection that holds little goes on. Everything that a connection can hold
// counts.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	big := func(n int) []byte { // a read of n times 900,000 bytes
		q := wire.Request{Xid: 1, Operation: wire.Operation{Op: wire.OpMultiRead}}
		for range n {
			q.Ops = append(q.Ops, op(wire.OpGetData, "/big"))
		}
		return raw(q)
	}
	for name, greed := range map[string]func(c *client){
		"answers that are not read": func(c *client) {
			for range 3 {
				_, _ = c.Write(big(10))
			}
		},
		"a frame that does not end": func(c *client) {
			b := raw(wire.Request{Xid: 1, Operation: with(create("/f", nil, 0), func(o *wire.Operation) { o.Data = make([]byte, 5<<20) })})
			_, _ = c.Write(b[:len(b)-1])
		},
		"watches": func(c *client) {
			for i := range 100 {
				_, _ = c.Write(raw(wire.Request{Xid: int32(i), Operation: watching(op(wire.OpExists, "/"+strings.Repeat("x", 50_000)+fmt.Sprint(i)))}))
			}
			_, _ = io.Copy(io.Discard, c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log lockedBuffer
			n := startNode(t, func(c *embed.Config) {
				c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			})
			g := startOn(t, n, Config{Memory: 4 << 20, FrameSize: 8 << 20, WriteTimeout: patience})
			fine := connect(t, g)
			fine.must(create("/big", make([]byte, 900_000), 0))
			fine.must(watching(op(wire.OpExists, "/big")))
			told := func() bool { return strings.Contains(log.String(), "too much memory") }
			// On a machine that stands still a connection may end for another reason, and the log
			// comes a little later. Then another one is greedy.
			tries := 0
			for ; !told(); tries++ {
				if tries == 5 {
					t.Fatalf("no greedy connection ends for its memory:\n%s", log.String())
				}
				go greed(enter(t, g))
				wait(t, "the end of the greedy connection", func() bool { return told() || len(g.connections()) == 1 })
			}
			wait(t, "its memory", func() bool { return len(g.connections()) == 1 && g.held.Load() < 1<<10 })
			fine.must(op(wire.OpSetData, "/big"))
			fine.wantTold("afterwards", "3 /big")
			if got := strings.Count(log.String(), "too much memory"); got > tries || g.relieving.Load() {
				t.Errorf("%d of %d greedy connections were ended, another is being: %v", got, tries, g.relieving.Load())
			}
			fine.must(op(wire.OpCloseSession, ""))
			fine.endsSilently()
			wait(t, "the end of all", func() bool { return len(g.connections()) == 0 })
			wait(t, "all memory to be given back", func() bool { return g.held.Load() == 0 })
		})
	}
}

// If memory grows just when relieve finds no connection to end, one is ended all the same.
func TestMemoryThatGrowsMeanwhile(t *testing.T) {
	side, other := net.Pipe()
	defer side.Close()
	defer other.Close()
	for i := range 30_000 {
		g := &Gateway{cfg: Config{Memory: 10}, log: quiet, conns: make(map[*conn]uint64)}
		c := newConn(g, side)
		g.conns[c] = 1
		g.relieving.Store(true) // as if for memory that is free again by now
		ready := make(chan struct{})
		g.goroutines.Go(func() {
			close(ready)
			g.endGreediest()
		})
		<-ready
		for range i % 200 { // so that it happens at every moment
		}
		c.hold(20)
		g.goroutines.Wait()
		if c.stage != stageEnded {
			t.Fatalf("no connection is ended in round %d", i)
		}
	}
}

// startFuzzed starts a gateway for what a fuzzer sends. lives checks that no connection has panicked
// and that others go on.
func startFuzzed(f *testing.F) (g *Gateway, lives func(*testing.T)) {
	n := startNode(f, func(c *embed.Config) { c.MaxTreeSize = 1 << 20 })
	g = startOn(f, n, Config{ConnectionsPerAddress: -1, Handshakes: -1, Words: []string{"*"}})
	other := connect(f, g)
	return g, func(t *testing.T) {
		t.Helper()
		if n := g.panics.Load(); n > 0 {
			t.Fatalf("%d connections have panicked", n)
		}
		other.t = t
		other.must(op(wire.OpPing, ""))
	}
}

// FuzzConnection checks that nothing panics and other connections go on, whatever one connection
// sends.
func FuzzConnection(f *testing.F) {
	g, lives := startFuzzed(f)
	connected := (&wire.ConnectRequest{Timeout: 400, Password: make([]byte, 16)}).AppendFrame(nil)
	for _, frame := range wiretest.Golden(f) {
		f.Add(append(append([]byte{}, connected...), frame...))
		f.Add(frame)
	}
	for kind := wire.NativeHello; kind <= wire.NativeMember; kind++ {
		q := ofNative(wire.Native{Kind: kind, Path: "/a", Names: []string{"a"}, Count: 1, Zxid: 1,
			Ops: native.AppendOps(nil, []tree.Op{creates("/a", "x", tree.Ephemeral)})})
		f.Add(q.AppendFrame(slices.Clone(connected)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := dial(t, g)
		_, _ = c.Write(b)
		_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		c.ends()
		lives(t)
	})
}

var wait = testkit.Until

// Config.MaxTreeSize applies to clients too. They get QuotaExceeded. Reads, deletes and new
// sessions still work.
func TestFullTree(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := startOn(t, startNode(t, func(c *embed.Config) { c.MaxTreeSize = 100_000 }), Config{})
		c := connect(t, g)
		c.must(create("/app", nil, 0))
		n := 0
		for ; n < 100; n++ {
			if r := c.call(wire.Request{Operation: create(fmt.Sprint("/app/", n), make([]byte, 10_000), 0)}); r.Err == wire.QuotaExceeded {
				break
			} else if r.Err != wire.OK {
				t.Fatalf("code %d", r.Err)
			}
		}
		if n < 8 || n > 9 {
			t.Errorf("%d znodes of 10,000 bytes in 100,000", n)
		}
		other := connect(t, g)
		other.must(op(wire.OpGetData, "/app/0"))
		other.must(op(wire.OpDelete, "/app/0"))
		other.must(create("/app/0", make([]byte, 10_000), 0))
	})
}

// A bound that the process has no descriptors for is lowered, and the log says so. Otherwise clients
// could take those of the node.
func TestConnections_FitTheProcess(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			bound int
			warns bool
		}{{0, false}, {math.MaxInt32, true}, {-1, false}} {
			var log embedkit.Journal
			g := startOn(t, startNode(t, func(cfg *embed.Config) { cfg.Logger = log.Logger() }), Config{Connections: c.bound})
			most, files := crowd.Fits(c.bound, 1)
			if files < 2*DefaultConnections {
				t.Skip("the process may not open enough files for this test")
			}
			if c.bound != 0 && (g.cfg.Connections != most || most <= 0 || most >= files) || c.bound == 0 && g.cfg.Connections != DefaultConnections {
				t.Errorf("a bound of %d: %d are served", c.bound, g.cfg.Connections)
			}
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			warned := func() bool { return log.Says("fewer connections are served than configured") }
			if c.warns {
				wait(t, "the warning", warned) // lines are written behind a queue
			} else if warned() {
				t.Errorf("a bound of %d: the log warns", c.bound)
			}
		}
	})
}

// M165: the gateways of a process share its descriptors. What others have, one more does not give away.
func TestConnections_OfAllGateways(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		one, other := start(t, Config{}), start(t, Config{})
		room, files := crowd.Fits(-1, 1)
		if files == 0 {
			t.Skip("the number of files is not known here")
		}
		connect(t, one)
		others := room - 1
		if !crowd.Enter(others, 1) {
			t.Error("there is no room for the rest")
		}
		refused := other.refused.Load()
		late := dial(t, other)
		late.endsSilently()
		if other.refused.Load() == refused {
			t.Error("one more than fit is served")
		}
		crowd.Leave(others)
		connect(t, other)
	})
}

// M136: strangers that must prove a name wait for a leader, and others take their places. What they have
// sent is given back at once.
func TestConnectionLimits_WhoMadeRoomHoldsNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.Schemes = map[string]embed.Scheme{"sasl": SASL()}
		}})
		g := startAt(t, e, 1, Config{SASL: DigestMD5(peoplesHA1), RequireSASL: true, ConnectionsPerAddress: 4, Memory: 8 << 20})
		e.Isolate(1)
		wait(t, "nobody to lead", func() bool { return !g.serving() })
		q := hello()
		frame := append(q.AppendFrame(nil), make([]byte, 1<<20)...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		most := int64(0)
		for range 50 {
			s := dial(t, g)
			go func() { _, _ = s.Write(frame) }()
			<-time.After(5 * time.Millisecond)
			most = max(most, g.held.Load())
		}
		if most > 8<<20 {
			t.Errorf("%d bytes were held, and four have sent a MiB each", most)
		}
		e.HealAll()
	})
}
