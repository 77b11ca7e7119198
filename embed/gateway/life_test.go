package gateway

import (
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// 3.24: when a client is told that its session is closed, the session's ephemerals are gone. Then
// the connection ends.
func TestCloseSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connect(t, g), connect(t, g)
		c.must(create("/e", nil, 1))
		other.must(op(wire.OpExists, "/e"))
		before := c.must(op(wire.OpPing, "")).Zxid
		// Requests behind closeSession have no effect.
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
	})
}

// No client is told that its session is closed while the session lives on elsewhere.
func TestCloseOfASessionAttachedElsewhere(t *testing.T) {
	g := start(t, Config{})
	c := connect(t, g)
	c.must(create("/e", nil, 1))
	conn := g.connections()[0]
	// So the connection does not end before the request is read.
	wait(t, "the baton", conn.baton.pickUp)
	next := reattach(t, g, c)
	c.send(wire.Request{Operation: op(wire.OpCloseSession, "")})
	wait(t, "the request to be dealt with", func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.stage == stageEnded || len(conn.queue) > conn.head
	})
	go conn.sendLoop()
	c.endsSilently()
	next.must(op(wire.OpExists, "/e"))
}

// 5.4: a client that is silent for its timeout loses its connection and its session, and not
// before.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) { // it waits more than it computes
		g := start(t, Config{})
		other := connect(t, g)
		// The gateway hears the client no earlier than this; how much later the end comes depends
		// on the machine.
		saying := time.Now()
		visit(t, g, shortTimeout, "/e").endsSilently()
		if silent := time.Since(saying); silent < shortTimeout {
			t.Errorf("dropped after %v", silent)
		}
		wait(t, "the end of its ephemeral", func() bool { return other.do(op(wire.OpExists, "/e")).Err == wire.NoNode })
	})
}

// A lost connection does not end its session before the timeout.
func TestLostConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connect(t, g), connect(t, g)
		c.must(create("/e", nil, 1))
		_ = c.Close()
		wait(t, "the end of the connection", func() bool { return len(g.connections()) == 1 })
		other.must(op(wire.OpExists, "/e"))
	})
}

// After Close nothing of a gateway is left. The same holds without Close when the node ends.
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
	// The session's timer may still run.
	wait(t, "the end of the goroutines", func() bool { return runtime.NumGoroutine() <= before+1 })

	g = startOn(t, n, Config{})
	c = connect(t, g)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.endsSilently()
	wait(t, "the end of the connections", func() bool { return len(g.connections()) == 0 })
}

// schedules.md, G3: a member that is cut off drops its clients and accepts none.
func TestMemberCutOff(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) { // it waits more than it computes
		e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 2 * patience }})
		g := startAt(t, e, 1, Config{Words: []string{"ruok", "srvr", "isro"}})
		c := visit(t, g, shortTimeout, "/a")
		wait(t, "the member to serve", func() bool { return ask(t, g, "isro") == "rw" })
		e.Cut(1, 2)
		e.Cut(1, 3)
		for deadline := time.Now().Add(patience); ; <-time.After(pollPause) {
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
		// 11.1: what a member answers while it does not serve.
		wait(t, "the member to know that it is cut off", func() bool { return ask(t, g, "isro") == "null" })
		for word, want := range map[string]string{"ruok": "imok", "srvr": "This ZooKeeper instance is not currently serving requests\n"} {
			if got := ask(t, g, word); got != want {
				t.Errorf("%s: %q", word, got)
			}
		}
		late := dial(t, g)
		q := hello()
		late.write(q.AppendFrame(nil))
		late.endsSilently() // after about an election, long before a request would have to be answered
		e.Heal(1, 2)
		e.Heal(1, 3)
		enter(t, g)
	})
}

// slow is a service's scheme whose calls take long.
type slow struct {
	moody
	until chan struct{}
}

func (s slow) Identify(credential []byte) (string, error) {
	if string(credential) != "at once" {
		<-s.until
	}
	return string(credential), nil
}

func (s slow) Matches(_, _ string) bool {
	<-s.until
	return true
}

// A client whose request takes longer than its timeout does not count as silent. The gateway does
// not read its input meanwhile.
func TestRequestThatTakesLongerThanTheTimeout(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) { // it waits more than it computes
		scheme := slow{until: make(chan struct{})}
		g := startOn(t, startNode(t, func(c *embed.Config) {
			c.Schemes = map[string]embed.Scheme{"slow": scheme}
		}), Config{})
		other := connect(t, g)
		other.must(with(create("/slow", nil, 0), acls(allow(wire.PermAll, "slow", "a"))))
		c := visit(t, g, shortTimeout-time.Second, "/waits")
		reader := visit(t, g, shortTimeout-time.Second, "/reads")
		reader.auth("slow", "at once")
		get := reader.send(wire.Request{Operation: op(wire.OpGetData, "/slow")})
		q := wire.Request{Xid: wire.XidAuth, Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "slow", Proof: []byte("x")}}
		c.write(raw(q))
		visit(t, g, shortTimeout, "/silent") // the same ticks end this session, and later
		wait(t, "the end of a silent client", func() bool {
			<-time.After(pollPause)
			return other.do(op(wire.OpExists, "/silent")).Err == wire.NoNode
		})
		close(scheme.until)
		if r := c.receive(q); r.Err != wire.OK {
			t.Errorf("code %d", r.Err)
		}
		c.must(op(wire.OpExists, "/waits"))
		if r := reader.receive(get); r.Err != wire.OK {
			t.Errorf("code %d", r.Err)
		}
		reader.must(op(wire.OpExists, "/reads"))
	})
}
