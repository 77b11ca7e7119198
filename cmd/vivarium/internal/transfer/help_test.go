package transfer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

var must = testkit.Must

// super is the superuser's credential, here and at every ZooKeeper of these tests.
var super = []wire.Auth{{Scheme: "digest", Proof: []byte("super:pw")}}

var open = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

// start opens a gateway on a node that is alone, and returns its address.
func start(t testing.TB, cfg gateway.Config) string {
	t.Helper()
	n, err := embed.Start(embed.Config{
		Dir: t.TempDir(), Tick: 5 * time.Millisecond,
		MinSessionTimeout: testkit.Patience, SessionTimeout: testkit.Patience, MaxSessionTimeout: testkit.Patience, SuperDigest: embed.Digest("super:pw"),
		Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	must(t, n.Ready(testkit.Context(t)))
	cfg.Listen, cfg.FirstFrame, cfg.WriteTimeout = "127.0.0.1:0", testkit.Patience, testkit.Patience
	g, err := gateway.Start(n, cfg)
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g.Addr().String()
}

// A hand is a client that the test uses. Its methods end the test on an unexpected answer.
type hand struct {
	t  testing.TB
	zk *client.Client
}

func take(t testing.TB, addr string, auth ...wire.Auth) *hand {
	t.Helper()
	zk, err := client.New(client.Config{Servers: []string{addr}})
	must(t, err)
	t.Cleanup(func() { _ = zk.Close() })
	ctx := testkit.Context(t)
	must(t, zk.Ready(ctx))
	for _, a := range auth {
		must(t, zk.AddAuth(ctx, a.Scheme, a.Proof))
	}
	return &hand{t, zk}
}

func (h *hand) do(o wire.Operation) (wire.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	return h.zk.Call(ctx, wire.Request{Operation: o})
}

func (h *hand) must(o wire.Operation) wire.Reply {
	h.t.Helper()
	r, err := h.do(o)
	must(h.t, err)
	return r
}

func (h *hand) create(path, data string) { h.t.Helper(); h.must(creation(path, data)) }

func (h *hand) set(path, data string) { h.t.Helper(); h.must(setting(path, data)) }

func (h *hand) delete(path string) { h.t.Helper(); h.must(deletion(path)) }

func creation(path, data string) wire.Operation {
	return wire.Operation{Op: wire.OpCreate, Path: path, Data: []byte(data), ACL: open}
}

func setting(path, data string) wire.Operation {
	return wire.Operation{Op: wire.OpSetData, Path: path, Data: []byte(data), Version: -1}
}

func deletion(path string) wire.Operation {
	return wire.Operation{Op: wire.OpDelete, Path: path, Version: -1}
}

func restriction(path string, acl ...wire.ACL) wire.Operation {
	return wire.Operation{Op: wire.OpSetACL, Path: path, ACL: acl, Version: -1}
}

func digestACL(user string) wire.ACL {
	return wire.ACL{Perms: wire.PermAll, Scheme: "digest", ID: embed.Digest(user)}
}

// dump returns a line for each znode below a path that is no ephemeral, without the path itself. It
// shares no code with what is tested.
func (h *hand) dump(root string) (lines []string) {
	h.t.Helper()
	var walk func(string)
	walk = func(path string) {
		for _, name := range h.must(wire.Operation{Op: wire.OpGetChildren, Path: path}).Names {
			child := strings.TrimSuffix(path, "/") + "/" + name
			d := h.must(wire.Operation{Op: wire.OpGetData, Path: child})
			if child == "/zookeeper" || d.Stat.EphemeralOwner != 0 {
				continue
			}
			acl := h.must(wire.Operation{Op: wire.OpGetACL, Path: child}).ACL
			below := strings.TrimPrefix(child, strings.TrimSuffix(root, "/"))
			lines = append(lines, fmt.Sprintf("%s %q %t %v", below, d.Data, d.Data == nil, acl))
			walk(child)
		}
	}
	walk(root)
	slices.Sort(lines)
	return lines
}

// sameTrees fails the test unless a client sees the same below both paths.
func sameTrees(t testing.TB, a *hand, at string, b *hand, bt string) {
	t.Helper()
	was, is := a.dump(at), b.dump(bt)
	if !slices.Equal(was, is) {
		t.Errorf("the source has %d znodes\n%.2000s\nthe target %d\n%.2000s",
			len(was), strings.Join(was, "\n"), len(is), strings.Join(is, "\n"))
	}
}

// A running is a copy that follows.
type running struct {
	t      testing.TB
	cut    chan struct{}
	ended  chan struct{}
	result Result
	err    error

	mu    sync.Mutex
	lines []string
}

// follow starts a copy.
func follow(t testing.TB, cfg Config) *running {
	t.Helper()
	r := &running{t: t, cut: make(chan struct{}), ended: make(chan struct{})}
	cfg.CutOver = r.cut
	cfg.Log = r.log
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	go func() {
		defer close(r.ended)
		defer cancel()
		r.result, r.err = Run(ctx, cfg)
	}()
	t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

func (r *running) log(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// says waits for a line with a part.
func (r *running) says(part string) {
	r.t.Helper()
	testkit.Until(r.t, "a line with "+part, func() bool {
		return testkit.Closed(r.ended) || strings.Contains(r.said(), part)
	})
	if !strings.Contains(r.said(), part) {
		r.t.Fatalf("it ended with %v\n%s", r.err, r.said())
	}
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// cutOver ends the copy, and returns its result.
func (r *running) cutOver() Result {
	r.t.Helper()
	close(r.cut)
	<-r.ended
	if r.err != nil {
		r.t.Fatalf("%v\n%s", r.err, r.said())
	}
	return r.result
}

// sees waits until the target has a znode with that data; "" waits until it has none.
func (h *hand) sees(path, data string) {
	h.t.Helper()
	testkit.Until(h.t, path+" to be "+data, func() bool {
		r, err := h.do(wire.Operation{Op: wire.OpGetData, Path: path})
		if data == "" {
			return client.CodeOf(err) == wire.NoNode
		}
		return err == nil && string(r.Data) == data
	})
}

// A relay stands between clients and a server, and knows what they say.
type relay struct {
	net.Listener
	to      string
	refuses wire.Op // answered with Unimplemented, before the connection ends, as old servers do

	mu      sync.Mutex
	socks   []net.Conn
	ops     map[wire.Op]int
	order   []wire.Op            // of the newest session
	session wire.ConnectResponse // the newest
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &relay{Listener: l, to: to, ops: make(map[wire.Op]int)}
	var all sync.WaitGroup
	all.Go(func() { p.accept(&all) })
	t.Cleanup(func() { _ = l.Close(); p.cut(); all.Wait() })
	return p
}

func (p *relay) addr() string { return p.Listener.Addr().String() }

func (p *relay) accept(all *sync.WaitGroup) {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.socks = append(p.socks, in, out)
		p.mu.Unlock()
		end := func() { _ = in.Close(); _ = out.Close() }
		all.Go(func() { defer end(); p.requests(in, out) })
		all.Go(func() { defer end(); p.replies(out, in) })
	}
}

const relayMax = 64 << 20

// requests passes frames on until one is refused.
func (p *relay) requests(in, out net.Conn) {
	r := bufio.NewReader(in)
	for first := true; ; first = false {
		frame, err := wire.ReadFrame(r, nil, relayMax)
		if err != nil {
			return
		}
		var q wire.Request
		if _, err := q.DecodeHeader(frame); err == nil && !first {
			p.mu.Lock()
			p.ops[q.Op]++
			p.order = append(p.order, q.Op)
			p.mu.Unlock()
			if q.Op == p.refuses {
				no := wire.Reply{Xid: q.Xid, Result: wire.Result{Err: wire.Unimplemented}}
				_, _ = in.Write(no.AppendFrame(nil))
				return
			}
		}
		if !pass(out, frame) {
			return
		}
	}
}

func (p *relay) replies(out, in net.Conn) {
	r := bufio.NewReader(out)
	for first := true; ; first = false {
		frame, err := wire.ReadFrame(r, nil, relayMax)
		if err != nil {
			return
		}
		if first {
			var r wire.ConnectResponse
			if r.Decode(frame) == nil && r.SessionID != 0 {
				p.mu.Lock()
				if r.SessionID != p.session.SessionID {
					p.order = nil
				}
				p.session = r
				p.mu.Unlock()
			}
		}
		if !pass(in, frame) {
			return
		}
	}
}

func pass(to io.Writer, frame []byte) bool {
	n := len(frame)
	_, err := to.Write(append([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, frame...))
	return err == nil
}

// cut ends all connections.
func (p *relay) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.socks {
		_ = s.Close()
	}
	p.socks = nil
}

// expire ends the newest session, as if its time had run out, and waits for the next one. For that
// it takes the session over, and closes it.
func (p *relay) expire(t testing.TB) {
	t.Helper()
	was := p.now()
	testkit.Until(t, "another session", func() bool {
		if p.now().SessionID != was.SessionID {
			return true
		}
		p.end(was)
		return false
	})
}

// now returns the newest session.
func (p *relay) now() wire.ConnectResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// end closes a session, unless its owner takes it back first.
func (p *relay) end(s wire.ConnectResponse) {
	c, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer c.Close()
	hello := wire.ConnectRequest{Timeout: s.Timeout, SessionID: s.SessionID, Password: s.Password}
	bye := wire.Request{Xid: 1, Operation: wire.Operation{Op: wire.OpCloseSession}}
	in := bufio.NewReader(c)
	for _, frame := range [][]byte{hello.AppendFrame(nil), bye.AppendFrame(nil)} {
		if _, err := c.Write(frame); err != nil {
			return
		}
		if _, err := wire.ReadFrame(in, nil, relayMax); err != nil {
			return
		}
	}
}

// firstOps returns what the newest session was asked first, up to the first request that reads or
// changes a znode.
func (p *relay) firstOps() []wire.Op {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := map[wire.Op]bool{wire.OpAuth: true, wire.OpAddWatch: true, wire.OpSync: true, wire.OpPing: true}
	n := slices.IndexFunc(p.order, func(op wire.Op) bool { return !before[op] })
	if n < 0 {
		n = len(p.order)
	}
	return slices.Clone(p.order[:n])
}

// sent returns the ops that clients have asked for, sorted.
func (p *relay) sent() (ops []wire.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for op := range p.ops {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	return ops
}
