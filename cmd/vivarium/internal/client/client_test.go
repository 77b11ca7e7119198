package client

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/wire"
)

func TestRequests(t *testing.T) {
	addr := start(t)
	c, _ := connect(t, Config{Servers: []string{addr}})
	if r := mustDo(t, c, creation("/a", "x", wire.FlagsPersistent)); r.Path != "/a" {
		t.Errorf("created %q", r.Path)
	}
	_, err := do(t, c, creation("/a", "x", wire.FlagsPersistent))
	is(t, "create again", err, wire.NodeExists)
	if err.Error() != "KeeperErrorCode = NodeExists for /a" {
		t.Error(err)
	}
	if r := mustDo(t, c, op(wire.OpGetData, "/a")); string(r.Data) != "x" || r.Stat.DataLength != 1 {
		t.Errorf("get: %+v", r)
	}
	mustDo(t, c, creation("/a/e", "", wire.FlagsEphemeralSequential))
	if r := mustDo(t, c, op(wire.OpGetEphemerals, wire.Null)); !slices.Equal(r.Names, []string{"/a/e0000000000"}) {
		t.Errorf("ephemerals: %q", r.Names)
	}
	if r := mustDo(t, c, op(wire.OpGetAllChildrenNumber, "/a")); r.Count != 1 {
		t.Errorf("%d below /a", r.Count)
	}
	if r := mustDo(t, c, wire.Operation{Op: wire.OpWhoAmI}); len(r.Users) != 1 || r.Users[0].Scheme != "ip" {
		t.Errorf("whoAmI: %+v", r.Users)
	}
	if _, err := do(t, c, op(wire.OpGetData, "a")); err == nil || err.Error() != "Path must start with / character" {
		t.Errorf("no path: %v", err)
	}
	q := wire.Request{Ops: []wire.Operation{creation("/m", "", 0), op(wire.OpCheck, "/nope")}}
	q.Op = wire.OpMulti
	r, err := c.Call(t.Context(), q)
	must(t, err)
	if len(r.Results) != 2 || r.Results[1].Err != wire.NoNode {
		t.Errorf("multi: %+v", r.Results)
	}
}

// Many callers share a client, and each gets its own answers.
func TestManyCallers(t *testing.T) {
	c, _ := connect(t, Config{Servers: []string{start(t)}})
	const callers, each = 32, 50
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			path := "/" + string(rune('a'+i%26)) + string(rune('a'+i/26))
			_, err := c.Call(t.Context(), wire.Request{Operation: creation(path, path, 0)})
			for range each {
				if err != nil {
					break
				}
				var r wire.Reply
				if r, err = c.Call(t.Context(), wire.Request{Operation: op(wire.OpGetData, path)}); err == nil && string(r.Data) != path {
					err = errors.New(path + " is " + string(r.Data))
				}
			}
			errs <- err
		}()
	}
	for range callers {
		must(t, <-errs)
	}
}

func TestChroot(t *testing.T) {
	addr := start(t)
	all, _ := connect(t, Config{Servers: []string{addr}})
	mustDo(t, all, creation("/app", "root", 0))
	c, events := connect(t, Config{Servers: []string{addr}, Chroot: "/app"})
	if r := mustDo(t, c, op(wire.OpGetData, "/")); string(r.Data) != "root" {
		t.Errorf("the root has %q", r.Data)
	}
	mustDo(t, c, watched(wire.OpGetChildren, "/"))
	if r := mustDo(t, c, creation("/x", "", wire.FlagsEphemeralSequential)); r.Path != "/x0000000000" {
		t.Errorf("created %q", r.Path)
	}
	events.expect(t, wire.NodeChildrenChanged, wire.StateSyncConnected, "/")
	if r := mustDo(t, c, op(wire.OpGetEphemerals, "/app")); !slices.Equal(r.Names, []string{"/app/x0000000000"}) {
		t.Errorf("ephemerals: %q", r.Names)
	}
	_, err := do(t, c, op(wire.OpGetData, "/nope"))
	if is(t, "get", err, wire.NoNode); err.Error() != "KeeperErrorCode = NoNode for /nope" {
		t.Error(err)
	}
	_, err = do(t, c, op(wire.OpDelete, "/"))
	is(t, "delete of the root", err, wire.BadArguments)
	mustDo(t, c, op(wire.OpGetData, configPath))
	q := wire.Request{Ops: []wire.Operation{creation("/m", "", 0)}}
	q.Op = wire.OpMulti
	r, err := c.Call(t.Context(), q)
	must(t, err)
	if r.Results[0].Path != "/m" || q.Ops[0].Path != "/m" {
		t.Errorf("multi: %+v of %+v", r.Results, q.Ops)
	}
	mustDo(t, all, op(wire.OpExists, "/app/m"))
	mustDo(t, all, creation("/app2", "", 0))
	c2, _ := connect(t, Config{Servers: []string{addr}, Chroot: "/app2"})
	q.Ops = []wire.Operation{op(wire.OpDelete, "/")}
	r, err = c2.Call(t.Context(), q)
	must(t, err)
	if r.Results[0].Err != wire.OK { // unlike a single delete; ZooKeeper's client does so too
		t.Errorf("multi with a delete of the root: %+v", r.Results)
	}
	_, err = do(t, all, op(wire.OpExists, "/app2"))
	is(t, "exists", err, wire.NoNode)
	mustDo(t, c, watched(wire.OpGetData, "/m"))
	must(t, c.RemoveWatches(t.Context(), "/m", wire.KindAny, false))
	events.expect(t, wire.DataWatchRemoved, wire.StateSyncConnected, "/m")
}

func TestWatches(t *testing.T) {
	c, events := connect(t, Config{Servers: []string{start(t)}})
	ok := wire.StateSyncConnected
	mustDo(t, c, creation("/w", "", 0))

	mustDo(t, c, watched(wire.OpGetData, "/w"))
	mustDo(t, c, watched(wire.OpExists, "/w")) // the same watch
	mustDo(t, c, op(wire.OpSetData, "/w"))
	if len(events) != 1 { // the event comes before the reply
		t.Errorf("%d events", len(events))
	}
	events.expect(t, wire.NodeDataChanged, ok, "/w")

	if _, err := do(t, c, watched(wire.OpExists, "/new")); CodeOf(err) != wire.NoNode {
		t.Error(err)
	}
	mustDo(t, c, creation("/new", "", 0))
	events.expect(t, wire.NodeCreated, ok, "/new")

	mustDo(t, c, watched(wire.OpGetChildren2, "/w"))
	mustDo(t, c, creation("/w/c", "", 0))
	events.expect(t, wire.NodeChildrenChanged, ok, "/w")

	mustDo(t, c, wire.Operation{Op: wire.OpAddWatch, Path: "/", Mode: wire.WatchRecursive})
	mustDo(t, c, wire.Operation{Op: wire.OpAddWatch, Path: "/w", Mode: wire.WatchPersistent})
	mustDo(t, c, creation("/w/d", "", 0))
	events.expect(t, wire.NodeCreated, ok, "/w/d")
	events.expect(t, wire.NodeChildrenChanged, ok, "/w")
	mustDo(t, c, op(wire.OpSetData, "/w"))
	events.expect(t, wire.NodeDataChanged, ok, "/w")

	must(t, c.RemoveWatches(t.Context(), "/w", wire.KindPersistent, false))
	events.expect(t, wire.PersistentWatchRemoved, ok, "/w")
	is(t, "remove again", c.RemoveWatches(t.Context(), "/w", wire.KindPersistent, false), wire.NoWatcher)
	mustDo(t, c, op(wire.OpDelete, "/w/d"))
	events.expect(t, wire.NodeDeleted, ok, "/w/d") // from the recursive watch
	must(t, c.RemoveWatches(t.Context(), "/", wire.KindAny, false))
	events.expect(t, wire.PersistentWatchRemoved, ok, "/")
	mustDo(t, c, op(wire.OpDelete, "/w/c"))
	if len(events) > 0 {
		t.Errorf("an event of no watch: %+v", <-events)
	}
}

// After a lost connection, the client has its session, watches and identities again.
func TestReconnection(t *testing.T) {
	t.Parallel()
	addr := start(t)
	p := newProxy(t, addr)
	c, events := connect(t, Config{Servers: []string{p.addr()}, Timeout: time.Minute})
	other, _ := connect(t, Config{Servers: []string{addr}})
	must(t, c.AddAuth(t.Context(), "digest", []byte("bob:secret")))
	secret := creation("/secret", "mine", 0)
	secret.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth", ID: ""}}
	mustDo(t, c, secret)
	for _, path := range []string{"/data", "/child", "/persistent", "/recursive", "/quiet"} {
		mustDo(t, c, creation(path, "", 0))
	}
	mustDo(t, c, creation("/eph", "", wire.FlagsEphemeral))
	mustDo(t, c, watched(wire.OpGetData, "/data"))
	mustDo(t, c, watched(wire.OpGetData, "/quiet"))
	mustDo(t, c, watched(wire.OpGetChildren, "/child"))
	if _, err := do(t, c, watched(wire.OpExists, "/exist")); CodeOf(err) != wire.NoNode {
		t.Fatal(err)
	}
	mustDo(t, c, wire.Operation{Op: wire.OpAddWatch, Path: "/persistent", Mode: wire.WatchPersistent})
	mustDo(t, c, wire.Operation{Op: wire.OpAddWatch, Path: "/recursive", Mode: wire.WatchRecursive})
	id := c.session.SessionID

	p.cut(true)
	events.expect(t, wire.EventNone, wire.StateDisconnected, "")
	if now, _ := c.State(); now != Connecting {
		t.Errorf("state %v", now)
	}
	mustDo(t, other, op(wire.OpSetData, "/data"))
	mustDo(t, other, creation("/child/x", "", 0))
	mustDo(t, other, creation("/exist", "", 0))
	_, err := do(t, c, op(wire.OpGetData, "/data"))
	is(t, "a call without a server", err, wire.ConnectionLoss)
	if errors.Unwrap(err) == nil {
		t.Error("it does not say why")
	}
	p.open()
	events.expect(t, wire.EventNone, wire.StateSyncConnected, "")
	events.expect(t, wire.NodeDataChanged, wire.StateSyncConnected, "/data")
	events.expect(t, wire.NodeCreated, wire.StateSyncConnected, "/exist")
	events.expect(t, wire.NodeChildrenChanged, wire.StateSyncConnected, "/child")
	if r := mustDo(t, c, op(wire.OpGetData, "/secret")); string(r.Data) != "mine" {
		t.Errorf("the secret is %q", r.Data)
	}
	for _, path := range []string{"/persistent", "/recursive", "/quiet"} {
		mustDo(t, other, op(wire.OpSetData, path))
		events.expect(t, wire.NodeDataChanged, wire.StateSyncConnected, path)
	}
	if r := mustDo(t, c, op(wire.OpExists, "/eph")); r.Stat.EphemeralOwner != id {
		t.Errorf("owner %x, session %x", r.Stat.EphemeralOwner, id)
	}
	// Nothing accumulates when the connection is lost again and again.
	for range 3 {
		p.cut(false)
		events.expect(t, wire.EventNone, wire.StateDisconnected, "")
		events.expect(t, wire.EventNone, wire.StateSyncConnected, "")
	}
}

// Watches that do not fit into one request are all set again.
func TestReconnectionWithManyWatches(t *testing.T) {
	w := newWatches()
	long := make([]byte, 1000)
	for i := range long {
		long[i] = 'x'
	}
	const n = 400
	for i := range n {
		path := "/" + string(long) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		w.data[path], w.recursive[path] = true, true
	}
	data, recursive := 0, 0
	for _, q := range w.again(7) {
		if b := q.AppendFrame(nil); len(b) > 2*batchMax {
			t.Errorf("a request of %d bytes", len(b))
		}
		if q.Watches.Zxid != 7 || q.Xid != wire.XidSetWatches {
			t.Errorf("%+v", q)
		}
		if old := q.Op == wire.OpSetWatches; old && len(q.Watches.Recursive) > 0 {
			t.Error("an old request with a new watch")
		}
		data += len(q.Watches.Data)
		recursive += len(q.Watches.Recursive)
	}
	if data != n || recursive != n {
		t.Errorf("%d and %d watches", data, recursive)
	}
}

func TestSecondServer(t *testing.T) {
	dead := newProxy(t, "127.0.0.1:1")
	c, _ := connect(t, Config{Servers: []string{dead.addr(), start(t)}})
	mustDo(t, c, op(wire.OpExists, "/"))
}

// When a server goes away, the client reattaches its session to the next one.
func TestMove(t *testing.T) {
	lost := func(err error) bool {
		var e *Error
		return errors.As(err, &e) && e.Code == wire.ConnectionLoss
	}
	addr := start(t)
	first, second := newProxy(t, addr), newProxy(t, addr)
	c, events := connect(t, Config{Servers: []string{first.addr(), second.addr()}})
	mustDo(t, c, creation("/eph", "", wire.FlagsEphemeral))
	mustDo(t, c, watched(wire.OpGetData, "/eph"))
	first.cut(true)
	events.expect(t, wire.EventNone, wire.StateDisconnected, "")
	r, err := do(t, c, op(wire.OpExists, "/eph")) // the call waits for the connection
	for lost(err) {
		// A round has passed in which nobody accepted the session: a member that has lost its
		// leadership on a busy machine accepts none.
		r, err = do(t, c, op(wire.OpExists, "/eph"))
	}
	must(t, err)
	if r.Stat.EphemeralOwner != c.session.SessionID {
		t.Errorf("owner %x", r.Stat.EphemeralOwner)
	}
	events.expect(t, wire.EventNone, wire.StateSyncConnected, "")
	mustDo(t, c, op(wire.OpSetData, "/eph"))
	events.expect(t, wire.NodeDataChanged, wire.StateSyncConnected, "/eph")
}

// The numbers of requests begin anew after the last one. They are never negative: such numbers mean
// something else.
func TestXidsBeginAnew(t *testing.T) {
	c, _ := connect(t, Config{Servers: []string{start(t)}})
	c.mu.Lock()
	l := c.mu.link
	c.mu.Unlock()
	l.mu.Lock()
	l.xid = math.MaxInt32 - 2
	l.mu.Unlock()
	for _, want := range []int32{math.MaxInt32 - 1, math.MaxInt32, 1, 2} {
		mustDo(t, c, op(wire.OpExists, "/"))
		l.mu.Lock()
		got := l.xid
		l.mu.Unlock()
		if got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

// A client without requests keeps its session.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, events := connect(t, Config{Servers: []string{"home"}, Timeout: 2 * time.Second, pipe: home(t).dial})
		select {
		case e := <-events:
			t.Errorf("%+v", e)
		case <-time.After(time.Minute):
		}
		mustDo(t, c, op(wire.OpExists, "/"))
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := home(t)
		c, events := connect(t, Config{Servers: []string{"home"}, Timeout: time.Second, pipe: l.dial})
		mustDo(t, c, creation("/eph", "", wire.FlagsEphemeral))
		l.cut()
		events.expect(t, wire.EventNone, wire.StateDisconnected, "")
		s := l.ens.Session(1, embed.SessionOptions{})
		l.ens.Until("the session to have ended", func() bool {
			_, there, err := s.Exists(t.Context(), "/eph")
			must(t, err)
			return !there
		})
		l.open()
		events.expect(t, wire.EventNone, wire.StateExpired, "")
		_, err := do(t, c, op(wire.OpExists, "/"))
		is(t, "a call", err, wire.SessionExpired)
		is(t, "ready", c.Ready(t.Context()), wire.SessionExpired)
		if now, _ := c.State(); now != Expired || now.Alive() || now.String() != "CLOSED" {
			t.Errorf("state %v", now)
		}
		must(t, c.Close())
		if len(events) > 0 {
			t.Errorf("then %+v", <-events)
		}
	})
}

func TestAuthFailure(t *testing.T) {
	c, events := connect(t, Config{Servers: []string{start(t)}})
	is(t, "a scheme that there is not", c.AddAuth(t.Context(), "bogus", nil), wire.AuthFailed)
	events.expect(t, wire.EventNone, wire.StateAuthFailed, "")
	_, err := do(t, c, op(wire.OpExists, "/"))
	is(t, "a call", err, wire.AuthFailed)
}

func TestClose(t *testing.T) {
	addr := start(t)
	c, events := connect(t, Config{Servers: []string{addr}})
	other, gone := connect(t, Config{Servers: []string{addr}})
	mustDo(t, c, creation("/eph", "", wire.FlagsEphemeral))
	mustDo(t, other, watched(wire.OpGetData, "/eph"))
	must(t, c.Close())
	gone.expect(t, wire.NodeDeleted, wire.StateSyncConnected, "/eph")
	events.expect(t, wire.EventNone, wire.StateClosed, "")
	if len(events) > 0 {
		t.Errorf("then %+v", <-events)
	}
	must(t, c.Close())
	_, err := do(t, c, op(wire.OpExists, "/"))
	is(t, "a call", err, wire.SessionExpired)
	must(t, other.Close())
	leaves(t)
}

// Calls in flight end when the client is closed, or when their own contexts end.
func TestCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := func(context.Context, string) (net.Conn, error) { // to a server that answers nothing after the handshake
			ours, theirs := net.Pipe()
			go func() {
				s := &served{theirs, t}
				s.shakeHands(10_000)
				s.silent()
			}()
			return ours, nil
		}
		c, _ := connect(t, Config{Servers: []string{"silent"}, Timeout: 500 * time.Millisecond, pipe: pipe})
		errs := make(chan error, 1)
		go func() {
			_, err := c.Call(context.Background(), wire.Request{Operation: op(wire.OpExists, "/")})
			errs <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := c.Call(ctx, wire.Request{Operation: op(wire.OpExists, "/x")})
		if is(t, "a call with a deadline", err, wire.OperationTimeout); err.Error() != "KeeperErrorCode = OperationTimeout for /x" {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := c.Call(ctx, wire.Request{Operation: op(wire.OpExists, "/x")}); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was cancelled: %v", err)
		}
		go func() { _ = c.Close() }()
		select {
		case err := <-errs:
			if CodeOf(err) == wire.OK {
				t.Errorf("a call in flight: %v", err)
			}
		case <-time.After(patience):
			t.Fatal("a call hangs")
		}
	})
}

func TestNobodyThere(t *testing.T) {
	c, events := begin(t, Config{Servers: []string{"127.0.0.1:1"}})
	_, err := do(t, c, op(wire.OpGetData, "/a"))
	if is(t, "a call", err, wire.ConnectionLoss); err.Error() != "KeeperErrorCode = ConnectionLoss for /a" || errors.Unwrap(err) == nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	is(t, "ready", c.Ready(ctx), wire.ConnectionLoss)
	must(t, c.Close())
	events.expect(t, wire.EventNone, wire.StateClosed, "")
}

func TestTooManyCalls(t *testing.T) {
	c, err := New(Config{Servers: []string{"127.0.0.1:1"}})
	must(t, err)
	defer c.Close()
	c.mu.Lock()
	c.mu.under = callsMax
	c.mu.Unlock()
	if _, err := c.Call(t.Context(), wire.Request{Operation: op(wire.OpExists, "/")}); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
}
