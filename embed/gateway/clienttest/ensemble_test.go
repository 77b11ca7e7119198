package clienttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// An ensemble is three members with a gateway each.
type ensemble struct {
	*embedtest.Ensemble
	t     *testing.T
	addrs map[embed.MemberID]string
	gates map[embed.MemberID]*gateway.Gateway
}

func startEnsemble(t *testing.T) *ensemble {
	t.Helper()
	return startEnsembleWith(t, gateway.Config{})
}

// startEnsembleWith is startEnsemble with gateways of some configuration.
func startEnsembleWith(t *testing.T, cfg gateway.Config) *ensemble {
	t.Helper()
	e := &ensemble{Ensemble: embedtest.New(t, 3, embedtest.Options{}), t: t, addrs: make(map[embed.MemberID]string),
		gates: make(map[embed.MemberID]*gateway.Gateway)}
	addrs, err := child.FreeAddrs(len(e.Members())) // a gateway may be opened again at its address
	must(t, err)
	for i, id := range e.Members() {
		e.addrs[id] = addrs[i]
		e.open(id, cfg)
	}
	return e
}

// open opens the gateway of a member at its address.
func (e *ensemble) open(id embed.MemberID, cfg gateway.Config) {
	e.t.Helper()
	cfg.Listen, cfg.Words, cfg.ConnectionsPerAddress = e.addrs[id], []string{"*"}, -1
	g, err := gateway.Start(e.Node(id), cfg)
	must(e.t, err)
	e.t.Cleanup(func() { _ = g.Close() })
	e.gates[id] = g
}

// A client is a client of go-zookeeper, with the states that it reported.
type client struct {
	*zk.Conn
	mu     sync.Mutex
	states []zk.State
}

// connect connects to any of the members.
func (e *ensemble) connect(members ...embed.MemberID) *client {
	e.t.Helper()
	var addrs []string
	for _, id := range members {
		addrs = append(addrs, e.addrs[id])
	}
	c := &client{}
	conn, _, err := zk.Connect(addrs, sessionTimeout, zk.WithLogger(silent{}), zk.WithEventCallback(func(ev zk.Event) {
		if ev.Type == zk.EventSession {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.states = append(c.states, ev.State)
		}
	}))
	must(e.t, err)
	e.t.Cleanup(conn.Close)
	c.Conn = conn
	e.Until("a session", func() bool { return conn.State() == zk.StateHasSession })
	return c
}

// on returns the member that a client is connected to.
func (e *ensemble) on(c *client) embed.MemberID {
	for id, addr := range e.addrs {
		if addr == c.Server() {
			return id
		}
	}
	return 0
}

func (c *client) expired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.states {
		if s == zk.StateExpired {
			return true
		}
	}
	return false
}

// The member that a client is connected to dies. Its session, ephemerals, watches and lock continue
// on another member.
func TestMemberIsKilled(t *testing.T) {
	e := startEnsemble(t)
	c := e.connect(1, 2, 3)
	victim, id := e.on(c), c.SessionID()
	other := embed.MemberID(1)
	if victim == other {
		other = 2
	}
	witness := e.connect(other)

	_, err := c.Create("/mine", nil, zk.FlagEphemeral, anyone)
	must(t, err)
	_, err = c.Create("/watched", nil, 0, anyone)
	must(t, err)
	_, _, changed, err := c.GetW("/watched")
	must(t, err)
	mine := zk.NewLock(c.Conn, "/lock", anyone)
	must(t, mine.Lock())

	e.Kill(victim)
	e.Until("the client to be connected elsewhere", func() bool { return c.State() == zk.StateHasSession && e.on(c) != victim })
	if c.SessionID() != id || c.expired() {
		t.Fatalf("session %#x, was %#x; expired: %v", c.SessionID(), id, c.expired())
	}
	_, err = witness.Sync("/mine")
	must(t, err)
	ok, stat, err := witness.Exists("/mine")
	must(t, err)
	if !ok || stat.EphemeralOwner != id {
		t.Errorf("the ephemeral: %v %+v", ok, stat)
	}
	in := e.Session(other, embed.SessionOptions{})
	if _, err := lock.NewMutex(in, "/lock").TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a lock that a client holds: %v", err)
	}
	_, err = witness.Set("/watched", []byte("x"), -1)
	must(t, err)
	select {
	case ev := <-changed:
		if ev.Type != zk.EventNodeDataChanged || ev.Path != "/watched" {
			t.Errorf("watch: %+v", ev)
		}
	case <-time.After(patience):
		t.Fatal("the watch delivered nothing")
	}
	must(t, mine.Unlock())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hold, err := lock.NewMutex(in, "/lock").Lock(ctx)
	must(t, err)
	must(t, hold.Release())
}
