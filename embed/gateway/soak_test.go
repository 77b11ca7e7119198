package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/internal/wire/wiretest"
)

var soakFor = flag.Duration("soak", 0, "how long TestSoak goes on; zero means half a second, or two by night. -v tells its figures")

// Three members are open to hostile connections of every kind. Clients that behave run beside them,
// and check each of their answers and events. When all clients have gone, nothing of them is left.
func TestSoak(t *testing.T) {
	var log lockedBuffer
	e := embedtest.New(t, 3, embedtest.Options{Config: embedkit.Patient, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
	s := &street{t: t, golden: wiretest.Golden(t), stop: make(chan struct{})}
	for _, id := range e.Members() {
		s.gates = append(s.gates, startAt(t, e, id, Config{ConnectionsPerAddress: -1, FirstFrame: 500 * time.Millisecond, WriteTimeout: 300 * time.Millisecond, Words: []string{"*"}}))
	}
	host := enter(t, s.gates[0])
	host.must(create("/soak", nil, 0))
	host.must(create("/soak/shared", nil, 0))
	host.must(create("/soak/big", make([]byte, 200_000), 0))
	for _, g := range s.gates { // every member has the znodes before a client asks for them
		enter(t, g).must(op(wire.OpSync, "/soak/big"))
	}

	crook := s.crook(0)
	for range 2 { // this allocates what is kept for good before anything is measured
		for i := range attacks {
			crook.attack(i)
		}
	}
	crook.leave()
	s.awaitQuiet(len(s.gates) + 1)
	before := measure()

	var tenants, crooks sync.WaitGroup
	var all []*tenant
	for i := range 6 {
		p := &tenant{street: s, path: fmt.Sprintf("/soak/tenant-%d", i), gate: s.gates[i%len(s.gates)], writes: i == 0}
		p.moveIn()
		all = append(all, p)
		s.victims = append(s.victims, p.session)
	}
	for _, p := range all {
		tenants.Go(func() {
			if p.err = p.live(); p.err != nil {
				t.Errorf("%s: %v", p.path, p.err)
			}
		})
	}
	for i := range 4 {
		crooks.Go(func() {
			c := s.crook(uint64(i + 1))
			defer c.leave()
			for !s.over() {
				c.attack(c.rng.IntN(len(attacks)))
			}
		})
	}
	long := cmp.Or(*soakFor, 500*time.Millisecond)
	if *soakFor == 0 && testkit.Night() {
		long = 2 * time.Second
	}
	<-time.After(long)
	close(s.stop)
	crooks.Wait()
	tenants.Wait()

	s.report(all)
	for _, g := range s.gates {
		select {
		case <-g.node.Engine.Done():
			t.Errorf("a member has ended: %v", g.node.Engine.Err())
		default:
		}
		c := enter(t, g)
		c.must(create("/soak/after", nil, 1))
		c.must(op(wire.OpCloseSession, ""))
		_ = c.Close()
		wait(t, "imok", func() bool { return ask(t, g, "ruok") == "imok" })
	}
	s.awaitQuiet(len(s.gates) + 1)
	after := measure()
	for deadline := time.Now().Add(patience); after.goroutines > before.goroutines+5 || after.sockets > before.sockets; after = measure() {
		if <-time.After(pollPause); time.Now().After(deadline) {
			all := make([]byte, 1<<20)
			t.Fatalf("before %+v, after %+v\n%s", before, after, all[:runtime.Stack(all, true)])
		}
	}
	t.Logf("before %+v, after %+v", before, after)
	if after.heap > 2*before.heap+32<<20 {
		t.Errorf("the heap has grown from %d to %d bytes", before.heap, after.heap)
	}
	if text := log.String(); text != "" {
		t.Errorf("the members have logged errors:\n%s", text[:min(len(text), 4000)])
	}
}

// measured holds the figures that must not grow.
type measured struct {
	goroutines, sockets int
	files               int // of all kinds; the members open and close files too
	heap                uint64
}

func measure() measured {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	now := measured{goroutines: runtime.NumGoroutine(), heap: m.HeapAlloc}
	files, _ := os.ReadDir("/proc/self/fd") // empty on other systems
	for _, f := range files {
		now.files++
		if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasPrefix(to, "socket:") {
			now.sockets++
		}
	}
	return now
}

// A street is what the clients of a soak share.
type street struct {
	t       *testing.T
	gates   []*Gateway
	golden  map[string][]byte
	victims []wire.ConnectResponse
	stop    chan struct{}
	counts  [32]atomic.Int64 // by attack
	took    [32]atomic.Int64 // nanoseconds of all of them together
	refused atomic.Int64     // connections that could not be made
}

func (s *street) over() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// Pause between polls, which leaves the processors to others.
const pollPause = 20 * time.Millisecond

// awaitQuiet waits until at most so many connections and sessions are left.
func (s *street) awaitQuiet(most int) {
	s.t.Helper()
	wait(s.t, "the crooks' connections to end", func() bool {
		<-time.After(pollPause)
		n := 0
		for _, g := range s.gates {
			n += len(g.connections())
		}
		return n <= most
	})
	wait(s.t, "the crooks' sessions to end", func() bool {
		<-time.After(pollPause)
		for _, g := range s.gates {
			if c, err := g.node.Engine.Tables.Census(s.t.Context()); err != nil || len(c.Sessions) > most {
				return false
			}
		}
		return true
	})
}

func (s *street) report(all []*tenant) {
	for i, a := range attacks {
		n := max(s.counts[i].Load(), 1)
		s.t.Logf("%7d times %s, each %v", n, a.name, time.Duration(s.took[i].Load()/n).Round(time.Microsecond))
	}
	var reads, writes []time.Duration
	for _, p := range all {
		reads, writes = append(reads, p.reads...), append(writes, p.writeTimes...)
		s.t.Logf("%s: %d rounds, %d events", p.path, p.rounds, p.events)
	}
	for what, took := range map[string][]time.Duration{"reads": reads, "writes": writes} {
		if slices.Sort(took); len(took) > 0 {
			at := func(part float64) time.Duration {
				return took[int(part*float64(len(took)-1))].Round(time.Microsecond)
			}
			s.t.Logf("%d %s of the tenants: p50 %v, p99 %v, most %v", len(took), what, at(0.5), at(0.99), at(1))
		}
	}
	if n := s.refused.Load(); n > 0 {
		s.t.Logf("%d connections could not be made", n)
	}
}

// A tenant behaves, and checks everything that it receives.
type tenant struct {
	*street
	gate   *Gateway
	path   string
	writes bool // it changes the znode that all tenants watch

	conn    net.Conn
	r       *bufio.Reader
	session wire.ConnectResponse
	xid     int32
	zxid    int64
	version int32 // of its own znode
	armed   bool  // it has a watch of its own znode
	events  int32 // how many events of the shared znode it has received
	base    int32 // the shared znode's version when its watch began

	rounds            int
	reads, writeTimes []time.Duration
	err               error
}

func (p *tenant) moveIn() {
	c := enter(p.t, p.gate)
	p.conn, p.r, p.session = c.Conn, bufio.NewReader(c.Conn), c.ConnectResponse
}

// say sends requests and returns their replies.
func (p *tenant) say(ops ...wire.Operation) ([]wire.Reply, error) {
	_ = p.conn.SetDeadline(time.Now().Add(5 * patience)) // the machine may be busy
	var b []byte
	first := p.xid + 1
	for _, o := range ops {
		p.xid++
		q := wire.Request{Xid: p.xid, Operation: o}
		b = q.AppendFrame(b)
	}
	if _, err := p.conn.Write(b); err != nil {
		return nil, err
	}
	replies := make([]wire.Reply, len(ops))
	for i, o := range ops {
		if err := p.hear(&replies[i], first+int32(i), o); err != nil {
			return nil, fmt.Errorf("op %d of %s: %w", o.Op, o.Path, err)
		}
	}
	return replies, nil
}

// hear reads an answer and the events before it.
func (p *tenant) hear(r *wire.Reply, xid int32, o wire.Operation) error {
	for {
		frame, err := wire.ReadFrame(p.r, nil, 1<<20)
		if err != nil {
			return err
		}
		body, err := r.DecodeHeader(frame)
		if err != nil {
			return err
		}
		kind := o.Op
		if r.Xid == wire.XidEvent {
			kind = wire.OpEvent
		}
		if err := r.DecodeBody(kind, body); err != nil {
			return err
		}
		if r.Zxid < p.zxid {
			return fmt.Errorf("zxid %d after %d", r.Zxid, p.zxid)
		}
		p.zxid = r.Zxid
		switch {
		case kind != wire.OpEvent && r.Xid != xid:
			return fmt.Errorf("got the answer to %d, want the answer to %d", r.Xid, xid)
		case kind != wire.OpEvent && r.Err != wire.OK:
			return fmt.Errorf("code %d", r.Err)
		case kind != wire.OpEvent:
			// No earlier: an event before this answer would find no watch.
			p.armed = p.armed || o.Watch
			return nil
		case r.Event.Type == wire.NodeDataChanged && r.Event.Path == "/soak/shared":
			p.events++
		case r.Event.Type == wire.NodeDataChanged && r.Event.Path == p.path && p.armed:
			p.armed = false
		default:
			return fmt.Errorf("an event without a watch: %+v", r.Event)
		}
	}
}

// live runs the tenant until the soak is over.
func (p *tenant) live() error {
	shared := op(wire.OpGetData, "/soak/shared")
	r, err := p.say(create(p.path, nil, 1), op(wire.OpAddWatch, "/soak/shared"), shared)
	if err != nil {
		return err
	}
	p.base = r[2].Stat.Version - p.events
	for ; !p.over(); p.rounds++ {
		if err := p.round(shared); err != nil {
			return fmt.Errorf("round %d: %w", p.rounds, err)
		}
	}
	if _, err = p.say(op(wire.OpSync, "/soak/shared"), shared, op(wire.OpCloseSession, "")); err != nil {
		return err
	}
	return p.conn.Close()
}

func (p *tenant) round(shared wire.Operation) error {
	set := func(text string) wire.Operation {
		return with(op(wire.OpSetData, p.path), func(o *wire.Operation) { o.Data = []byte(text) })
	}
	text := fmt.Sprint(p.path, " ", p.rounds)
	// The second request arms its watch. The third one's event comes before the third answer. The
	// fourth one has no event.
	r, err := p.say(set("x"), watching(op(wire.OpGetData, p.path)), set("y"), set(text), op(wire.OpGetData, p.path), shared)
	if err != nil {
		return err
	}
	p.version += 3
	switch {
	case r[0].Stat.Version != p.version-2 || r[3].Stat.Version != p.version || r[1].Stat.Version != p.version-2:
		return fmt.Errorf("versions %d, %d, %d, want up to %d", r[0].Stat.Version, r[1].Stat.Version, r[3].Stat.Version, p.version)
	case string(r[1].Data) != "x" || string(r[4].Data) != text:
		return fmt.Errorf("data %q and %q, want \"x\" and %q", r[1].Data, r[4].Data, text)
	case p.armed:
		return errors.New("a change of its znode was not told")
	case r[5].Stat.Version-p.events != p.base:
		return fmt.Errorf("version %d is shown after %d events from %d on", r[5].Stat.Version, p.events, p.base)
	case r[4].Stat.EphemeralOwner != p.session.SessionID:
		return fmt.Errorf("its znode belongs to %#x", r[4].Stat.EphemeralOwner)
	}
	began := time.Now()
	if _, err := p.say(shared); err != nil {
		return err
	}
	p.reads = append(p.reads, time.Since(began))
	write := set(text)
	if p.version++; p.writes {
		write.Path = "/soak/shared"
		p.version--
	}
	began = time.Now()
	if _, err := p.say(write); err != nil {
		return err
	}
	p.writeTimes = append(p.writeTimes, time.Since(began))
	return nil
}

// A crook misbehaves.
type crook struct {
	*street
	rng  *rand.Rand
	held []net.Conn // connections that are neither used nor closed
}

func (s *street) crook(seed uint64) *crook {
	return &crook{street: s, rng: rand.New(rand.NewPCG(seed, 8))}
}

func (c *crook) attack(i int) {
	began := time.Now()
	attacks[i].do(c)
	c.counts[i].Add(1)
	c.took[i].Add(int64(time.Since(began)))
}

func (c *crook) leave() {
	for _, conn := range c.held {
		_ = conn.Close()
	}
	c.held = nil
}

// heldMax bounds the connections that a crook keeps open.
const heldMax = 20

// hold keeps a connection open.
func (c *crook) hold(conn net.Conn) {
	if c.held = append(c.held, conn); len(c.held) > heldMax {
		_ = c.held[0].Close()
		c.held = c.held[1:]
	}
}

// visit connects to some gateway, calls fn, and closes the connection in one of several ways.
func (c *crook) visit(fn func(conn *net.TCPConn)) {
	conn, err := net.Dial("tcp", c.gates[c.rng.IntN(len(c.gates))].Addr().String())
	if err != nil {
		c.refused.Add(1)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	tcp := conn.(*net.TCPConn)
	fn(tcp)
	switch c.rng.IntN(3) {
	case 0:
		_ = tcp.SetLinger(0) // the system resets the connection
	case 1:
		_ = tcp.CloseWrite()
		drain(tcp)
	}
	_ = tcp.Close()
}

// drain reads until the end of the connection.
func drain(conn net.Conn) {
	b := make([]byte, 4096)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
	}
}

// enter is visit with a session of the shortest timeout.
func (c *crook) enter(fn func(conn *net.TCPConn)) {
	c.visit(func(conn *net.TCPConn) {
		_, _ = conn.Write((&wire.ConnectRequest{Timeout: 1, Password: make([]byte, 16)}).AppendFrame(nil))
		if _, err := wire.ReadFrame(conn, nil, 100); err == nil {
			fn(conn)
		}
	})
}

func (c *crook) noise(most int) []byte {
	b := make([]byte, c.rng.IntN(most)+1)
	for i := range b {
		b[i] = byte(c.rng.Uint32())
	}
	return b
}

// frame returns a frame of a real client.
func (c *crook) frame() []byte {
	names := []string{"create", "exists", "getChildren2", "multi", "ping", "auth", "addWatch", "setWatches", "connect request"}
	return bytes.Clone(c.golden[names[c.rng.IntN(len(names))]])
}

// many returns n requests of one operation each.
func many(n int, o func(i int) wire.Operation) (b []byte) {
	for i := range n {
		q := wire.Request{Xid: int32(i), Operation: o(i)}
		b = q.AppendFrame(b)
	}
	return b
}

var attacks = []struct {
	name string
	do   func(c *crook)
}{
	{"noise", func(c *crook) {
		c.visit(func(conn *net.TCPConn) { _, _ = conn.Write(c.noise(4096)) })
	}},
	{"noise behind a handshake", func(c *crook) {
		c.enter(func(conn *net.TCPConn) { _, _ = conn.Write(c.noise(4096)) })
	}},
	{"noise in frames", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			for range 20 {
				b := c.noise(200)
				ops := []wire.Op{wire.OpCreate, wire.OpMulti, wire.OpSetWatches2, wire.OpSetACL, wire.OpAuth, wire.OpMultiRead}
				head := []byte{0, 0, 0, byte(8 + len(b)), 0, 0, 0, 1, 0, 0, 0, byte(ops[c.rng.IntN(len(ops))])}
				_, _ = conn.Write(append(head, b...))
			}
		})
	}},
	{"turned bits", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			for range 10 {
				b := c.frame()
				b[c.rng.IntN(len(b))] ^= 1 << c.rng.IntN(8)
				_, _ = conn.Write(b)
			}
		})
	}},
	{"truncated", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			b := c.frame()
			_, _ = conn.Write(b[:c.rng.IntN(len(b))])
		})
	}},
	{"oversized", func(c *crook) {
		lengths := [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff}, {0, 0x10, 0, 0}, {0x80, 0, 0, 0}}
		b := append(bytes.Clone(lengths[c.rng.IntN(len(lengths))]), c.noise(64<<10)...)
		if c.rng.IntN(2) == 0 {
			c.visit(func(conn *net.TCPConn) { _, _ = conn.Write(b) })
		} else {
			c.enter(func(conn *net.TCPConn) { _, _ = conn.Write(b) })
		}
	}},
	{"counts that lie", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			for _, o := range []wire.Op{wire.OpCreate, wire.OpSetACL, wire.OpSetWatches, wire.OpMulti, wire.OpGetData} {
				_, _ = conn.Write([]byte{0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, byte(o), 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff})
			}
		})
	}},
	{"a byte at a time", func(c *crook) {
		c.visit(func(conn *net.TCPConn) {
			b := append((&wire.ConnectRequest{Timeout: 1, Password: make([]byte, 16)}).AppendFrame(nil), c.frame()...)
			for i := range b {
				if _, err := conn.Write(b[i : i+1]); err != nil {
					return
				}
			}
		})
	}},
	{"never reads", func(c *crook) {
		conn, err := net.Dial("tcp", c.gates[c.rng.IntN(len(c.gates))].Addr().String())
		if err != nil {
			c.refused.Add(1)
			return
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		b := (&wire.ConnectRequest{Timeout: 1, Password: make([]byte, 16)}).AppendFrame(nil)
		_, _ = conn.Write(append(b, many(100, func(int) wire.Operation { return op(wire.OpGetData, "/soak/big") })...))
		c.hold(conn)
	}},
	{"says nothing", func(c *crook) {
		if conn, err := net.Dial("tcp", c.gates[c.rng.IntN(len(c.gates))].Addr().String()); err == nil {
			c.hold(conn)
		}
	}},
	{"half a handshake", func(c *crook) {
		if conn, err := net.Dial("tcp", c.gates[c.rng.IntN(len(c.gates))].Addr().String()); err == nil {
			_, _ = conn.Write((&wire.ConnectRequest{Timeout: 1, Password: make([]byte, 16)}).AppendFrame(nil)[:20])
			c.hold(conn)
		}
	}},
	{"half a connection", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			_, _ = conn.Write(many(20, func(int) wire.Operation { return create("/soak/junk-", nil, 3) }))
			_ = conn.CloseWrite()
			drain(conn)
		})
	}},
	{"another's session", func(c *crook) {
		c.visit(func(conn *net.TCPConn) {
			q := wire.ConnectRequest{Timeout: 1, Password: c.noise(16), SessionID: c.rng.Int64N(1 << 20)}
			if n := len(c.victims); n > 0 {
				q.SessionID = c.victims[c.rng.IntN(n)].SessionID
			}
			_, _ = conn.Write(q.AppendFrame(nil))
			drain(conn)
		})
	}},
	{"a flood of watches", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			paths := make([]string, 20_000)
			for i := range paths {
				paths[i] = fmt.Sprintf("/soak/%d", i)
			}
			q := wire.Request{Xid: 1, Operation: op(wire.OpSetWatches2, ""), Watches: wire.Watches{Exist: paths, Recursive: paths[:5000]}}
			_, _ = conn.Write(raw(q))
			_, _ = conn.Write(many(500, func(i int) wire.Operation { return op(wire.OpAddWatch, paths[i]) }))
			_, _ = conn.Write(many(500, func(i int) wire.Operation { return watching(op(wire.OpExists, paths[i])) }))
			_, _ = wire.ReadFrame(conn, nil, 1<<20)
		})
	}},
	{"watches that nobody reads", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			_, _ = conn.Write(raw(wire.Request{Xid: 1, Operation: with(op(wire.OpAddWatch, "/"), func(o *wire.Operation) { o.Mode = wire.WatchRecursive })}))
			c.enter(func(other *net.TCPConn) {
				_, _ = other.Write(many(200, func(int) wire.Operation { return create("/soak/junk-", nil, 3) }))
				_, _ = wire.ReadFrame(other, nil, 1<<20)
			})
		})
	}},
	{"a huge multi", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			ops := make([]wire.Operation, 10_000)
			for i := range ops {
				ops[i] = op(wire.OpCheck, "/soak")
			}
			ops[len(ops)-1].Path = "/missing"
			_, _ = conn.Write(raw(multi(ops...)))
			_, _ = wire.ReadFrame(conn, nil, 1<<20)
		})
	}},
	{"a multi of many ephemerals", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			ops := make([]wire.Operation, 300)
			for i := range ops {
				ops[i] = create("/soak/junk-", nil, 3)
			}
			_, _ = conn.Write(raw(multi(ops...)))
			_, _ = wire.ReadFrame(conn, nil, 1<<20)
		})
	}},
	{"a storm of connections", func(c *crook) {
		for range 30 {
			c.visit(func(*net.TCPConn) {})
		}
	}},
	{"a storm of sessions", func(c *crook) {
		for range 5 {
			c.enter(func(conn *net.TCPConn) {
				_, _ = conn.Write(many(10, func(int) wire.Operation { return create("/soak/junk-", nil, 3) }))
			})
		}
	}},
	{"half a word", func(c *crook) {
		c.visit(func(conn *net.TCPConn) {
			_, _ = conn.Write([]byte([]string{"r", "ru", "mnt", "srv\n", "ruo "}[c.rng.IntN(5)]))
		})
	}},
	{"a word", func(c *crook) {
		list := sorted(words)
		word := list[c.rng.IntN(len(list))]
		if strings.HasSuffix(word, "rst") {
			word = "ruok"
		}
		c.visit(func(conn *net.TCPConn) {
			_, _ = conn.Write([]byte(word))
			if c.rng.IntN(2) == 0 {
				_, _ = conn.Write(c.noise(100))
			}
		})
	}},
	{"many identities", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			for i := range 20 {
				q := wire.Request{Xid: wire.XidAuth, Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "digest", Proof: fmt.Appendf(nil, "%d:x", i)}}
				_, _ = conn.Write(raw(q))
			}
		})
	}},
	{"an op there is not", func(c *crook) {
		c.enter(func(conn *net.TCPConn) {
			_, _ = conn.Write([]byte{0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, byte(c.rng.IntN(256))})
		})
	}},
}
