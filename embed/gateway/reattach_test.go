package gateway

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/watch"
)

// reattach opens a connection with the session of another one, which lasts.
func reattach(t testing.TB, g *Gateway, of *client) *client {
	t.Helper()
	return reattachFor(t, g, of, int32(lasting().Milliseconds()))
}

// reattachFor is reattach that asks for a timeout, in milliseconds.
func reattachFor(t testing.TB, g *Gateway, of *client, timeout int32) *client {
	t.Helper()
	c := dial(t, g)
	c.open(wire.ConnectRequest{Timeout: timeout, SessionID: of.SessionID, Password: of.Password})
	return c
}

func (c *client) wantExpired(what string) {
	c.t.Helper()
	if c.Timeout != 0 || c.SessionID != 0 || !bytes.Equal(c.Password, make([]byte, 16)) {
		c.t.Errorf("%s: %+v", what, c.ConnectResponse)
	}
	c.endsSilently()
}

// 5.3: a client that reattaches its session, here or elsewhere, has its ephemerals, and a new
// timeout if it asks for one. The session's former connection ends, and with it its watches and
// identities (6.1, 3.21).
func TestReattach(t *testing.T) {
	e := embedtest.New(t, 3, embedtest.Options{Config: embedkit.Patient})
	gates := []*Gateway{startAt(t, e, 1, Config{}), startAt(t, e, 2, Config{})}
	for i, name := range []string{"here", "elsewhere"} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, gates[0])
			path := "/" + name
			c.auth("digest", "bob:pw")
			c.must(create(path, nil, 1))
			c.must(watching(op(wire.OpGetData, path)))
			c.must(with(op(wire.OpAddWatch, path), func(o *wire.Operation) { o.Mode = wire.WatchRecursive }))

			next := reattachFor(t, gates[i], c, 50_000)
			if next.SessionID != c.SessionID || !bytes.Equal(next.Password, c.Password) || next.Timeout != 50_000 {
				t.Errorf("%+v went on as %+v", c.ConnectResponse, next.ConnectResponse)
			}
			c.endsSilently()
			if r := next.must(op(wire.OpGetEphemerals, "")); !slices.Equal(r.Names, []string{path}) {
				t.Errorf("its ephemerals are %q", r.Names)
			}
			if r := next.must(op(wire.OpWhoAmI, "")); !slices.Equal(r.Users, []wire.User{{Scheme: "ip", Name: "127.0.0.1"}}) {
				t.Errorf("its identities are %+v", r.Users)
			}
			next.must(op(wire.OpSetData, path))
			next.wantTold("without a watch")

			last := reattachFor(t, gates[i], next, 1<<30)
			if last.Timeout != 60_000 {
				t.Errorf("a timeout of %d ms", last.Timeout)
			}
			last.must(op(wire.OpCloseSession, ""))
			reattach(t, gates[0], c).wantExpired("a closed session")
		})
	}
}

// 5.1.6: without the right password nobody reattaches, and the session's owner does not notice.
// (ZooKeeper ends the owner's connection, 5.3.1.) E3: an in-process session cannot be reattached at
// all.
func TestReattachIsRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startNode(t, nil)
		g := startOn(t, n, Config{})
		c := connect(t, g)
		c.must(create("/e", nil, 1))
		own, err := n.NewSession(t.Context(), embed.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wrong := bytes.Clone(c.Password)
		wrong[15]++
		for what, q := range map[string]wire.ConnectRequest{
			"a wrong password":          {SessionID: c.SessionID, Password: wrong},
			"zeros":                     {SessionID: c.SessionID, Password: make([]byte, 16)},
			"a short password":          {SessionID: c.SessionID, Password: c.Password[:15]},
			"a long password":           {SessionID: c.SessionID, Password: append(c.Password[:16:16], 0)},
			"no password":               {SessionID: c.SessionID},
			"an in-process session":     {SessionID: int64(own.ID()), Password: make([]byte, 16)},
			"an in-process one, null":   {SessionID: int64(own.ID())},
			"a session there is not":    {SessionID: c.SessionID + 1000, Password: c.Password},
			"the negative of a session": {SessionID: -c.SessionID, Password: c.Password},
		} {
			q.Timeout = hello().Timeout
			thief := dial(t, g)
			thief.open(q)
			thief.wantExpired(what)
		}
		c.must(op(wire.OpExists, "/e"))
		if now, _ := own.State(); now != embed.Connected {
			t.Errorf("the in-process session is %v", now)
		}
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
}

// 3.21: a failed auth ends the connection, but not the session.
func TestAuthThatFailsKeepsTheSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connect(t, g)
		c.must(create("/e", nil, 1))
		if r := c.auth("nonsense", ""); r.Err != wire.AuthFailed {
			t.Errorf("code %d", r.Err)
		}
		c.endsSilently()
		reattach(t, g, c).must(op(wire.OpSetData, "/e"))
	})
}

// If an auth's outcome is unknown, the connection ends without an answer. Nothing behind the auth
// is carried out, because the client would act under the wrong identity.
func TestAuthOfUnknownOutcomeEndsTheConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startNode(t, nil)
		g := startOn(t, n, Config{})
		other := connect(t, g)
		c := connect(t, g)
		b := raw(wire.Request{Xid: wire.XidAuth, Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "digest", Proof: []byte("bob:pw")}})
		for i := range 20 {
			q := wire.Request{Xid: int32(i), Operation: create(fmt.Sprintf("/behind-%d", i), nil, 0)}
			b = q.AppendFrame(b)
		}
		conns := g.connections()
		newest := conns[len(conns)-1]
		var s *engine.Session
		wait(t, "the session", func() bool { // the gateway sets it after it has answered the client
			newest.mu.Lock()
			defer newest.mu.Unlock()
			s = newest.writes
			return s != nil
		})
		if err := s.Close(); err != nil { // as the ensemble would
			t.Fatal(err)
		}
		_, _ = c.Write(b)
		c.endsSilently()
		if r := other.must(op(wire.OpGetChildren, "/")); len(r.Names) != 1 {
			t.Errorf("children: %q", r.Names)
		}
	})
}

// SingleImage: a client that comes back on another member still sees what it has read of any shard,
// even of a shard that it never wrote to. Its zxid does not help, because zxids of different shards
// do not compare.
func TestReattachOnAMemberThatIsBehind(t *testing.T) {
	e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.Shards = 2
	}})
	here, there := startAt(t, e, 1, Config{}), startAt(t, e, 2, Config{})
	author, c := connect(t, here), connect(t, here)
	path := "/x"
	author.must(create(path, []byte("old"), 0))
	for { // until one is not on the home shard
		r := author.call(multi(op(wire.OpCheck, "/zookeeper"), op(wire.OpCheck, path)))
		if r.Err != wire.OK || r.Results[0].Op == wire.OpError {
			break
		}
		path += "x"
		author.must(create(path, []byte("old"), 0))
	}
	connect(t, there).must(op(wire.OpSync, path))

	stuck, release := make(chan struct{}), make(chan struct{})
	held := there.node.Engine.WatchRemotely(0)
	// The other member's replica of the shard applies nothing now. It holds a mutex, so this needs
	// real time.
	go held.Arm(path, watch.Data, func() bool {
		close(stuck)
		<-release
		return false
	})
	<-stuck
	author.must(with(op(wire.OpSetData, path), func(o *wire.Operation) { o.Data = []byte("new") }))
	seen := c.must(op(wire.OpGetData, path))
	if string(seen.Data) != "new" {
		t.Fatalf("%q", seen.Data)
	}
	// The gateway may refuse the client while its member is behind. Then the client comes again, as a
	// real one would.
	attempt := func() (got string, ok bool) {
		sock, err := net.Dial("tcp", there.Addr().String())
		if err != nil {
			return "", false
		}
		defer sock.Close()
		_ = sock.SetDeadline(time.Now().Add(patience))
		q := hello()
		q.SessionID, q.Password, q.LastZxid = c.SessionID, c.Password, seen.Zxid
		_, _ = sock.Write(q.AppendFrame(nil))
		if _, err := wire.ReadFrame(sock, nil, 100); err != nil {
			return "", false
		}
		_, _ = sock.Write(raw(wire.Request{Xid: 1, Operation: op(wire.OpGetData, path)}))
		b, err := wire.ReadFrame(sock, nil, 1000)
		if err != nil {
			return "", false
		}
		var r wire.Reply
		body, err := r.DecodeHeader(b)
		if err != nil || r.DecodeBody(wire.OpGetData, body) != nil || r.Err != wire.OK {
			return fmt.Sprintf("no data but %+v", r), true
		}
		return string(r.Data), true
	}
	read := make(chan string, 1)
	go func() {
		for t.Context().Err() == nil {
			if got, ok := attempt(); ok {
				read <- got
				return
			}
			<-time.After(pollPause)
		}
	}()
	c.endsSilently() // by now the session is attached there
	var got string
	select {
	case got = <-read:
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	wait(t, "the client to read", func() bool {
		if got == "" && len(read) > 0 {
			got = <-read
		}
		return got != ""
	})
	if got != "new" {
		t.Errorf("it has read %q after the change", got)
	}
}

// Who names a session that is none of theirs costs the ensemble no entry of the log: anybody can, as
// often as they like.
func TestReattach_OfAnothersSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startNode(t, nil)
		g := startOn(t, n, Config{Handshakes: 1, ConnectionsPerAddress: -1})
		owner := connect(t, g)
		own := n.Status().Shards[0].Applied
		const tries = 300
		for i := range tries {
			q := wire.ConnectRequest{Timeout: 10_000, SessionID: owner.SessionID + int64(i%2), Password: bytes.Repeat([]byte{byte(i)}, 16)}
			c := dial(t, g)
			c.open(q)
			c.wantExpired("another's session")
		}
		if more := n.Status().Shards[0].Applied - own; more > tries/2 { // some are of the time that passes
			t.Errorf("%d tries make %d entries", tries, more)
		}
		owner.must(op(wire.OpPing, ""))
		if c := reattach(t, g, owner); c.SessionID != owner.SessionID {
			t.Errorf("the owner gets %+v", c.ConnectResponse)
		}
	})
}
