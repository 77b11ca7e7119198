package gateway

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// moody is a scheme of a service that does not behave.
type moody struct{}

func (moody) Identify(credential []byte) (string, error) {
	if string(credential) == "boom" {
		panic("a credential")
	}
	return string(credential), nil
}

func (moody) Valid(string) bool { return true }
func (moody) Expands() bool     { return true }

func (moody) Matches(_, id string) bool {
	if id == "boom" {
		panic("an id")
	}
	return true
}

// GoodGuest: a panic under a request costs its connection, and the log has the stack. What others need is not left locked.
func TestPanicCostsItsConnection(t *testing.T) {
	var log lockedBuffer
	n := startNode(t, func(c *embed.Config) {
		c.Schemes = map[string]embed.Scheme{"moody": moody{}}
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	g := startOn(t, n, Config{})
	fine := connect(t, g)
	fine.must(with(create("/boom", nil, 0), acls(allow(wire.PermAll, "moody", "boom"))))
	requests := []wire.Request{
		{Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "moody", Proof: []byte("boom")}},
		{Operation: op(wire.OpGetData, "/boom")},
		{Operation: watching(op(wire.OpGetData, "/boom"))},
		{Operation: watching(op(wire.OpExists, "/boom"))},
		{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{op(wire.OpGetData, "/"), op(wire.OpGetData, "/boom")}},
	}
	for _, q := range requests {
		c := connect(t, g)
		if r := c.auth("moody", "somebody"); r.Err != wire.OK {
			t.Fatalf("code %d", r.Err)
		}
		c.must(create("/e", nil, 1))
		c.send(q)
		c.endsSilently()
		next := resume(t, g, c, 10_000) // its session is as well as ever
		next.must(op(wire.OpDelete, "/e"))
		next.must(op(wire.OpCloseSession, ""))
	}
	fine.must(create("/after", nil, 0))
	fine.must(watching(op(wire.OpExists, "/after")))
	fine.must(op(wire.OpSetData, "/after"))
	fine.wantTold("afterwards", "3 /after")
	wait(t, "the other connections to end", func() bool { return len(g.connections()) == 1 })
	text := log.String()
	if got := strings.Count(text, "panicked"); got != len(requests) || !strings.Contains(text, "moody.Matches") {
		t.Errorf("%d panics were logged, want %d:\n%s", got, len(requests), text)
	}
}

// The same goes for what a goroutine does that comes to send.
func TestPanicOfWhoSends(t *testing.T) {
	side, other := net.Pipe()
	defer other.Close()
	c := newConn(&Gateway{log: quiet}, side)
	c.turned.Store(true) // so it looks at the session, which there is not
	c.nudge()
	c.awaitSilence()
	c.hush()
	if c.settle() {
		t.Error("the connection has not ended")
	}
}
