package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/internal/wire"
)

const testTick = 5 * time.Millisecond // sessions have 360 ms or more

func init() { shardsflag.Define() }

var quiet = slog.New(slog.DiscardHandler)

// oneShard skips the test with several shards. Such a test compares zxids, or has a multi over the
// whole tree.
func oneShard(t testing.TB) {
	if shardsflag.N > 1 {
		t.Skip("not with several shards")
	}
}

// virtual reports whether the caller runs in a bubble of testing/synctest, whose times have no
// monotonic reading.
func virtual() bool {
	now := time.Now()
	return now == now.Round(0)
}

// doors has what connects to a gateway in a bubble, by the gateway and by its node.
var doors sync.Map

type door = func(context.Context) (net.Conn, error)

// startNode starts a node that is alone. The node is closed when the test ends. In a bubble its
// gateway has no port. So tests of addresses, of sockets' buffers, of half-closed connections and of
// several gateways on a node need real time.
func startNode(t testing.TB, change func(*embed.Config)) *embed.Node {
	t.Helper()
	if virtual() {
		return startVirtual(t, change)
	}
	cfg := embed.Config{Dir: t.TempDir(), Shards: shardsflag.N, Tick: testTick, Logger: quiet}
	embedkit.Patient(&cfg)
	if change != nil {
		change(&cfg)
	}
	n, err := embed.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

// startVirtual is startNode in a bubble.
func startVirtual(t testing.TB, change func(*embed.Config)) *embed.Node {
	t.Helper()
	e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
		if c.Tick = testTick; change != nil {
			change(c)
		}
	}})
	doors.Store(e.Node(1), door(func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, 1) }))
	t.Cleanup(func() { doors.Delete(e.Node(1)) })
	return e.Node(1)
}

// startAt opens a gateway on a member of an ensemble.
func startAt(t testing.TB, e *embedtest.Ensemble, id embed.MemberID, cfg Config) *Gateway {
	t.Helper()
	g := startOn(t, e.Node(id), cfg)
	doors.Store(g, door(func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, id) }))
	t.Cleanup(func() { doors.Delete(g) })
	return g
}

// startOn opens a gateway on a node. The gateway is closed when the test ends.
func startOn(t testing.TB, n *embed.Node, cfg Config) *Gateway {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	g, err := Start(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	if d, ok := doors.Load(n); ok {
		doors.Store(g, d)
		t.Cleanup(func() { doors.Delete(g) })
	}
	return g
}

func start(t testing.TB, cfg Config) *Gateway {
	t.Helper()
	return startOn(t, startNode(t, nil), cfg)
}

// A client speaks the protocol by hand.
type client struct {
	net.Conn
	t   testing.TB
	xid int32
	wire.ConnectResponse
	events []wire.Event // events that came before replies
	zxids  []int64      // the zxids of those events
}

const patience = testkit.Patience

// lasting is the timeout of sessions that a test does not want to end. In real time they must
// outlive a machine that stands still for some seconds.
func lasting() time.Duration {
	if virtual() {
		return 10 * time.Second
	}
	return time.Minute
}

// hello asks for a new session that lasts.
func hello() wire.ConnectRequest {
	return wire.ConnectRequest{Timeout: int32(lasting().Milliseconds()), Password: make([]byte, 16)}
}

func dial(t testing.TB, g *Gateway) *client {
	t.Helper()
	var c net.Conn
	var err error
	if d, ok := doors.Load(g); ok && virtual() {
		c, err = d.(door)(t.Context())
	} else {
		c, err = net.Dial("tcp", g.Addr().String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, c)
}

func newClient(t testing.TB, c net.Conn) *client {
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{Conn: c, t: t}
}

// connect opens a session.
func connect(t testing.TB, g *Gateway) *client {
	t.Helper()
	c := dial(t, g)
	c.open(hello())
	return c
}

// enter is connect for a gateway that may refuse a client for a while. It tries until it has a
// session.
func enter(t testing.TB, g *Gateway) (c *client) {
	t.Helper()
	wait(t, "a session", func() bool {
		c = dial(t, g)
		q := wire.ConnectRequest{Timeout: 30_000, Password: make([]byte, 16)}
		_, _ = c.Write(q.AppendFrame(nil))
		b, err := wire.ReadFrame(c, nil, 100)
		return err == nil && c.ConnectResponse.Decode(b) == nil && c.SessionID != 0
	})
	return c
}

func connectTLS(t testing.TB, g *Gateway, cfg *tls.Config) *client {
	t.Helper()
	cfg = cfg.Clone()
	cfg.ServerName = cmp.Or(cfg.ServerName, "127.0.0.1")
	c := dial(t, g)
	sock := tls.Client(c.Conn, cfg)
	if err := sock.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Conn = sock
	c.open(hello())
	return c
}

func (c *client) open(q wire.ConnectRequest) {
	c.t.Helper()
	c.write(q.AppendFrame(nil))
	c.opened()
}

func (c *client) opened() {
	c.t.Helper()
	if err := c.ConnectResponse.Decode(c.read()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// read returns the next frame without its length.
func (c *client) read() []byte {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	b, err := wire.ReadFrame(c, nil, 64<<20)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// visit opens a session with a short timeout and creates an ephemeral. Both requests are sent
// together, so that no time passes between them.
func visit(t testing.TB, g *Gateway, timeout time.Duration, path string) *client {
	t.Helper()
	c := dial(t, g)
	first := wire.ConnectRequest{Timeout: int32(timeout.Milliseconds()), Password: make([]byte, 16)}
	q := wire.Request{Xid: 1, Operation: create(path, nil, 1)}
	c.write(q.AppendFrame(first.AppendFrame(nil)))
	c.opened()
	if r := c.receive(q); r.Err != wire.OK {
		t.Fatalf("%s: code %d", path, r.Err)
	}
	c.xid = q.Xid
	return c
}

// shortTimeout is the timeout of sessions whose end a test waits for. If it were shorter, a slow
// disk could keep the node from renewing for a third of it, and connections would end for that.
const shortTimeout = 6 * time.Second

// send sends a request without waiting for the reply.
func (c *client) send(q wire.Request) wire.Request {
	c.t.Helper()
	c.xid++
	q.Xid = c.xid
	c.write(q.AppendFrame(nil))
	return q
}

// receive returns the reply to a request. No other reply may come before it.
func (c *client) receive(q wire.Request) wire.Reply {
	c.t.Helper()
	for {
		var r wire.Reply
		body, err := r.DecodeHeader(c.read())
		if err != nil {
			c.t.Fatal(err)
		}
		op := q.Op
		switch r.Xid {
		case wire.XidEvent:
			op = wire.OpEvent
		case wire.XidNativeEvent:
			op = wire.OpNativeEvent
		}
		if err := r.DecodeBody(op, body); err != nil {
			c.t.Fatalf("reply to op %d: %v", q.Op, err)
		}
		if op != q.Op {
			c.events, c.zxids = append(c.events, r.Event), append(c.zxids, r.Zxid)
			continue
		}
		if r.Xid != q.Xid {
			c.t.Fatalf("got the reply to %d, want the reply to %d", r.Xid, q.Xid)
		}
		return r
	}
}

func (c *client) call(q wire.Request) wire.Reply {
	c.t.Helper()
	return c.receive(c.send(q))
}

// do calls with one operation.
func (c *client) do(o wire.Operation) wire.Reply {
	c.t.Helper()
	return c.call(wire.Request{Operation: o})
}

// must is do for an operation that has to succeed.
func (c *client) must(o wire.Operation) wire.Reply {
	c.t.Helper()
	r := c.do(o)
	if r.Err != wire.OK {
		c.t.Fatalf("op %d of %q: code %d", o.Op, o.Path, r.Err)
	}
	return r
}

// ends waits until the gateway has closed the connection, and returns what came before.
func (c *client) ends() []byte {
	c.t.Helper()
	b, err := io.ReadAll(c)
	if e, ok := err.(net.Error); ok && e.Timeout() {
		c.t.Fatal("the connection does not end")
	}
	return b
}

// endsSilently is ends for a connection on which nothing came before its end.
func (c *client) endsSilently() {
	c.t.Helper()
	if b := c.ends(); len(b) > 0 {
		c.t.Fatalf("%d bytes came before the end: %x", len(b), b[:min(len(b), 64)])
	}
}

func openACL() []wire.ACL { return []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}} }

func create(path string, data []byte, flags wire.CreateFlags) wire.Operation {
	return wire.Operation{Op: wire.OpCreate, Path: path, Data: data, ACL: openACL(), Flags: flags}
}

func op(o wire.Op, path string) wire.Operation { return wire.Operation{Op: o, Path: path, Version: -1} }

func raw(q wire.Request) []byte { return q.AppendFrame(nil) }

func equal(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got %x\nwant %x", what, got, want)
	}
}

// A lockedBuffer is a buffer for several writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
