package client

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

const patience = testkit.Patience

// start opens a gateway on a node that is alone, and returns the gateway's address.
func start(t testing.TB) string {
	t.Helper()
	n, err := embed.Start(embed.Config{Dir: t.TempDir(), Tick: 5 * time.Millisecond,
		MinSessionTimeout: patience, SessionTimeout: patience, MaxSessionTimeout: patience, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	must(t, n.Ready(t.Context()))
	g, err := gateway.Start(n, gateway.Config{Listen: "127.0.0.1:0", FirstFrame: patience, WriteTimeout: patience})
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g.Addr().String()
}

// A line leads to a gateway in a bubble of testing/synctest, where there are no ports. It can be cut.
type line struct {
	ens *embedtest.Ensemble

	mu    sync.Mutex
	shut  bool
	socks []net.Conn
}

// home opens a gateway on a member that is alone, in a bubble.
func home(t *testing.T) *line {
	t.Helper()
	ens := embedtest.New(t, 1, embedtest.Options{})
	g, err := gateway.Start(ens.Node(1), gateway.Config{Listen: "127.0.0.1:0"})
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return &line{ens: ens}
}

func (l *line) dial(ctx context.Context, _ string) (net.Conn, error) {
	c, err := l.ens.Dial(ctx, 1)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.socks = append(l.socks, c)
	return c, nil
}

// cut ends all connections, and lets nobody in until open is called.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	for _, s := range l.socks {
		_ = s.Close()
	}
}

func (l *line) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = false
}

// told collects the events of a client.
type told chan Event

// next returns the next event.
func (c told) next(t testing.TB) Event {
	t.Helper()
	select {
	case e := <-c:
		return e
	case <-time.After(patience):
		t.Fatal("no event comes")
		return Event{}
	}
}

func (c told) expect(t testing.TB, typ wire.EventType, state wire.State, path string) {
	t.Helper()
	if e := c.next(t); e.Type != typ || e.State != state || e.Path != path {
		t.Fatalf("event %+v, want type %d state %d path %q", e, typ, state, path)
	}
}

// connect returns a connected client, and its further events.
func connect(t testing.TB, cfg Config) (*Client, told) {
	t.Helper()
	c, events := begin(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, c.Ready(ctx))
	events.expect(t, wire.EventNone, wire.StateSyncConnected, "")
	return c, events
}

func begin(t testing.TB, cfg Config) (*Client, told) {
	t.Helper()
	events := make(told, 1000)
	cfg.Events = func(e Event) { events <- e }
	c, err := New(cfg)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, events
}

var must = testkit.Must

func is(t testing.TB, what string, err error, code wire.Code) {
	t.Helper()
	if CodeOf(err) != code {
		t.Errorf("%s: %v, want code %d", what, err, code)
	}
}

func op(o wire.Op, path string) wire.Operation { return wire.Operation{Op: o, Path: path, Version: -1} }

func creation(path, data string, flags wire.CreateFlags) wire.Operation {
	return wire.Operation{Op: wire.OpCreate, Path: path, Data: []byte(data), Flags: flags,
		ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}}
}

func watched(o wire.Op, path string) wire.Operation {
	return wire.Operation{Op: o, Path: path, Watch: true}
}

func do(t testing.TB, c *Client, o wire.Operation) (wire.Reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := c.Call(ctx, wire.Request{Operation: o})
	if ctx.Err() != nil { // a deadline of the client is its answer
		t.Fatalf("op %d of %q is not answered", o.Op, o.Path)
	}
	return r, err
}

func mustDo(t testing.TB, c *Client, o wire.Operation) wire.Reply {
	t.Helper()
	r, err := do(t, c, o)
	must(t, err)
	return r
}

// A proxy stands between clients and a server, and can cut their connections.
type proxy struct {
	net.Listener
	to string

	mu    sync.Mutex
	shut  bool // new connections are accepted and closed at once
	socks []net.Conn
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{Listener: l, to: to}
	go p.accept()
	t.Cleanup(func() { _ = l.Close(); p.cut(true) })
	return p
}

func (p *proxy) addr() string { return p.Listener.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		p.mu.Lock()
		if p.shut || err != nil {
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			p.mu.Unlock()
			continue
		}
		p.socks = append(p.socks, in, out)
		p.mu.Unlock()
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
	}
}

// cut closes all connections. If shut is set, it also closes all new ones.
func (p *proxy) cut(shut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	for _, s := range p.socks {
		_ = s.Close()
	}
	p.socks = nil
}

// open lets connections through again.
func (p *proxy) open() {
	p.mu.Lock()
	p.shut = false
	p.mu.Unlock()
}

// leaves fails the test if goroutines of a client do not end.
func leaves(t testing.TB) {
	t.Helper()
	testkit.Until(t, "the client's goroutines to end", func() bool {
		stacks := testkit.Stacks()
		return !strings.Contains(stacks, "client.(*Client)") && !strings.Contains(stacks, "client.New.")
	})
}
