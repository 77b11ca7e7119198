package gateway

import (
	"crypto/tls"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// moody is a service's scheme that misbehaves.
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

// GoodGuest: a panic in a request costs its connection, and the log has the stack. The session
// lives on.
func TestPanicCostsItsConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var log lockedBuffer
		g := startOn(t, startMoody(t, &log), Config{})
		fine := connect(t, g)
		c := connect(t, g)
		c.must(create("/e", nil, 1))
		c.send(wire.Request{Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "moody", Proof: []byte("boom")}})
		c.endsSilently()
		next := reattach(t, g, c)
		next.must(op(wire.OpDelete, "/e"))
		next.must(op(wire.OpCloseSession, ""))
		fine.must(create("/after", nil, 0))
		wait(t, "the other connections to end", func() bool { return len(g.connections()) == 1 })
		if n := g.panics.Load(); n != 1 {
			t.Errorf("%d connections have panicked", n)
		}
		if text := log.String(); strings.Count(text, "panicked") != 1 || !strings.Contains(text, "moody.Identify") {
			t.Errorf("want one panic in the log:\n%s", text)
		}
	})
}

// M166: a client has the log tell of each panic, and of each change of the members that is refused.
func TestRefusals_OfPanicsAndChanges(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var log lockedBuffer
		g := startOn(t, startMoody(t, &log), Config{Reconfig: true})
		for range 10 {
			c := connect(t, g)
			if r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpReconfig}}); r.Err == wire.OK {
				t.Fatal("the members have changed")
			}
			c.send(wire.Request{Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "moody", Proof: []byte("boom")}})
			c.endsSilently()
		}
		wait(t, "all panics to count", func() bool { return g.panics.Load() == 10 })
		wait(t, "a line of each kind", func() bool {
			return strings.Contains(log.String(), "panicked") && strings.Contains(log.String(), "has failed")
		})
		synctest.Wait()
		for _, words := range []string{"a client's connection panicked", "a client's change of the members has failed"} {
			if n := strings.Count(log.String(), words); n != 1 {
				t.Errorf("%s: %d lines", words, n)
			}
		}
	})
}

func startMoody(t *testing.T, log *lockedBuffer) *embed.Node {
	return startNode(t, func(c *embed.Config) {
		c.Schemes = map[string]embed.Scheme{"moody": moody{}}
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	})
}

// If a scheme panics over an id in an ACL, the answer is no, for reads, watches and writes, and
// under any lock.
func TestPanicOverAnACLRefuses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var log lockedBuffer
		g := startOn(t, startMoody(t, &log), Config{})
		fine, c := connect(t, g), connect(t, g)
		fine.must(with(create("/boom", nil, 0), acls(allow(wire.PermAll, "moody", "boom"))))
		if r := c.auth("moody", "somebody"); r.Err != wire.OK {
			t.Fatalf("code %d", r.Err)
		}
		for _, o := range []wire.Operation{
			op(wire.OpGetData, "/boom"), watching(op(wire.OpGetData, "/boom")), watching(op(wire.OpExists, "/boom")), create("/boom/child", nil, 0),
		} {
			if r := c.call(wire.Request{Operation: o}); r.Err != wire.NoAuth {
				t.Errorf("%+v: code %d", o, r.Err)
			}
		}
		c.must(create("/after", nil, 0))
		fine.must(watching(op(wire.OpExists, "/after")))
		c.must(op(wire.OpSetData, "/after"))
		fine.wantTold("afterwards", "3 /after")
		wait(t, "the log to tell", func() bool { return strings.Contains(log.String(), "moody.Matches") })
	})
}

// A panic in the goroutine that sends costs its connection too.
func TestPanicOfTheSender(t *testing.T) {
	side, other := net.Pipe()
	defer other.Close()
	c := newConn(&Gateway{log: quiet}, side)
	c.stateChanged.Store(true) // so the sender looks at the session, which is nil
	c.nudge()
	c.awaitRetired()
	c.stopSending()
	if c.awaitPlaced() {
		t.Error("the connection has not ended")
	}
}

// M168: a function of the service's tls.Config panics, ends its goroutine or hangs for one client. That
// costs the client its connection, and Close does not wait for it.
func TestTLS_FunctionsThatAreFaulty(t *testing.T) {
	for what, fault := range map[string]func(over chan struct{}){
		"panicked at panic_test.go": func(chan struct{}) { panic("a defect of the service") },
		"called runtime.Goexit":     func(chan struct{}) { runtime.Goexit() },
		"has not returned":          func(over chan struct{}) { <-over },
	} {
		testkit.Bubble(t, func(t *testing.T) {
			var log lockedBuffer
			over, ca := make(chan struct{}), testkit.NewAuthority(t, "authority")
			debug := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			n := startNode(t, func(c *embed.Config) { c.Logger = debug })
			g := startOn(t, n, Config{TLS: &TLS{Config: &tls.Config{Certificates: []tls.Certificate{ca.Issue(t)},
				GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					if h.ServerName == "stranger.test" {
						fault(over)
					}
					return nil, nil
				}}}})
			stranger := func() error {
				return tls.Client(dial(t, g).Conn, &tls.Config{InsecureSkipVerify: true, ServerName: "stranger.test"}).HandshakeContext(t.Context())
			}
			if err := stranger(); err == nil {
				t.Errorf("%s: a stranger got in", what)
			}
			wait(t, what, func() bool { return strings.Contains(log.String(), what) && len(g.connections()) == 0 })
			connectTLS(t, g, &tls.Config{RootCAs: ca.Pool}).must(op(wire.OpPing, ""))
			ended := make(chan error, 1)
			go func() { ended <- stranger() }()
			<-time.After(time.Second) // it is at work
			begun := time.Now()
			testkit.Must(t, g.Close())
			if took := time.Since(begun); took >= g.cfg.FirstFrame/2 {
				t.Errorf("%s: Close took %v", what, took)
			}
			close(over)
			<-ended
		})
	}
}
