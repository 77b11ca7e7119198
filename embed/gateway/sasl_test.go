package gateway

import (
	"encoding/binary"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// token sends a token of SASL.
func (c *client) token(data []byte) wire.Reply {
	c.t.Helper()
	return c.do(wire.Operation{Op: wire.OpSASL, Data: data})
}

// logIn authenticates by SASL.
func (c *client) logIn(user string) {
	c.t.Helper()
	r := c.token([]byte{})
	if r.Err != wire.OK || r.Zxid != 0 {
		c.t.Fatalf("challenge: %+v", r)
	}
	p := proofOf(user, nonceOf(c.t, r.Data))
	if r = c.token([]byte(p.String())); r.Err != wire.OK || r.Zxid != 0 || string(r.Data) != "rspauth="+p.hash("") {
		c.t.Fatalf("answer: %+v", r)
	}
}

func startSASL(t testing.TB, log *lockedBuffer) *embed.Node {
	return startNode(t, func(c *embed.Config) {
		c.Schemes = map[string]embed.Scheme{"sasl": SASL()}
		if log != nil {
			c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
	})
}

// 3.22 and 7.5: SASL gives the connection an identity, which ACLs can name.
func TestSASL(t *testing.T) {
	g := startOn(t, startSASL(t, nil), Config{SASL: DigestMD5(peoplesHA1)})
	c := connect(t, g)
	c.logIn("alice")
	want := []wire.User{{Scheme: "ip", Name: "127.0.0.1"}, {Scheme: "sasl", Name: "alice"}}
	if r := c.must(op(wire.OpWhoAmI, "")); !slices.Equal(r.Users, want) {
		t.Errorf("whoAmI: %+v", r.Users)
	}
	own := []wire.ACL{{Perms: wire.PermAll, Scheme: "sasl", ID: "alice"}}
	for path, acl := range map[string][]wire.ACL{"/by-name": own, "/by-auth": {{Perms: wire.PermAll, Scheme: "auth"}}} {
		c.must(with(create(path, nil, 0), func(o *wire.Operation) { o.ACL = acl }))
		if r := c.must(op(wire.OpGetACL, path)); !slices.Equal(r.ACL, own) {
			t.Errorf("%s: %+v", path, r.ACL)
		}
	}
	stranger, other, again := connect(t, g), connect(t, g), connect(t, g)
	other.logIn(`b"o\b`)
	again.logIn("alice")
	again.must(op(wire.OpGetData, "/by-name"))
	for _, c := range []*client{stranger, other} {
		if r := c.do(op(wire.OpGetData, "/by-name")); r.Err != wire.NoAuth {
			t.Errorf("another reads: code %d", r.Err)
		}
	}
	if r := stranger.auth("sasl", "alice"); r.Err != wire.AuthFailed {
		t.Errorf("addauth sasl: code %d", r.Err)
	}
	stranger.endsSilently()
	// The identity belongs to the connection.
	next := reattach(t, g, c)
	if r := next.do(op(wire.OpGetData, "/by-name")); r.Err != wire.NoAuth {
		t.Errorf("reattached: code %d", r.Err)
	}
	next.logIn("alice")
	next.must(op(wire.OpGetData, "/by-name"))
}

// A client that proves nothing gets AuthFailed and a null token, and its connection ends. The log
// says why, and has nothing of what was sent. The session lives on.
func TestSASL_Refuses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var log lockedBuffer
		n := startSASL(t, &log)
		for _, cfg := range []Config{{}, {RequireSASL: true}} {
			want := wire.AuthFailed
			if cfg.RequireSASL {
				want = wire.SessionClosedRequireSASLAuth
			}
			cfg.SASL, cfg.ConnectionsPerAddress = DigestMD5(peoplesHA1), -1
			// A gateway logs one refusal, and holds back those that follow. So each has its own.
			failed := int64(0)
			end := func(g *Gateway) {
				failed += g.authFailed.Load()
				testkit.Must(t, g.Close())
			}
			for name, form := range badProofs {
				g := startOn(t, n, cfg)
				c := connect(t, g)
				p := proofOf("alice", nonceOf(t, c.token(nil).Data))
				refused(t, name, c, []byte(form(&p)), want)
				if strings.Contains(log.String(), p.hash(p.method)) {
					t.Errorf("%s: the log has the proof", name)
				}
				next := reattach(t, g, c)
				next.logIn("alice")
				next.must(op(wire.OpCloseSession, ""))
				end(g)
			}
			g := startOn(t, n, cfg)
			c := connect(t, g)
			refused(t, "a long first token", c, make([]byte, 5000), want)
			c = connect(t, g)
			c.logIn("alice")
			refused(t, "a token after the end", c, nil, want)
			end(g)
			if failed != int64(len(badProofs)+2) {
				t.Errorf("%d failures are counted, want %d", failed, len(badProofs)+2)
			}
		}
		text := log.String()
		for _, secret := range []string{"guess", "secret of", "mallory"} {
			if strings.Contains(text, secret) {
				t.Errorf("the log has %q", secret)
			}
		}
		for _, said := range []string{`scheme=sasl cause="user \"alice\": wrong password"`, `scheme=sasl cause="no such user"`} {
			if !strings.Contains(text, said) {
				t.Errorf("the log lacks %s", said)
			}
		}
	})
}

// refused sends a token and wants it refused, byte for byte as ZooKeeper does it.
func refused(t *testing.T, name string, c *client, token []byte, code wire.Code) {
	t.Helper()
	q := c.send(wire.Request{Operation: wire.Operation{Op: wire.OpSASL, Data: token}})
	want := binary.BigEndian.AppendUint32(nil, uint32(q.Xid))
	want = append(want, make([]byte, 8)...)
	want = binary.BigEndian.AppendUint32(want, uint32(code))
	equal(t, name, c.read(), append(want, 0xff, 0xff, 0xff, 0xff))
	c.endsSilently()
}

// With RequireSASL nothing is answered before SASL, whatever else a client has proved.
func TestSASL_Required(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startSASL(t, nil)
		g := startOn(t, n, Config{SASL: DigestMD5(peoplesHA1), RequireSASL: true, Words: []string{"ruok"}})
		for _, o := range []wire.Operation{
			op(wire.OpGetData, "/"), create("/early", nil, 0), op(wire.OpWhoAmI, ""), op(wire.OpSetWatches, ""), op(wire.OpSync, "/"), op(wire.OpPing, ""), op(wire.OpCloseSession, ""), op(77, ""),
		} {
			for _, half := range []bool{false, true} {
				c := connect(t, g)
				if r := c.auth("digest", "alice:secret of alice"); r.Err != wire.OK {
					t.Fatalf("addauth: code %d", r.Err)
				}
				if half {
					c.token(nil)
				}
				if r := c.do(o); r.Err != wire.SessionClosedRequireSASLAuth || r.Zxid != 0 {
					t.Errorf("op %d: %+v", o.Op, r)
				}
				c.endsSilently()
			}
		}
		// What is behind a refused request is not carried out.
		c := connect(t, g)
		q := wire.Request{Xid: 1, Operation: op(wire.OpGetData, "/")}
		late := wire.Request{Xid: 2, Operation: create("/early", nil, 0)}
		c.write(append(raw(q), raw(late)...))
		if r := c.receive(q); r.Err != wire.SessionClosedRequireSASLAuth {
			t.Errorf("code %d", r.Err)
		}
		c.endsSilently()
		in := connect(t, g)
		in.logIn("alice")
		if r := in.do(op(wire.OpExists, "/early")); r.Err != wire.NoNode {
			t.Errorf("exists: code %d", r.Err)
		}
		in.must(create("/in", nil, 0))
		word := dial(t, g)
		word.write([]byte("ruok"))
		if got := string(word.ends()); got != "imok" {
			t.Errorf("ruok: %q", got)
		}
	})
}

// odd is a mechanism that does what it must not.
type odd struct {
	name  string
	panic bool
}

func (o odd) Begin(net.Conn) Exchange { return o }

func (o odd) Next([]byte) ([]byte, string, bool, error) {
	if o.panic {
		panic("a mechanism")
	}
	return nil, o.name, true, nil
}

// A mechanism that names nobody, or too long, refuses its client. A panic costs the connection.
func TestSASL_OddMechanisms(t *testing.T) {
	n := startSASL(t, nil)
	for _, name := range []string{"", strings.Repeat("x", nameMax+1)} {
		c := connect(t, startOn(t, n, Config{SASL: odd{name: name}}))
		refused(t, name, c, nil, wire.AuthFailed)
	}
	c := connect(t, startOn(t, n, Config{SASL: odd{name: strings.Repeat("x", nameMax)}}))
	if r := c.token(nil); r.Err != wire.OK || r.Data != nil {
		t.Errorf("the longest name: %+v", r)
	}
	c.must(op(wire.OpWhoAmI, ""))
	c = connect(t, startOn(t, n, Config{SASL: odd{panic: true}}))
	c.send(wire.Request{Operation: wire.Operation{Op: wire.OpSASL}})
	c.endsSilently()
}

// An ACL may have the ids that ZooKeeper allows.
func TestSASL_Ids(t *testing.T) {
	for id, want := range map[string]bool{
		"alice": true, "alice/host": true, "alice@REALM": true, "alice/host@REALM": true, "": true, "a/b/c": true, "super": true,
		"a@b@c": false, "a/b/c@d": false, "a@b/c": false, "@": true,
	} {
		if SASL().Valid(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
	if SASL().Matches("super", "alice") || !SASL().Matches("alice", "alice") || !SASL().Expands() {
		t.Error("matches")
	}
	if _, err := SASL().Identify([]byte("alice")); err == nil {
		t.Error("a text proves a name")
	}
}

func TestSASL_BadConfigs(t *testing.T) {
	for want, cfg := range map[string]Config{
		"RequireSASL needs":        {RequireSASL: true},
		"both set":                 {SASL: DigestMD5(peoplesHA1), SASLUsers: "users"},
		"without a function":       {SASL: DigestMD5(nil)},
		`SASLUsers "no-such-file"`: {SASLUsers: "no-such-file"},
	} {
		cfg.Listen = ":0"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Clients log in without a quorum, too, where they may read.
func TestSASL_ReadOnly(t *testing.T) {
	cfg := Config{ReadOnly: true, SASL: DigestMD5(peoplesHA1), RequireSASL: true}
	inBubble(t, embedtest.Options{}, cfg, func(e *cutEnsemble) {
		e.Isolate(1)
		e.readOnlyBegins(1)
		c := e.open(1, asks(true))
		c.logIn("alice")
		want := wire.User{Scheme: "sasl", Name: "alice"}
		if r := c.must(op(wire.OpWhoAmI, "")); !slices.Contains(r.Users, want) {
			t.Errorf("whoAmI: %+v", r.Users)
		}
		c.must(op(wire.OpGetChildren, "/"))
		if r := c.do(create("/a", nil, 0)); r.Err != wire.NotReadOnly {
			t.Errorf("create: code %d", r.Err)
		}
		stranger := e.open(1, asks(true))
		if r := stranger.do(op(wire.OpGetChildren, "/")); r.Err != wire.SessionClosedRequireSASLAuth {
			t.Errorf("without SASL: code %d", r.Err)
		}
	})
}
