package clienttest

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
)

var anyone = zk.WorldACL(zk.PermAll)

// start starts a single node with a gateway.
func start(t *testing.T) *gateway.Gateway {
	t.Helper()
	n, err := embed.Start(embed.Config{Dir: t.TempDir(), Tick: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = n.Close() })
	must(t, n.Ready(t.Context()))
	g, err := gateway.Start(n, gateway.Config{Listen: "127.0.0.1:0", Words: []string{"*"}})
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connect(t *testing.T, g *gateway.Gateway) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect([]string{g.Addr().String()}, sessionTimeout, zk.WithLogger(silent{}))
	must(t, err)
	t.Cleanup(c.Close)
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	return c
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestCRUD(t *testing.T) {
	c := connect(t, start(t))
	path, err := c.Create("/a", []byte("one"), 0, anyone)
	must(t, err)
	if path != "/a" {
		t.Errorf("created %q", path)
	}
	_, err = c.Create("/a", nil, 0, anyone)
	is(t, "create again", err, zk.ErrNodeExists)
	_, err = c.Create("/b/c", nil, 0, anyone)
	is(t, "create without a parent", err, zk.ErrNoNode)
	data, stat, err := c.Get("/a")
	must(t, err)
	if string(data) != "one" || stat.Version != 0 || stat.DataLength != 3 {
		t.Errorf("get: %q %+v", data, stat)
	}
	stat, err = c.Set("/a", []byte("two"), 0)
	must(t, err)
	if stat.Version != 1 || stat.Mzxid <= stat.Czxid {
		t.Errorf("set: %+v", stat)
	}
	_, err = c.Set("/a", nil, 0)
	is(t, "set with an old version", err, zk.ErrBadVersion)
	for i := range 3 {
		path, err := c.Create("/a/s", nil, zk.FlagSequence, anyone)
		must(t, err)
		if want := fmt.Sprintf("/a/s%010d", i); path != want {
			t.Errorf("sequential: %q, want %q", path, want)
		}
	}
	names, stat, err := c.Children("/a")
	must(t, err)
	slices.Sort(names)
	if !slices.Equal(names, []string{"s0000000000", "s0000000001", "s0000000002"}) || stat.NumChildren != 3 || stat.Cversion != 3 {
		t.Errorf("children: %q %+v", names, stat)
	}
	is(t, "delete with children", c.Delete("/a", -1), zk.ErrNotEmpty)
	for _, name := range names {
		must(t, c.Delete("/a/"+name, 0))
	}
	must(t, c.Delete("/a", 1))
	ok, _, err := c.Exists("/a")
	must(t, err)
	if ok {
		t.Error("/a exists")
	}
	if _, err := c.CreateContainer("/container", nil, zk.FlagContainer, anyone); err != nil {
		t.Error(err)
	}
	if _, err := c.CreateTTL("/ttl", nil, zk.FlagTTL, anyone, time.Hour); err != nil {
		t.Error(err)
	}
	if got, err := c.Sync("/"); err != nil || got != "/" {
		t.Errorf("sync: %q %v", got, err)
	}
	_, err = c.IncrementalReconfig([]string{"server.9=x:1:2:participant;3"}, nil, -1)
	if err == nil {
		t.Error("reconfig is not refused")
	}
}

func TestMulti(t *testing.T) {
	c := connect(t, start(t))
	responses, err := c.Multi(&zk.CreateRequest{Path: "/m", Data: []byte("x"), Acl: anyone}, &zk.SetDataRequest{Path: "/m", Data: []byte("y"), Version: 0},
		&zk.CheckVersionRequest{Path: "/m", Version: 1}, &zk.CreateRequest{Path: "/m/s", Acl: anyone, Flags: zk.FlagSequence}, &zk.DeleteRequest{Path: "/m/s0000000000", Version: -1})
	must(t, err)
	if len(responses) != 5 || responses[0].String != "/m" || responses[1].Stat.Version != 1 || responses[3].String != "/m/s0000000000" {
		t.Errorf("%+v", responses)
	}
	_, err = c.Multi(&zk.CreateRequest{Path: "/n", Acl: anyone}, &zk.CheckVersionRequest{Path: "/m", Version: 9})
	is(t, "multi with a wrong version", err, zk.ErrBadVersion)
	if ok, _, err := c.Exists("/n"); ok || err != nil {
		t.Errorf("a failed multi left something: %v", err)
	}
}

func TestACL(t *testing.T) {
	g := start(t)
	c, other := connect(t, g), connect(t, g)
	must(t, c.AddAuth("digest", []byte("bob:pw")))
	_, err := c.Create("/bob", []byte("x"), 0, zk.AuthACL(zk.PermAll))
	must(t, err)
	acl, _, err := c.GetACL("/bob")
	must(t, err)
	if !slices.Equal(acl, zk.DigestACL(zk.PermAll, "bob", "pw")) {
		t.Errorf("acl: %+v", acl)
	}
	_, _, err = other.Get("/bob")
	is(t, "get", err, zk.ErrNoAuth)
	_, err = c.SetACL("/bob", zk.WorldACL(zk.PermRead), 0)
	must(t, err)
	_, _, err = other.Get("/bob")
	must(t, err)
	_, err = other.Set("/bob", nil, -1)
	is(t, "set", err, zk.ErrNoAuth)
	_, err = c.Create("/x", nil, 0, []zk.ACL{{Perms: zk.PermAll, Scheme: "nonsense", ID: "x"}})
	is(t, "create", err, zk.ErrInvalidACL)
}

func TestEphemerals(t *testing.T) {
	g := start(t)
	c, other := connect(t, g), connect(t, g)
	_, err := c.Create("/e", nil, zk.FlagEphemeral, anyone)
	must(t, err)
	_, stat, err := other.Get("/e")
	must(t, err)
	if stat.EphemeralOwner != c.SessionID() {
		t.Errorf("owner %#x, want %#x", stat.EphemeralOwner, c.SessionID())
	}
	_, err = c.Create("/e/x", nil, 0, anyone)
	is(t, "child of an ephemeral", err, zk.ErrNoChildrenForEphemerals)
	c.Close()
	if ok, _, err := other.Exists("/e"); ok || err != nil {
		t.Errorf("after close: %v %v", ok, err)
	}
}

// Eight locks, two on each connection, exclude each other.
func TestLock(t *testing.T) {
	g := start(t)
	var held, most, times int
	var mu sync.Mutex
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		if held += by; held > most {
			most = held
		}
		times++
	}
	var all sync.WaitGroup
	for range 4 {
		c := connect(t, g)
		for range 2 {
			all.Go(func() {
				l := zk.NewLock(c, "/locks/l", anyone)
				for range 5 {
					if err := l.Lock(); err != nil {
						t.Error(err)
						return
					}
					count(1)
					count(-1)
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if most != 1 || times != 2*8*5 {
		t.Errorf("%d held it at once, %d times in all", most, times/2)
	}
}

func TestWatches(t *testing.T) {
	g := start(t)
	c, other := connect(t, g), connect(t, g)
	ok, _, exists, err := c.ExistsW("/w")
	must(t, err)
	if ok {
		t.Fatal("/w exists")
	}
	next := func(what string, ch <-chan zk.Event, want zk.EventType, path string) {
		t.Helper()
		select {
		case e := <-ch:
			if e.Type != want || e.Path != path || e.Err != nil {
				t.Errorf("%s: %+v", what, e)
			}
		case <-time.After(patience):
			t.Errorf("%s: nothing", what)
		}
	}
	_, err = other.Create("/w", nil, 0, anyone)
	must(t, err)
	next("exists", exists, zk.EventNodeCreated, "/w")
	_, _, data, err := c.GetW("/w")
	must(t, err)
	_, _, children, err := c.ChildrenW("/w")
	must(t, err)
	_, err = other.Set("/w", []byte("x"), -1)
	must(t, err)
	next("get", data, zk.EventNodeDataChanged, "/w")
	_, err = other.Create("/w/x", nil, 0, anyone)
	must(t, err)
	next("children", children, zk.EventNodeChildrenChanged, "/w")
	_, _, _, err = c.GetW("/missing")
	is(t, "get", err, zk.ErrNoNode)
}

func TestManyAtOnce(t *testing.T) {
	c := connect(t, start(t))
	_, err := c.Create("/n", nil, 0, anyone)
	must(t, err)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for j := range 20 {
				if _, err := c.Create(fmt.Sprintf("/n/%d-%d", i, j), []byte("x"), 0, anyone); err != nil {
					t.Error(err)
				}
				if _, _, err := c.Get(fmt.Sprintf("/n/%d-%d", i, j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, stat, err := c.Get("/n")
	must(t, err)
	if stat.NumChildren != 64*20 {
		t.Errorf("%d children", stat.NumChildren)
	}
}

// The client's own parsers of the four-letter words.
func TestWords(t *testing.T) {
	g := start(t)
	c := connect(t, g)
	_, err := c.Create("/a", nil, 0, anyone)
	must(t, err)
	servers := []string{g.Addr().String()}
	if ok := zk.FLWRuok(servers, patience); !ok[0] {
		t.Error("ruok")
	}
	stats, ok := zk.FLWSrvr(servers, patience)
	if !ok || stats[0].Error != nil || stats[0].NodeCount != 6 || stats[0].Mode != zk.ModeStandalone || stats[0].Received < 1 {
		t.Errorf("srvr: %v %+v", ok, stats[0])
	}
	conns, _ := zk.FLWCons(servers, patience)
	if conns[0].Error != nil || !slices.ContainsFunc(conns[0].Clients, func(x *zk.ServerClient) bool { return x.SessionID == c.SessionID() }) {
		// it cannot parse the line of a connection without a session, such as this one
		t.Errorf("cons: %+v", conns[0])
	}
}
