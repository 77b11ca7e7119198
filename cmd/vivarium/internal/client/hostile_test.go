package client

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// served is the server's end of a connection to a fake server.
type served struct {
	net.Conn
	t testing.TB
}

// fake starts a server that serves every connection with do, and returns its address. Its
// connections end with the test.
func fake(t testing.TB, do func(*served)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var mu sync.Mutex
	var socks []net.Conn
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			socks = append(socks, c)
			mu.Unlock()
			done.Go(func() {
				defer c.Close()
				do(&served{c, t})
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range socks {
			_ = c.Close()
		}
		mu.Unlock()
		done.Wait()
	})
	return l.Addr().String()
}

// frame reads a frame. It returns an error if the connection has ended.
func (s *served) frame() ([]byte, error) { return wire.ReadFrame(s, nil, 1<<20) }

func (s *served) shakeHands(timeout int32) {
	if _, err := s.frame(); err != nil {
		return
	}
	r := wire.ConnectResponse{Timeout: timeout, SessionID: 7, Password: make([]byte, 16)}
	_, _ = s.Write(r.AppendFrame(nil))
}

// request reads the next request that the test made. It skips those that the client makes itself.
func (s *served) request() (wire.Request, error) {
	for {
		f, err := s.frame()
		if err != nil {
			return wire.Request{}, err
		}
		var q wire.Request
		if _, err := q.DecodeHeader(f); err != nil || q.Xid > 0 {
			return q, err
		}
	}
}

// silent reads and sends nothing until the connection ends.
func (s *served) silent() {
	for {
		if _, err := s.frame(); err != nil {
			return
		}
	}
}

// Whatever a server sends, calls end, the client can be closed, and no goroutine of it remains.
func TestHostileServers(t *testing.T) {
	answer := func(f func(s *served, q wire.Request)) func(*served) {
		return func(s *served) {
			s.shakeHands(300)
			if q, err := s.request(); err == nil {
				f(s, q)
			}
			s.silent()
		}
	}
	t.Cleanup(func() { leaves(t) }) // after all subtests
	for _, h := range []struct {
		name string
		do   func(*served)
	}{
		{"closes at once", func(s *served) {}},
		{"sends nothing", func(s *served) { s.silent() }},
		{"answers the handshake with garbage", func(s *served) { _, _ = s.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }},
		{"answers the handshake with a short frame", func(s *served) { _, _ = s.Write([]byte{0, 0, 0, 2, 1, 2}); s.silent() }},
		{"answers the handshake with half a frame", func(s *served) { _, _ = s.Write([]byte{0, 0, 0, 99, 1, 2}); s.silent() }},
		{"answers the handshake with a length below zero", func(s *served) { _, _ = s.Write([]byte{0xff, 0xff, 0xff, 0xff}); s.silent() }},
		{"gives no session", func(s *served) {
			r := wire.ConnectResponse{Password: make([]byte, 16)}
			_, _ = s.Write(r.AppendFrame(nil))
			s.silent()
		}},
		{"gives a session of a millisecond", func(s *served) { s.shakeHands(1); s.silent() }},
		{"gives a session and closes", func(s *served) { s.shakeHands(300) }},
		{"gives a session and sends nothing", func(s *served) { s.shakeHands(300); s.silent() }},
		{"announces a frame that is too long", answer(func(s *served, _ wire.Request) { _, _ = s.Write([]byte{0x7f, 0xff, 0xff, 0xff}) })},
		{"announces a long frame and sends none", answer(func(s *served, _ wire.Request) { _, _ = s.Write([]byte{3, 0xff, 0xff, 0xff, 1}) })},
		{"answers with a frame without a header", answer(func(s *served, _ wire.Request) { _, _ = s.Write([]byte{0, 0, 0, 1, 1}) })},
		{"answers what nobody asked", answer(func(s *served, q wire.Request) {
			r := wire.Reply{Xid: q.Xid + 1000}
			r.Err = wire.NoNode
			_, _ = s.Write(r.AppendFrame(nil))
		})},
		{"answers an identity that nobody gave", answer(func(s *served, _ wire.Request) {
			r := wire.Reply{Xid: wire.XidAuth}
			_, _ = s.Write(r.AppendFrame(nil))
		})},
		{"answers with half a record", answer(func(s *served, q wire.Request) {
			r := wire.Reply{Xid: q.Xid}
			r.Op = wire.OpSync
			_, _ = s.Write(r.AppendFrame(nil))
		})},
		{"sends an event that is not one", answer(func(s *served, _ wire.Request) {
			r := wire.Reply{Xid: wire.XidEvent}
			r.Op = wire.OpPing
			_, _ = s.Write(r.AppendFrame(nil))
		})},
		{"answers the same twice", answer(func(s *served, q wire.Request) {
			r := wire.Reply{Xid: q.Xid}
			r.Err = wire.NoNode
			_, _ = s.Write(r.AppendFrame(r.AppendFrame(nil)))
		})},
		{"closes in the middle of a request", answer(func(s *served, _ wire.Request) { _ = s.Close() })},
	} {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			addr := fake(t, h.do)
			c, err := New(Config{Servers: []string{addr}, Timeout: 100 * time.Millisecond})
			must(t, err)
			for range 3 {
				if _, err := do(t, c, op(wire.OpGetData, "/a")); err == nil {
					t.Error("a call succeeds")
				}
			}
			ended := make(chan struct{})
			go func() { _ = c.Close(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("Close hangs")
			}
		})
	}
}

// A flood of events that match no watch is not passed on.
func TestStrayEvents(t *testing.T) {
	addr := fake(t, func(s *served) {
		s.shakeHands(10_000)
		for {
			q, err := s.request()
			if err != nil {
				return
			}
			var out []byte
			for range 1000 {
				e := wire.Reply{Xid: wire.XidEvent, Event: wire.Event{Type: 99, State: 77, Path: wire.Null}}
				e.Op = wire.OpEvent
				out = e.AppendFrame(out)
			}
			r := wire.Reply{Xid: q.Xid}
			r.Err = wire.NoNode
			_, _ = s.Write(r.AppendFrame(out))
		}
	})
	c, events := connect(t, Config{Servers: []string{addr}})
	_, err := do(t, c, op(wire.OpGetData, "/a"))
	is(t, "a call", err, wire.NoNode)
	if len(events) > 0 {
		t.Errorf("told of %+v", <-events)
	}
}

// FuzzHandle feeds frames to a client that waits for answers.
func FuzzHandle(f *testing.F) {
	r := wire.Reply{Xid: 1}
	r.Op = wire.OpGetData
	f.Add(r.AppendFrame(nil)[4:])
	e := wire.Reply{Xid: wire.XidEvent, Event: wire.Event{Type: wire.NodeCreated, State: wire.StateSyncConnected, Path: "/a"}}
	e.Op = wire.OpEvent
	f.Add(e.AppendFrame(nil)[4:])
	f.Fuzz(func(t *testing.T, frame []byte) {
		c := &Client{cfg: Config{Chroot: "/app"}}
		c.mu.watches = newWatches()
		c.mu.watches.recursive["/"] = true
		c.mu.changed = make(chan struct{})
		l := &link{sent: make(map[int32]*call), auths: []*call{nil}}
		for i, o := range []wire.Op{wire.OpGetData, wire.OpMulti, wire.OpGetChildren2, wire.OpWhoAmI, wire.OpGetACL, wire.OpExists} {
			q := &wire.Request{Xid: int32(i)}
			q.Op, q.Path, q.Watch = o, "/a", true
			l.sent[int32(i)] = &call{q: q, done: make(chan struct{})}
		}
		_ = c.handle(l, frame)
	})
}
