package gateway

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

func TestThrottle_Take(t *testing.T) {
	var b throttle
	now := time.Now()
	b.open(10, now)
	take := func(want time.Duration, wantOK bool) {
		t.Helper()
		wait, ok := b.take(now)
		if ok != wantOK || max(wait-want, want-wait) > time.Microsecond {
			t.Fatalf("wait %v, %v; want %v, %v", wait, ok, want, wantOK)
		}
	}
	for range 10 {
		take(0, true)
	}
	for i := range 10 {
		take(time.Duration(i+1)*100*time.Millisecond, true)
	}
	take(0, false)
	take(0, false) // a refusal takes nothing
	now = now.Add(250 * time.Millisecond)
	take(850*time.Millisecond, true)
	take(950*time.Millisecond, true)
	take(0, false)
	now = now.Add(time.Hour) // it holds one second's tokens at most
	for range 10 {
		take(0, true)
	}
	take(100*time.Millisecond, true)
	now = now.Add(-time.Minute) // a clock that goes back gives none
	take(200*time.Millisecond, true)

	b.open(-1, now)
	for range 10_000 {
		take(0, true)
	}
}

// A stormer is a client that connects until it has a session. It pauses for a second between two
// tries.
func (e *cutEnsemble) stormer(q wire.ConnectRequest) (sock io.Closer, id int64, at time.Time) {
	for {
		pause := 10 * time.Millisecond // too many connect at once
		if c, err := e.Dial(e.t.Context(), 1); err == nil {
			pause = time.Second
			_, _ = c.Write(q.AppendFrame(nil))
			var a wire.ConnectResponse
			b, err := wire.ReadFrame(c, nil, 100)
			if err == nil && a.Decode(b) == nil {
				return c, a.SessionID, time.Now()
			}
			_ = c.Close()
		}
		select {
		case <-time.After(pause):
		case <-e.t.Context().Done():
			return nil, 0, time.Time{}
		}
	}
}

// When the quorum comes back, thousands of clients are waiting. Those that have a session get it at
// once. The others get theirs at the rate that the configuration allows.
func TestThrottle_Storm(t *testing.T) {
	const resumes, news, rate = 1000, 1500, 200
	cfg := Config{Handshakes: rate, ConnectionsPerAddress: -1, Connections: -1}
	inBubble(t, embedtest.Options{}, cfg, func(e *cutEnsemble) {
		_ = e.gates[2].Close()
		e.gates[2] = startOn(e.t, e.Node(2), Config{Handshakes: -1, ConnectionsPerAddress: -1})
		old := make([]wire.ConnectResponse, resumes)
		for i := range old {
			c := e.open(2, asks(false))
			old[i] = c.ConnectResponse
			_ = c.Close()
		}
		e.Cut(1, 2)
		e.Cut(1, 3)
		e.Until("nobody to lead", func() bool { return !e.gates[1].serving() })

		var mu sync.Mutex
		var resumed, opened []time.Time
		var all sync.WaitGroup
		storm := func(q wire.ConnectRequest) {
			sock, id, at := e.stormer(q)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case id == 0:
				e.t.Errorf("session %#x: no session", q.SessionID)
			case q.SessionID == 0:
				opened = append(opened, at)
			case q.SessionID == id:
				resumed = append(resumed, at)
			}
			if sock != nil {
				e.t.Cleanup(func() { _ = sock.Close() })
			}
		}
		for range news {
			all.Go(func() { storm(asks(false)) })
		}
		for _, s := range old {
			all.Go(func() {
				storm(wire.ConnectRequest{Timeout: 60_000, SessionID: s.SessionID, Password: s.Password})
			})
		}
		e.HealAll()
		e.Until("a leader", e.gates[1].serving)
		begun := time.Now()
		all.Wait()
		if len(resumed) != resumes || len(opened) != news {
			t.Fatalf("%d are back, %d are new", len(resumed), len(opened))
		}
		// A resume that was waiting on a connection has it at once. One that was between two tries
		// comes after its pause. None comes after the new ones.
		for _, at := range resumed {
			if took := at.Sub(begun); took > 3*time.Second {
				t.Fatalf("a session came back after %v", took)
			}
		}
		inTime := 0
		for _, at := range opened {
			if at.Sub(begun) < 3*time.Second {
				inTime++
			}
		}
		if most := rate + 4*rate; inTime > most { // a second's burst, and at most four seconds
			t.Errorf("%d new sessions within 3 seconds, at most %d are allowed", inTime, most)
		}
		synctest.Wait() // an answer is counted after it is sent
		now := read(e.gates[1])
		if now["vivarium_gateway_throttled_sessions_total delayed"] == 0 || now["vivarium_gateway_throttled_sessions_total refused"] == 0 {
			t.Errorf("%v", now)
		}
		if now["vivarium_gateway_handshakes_total new"] != news || now["vivarium_gateway_handshakes_total reattached"] != resumes {
			t.Errorf("%v", now)
		}
	})
}

// 3.5, 3.17: at the bound on its watches a client hears so, and nothing is watched in secret.
func TestWatches_Bound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Watches: 3})
		c := connect(t, g)
		for _, path := range []string{"/a", "/b", "/c"} {
			c.must(create(path, nil, 0))
		}
		arm := func(o wire.Op, path string) wire.Reply {
			q := op(o, path)
			q.Watch = true
			return c.do(q)
		}
		want := func(r wire.Reply, code wire.Code, what string) {
			t.Helper()
			if r.Err != code {
				t.Errorf("%s: code %d, want %d", what, r.Err, code)
			}
		}
		persistent := func(path string) wire.Operation {
			return wire.Operation{Op: wire.OpAddWatch, Path: path, Mode: wire.WatchPersistent}
		}
		want(arm(wire.OpGetData, "/a"), wire.OK, "the first")
		want(arm(wire.OpGetChildren, "/a"), wire.OK, "the second")
		want(c.do(persistent("/b")), wire.BadArguments, "two more")
		want(arm(wire.OpExists, "/none"), wire.NoNode, "the third")
		for _, o := range []wire.Op{wire.OpGetData, wire.OpExists, wire.OpGetChildren, wire.OpGetChildren2} {
			want(arm(o, "/b"), wire.BadArguments, "one too many")
			c.must(op(o, "/b")) // without a watch
		}
		want(c.do(wire.Operation{Op: wire.OpAddWatch, Path: "/b", Mode: wire.WatchRecursive}), wire.BadArguments, "a recursive one")
		want(c.do(wire.Operation{Op: wire.OpCheckWatches, Path: "/b", Kind: wire.KindAny}), wire.NoWatcher, "what was refused")
		want(arm(wire.OpGetData, "/a"), wire.OK, "the first again")

		// What has fired, or was removed, makes room.
		c.must(create("/none", nil, 0))
		want(arm(wire.OpGetData, "/c"), wire.OK, "in the place of one that has fired")
		want(c.do(wire.Operation{Op: wire.OpRemoveWatches, Path: "/a", Kind: wire.KindAny}), wire.OK, "to remove two")
		want(c.do(persistent("/b")), wire.OK, "a persistent one")
		want(arm(wire.OpGetData, "/b"), wire.OK, "one that the persistent one includes")
		want(arm(wire.OpGetData, "/a"), wire.BadArguments, "one too many")
		if n := read(g)["vivarium_gateway_refused_watches_total"]; n != 7 {
			t.Errorf("%v were refused", n)
		}

		// Clients do not look at the answer to setWatches.
		set := func(n int) wire.Request {
			q := wire.Request{Xid: -8, Operation: wire.Operation{Op: wire.OpSetWatches}}
			q.Watches.Zxid = 1 << 40
			q.Watches.Data = []string{"/a", "/b", "/c", "/zookeeper"}[:n]
			return q
		}
		fine, many := connect(t, g), connect(t, g)
		fine.write(raw(set(3)))
		want(fine.receive(set(3)), wire.OK, "as many as allowed")
		many.write(raw(set(4)))
		many.endsSilently()
		if n := read(g)["vivarium_gateway_refused_watches_total"]; n != 8 {
			t.Errorf("%v were refused", n)
		}
	})
}

// 3.5: a watch on the root is one watch, on however many shards it is.
func TestWatches_BoundOfSeveralShards(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := startOn(t, startNode(t, func(c *embed.Config) { c.Shards = 3 }), Config{Watches: 2})
		c := connect(t, g)
		for _, q := range []struct {
			op   wire.Op
			path string
			want wire.Code
		}{{wire.OpGetData, "/", wire.OK}, {wire.OpGetChildren, "/", wire.OK}, {wire.OpExists, "/a", wire.BadArguments}} {
			o := op(q.op, q.path)
			o.Watch = true
			if r := c.do(o); r.Err != q.want {
				t.Errorf("op %d of %s: code %d, want %d", q.op, q.path, r.Err, q.want)
			}
		}
	})
}

// A client that comes back lists a path more than once that it watches in several ways. It counts as
// it did before, so nobody within the bound is cut off.
func TestWatches_ThoseOfAReset(t *testing.T) {
	for _, c := range []struct {
		w    wire.Watches
		want int
	}{
		{wire.Watches{}, 0},
		{wire.Watches{Data: []string{"/b"}, Persistent: []string{"/b"}}, 2},
		{wire.Watches{Data: []string{"/a"}, Exist: []string{"/a"}, Child: []string{"/a"}, Recursive: []string{"/a"}}, 3},
		{wire.Watches{Data: []string{"/a", "/b"}, Child: []string{"/c"}, Persistent: []string{"/d"}}, 5},
	} {
		if got := marksOf(&c.w); got != c.want {
			t.Errorf("%+v counts %d, want %d", c.w, got, c.want)
		}
	}
}
