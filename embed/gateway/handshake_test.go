package gateway

import (
	"bytes"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// 5.1: a new session has an id, a password and a timeout within the bounds.
func TestHandshakeOpensASession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startNode(t, func(c *embed.Config) { c.MaxSessionTimeout = 40 * time.Second })
		g := startOn(t, n, Config{})
		ids := make(map[int64]bool)
		for _, test := range []struct{ asked, granted int32 }{
			{10_000, 10_000}, {-5, 360}, {0, 360}, {1, 360}, {1 << 30, 40_000},
		} {
			c := dial(t, g)
			c.open(wire.ConnectRequest{Timeout: test.asked, Protocol: 7, Password: nil})
			if c.Timeout != test.granted || c.Protocol != 0 || len(c.Password) != 16 || bytes.Equal(c.Password, make([]byte, 16)) || c.SessionID == 0 || ids[c.SessionID] {
				t.Errorf("asked for %d ms: %+v", test.asked, c.ConnectResponse)
			}
			ids[c.SessionID] = true
		}
	})
}

// 10.3: a client that does not know readOnly gets an answer without it.
func TestHandshakeOfOldClients(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		for _, old := range []bool{false, true} {
			c := dial(t, g)
			q := hello()
			q.Old = old
			c.write(q.AppendFrame(nil))
			want := 37
			if old {
				want = 36
			}
			if got := len(c.read()); got != want {
				t.Errorf("old %v: an answer of %d bytes, want %d", old, got, want)
			}
			if r := c.do(op(wire.OpPing, "")); r.Err != wire.OK {
				t.Errorf("old %v: ping: %d", old, r.Err)
			}
		}
	})
}

// 5.1.6: zeros tell a client that its session cannot be reattached.
func TestHandshakeOfAnExpiredSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		for _, q := range []wire.ConnectRequest{
			{Timeout: 10_000, SessionID: 42, Password: make([]byte, 16)},
			{Timeout: 10_000, SessionID: -42, Password: nil},
			{Timeout: 10_000, SessionID: 42, Password: make([]byte, 16), Old: true},
		} {
			c := dial(t, g)
			c.open(q)
			if c.Timeout != 0 || c.SessionID != 0 || !bytes.Equal(c.Password, make([]byte, 16)) {
				t.Errorf("%+v", c.ConnectResponse)
			}
			c.endsSilently()
		}
	})
}

// 5.1.1: a client that has seen more than this member is dropped without an answer.
func TestHandshakeOfAClientAhead(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		g := start(t, Config{})
		c := dial(t, g)
		q := hello()
		q.LastZxid = 1 << 40
		c.write(q.AppendFrame(nil))
		c.endsSilently()
	})
}

// 5.1.5: requests that are sent behind the connect request are carried out after it.
func TestHandshakeWithRequestsBehindIt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := dial(t, g)
		q := hello()
		b := q.AppendFrame(nil)
		first := wire.Request{Xid: 1, Operation: create("/a", []byte("x"), 0)}
		second := wire.Request{Xid: 2, Operation: op(wire.OpGetData, "/a")}
		b = second.AppendFrame(first.AppendFrame(b))
		for _, part := range [][]byte{b[:3], b[3:30], b[30:60], b[60:]} {
			c.write(part)
		}
		if err := c.ConnectResponse.Decode(c.read()); err != nil {
			t.Fatal(err)
		}
		if r := c.receive(first); r.Err != wire.OK || r.Path != "/a" {
			t.Errorf("create: %+v", r)
		}
		if r := c.receive(second); r.Err != wire.OK || string(r.Data) != "x" {
			t.Errorf("getData: %+v", r)
		}
	})
}

// 10.7: before there is a session, the gateway answers nothing that it does not understand.
func TestHandshakeMalformed(t *testing.T) {
	g := start(t, Config{FirstFrame: 200 * time.Millisecond})
	for name, b := range map[string][]byte{
		"letters":     []byte("blah blah"),
		"http":        []byte("GET / HTTP/1.1\r\n\r\n"),
		"negative":    {0xff, 0xff, 0xff, 0xff},
		"too long":    {0, 0x10, 0, 0},
		"short":       {0, 0, 0, 3, 1, 2, 3},
		"empty":       {0, 0, 0, 0},
		"cut off":     {0, 0, 0, 45, 0, 0},
		"silent":      nil,
		"half length": {0, 0},
	} {
		c := dial(t, g)
		c.write(b)
		if name == "half length" {
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		t.Log(name)
		c.endsSilently()
	}
	enter(t, g).must(create("/fine", nil, 0))
}
