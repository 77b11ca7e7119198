package clienttest

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
	"github.com/vivarium-go/vivarium/internal/wire"
)

const (
	alicesPassword = "one of alice"
	bobsPassword   = "two of bob"
	supersPassword = "three of super"
)

// saslVivarium starts a node with the users alice, bob and super.
func saslVivarium(t *testing.T, required bool) (addr string) {
	t.Helper()
	var text strings.Builder
	for user, password := range map[string]string{"alice": alicesPassword, "bob": bobsPassword, "super": supersPassword} {
		line, err := gateway.UserLine(user, password)
		must(t, err)
		fmt.Fprintln(&text, line)
	}
	file := filepath.Join(t.TempDir(), "users")
	must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	n, err := embed.Start(embed.Config{Dir: t.TempDir(), Tick: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Schemes: map[string]embed.Scheme{"sasl": gateway.SASL()}})
	must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	must(t, n.Ready(t.Context()))
	g, err := gateway.Start(n, gateway.Config{Listen: "127.0.0.1:0", SASLUsers: file, RequireSASL: required, ConnectionsPerAddress: -1})
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g.Addr().String()
}

// saslZooKeeper is saslVivarium with ZooKeeper's own server.
func saslZooKeeper(t *testing.T, required bool) (addr string) {
	t.Helper()
	zookeeper.Need(t)
	dir := t.TempDir()
	jaas := fmt.Sprintf("Server {\n org.apache.zookeeper.server.auth.DigestLoginModule required user_alice=%q user_bob=%q user_super=%q;\n};\n", alicesPassword, bobsPassword, supersPassword)
	must(t, os.WriteFile(filepath.Join(dir, "jaas.conf"), []byte(jaas), 0o600))
	config := "tickTime=2000\nauthProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
	addr, _ = zookeeper.StartIn(t, dir, config, "-Dzookeeper.fips-mode=false",
		"-Djava.security.auth.login.config="+filepath.Join(dir, "jaas.conf"), fmt.Sprintf("-Dzookeeper.sessionRequireClientSASLAuth=%v", required))
	return addr
}

// saslSystems runs a test with both systems.
func saslSystems(t *testing.T, required bool, run func(t *testing.T, system, addr string)) {
	t.Run("ZooKeeper", func(t *testing.T) { run(t, "ZooKeeper", saslZooKeeper(t, required)) })
	t.Run("Vivarium", func(t *testing.T) { run(t, "Vivarium", saslVivarium(t, required)) })
}

// Clients that log in to ZooKeeper by SASL do the same here.
func TestSASL(t *testing.T) {
	t.Parallel()
	clients := func(t *testing.T, _, addr string) {
		private(t, addr)
		t.Run("kazoo", func(t *testing.T) { t.Parallel(); kazooSASL(t, addr) })
		t.Run("Java", func(t *testing.T) { t.Parallel(); javaSASL(t, addr) })
		t.Run("Cyrus", func(t *testing.T) { t.Parallel(); cyrusSASL(t, addr) })
	}
	saslSystems(t, false, clients)
	t.Run("Vivarium, required", func(t *testing.T) { clients(t, "Vivarium", saslVivarium(t, true)) })
}

// private creates a znode that is bob's alone.
func private(t *testing.T, addr string) {
	t.Helper()
	c := talkSASL(t, addr)
	c.logIn("bob", bobsPassword)
	r := c.ask(wire.Operation{Op: wire.OpCreate, Path: "/private", ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "sasl", ID: "bob"}}})
	if r.Err != wire.OK {
		t.Fatalf("create: code %d", r.Err)
	}
}

func kazooSASL(t *testing.T, addr string) {
	interpreter := python(t)
	if exec.Command(interpreter, "-c", "import puresasl.client").Run() != nil {
		t.Skip("there is no pure-sasl: the Debian package is python3-pure-sasl")
	}
	for user, want := range map[[2]string]string{
		{"alice", alicesPassword}: "acl sasl alice 31\nNoAuthError\n",
		{"bob", bobsPassword}:     "acl sasl bob 31\nread /private\n",
		{"alice", "guess"}:        "refused\n",
		{"mallory", "guess"}:      "refused\n",
	} {
		out, err := exec.Command(interpreter, "testdata/sasl_kazoo.py", addr, user[0], user[1], "/kazoo-"+user[0]).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %v\n%s", user[0], err, out)
		}
	}
}

func javaSASL(t *testing.T, addr string) {
	zookeeper.Need(t)
	// The shell prints an event whenever it comes.
	const authenticated = `WatchedEvent state:SaslAuthenticated`
	for user, want := range map[[2]string][]string{
		{"alice", alicesPassword}: {authenticated, `(?s)Created /java-alice.*'sasl,'alice\n: cdrwa.*sasl: alice.*(Insufficient permission|NoAuth)`},
		{"bob", bobsPassword}:     {authenticated, `(?s)Created /java-bob.*'sasl,'bob\n: cdrwa.*sasl: bob`},
		{"alice", "guess"}:        {`WatchedEvent state:AuthFailed`},
		{"mallory", "guess"}:      {`WatchedEvent state:AuthFailed`},
	} {
		file := filepath.Join(t.TempDir(), "jaas.conf")
		text := fmt.Sprintf("Client {\n org.apache.zookeeper.server.auth.DigestLoginModule required username=%q password=%q;\n};\n", user[0], user[1])
		must(t, os.WriteFile(file, []byte(text), 0o600))
		cmd := zookeeper.Java(nil, "-Dzookeeper.fips-mode=false", "-Djava.security.auth.login.config="+file, "org.apache.zookeeper.ZooKeeperMain", "-server", addr)
		path := "/java-" + user[0]
		cmd.Stdin = strings.NewReader(fmt.Sprintf("create %s x auth::cdrwa\ngetAcl %s\nwhoami\nget /private\nquit\n", path, path))
		out := runFor(t, cmd)
		lacks := func(pattern string) bool { return !regexp.MustCompile(pattern).MatchString(out) }
		if slices.ContainsFunc(want, lacks) || user[0] == "bob" && strings.Contains(out, "Insufficient") {
			t.Errorf("%s, want %q:\n%s", user[0], want, out)
		}
	}
}

// runFor returns what a command prints.
func runFor(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	late := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait() // the shell's exit code is that of its last command
	return out.String()
}

// cyrusSASL has the library answer that ZooKeeper's C client uses. Debian builds that client
// without it.
func cyrusSASL(t *testing.T, addr string) {
	program := filepath.Join(t.TempDir(), "cyrus")
	out, err := exec.Command("cc", "-Wall", "-Werror", "-o", program, "testdata/cyrus.c", "-lsasl2").CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound), strings.Contains(string(out), "sasl/sasl.h: No such file"):
		t.Skip("there is no Cyrus SASL to build with: the Debian packages are gcc, libsasl2-dev and libsasl2-modules")
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
	for user, want := range map[[2]string]bool{{"alice", alicesPassword}: true, {"alice", "guess"}: false, {"mallory", "guess"}: false} {
		c := talkSASL(t, addr)
		p := open(t, exec.Command(program, user[0], user[1]))
		challenge := c.token([]byte{})
		response, err := hex.DecodeString(p.ask(hex.EncodeToString(challenge.Data))[0])
		must(t, err)
		r := c.token(response)
		if (r.Err == wire.OK) != want {
			t.Errorf("%s: code %d to %s", user[0], r.Err, response)
		}
		if !want {
			continue
		}
		if got := p.ask(hex.EncodeToString(r.Data))[0]; got != "done" {
			t.Errorf("%s: %s", user[0], got)
		}
		if r := c.ask(wire.Operation{Op: wire.OpGetData, Path: "/private"}); r.Err != wire.NoAuth {
			t.Errorf("%s reads what is bob's: code %d", user[0], r.Err)
		}
	}
}

// A saslTalker speaks SASL by hand.
type saslTalker struct {
	net.Conn
	t   *testing.T
	xid int32
}

func talkSASL(t *testing.T, addr string) *saslTalker {
	t.Helper()
	s := &side{t: t, addr: addr, sessions: map[int64]string{}}
	return &saslTalker{Conn: s.open().Conn, t: t}
}

func (c *saslTalker) ask(o wire.Operation) (r wire.Reply) {
	c.t.Helper()
	c.xid++
	q := wire.Request{Xid: c.xid, Operation: o}
	_ = c.SetDeadline(time.Now().Add(patience))
	_, err := c.Write(q.AppendFrame(nil))
	must(c.t, err)
	frame, err := wire.ReadFrame(c, nil, 1<<20)
	must(c.t, err)
	body, err := r.DecodeHeader(frame)
	must(c.t, err)
	if r.Err == wire.OK {
		must(c.t, r.DecodeBody(o.Op, body))
	} else if o.Op == wire.OpSASL && !bytes.Equal(body, []byte{0xff, 0xff, 0xff, 0xff}) || o.Op != wire.OpSASL && len(body) > 0 {
		c.t.Errorf("op %d: %x behind code %d", o.Op, body, r.Err)
	}
	if r.Xid != q.Xid {
		c.t.Errorf("xid %d, want %d", r.Xid, q.Xid)
	}
	return r
}

func (c *saslTalker) token(b []byte) wire.Reply {
	c.t.Helper()
	return c.ask(wire.Operation{Op: wire.OpSASL, Data: b})
}

// then says what becomes of the connection behind an answer.
func (c *saslTalker) then() string {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	c.xid++
	q := wire.Request{Xid: c.xid, Operation: wire.Operation{Op: wire.OpExists, Path: "/"}}
	_, _ = c.Write(q.AppendFrame(nil))
	_, err := wire.ReadFrame(c, nil, 1<<20)
	switch e, timed := errors.AsType[net.Error](err); {
	case err == nil:
		return "goes on"
	case timed && e.Timeout():
		return "hangs"
	}
	return "ends"
}

var nonceIn = regexp.MustCompile(`^realm="zk-sasl-md5",nonce="([^"]+)",charset=utf-8,algorithm=md5-sess$`)

// challenge returns the nonce of a new exchange, whose challenge is the same from both systems.
func (c *saslTalker) challenge(first []byte) string {
	c.t.Helper()
	r := c.token(first)
	found := nonceIn.FindSubmatch(r.Data)
	if r.Err != wire.OK || r.Zxid != 0 || found == nil {
		c.t.Fatalf("challenge: code %d, %q", r.Err, r.Data)
	}
	return string(found[1])
}

func (c *saslTalker) logIn(user, password string) {
	c.t.Helper()
	nonce := c.challenge([]byte{})
	if r := c.token(respond(user, password, nonce, nil)); r.Err != wire.OK || !bytes.HasPrefix(r.Data, []byte("rspauth=")) {
		c.t.Fatalf("%s: code %d, %q", user, r.Err, r.Data)
	}
}

// respond returns a response of RFC 2831 with some directives changed.
func respond(user, password, nonce string, change map[string]string) []byte {
	d := map[string]string{"username": user, "realm": "zk-sasl-md5", "nonce": nonce, "cnonce": "c", "nc": "00000001",
		"digest-uri": "zookeeper/zk-sasl-md5", "qop": "auth", "charset": "utf-8", "authzid": user}
	for key, value := range change {
		if d[key] = value; value == "" {
			delete(d, key)
		}
	}
	hash := func(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }
	secret := md5.Sum([]byte(d["username"] + ":" + d["realm"] + ":" + password))
	a1 := string(secret[:]) + ":" + d["nonce"] + ":" + d["cnonce"]
	if d["authzid"] != "" {
		a1 += ":" + d["authzid"]
	}
	proof := hash(strings.Join([]string{hash(a1), d["nonce"], d["nc"], d["cnonce"], "auth", hash("AUTHENTICATE:" + d["digest-uri"])}, ":"))
	text := "response=" + proof
	for _, key := range []string{"charset", "nc", "qop", "maxbuf"} {
		if d[key] != "" {
			text += "," + key + "=" + d[key]
		}
	}
	for _, key := range []string{"username", "realm", "nonce", "cnonce", "digest-uri", "authzid", "x"} {
		if d[key] != "" {
			text += fmt.Sprintf(",%s=%q", key, d[key])
		}
	}
	return []byte(text)
}

// saslAnswers are what becomes of a client's tokens. Where Vivarium differs from ZooKeeper, differs
// says why.
var saslAnswers = []struct {
	name string
	do   func(c *saslTalker, dial func() *saslTalker) wire.Reply

	zooKeeper, vivarium string // vivarium: empty if the same
	differs             string
}{
	{"right", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), nil))
	}, "0 rspauth, goes on", "", ""},
	{"without what may be left out", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"qop": "", "charset": "", "authzid": ""}))
	}, "0 rspauth, goes on", "", ""},
	{"wrong password", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", "guess", c.challenge([]byte{}), nil))
	}, "-115, ends", "", ""},
	{"unknown user", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("mallory", "guess", c.challenge([]byte{}), nil))
	}, "-115, ends", "", ""},
	{"replayed response", func(c *saslTalker, dial func() *saslTalker) wire.Reply {
		first := dial()
		token := respond("alice", alicesPassword, first.challenge([]byte{}), nil)
		if r := first.token(token); r.Err != wire.OK {
			c.t.Errorf("code %d", r.Err)
		}
		c.challenge([]byte{})
		return c.token(token)
	}, "-115, ends", "", ""},
	{"5 KB", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"x": strings.Repeat("x", 5000)}))
	}, "-115, ends", "", ""},
	{"a token after the end", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		c.logIn("alice", alicesPassword)
		return c.token([]byte("more"))
	}, "-115, ends", "", ""},
	{"wrong digest-uri", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"digest-uri": "zookeeper/localhost"}))
	}, "-115, ends", "", ""},
	{"digest-uri in another case", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"digest-uri": "ZooKeeper/ZK-sasl-md5"}))
	}, "0 rspauth, goes on", "", ""},
	{"wrong realm", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"realm": "localhost"}))
	}, "-115, ends", "", ""},
	{"a nonce of its own", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		c.challenge([]byte{})
		return c.token(respond("alice", alicesPassword, "mine", nil))
	}, "-115, ends", "", ""},
	{"a nonce count of 2", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"nc": "00000002"}))
	}, "-115, ends", "", ""},
	{"integrity", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"qop": "auth-int"}))
	}, "-115, ends", "", ""},
	{"an empty response", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		c.challenge([]byte{})
		return c.token([]byte{})
	}, "-115, ends", "", ""},
	{"a first token that is not empty", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte("hello")), nil))
	}, "0 rspauth, goes on", "", ""},
	{"to act for another", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		return c.token(respond("alice", alicesPassword, c.challenge([]byte{}), map[string]string{"authzid": "bob"}))
	}, "0 rspauth, goes on", "-115, ends", "ZooKeeper takes alice in as alice, whatever she asks for"},
	{"the user super reads what is bob's", func(c *saslTalker, _ func() *saslTalker) wire.Reply {
		c.logIn("super", supersPassword)
		return c.ask(wire.Operation{Op: wire.OpGetData, Path: "/private"})
	}, "0, goes on", "-102, goes on", "in ZooKeeper that name matches the id of everybody"},
}

func TestSASL_SameAnswers(t *testing.T) {
	t.Parallel()
	saslSystems(t, false, func(t *testing.T, system, addr string) {
		private(t, addr)
		for _, a := range saslAnswers {
			t.Run(a.name, func(t *testing.T) {
				c := talkSASL(t, addr)
				r := a.do(c, func() *saslTalker { return talkSASL(t, addr) })
				got := fmt.Sprint(r.Err)
				if name, _, ok := strings.Cut(string(r.Data), "="); ok {
					got += " " + name
				}
				got += ", " + c.then()
				want := a.zooKeeper
				if system == "Vivarium" && a.vivarium != "" {
					want = a.vivarium
				}
				if got != want {
					t.Errorf("%s, want %s; %s", got, want, a.differs)
				}
			})
		}
	})
}

// Where SASL is required, nothing else is answered before it.
func TestSASL_Required(t *testing.T) {
	t.Parallel()
	saslSystems(t, true, func(t *testing.T, _, addr string) {
		for name, o := range map[string]wire.Operation{
			"getData": {Op: wire.OpGetData, Path: "/"}, "ping": {Op: wire.OpPing}, "closeSession": {Op: wire.OpCloseSession}, "whoAmI": {Op: wire.OpWhoAmI},
		} {
			c := talkSASL(t, addr)
			if r := c.ask(o); r.Err != wire.SessionClosedRequireSASLAuth || r.Zxid != 0 {
				t.Errorf("%s: code %d, zxid %d", name, r.Err, r.Zxid)
			}
			if _, err := io.ReadAll(c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		c := talkSASL(t, addr)
		if r := c.token(respond("alice", "guess", c.challenge([]byte{}), nil)); r.Err != wire.SessionClosedRequireSASLAuth {
			t.Errorf("wrong password: code %d", r.Err)
		}
		if got := c.then(); got != "ends" {
			t.Error(got)
		}
		c = talkSASL(t, addr)
		c.logIn("alice", alicesPassword)
		if r := c.ask(wire.Operation{Op: wire.OpGetData, Path: "/"}); r.Err != wire.OK {
			t.Errorf("logged in: code %d", r.Err)
		}
	})
}
