package gateway

import (
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// A cutEnsemble has three members with a gateway each, in virtual time.
type cutEnsemble struct {
	*embedtest.Ensemble
	t     *testing.T
	gates map[embed.MemberID]*Gateway
}

func inBubble(t *testing.T, o embedtest.Options, cfg Config, fn func(e *cutEnsemble)) {
	synctest.Test(t, func(t *testing.T) {
		e := &cutEnsemble{Ensemble: embedtest.New(t, 3, o), t: t, gates: make(map[embed.MemberID]*Gateway)}
		for _, id := range e.Members() {
			e.gates[id] = startOn(t, e.Node(id), cfg)
		}
		fn(e)
	})
}

func (e *cutEnsemble) dial(id embed.MemberID) *client {
	e.t.Helper()
	sock, err := e.Dial(e.t.Context(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	return newClient(e.t, sock)
}

// open sends a connect request, and returns the client when it is answered.
func (e *cutEnsemble) open(id embed.MemberID, q wire.ConnectRequest) *client {
	e.t.Helper()
	c := e.dial(id)
	c.open(q)
	return c
}

// refused sends a connect request that gets no answer, and returns how long the end took.
func (e *cutEnsemble) refused(id embed.MemberID, q wire.ConnectRequest) time.Duration {
	e.t.Helper()
	c, begun := e.dial(id), time.Now()
	c.write(q.AppendFrame(nil))
	c.endsSilently()
	return time.Since(begun)
}

func (e *cutEnsemble) ask(id embed.MemberID, word string) string {
	return string(e.gates[id].word(word))
}

// readOnlyBegins waits until a member is in read-only mode.
func (e *cutEnsemble) readOnlyBegins(id embed.MemberID) {
	e.t.Helper()
	e.Until("the read-only mode", func() bool { return e.ask(id, "isro") == "ro" })
}

// ended reports whether the gateway has closed a connection on which nothing is to be read.
func (c *client) ended() bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return err == io.EOF
}

func asks(readOnly bool) wire.ConnectRequest {
	return wire.ConnectRequest{Timeout: 60_000, Password: make([]byte, 16), ReadOnly: readOnly}
}

// writes are requests of every kind that needs a quorum.
func writes() map[string]wire.Request {
	one := func(o wire.Operation) wire.Request { return wire.Request{Operation: o} }
	acl := op(wire.OpSetACL, "/a")
	acl.ACL = openACL()
	create2, container, ttl := create("/c2", nil, 0), create("/cc", nil, 4), create("/ct", nil, 5)
	create2.Op, container.Op, ttl.Op, ttl.TTL = wire.OpCreate2, wire.OpCreateContainer, wire.OpCreateTTL, 1000
	return map[string]wire.Request{
		"create": one(create("/c", nil, 0)), "ephemeral": one(create("/e", nil, 1)), "create2": one(create2),
		"createContainer": one(container), "createTTL": one(ttl), "refused anyway": one(create("bad path", nil, 99)),
		"delete": one(op(wire.OpDelete, "/a")), "setData": one(op(wire.OpSetData, "/a")), "setACL": one(acl),
		"multi":       {Operation: wire.Operation{Op: wire.OpMulti}, Ops: []wire.Operation{create("/m", nil, 0)}},
		"empty multi": {Operation: wire.Operation{Op: wire.OpMulti}},
		"sync":        one(op(wire.OpSync, "/")),
		"reconfig":    {Operation: wire.Operation{Op: wire.OpReconfig}, Reconfig: wire.Reconfig{Leaving: "3", ConfigID: -1}},
	}
}

// A member that is cut off serves reads, and nothing else, to clients that ask for it. When the
// quorum is back, it is a member like any other.
func TestReadOnly_CutAndBack(t *testing.T) {
	oneShard(t)
	inBubble(t, embedtest.Options{}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		c := e.open(1, asks(false))
		c.must(create("/a", []byte("x"), 0))
		c.must(create("/a/b", nil, 1))
		old, was := c.ConnectResponse, c.must(op(wire.OpPing, "")).Zxid
		e.Isolate(1)
		cut := time.Now()
		if after := e.refused(1, asks(true)); after >= readOnlyAfter {
			t.Errorf("a client that comes at once waits for %v", after)
		}
		e.readOnlyBegins(1)
		if took := time.Since(cut); took < readOnlyAfter || took > readOnlyAfter+time.Second {
			t.Errorf("the read-only mode begins after %v", took)
		}

		reader := e.open(1, asks(true))
		if !reader.ReadOnly || reader.Timeout != 60_000 || !ofReading(tree.SessionID(reader.SessionID)) {
			t.Fatalf("%+v", reader.ConnectResponse)
		}
		e.reads(reader, was)
		for name, q := range writes() {
			if r := reader.call(q); r.Err != wire.NotReadOnly || r.Zxid != was {
				t.Errorf("%s: code %d, zxid %#x, want %#x", name, r.Err, r.Zxid, was)
			}
		}
		if mode := e.ask(1, "srvr"); !strings.Contains(mode, "Mode: read-only\n") || !strings.Contains(mode, "\nREAD-ONLY mode; serving only read-only clients\n") {
			t.Error(mode)
		}
		if text := e.ask(1, "mntr"); !strings.Contains(text, "zk_server_state\tread-only\n") || !strings.Contains(text, "zk_local_sessions\t1\n") || strings.Contains(text, "zk_peer_state") {
			t.Error(text)
		}
		now := read(e.gates[1])
		if now["vivarium_gateway_readonly"] != 1 || now["vivarium_gateway_handshakes_total readonly"] != 1 {
			t.Errorf("%v", now)
		}

		e.turnsAway(old, was)
		e.HealAll()
		reader.ends()
		e.Until("the member to serve", func() bool { return e.ask(1, "isro") == "rw" })
		if back := e.open(1, wire.ConnectRequest{Timeout: 60_000, SessionID: reader.SessionID, Password: reader.Password}); back.SessionID != 0 {
			t.Errorf("a session that only reads is reattached: %+v", back.ConnectResponse)
		}
		back := e.open(1, wire.ConnectRequest{Timeout: 60_000, SessionID: old.SessionID, Password: old.Password, ReadOnly: true})
		if back.SessionID != old.SessionID || back.ReadOnly {
			t.Errorf("the session of before: %+v", back.ConnectResponse)
		}
		r := back.must(op(wire.OpGetChildren, "/"))
		if slices.Sort(r.Names); !slices.Equal(r.Names, []string{"a", "zookeeper"}) {
			t.Errorf("children: %q", r.Names)
		}
		if read(e.gates[1])["vivarium_gateway_readonly"] != 0 {
			t.Error("the mode is still on")
		}
	})
}

// reads does what may be done in read-only mode.
func (e *cutEnsemble) reads(c *client, newest int64) {
	e.t.Helper()
	if r := c.must(op(wire.OpGetData, "/a")); string(r.Data) != "x" || r.Zxid != newest {
		e.t.Errorf("getData: %q, zxid %#x", r.Data, r.Zxid)
	}
	for _, o := range []wire.Op{wire.OpExists, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetACL, wire.OpGetAllChildrenNumber, wire.OpGetEphemerals, wire.OpPing, wire.OpWhoAmI} {
		c.must(op(o, "/a"))
	}
	if r := c.do(op(wire.OpGetData, "/none")); r.Err != wire.NoNode {
		e.t.Errorf("a znode that is missing: code %d", r.Err)
	}
	if r := c.must(op(wire.OpGetEphemerals, "/")); len(r.Names) != 0 {
		e.t.Errorf("ephemerals: %q", r.Names)
	}
	many := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{op(wire.OpGetData, "/a"), op(wire.OpGetChildren, "/a")}})
	if many.Err != wire.OK || len(many.Results) != 2 || string(many.Results[0].Data) != "x" {
		e.t.Errorf("multiRead: %+v", many)
	}
	c.auth("digest", "bob:pw")
	if r := c.must(op(wire.OpWhoAmI, "")); len(r.Users) != 2 {
		e.t.Errorf("whoAmI: %+v", r.Users)
	}
	watching := op(wire.OpGetData, "/a")
	watching.Watch = true
	if r := c.call(wire.Request{Operation: watching}); r.Err != wire.OK {
		e.t.Errorf("a watch: code %d", r.Err)
	}
	if r := c.do(wire.Operation{Op: wire.OpCheckWatches, Path: "/a", Kind: wire.KindData}); r.Err != wire.OK {
		e.t.Errorf("the watch is not there: code %d", r.Err)
	}
}

// turnsAway connects as clients that cannot be served in read-only mode.
func (e *cutEnsemble) turnsAway(old wire.ConnectResponse, newest int64) {
	e.t.Helper()
	ahead, level := asks(true), asks(true)
	ahead.LastZxid, level.LastZxid = newest+1, newest
	for name, q := range map[string]wire.ConnectRequest{
		"does not ask for it":   asks(false),
		"has seen more":         ahead,
		"an old client":         {Timeout: 60_000, Password: make([]byte, 16), Old: true},
		"has a session":         {Timeout: 60_000, SessionID: old.SessionID, Password: old.Password, ReadOnly: true},
		"has anybody's session": {Timeout: 60_000, SessionID: 42, Password: make([]byte, 16), ReadOnly: true},
	} {
		if took := e.refused(1, q); took > lingerMax/2 {
			e.t.Errorf("a client that %s is refused after %v", name, took)
		}
	}
	c := e.open(1, level)
	if !c.ReadOnly {
		e.t.Errorf("%+v", c.ConnectResponse)
	}
	c.must(op(wire.OpCloseSession, ""))
	c.endsSilently()
	again := e.open(1, wire.ConnectRequest{Timeout: 60_000, SessionID: c.SessionID, Password: c.Password, ReadOnly: true})
	if again.SessionID != 0 || again.Timeout != 0 {
		e.t.Errorf("a session that is over: %+v", again.ConnectResponse)
	}
	again.endsSilently()
}

// Every action that is allowed in read-only mode is on this list, so a new one is refused until
// somebody has thought about it.
func TestReadOnly_Actions(t *testing.T) {
	allowed := []wire.Op{
		wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetACL, wire.OpGetAllChildrenNumber, wire.OpGetEphemerals, wire.OpMultiRead,
		wire.OpAddWatch, wire.OpCheckWatches, wire.OpRemoveWatches, wire.OpSetWatches, wire.OpSetWatches2,
		wire.OpPing, wire.OpWhoAmI, wire.OpSASL, wire.OpAuth, wire.OpCloseSession,
		wire.OpNative, // it refuses all kinds itself
	}
	var got []wire.Op
	for o, do := range maps.All(actions) {
		if !do.quorum && do.write == nil {
			got = append(got, o)
		}
	}
	slices.Sort(allowed)
	if slices.Sort(got); !slices.Equal(got, allowed) {
		t.Errorf("allowed are %v, want %v", got, allowed)
	}
}

// When a client gets a session of the ensemble, no connection that only reads is open.
func TestReadOnly_EndsFirst(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		for range 5 {
			e.Isolate(2)
			e.readOnlyBegins(2)
			var readers []*client
			for range 20 {
				readers = append(readers, e.open(2, asks(true)))
			}
			e.HealAll()
			e.Until("a session", func() bool {
				c, q := e.dial(2), asks(false)
				c.write(q.AppendFrame(nil))
				b, err := wire.ReadFrame(c, nil, 100)
				return err == nil && c.ConnectResponse.Decode(b) == nil && c.SessionID != 0
			})
			for i, r := range readers {
				if !r.ended() {
					t.Fatalf("connection %d still reads", i)
				}
			}
		}
	})
}

// A client that only reads sees what a quorum has accepted. What a leader alone has in its log is not
// shown.
func TestReadOnly_ShowsWhatAQuorumHas(t *testing.T) {
	oneShard(t)
	inBubble(t, embedtest.Options{}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		leader := e.Leader()
		c := e.open(leader, asks(false))
		c.must(create("/quorum", nil, 0))
		e.Isolate(leader)
		c.send(wire.Request{Operation: create("/beyond", nil, 0)})
		e.readOnlyBegins(leader)
		reader := e.open(leader, asks(true))
		reader.must(op(wire.OpExists, "/quorum"))
		if r := reader.do(op(wire.OpExists, "/beyond")); r.Err != wire.NoNode {
			t.Errorf("what no quorum has accepted: code %d", r.Err)
		}
	})
}

// The end of the mode comes before anything else, also if the gateway has not looked for a leader
// lately.
func TestReadOnly_EndOfTheMode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{}) // without the loop that looks
		g.readOnly.gate = g
		c := connect(t, g)
		served := g.connections()[0]
		g.readOnly.mu.Lock()
		g.readOnly.clients = make(map[*conn]struct{})
		g.readOnly.mu.Unlock()
		if !g.readOnly.admit(served) || g.readOnly.count() != 1 {
			t.Fatal("not admitted")
		}
		g.readOnly.end()
		c.endsSilently()
		if g.readOnly.on() {
			t.Error("the mode is still on")
		}
		if g.readOnly.admit(served) {
			t.Error("admitted after the end")
		}
	})
}

// The mode has nothing to do with Suspended, in either direction.
func TestReadOnly_AndSuspended(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		short := e.Session(1, embed.SessionOptions{Timeout: time.Second})
		long := e.Session(1, embed.SessionOptions{Timeout: time.Minute})
		client := e.open(1, asks(false)) // its timeout is a minute
		e.Isolate(1)
		e.Until("the end of safety", func() bool { s, _ := short.State(); return s == embed.Suspended })
		if e.ask(1, "isro") != "null" {
			t.Error("the mode has begun with Suspended")
		}
		e.readOnlyBegins(1)
		if s, _ := long.State(); s != embed.Connected {
			t.Errorf("in read-only mode a session is %v", s)
		}
		client.must(op(wire.OpPing, ""))
		reader := e.open(1, asks(true))
		e.HealAll()
		reader.ends()
		e.Until("the session to be Connected", func() bool { s, _ := long.State(); return s == embed.Connected })
		client.must(create("/after", nil, 0))
	})
}

// Without ReadOnly a client that would accept less is treated like any other.
func TestReadOnly_IsOffByDefault(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{Words: []string{"*"}}, func(e *cutEnsemble) {
		if c := e.open(1, asks(true)); c.ReadOnly {
			t.Errorf("%+v", c.ConnectResponse)
		}
		e.Isolate(1)
		for begun := time.Now(); time.Since(begun) < 2*readOnlyAfter; {
			e.refused(1, asks(true))
		}
		if got := e.ask(1, "isro"); got != "null" {
			t.Error(got)
		}
	})
}

// With several shards nobody can tell whether a client has seen more than this member.
func TestReadOnly_SeveralShards(t *testing.T) {
	shards := func(c *embed.Config) { c.Shards = 3 }
	inBubble(t, embedtest.Options{Config: shards}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		e.open(1, asks(false)).must(create("/a", []byte("x"), 0))
		e.Isolate(1)
		e.readOnlyBegins(1)
		seen := asks(true)
		seen.LastZxid = 1
		e.refused(1, seen)
		if r := e.open(1, asks(true)).must(op(wire.OpGetData, "/a")); string(r.Data) != "x" {
			t.Errorf("%q", r.Data)
		}
	})
}

// A member that starts without a quorum serves what it has. If it has nothing, it serves nobody: an
// empty tree would be a lie.
func TestReadOnly_FromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &cutEnsemble{Ensemble: embedtest.New(t, 3, embedtest.Options{Stopped: true}), t: t, gates: make(map[embed.MemberID]*Gateway)}
		open := func(id embed.MemberID) { e.gates[id] = startOn(t, e.Start(id), Config{ReadOnly: true}) }
		open(1)
		e.readOnlyBegins(1)
		e.refused(1, asks(true))
		open(2)
		open(3)
		e.Ready(1)
		e.open(1, asks(false)).must(create("/a", []byte("x"), 0))
		for _, id := range e.Members() {
			e.Stop(id)
		}
		open(1)
		e.readOnlyBegins(1)
		if r := e.open(1, asks(true)).must(op(wire.OpGetData, "/a")); string(r.Data) != "x" {
			t.Errorf("%q", r.Data)
		}
	})
}

// A client that is silent for its timeout loses its connection, as with any session.
func TestReadOnly_SilentClient(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		e.Isolate(3)
		e.readOnlyBegins(3)
		q := asks(true)
		q.Timeout = 4000
		c := e.open(3, q)
		begun := time.Now()
		c.endsSilently()
		if took := time.Since(begun); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("it ends after %v", took)
		}
		e.Until("the end to be noticed", func() bool { return e.gates[3].readOnly.count() == 0 })
	})
}

// A gateway that is closed in read-only mode leaves nothing.
func TestReadOnly_Close(t *testing.T) {
	inBubble(t, embedtest.Options{}, Config{ReadOnly: true, Words: []string{"*"}}, func(e *cutEnsemble) {
		e.Isolate(3)
		e.readOnlyBegins(3)
		a := e.open(3, asks(true))
		if err := e.gates[3].Close(); err != nil {
			t.Fatal(err)
		}
		a.endsSilently()
		e.gates[3] = startOn(e.t, e.Node(3), Config{ReadOnly: true, Words: []string{"*"}})
		e.readOnlyBegins(3)
		b := e.open(3, asks(true))
		e.Kill(3)
		b.endsSilently()
	})
}
