package gateway

import (
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// 3.24: a closed session's ephemerals are gone when it is told so, and the connection ends.
func TestCloseSession(t *testing.T) {
	g := start(t, Config{})
	c, other := connect(t, g), connect(t, g)
	c.must(create("/e", nil, 1))
	other.must(op(wire.OpExists, "/e"))
	before := c.must(op(wire.OpPing, "")).Zxid
	// What is sent behind it has no effect.
	q := c.send(wire.Request{Operation: op(wire.OpCloseSession, "")})
	_, _ = c.Write(raw(wire.Request{Xid: 99, Operation: create("/late", nil, 0)}))
	if r := c.receive(q); r.Err != wire.OK || r.Zxid <= before {
		t.Errorf("close: %+v after zxid %d", r, before)
	}
	c.endsSilently()
	for _, path := range []string{"/e", "/late"} {
		if r := other.do(op(wire.OpExists, path)); r.Err != wire.NoNode {
			t.Errorf("%s: code %d", path, r.Err)
		}
	}
}

// 5.4: whoever says nothing for its timeout loses its connection and its session, and not before.
func TestSilentClient(t *testing.T) {
	g := start(t, Config{})
	other := connect(t, g)
	c := dial(t, g)
	began := time.Now()
	c.open(wire.ConnectRequest{Timeout: 2000, Password: make([]byte, 16)})
	c.must(create("/e", nil, 1))
	said := time.Now()
	c.endsSilently()
	if silent := time.Since(said); silent < 1900*time.Millisecond {
		t.Errorf("dropped after %v", silent)
	}
	wait(t, "the end of its ephemeral", func() bool { return other.do(op(wire.OpExists, "/e")).Err == wire.NoNode })
	if lived := time.Since(began); lived < 2*time.Second {
		t.Errorf("expired after %v", lived)
	}
}

// A connection that is lost does not end its session before the timeout.
func TestLostConnection(t *testing.T) {
	g := start(t, Config{})
	c, other := connect(t, g), connect(t, g)
	c.must(create("/e", nil, 1))
	_ = c.Close()
	wait(t, "the end of the connection", func() bool { return len(g.connections()) == 1 })
	other.must(op(wire.OpExists, "/e"))
}

// Nothing of a gateway is left after Close, also without one when its node ends.
func TestCloseLeavesNothing(t *testing.T) {
	n := startNode(t, nil)
	runtime.GC()
	before := runtime.NumGoroutine()
	g := startOn(t, n, Config{})
	c, word := connect(t, g), dial(t, g)
	c.must(create("/a", nil, 0))
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	c.endsSilently()
	word.endsSilently()
	wait(t, "the end of the goroutines", func() bool { return runtime.NumGoroutine() <= before+1 }) // the session's timer may run

	g = startOn(t, n, Config{})
	c = connect(t, g)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.endsSilently()
	wait(t, "the end of the connections", func() bool { return len(g.connections()) == 0 })
}

// G3: a member that is cut off drops its clients, and takes none.
func TestMemberCutOff(t *testing.T) {
	e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 500 * time.Millisecond }})
	g := startOn(t, e.Node(1), Config{Words: []string{"srvr", "isro"}})
	c := dial(t, g)
	c.open(wire.ConnectRequest{Timeout: 2000, Password: make([]byte, 16)})
	c.must(create("/a", nil, 0))
	for _, word := range []string{"srvr"} {
		if got := ask(t, g, word); len(got) == 0 {
			t.Errorf("%s: nothing", word)
		}
	}
	e.Cut(1, 2)
	e.Cut(1, 3)
	for deadline := time.Now().Add(patience); ; {
		if _, err := c.Write(raw(wire.Request{Xid: wire.XidPing, Operation: op(wire.OpPing, "")})); err != nil {
			break
		}
		if _, err := wire.ReadFrame(c, nil, 1<<20); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("its pings are answered")
		}
	}
	late := dial(t, g)
	late.write((&wire.ConnectRequest{Timeout: 2000, Password: make([]byte, 16)}).AppendFrame(nil))
	late.endsSilently()
	e.Heal(1, 2)
	e.Heal(1, 3)
	wait(t, "a session after the gap", func() bool {
		again := dial(t, g)
		again.write((&wire.ConnectRequest{Timeout: 2000, Password: make([]byte, 16)}).AppendFrame(nil))
		b, err := wire.ReadFrame(again, nil, 100)
		return err == nil && again.ConnectResponse.Decode(b) == nil && again.SessionID != 0
	})
}
