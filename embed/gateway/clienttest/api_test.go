package clienttest

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The versions and lists that a client receives about ACLs.
func TestACLVersions(t *testing.T) {
	c := connect(t, start(t))
	_, err := c.Create("/a", nil, 0, anyone)
	must(t, err)
	read := append(zk.WorldACL(zk.PermRead|zk.PermAdmin), zk.ACL{Perms: zk.PermAll, Scheme: "ip", ID: "127.0.0.0/8"})
	stat, err := c.SetACL("/a", read, 0)
	must(t, err)
	if stat.Aversion != 1 || stat.Version != 0 || stat.Mzxid != stat.Czxid {
		t.Errorf("after SetACL: %+v", stat)
	}
	_, err = c.SetACL("/a", anyone, 0)
	is(t, "SetACL with an old version", err, zk.ErrBadVersion)
	_, err = c.SetACL("/none", anyone, -1)
	is(t, "SetACL of what is missing", err, zk.ErrNoNode)
	_, err = c.SetACL("/a", nil, -1)
	is(t, "SetACL with no list", err, zk.ErrInvalidACL)
	acl, stat, err := c.GetACL("/a")
	must(t, err)
	if !slices.Equal(acl, read) || stat.Aversion != 1 {
		t.Errorf("GetACL: %+v %+v", acl, stat)
	}
	_, _, err = c.GetACL("/none")
	is(t, "GetACL of what is missing", err, zk.ErrNoNode)
	is(t, "AddAuth of no scheme", c.AddAuth("nonsense", []byte("x")), zk.ErrAuthFailed)
}

// A client that is authenticated before its connection is lost is authenticated after it.
func TestIdentityOutlivesConnection(t *testing.T) {
	e := startEnsemble(t)
	c := e.connect(1, 2, 3)
	must(t, c.AddAuth("digest", []byte("bob:pw")))
	must(t, c.AddAuth("digest", []byte("eve:pw")))
	_, err := c.Create("/bob", []byte("x"), 0, zk.DigestACL(zk.PermAll, "bob", "pw"))
	must(t, err)
	e.drop(c)
	_, _, err = c.Get("/bob")
	must(t, err)
}

// drop ends a client's connection at its member, and waits until the client is connected again.
func (e *ensemble) drop(c *client) {
	e.t.Helper()
	id, before := e.on(c), c.times()
	g := e.gates[id]
	must(e.t, g.Close())
	again, err := gateway.Start(e.Node(id), gateway.Config{Listen: e.addrs[id], Words: []string{"*"}})
	must(e.t, err)
	e.t.Cleanup(func() { _ = again.Close() })
	e.gates[id] = again
	e.Until("a client to be back", func() bool { return c.State() == zk.StateHasSession && c.times() > before })
}

// times returns how often the client got a session, or had it back.
func (c *client) times() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.states {
		if s == zk.StateHasSession {
			n++
		}
	}
	return n
}

// A gateway is closed and opened again. Its client comes back with its session, its ephemerals and
// its watches.
func TestGatewayIsOpenedAgain(t *testing.T) {
	e := startEnsemble(t)
	c, other := e.connect(1), e.connect(2)
	id := c.SessionID()
	_, err := c.Create("/e", nil, zk.FlagEphemeral, anyone)
	must(t, err)
	_, _, data, err := c.GetW("/e")
	must(t, err)
	_, _, kids, err := c.ChildrenW("/")
	must(t, err)
	_, _, exists, err := c.ExistsW("/new")
	must(t, err)
	mine := zk.NewLock(c.Conn, "/lock", anyone)
	must(t, mine.Lock())
	told := func(what string, ch <-chan zk.Event, want zk.EventType) {
		t.Helper()
		select {
		case ev := <-ch:
			if ev.Type != want {
				t.Errorf("%s: %+v", what, ev)
			}
		case <-time.After(patience):
			t.Fatalf("%s: nothing", what)
		}
	}
	told("children", kids, zk.EventNodeChildrenChanged)
	for range 3 {
		e.drop(c)
		if c.SessionID() != id || c.expired() || e.on(c) != 1 {
			t.Fatalf("session %#x, was %#x", c.SessionID(), id)
		}
	}
	_, err = other.Sync("/")
	must(t, err)
	_, err = other.Set("/e", []byte("x"), 0)
	must(t, err)
	told("data", data, zk.EventNodeDataChanged)
	_, err = other.Create("/new", nil, 0, anyone)
	must(t, err)
	told("exists", exists, zk.EventNodeCreated)
	ok, stat, err := c.Exists("/e")
	must(t, err)
	if !ok || stat.EphemeralOwner != id {
		t.Errorf("the ephemeral: %v %+v", ok, stat)
	}
	must(t, mine.Unlock())
}

// Every op of a multi, in a success and in a failure.
func TestMultiOps(t *testing.T) {
	c := connect(t, start(t))
	_, err := c.Create("/m", nil, 0, anyone)
	must(t, err)
	for _, test := range []struct {
		name string
		op   any
		want error
	}{
		{"create", &zk.CreateRequest{Path: "/m/a", Acl: anyone}, nil},
		{"create again", &zk.CreateRequest{Path: "/m/a", Acl: anyone}, zk.ErrNodeExists},
		{"create without a parent", &zk.CreateRequest{Path: "/none/a", Acl: anyone}, zk.ErrNoNode},
		{"ephemeral", &zk.CreateRequest{Path: "/m/e", Acl: anyone, Flags: zk.FlagEphemeral}, nil},
		{"below an ephemeral", &zk.CreateRequest{Path: "/m/e/x", Acl: anyone}, zk.ErrNoChildrenForEphemerals},
		{"sequential", &zk.CreateRequest{Path: "/m/s", Acl: anyone, Flags: zk.FlagSequence}, nil},
		{"set", &zk.SetDataRequest{Path: "/m/a", Data: []byte("x"), Version: 0}, nil},
		{"set with an old version", &zk.SetDataRequest{Path: "/m/a", Version: 0}, zk.ErrBadVersion},
		{"check", &zk.CheckVersionRequest{Path: "/m/a", Version: 1}, nil},
		{"check of another version", &zk.CheckVersionRequest{Path: "/m/a", Version: 0}, zk.ErrBadVersion},
		{"check of what is missing", &zk.CheckVersionRequest{Path: "/none", Version: -1}, zk.ErrNoNode},
		{"delete with children", &zk.DeleteRequest{Path: "/m", Version: -1}, zk.ErrNotEmpty},
		{"delete", &zk.DeleteRequest{Path: "/m/a", Version: 1}, nil},
		{"delete again", &zk.DeleteRequest{Path: "/m/a", Version: -1}, zk.ErrNoNode},
		{"bad ACL", &zk.CreateRequest{Path: "/m/x", Acl: []zk.ACL{{Perms: 1, Scheme: "nonsense"}}}, zk.ErrInvalidACL},
	} {
		before := &zk.SetDataRequest{Path: "/m", Data: []byte(test.name), Version: -1}
		responses, err := c.Multi(before, test.op, before)
		is(t, test.name, err, test.want)
		data, _, err := c.Get("/m")
		must(t, err)
		if done := string(data) == test.name; done != (test.want == nil) || len(responses) != 3 {
			t.Errorf("%s: %+v; the rest is done: %v", test.name, responses, done)
		}
	}
	if responses, err := c.Multi(); err != nil || len(responses) != 0 {
		t.Errorf("of nothing: %+v %v", responses, err)
	}
}

// The rest of what the client can ask for.
func TestOddOps(t *testing.T) {
	g := start(t)
	c := connect(t, g)
	if c.Server() != g.Addr().String() || c.SessionID() == 0 {
		t.Errorf("server %q, session %#x", c.Server(), c.SessionID())
	}
	_, err := c.IncrementalReconfig([]string{"server.9=x:1:2:participant;3"}, nil, -1)
	is(t, "IncrementalReconfig", err, zk.ErrReconfigDisabled)
	_, err = c.Reconfig([]string{"server.9=x:1:2:participant;3"}, -1)
	is(t, "Reconfig", err, zk.ErrReconfigDisabled)
	_, _, _, err = c.ChildrenW("/none")
	is(t, "ChildrenW", err, zk.ErrNoNode)
	_, _, err = c.Children("/none")
	is(t, "Children", err, zk.ErrNoNode)
	path, err := c.CreateProtectedEphemeralSequential("/p", nil, anyone)
	must(t, err)
	if !strings.HasPrefix(path, "/_c_") || !strings.HasSuffix(path, "-p0000000000") {
		t.Errorf("protected: %q", path)
	}
	path, err = c.CreateTTL("/ttl", []byte("x"), zk.FlagPersistentSequentialWithTTL, anyone, time.Hour)
	must(t, err)
	if path != "/ttl0000000001" {
		t.Errorf("TTL: %q", path)
	}
	_, err = c.CreateTTL("/ttl", nil, zk.FlagTTL, anyone, 0)
	is(t, "TTL of zero", err, zk.ErrBadArguments)
	// The gateway ends the connection at the length of a frame that is too large, perhaps while the
	// client still writes the frame.
	_, err = c.Create("/big", make([]byte, 1400<<10), 0, anyone)
	if !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a znode that is too large: %v", err)
	}
	until(t, "the client to be back", func() bool {
		_, _, err = c.Get("/big")
		return !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer)
	})
	is(t, "get after it", err, zk.ErrNoNode)
}

var (
	must  = testkit.Must
	until = testkit.Until
)

// An ensemble's members as a monitor sees them: one leads, the others follow.
func TestWordsOfMembers(t *testing.T) {
	e := startEnsemble(t)
	c := e.connect(2)
	_, err := c.Create("/a", nil, 0, anyone)
	must(t, err)
	var servers []string
	for _, id := range e.Members() {
		_, err := e.Session(id, embed.SessionOptions{}).Sync(t.Context(), "/")
		must(t, err)
		servers = append(servers, e.addrs[id])
	}
	var stats []*zk.ServerStats
	e.Until("the members to be seen as they are", func() bool { // the leader may change meanwhile
		leader := e.Leader()
		stats, _ = zk.FLWSrvr(servers, patience)
		for i, id := range e.Members() {
			want := zk.ModeFollower
			if id == leader {
				want = zk.ModeLeader
			}
			if stats[i].Error != nil || stats[i].Mode != want {
				return false
			}
		}
		return true
	})
	for i, id := range e.Members() {
		if s := stats[i]; s.NodeCount != 6 || s.Connections != map[bool]int64{true: 2, false: 1}[id == 2] {
			t.Errorf("member %d: %+v", id, s)
		}
	}
	for i, ok := range zk.FLWRuok(servers, patience) {
		if !ok {
			t.Errorf("ruok: member %d", i+1)
		}
	}
	conns, _ := zk.FLWCons(servers, patience)
	for i, x := range conns {
		of := slices.ContainsFunc(x.Clients, func(s *zk.ServerClient) bool {
			// the client pings by itself
			return s.SessionID == c.SessionID() && (s.LastOperation == "CREA" || s.LastOperation == "PING")
		})
		if of != (i == 1) {
			t.Errorf("cons of member %d: %+v", i+1, x)
		}
	}
}
