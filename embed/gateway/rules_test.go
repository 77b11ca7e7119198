package gateway

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

func allow(perms wire.Perms, scheme, id string) wire.ACL {
	return wire.ACL{Perms: perms, Scheme: scheme, ID: id}
}

func acls(list ...wire.ACL) func(*wire.Operation) {
	return func(o *wire.Operation) { o.ACL = list }
}

func ofVersion(v int32) func(*wire.Operation) { return func(o *wire.Operation) { o.Version = v } }

func multi(ops ...wire.Operation) wire.Request {
	return wire.Request{Operation: wire.Operation{Op: wire.OpMulti}, Ops: ops}
}

// 3.2 to 3.16: which permission each op needs. The client may only read "/read", only administrate
// "/admin", and do nothing to "/none".
func TestPermissions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		bob, c := connect(t, g), connect(t, g)
		bob.auth("digest", "bob:pw")
		mine := allow(wire.PermAll, "auth", "")
		for path, perms := range map[string]wire.Perms{"/read": wire.PermRead, "/admin": wire.PermAdmin, "/none": 0, "/own": 0} {
			bob.must(with(create(path, []byte("x"), 0), acls(mine, allow(perms, "world", "anyone"))))
		}
		for _, test := range []struct {
			name string
			op   wire.Operation
			want wire.Code
		}{
			{"setData of what may be read", op(wire.OpSetData, "/read"), wire.NoAuth},
			{"NoAuth before BadVersion", with(op(wire.OpSetData, "/read"), ofVersion(9)), wire.NoAuth},
			{"setACL of what may be read", with(op(wire.OpSetACL, "/read"), acls(openACL()...)), wire.NoAuth},
			{"create below what may be read", create("/read/x", nil, 0), wire.NoAuth},
			{"delete of the missing below what may be read", op(wire.OpDelete, "/read/x"), wire.NoAuth},
			{"getACL of what may be read", op(wire.OpGetACL, "/read"), wire.OK},
			{"getData of what may be read", op(wire.OpGetData, "/read"), wire.OK},
			{"getData of what may be administrated", op(wire.OpGetData, "/admin"), wire.NoAuth},
			{"getACL of what may be administrated", op(wire.OpGetACL, "/admin"), wire.OK},
			{"setACL with a wrong version", with(with(op(wire.OpSetACL, "/admin"), acls(openACL()...)), ofVersion(9)), wire.BadVersion},
			{"exists of the closed", op(wire.OpExists, "/none"), wire.NoAuth},
			{"getChildren of the closed", op(wire.OpGetChildren, "/none"), wire.NoAuth},
			{"getChildren2 of the closed", op(wire.OpGetChildren2, "/none"), wire.NoAuth},
			{"getACL of the closed", op(wire.OpGetACL, "/none"), wire.NoAuth},
			{"getAllChildrenNumber of the closed", op(wire.OpGetAllChildrenNumber, "/none"), wire.NoAuth},
			{"sync of the closed", op(wire.OpSync, "/none"), wire.OK},
			{"addWatch of the closed", op(wire.OpAddWatch, "/none"), wire.OK},
			// The znode's own list does not matter.
			{"delete of the closed", op(wire.OpDelete, "/own"), wire.OK},
		} {
			if r := c.do(test.op); r.Err != test.want {
				t.Errorf("%s: code %d, want %d", test.name, r.Err, test.want)
			}
		}
		// 3.8: a client without Admin does not see digests.
		for path, id := range map[string]string{"/read": "bob:x", "/admin": "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="} {
			if r := c.must(op(wire.OpGetACL, path)); len(r.ACL) != 2 || r.ACL[0].ID != id {
				t.Errorf("getACL of %s: %+v", path, r.ACL)
			}
		}
		// 3.13 and 3.16: a check needs Read, and so does a read in a multiRead.
		for _, test := range []struct {
			op   wire.Operation
			want wire.Code
		}{
			{op(wire.OpCheck, "/none"), wire.NoAuth},
			{op(wire.OpCheck, "/read"), wire.OK},
			{with(op(wire.OpCheck, "/read"), ofVersion(3)), wire.BadVersion},
			{op(wire.OpCheck, "/missing"), wire.NoNode},
			{op(wire.OpCheck, "no slash"), wire.BadArguments},
			{op(wire.OpCheck, "/read/"), wire.BadArguments},
		} {
			if r := c.call(multi(test.op)); len(r.Results) != 1 || r.Err != wire.OK || r.Results[0].Err != test.want {
				t.Errorf("check of %s: %+v, want code %d", test.op.Path, r.Results, test.want)
			}
		}
		r := c.call(wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{
			op(wire.OpGetData, "/none"), op(wire.OpGetData, "/read"), op(wire.OpGetChildren, "/none")}})
		if len(r.Results) != 3 || r.Results[0].Err != wire.NoAuth || string(r.Results[1].Data) != "x" || r.Results[2].Err != wire.NoAuth {
			t.Errorf("multiRead: %+v", r.Results)
		}
	})
}

// 3.4 to 3.6, 3.16: a refused read leaves no watch, and neither does a read in a multiRead.
func TestReadsThatLeaveNoWatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		bob, c := connect(t, g), connect(t, g)
		bob.auth("digest", "bob:pw")
		bob.must(with(create("/none", nil, 0), acls(allow(wire.PermAll, "auth", ""))))
		bob.must(create("/a", nil, 0))
		for _, o := range []wire.Op{wire.OpExists, wire.OpGetData, wire.OpGetChildren, wire.OpGetChildren2} {
			if r := c.do(watching(op(o, "/none"))); r.Err != wire.NoAuth {
				t.Errorf("op %d: code %d", o, r.Err)
			}
		}
		c.call(wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{watching(op(wire.OpGetData, "/a")), watching(op(wire.OpGetChildren, "/a"))}})
		for _, path := range []string{"/none", "/a"} {
			if r := c.do(with(op(wire.OpCheckWatches, path), func(o *wire.Operation) { o.Kind = wire.KindAny })); r.Err != wire.NoWatcher {
				t.Errorf("a watch of %s: code %d", path, r.Err)
			}
		}
	})
}

// 3.7 and 3.1.12: a quota is checked before the version, and hard limits hold.
func TestQuota(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		c.must(create("/q", []byte("12345"), 0))
		c.must(create("/zookeeper/quota/q", nil, 0))
		c.must(create("/zookeeper/quota/q/zookeeper_limits", []byte("count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=2"), 0))
		c.must(create("/zookeeper/quota/q/zookeeper_stats", nil, 0))
		set := with(op(wire.OpSetData, "/q"), func(o *wire.Operation) { o.Data, o.Version = make([]byte, 11), 9 })
		for _, test := range []struct {
			op   wire.Operation
			want wire.Code
		}{
			{set, wire.QuotaExceeded},
			{create("/q/x", make([]byte, 6), 0), wire.QuotaExceeded},
			{create("/q/x", nil, 0), wire.OK},
			{create("/q/y", nil, 0), wire.QuotaExceeded},
		} {
			if r := c.do(test.op); r.Err != test.want {
				t.Errorf("op %d of %s: code %d, want %d", test.op.Op, test.op.Path, r.Err, test.want)
			}
		}
	})
}

// 3.1, notes: containers and TTL znodes may have children of every mode. A sequential name is the
// given name with a number, even if the given name is empty.
func TestChildrenOfEveryMode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		c.must(with(create("/c", nil, 4), of(wire.OpCreateContainer)))
		c.must(with(create("/t", nil, 5), func(o *wire.Operation) { o.Op, o.TTL = wire.OpCreateTTL, 60_000 }))
		for _, parent := range []string{"/c", "/t"} {
			for flags := wire.FlagsPersistent; flags <= wire.FlagsEphemeralSequential; flags++ {
				c.must(create(fmt.Sprintf("%s/%d-", parent, flags), nil, flags))
			}
			if r := c.must(create(parent+"/", nil, wire.FlagsSequential)); r.Path != parent+"/0000000004" {
				t.Errorf("a sequence without a name: %q", r.Path)
			}
			if r := c.must(op(wire.OpExists, parent)); r.Stat.EphemeralOwner != 0 || r.Stat.NumChildren != 5 {
				t.Errorf("%s: %+v", parent, r.Stat)
			}
		}
	})
}

// 3.15.8, 6.4.2, 6.5: a failed multi fires no watch. A successful multi fires watches in the order
// of its operations, and each event has the multi's zxid.
func TestMultiFiresWatches(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c, other := connect(t, g), connect(t, g)
		c.must(create("/m", nil, 0))
		other.must(with(op(wire.OpAddWatch, "/m"), func(o *wire.Operation) { o.Mode = wire.WatchRecursive }))
		c.call(multi(op(wire.OpSetData, "/m"), create("/m/x", nil, 0), op(wire.OpDelete, "/m/missing")))
		other.wantTold("a multi that failed")
		r := c.call(multi(create("/m/x", nil, 0), op(wire.OpSetData, "/m/x"), op(wire.OpSetData, "/m"), op(wire.OpDelete, "/m/x")))
		if len(r.Results) != 4 || r.Results[3].Err != wire.OK {
			t.Fatalf("multi: %+v", r)
		}
		other.wantTold("a multi", "1 /m/x", "3 /m/x", "3 /m", "2 /m/x")
		if want := []int64{r.Zxid, r.Zxid, r.Zxid, r.Zxid}; !slices.Equal(other.zxids, want) {
			t.Errorf("zxids %d, want %d", other.zxids, want)
		}
		// 3.9: a new ACL fires no watch.
		c.must(with(op(wire.OpSetACL, "/m"), acls(openACL()...)))
		other.wantTold("setACL")
	})
}

// 5.5: a session's ephemerals go in one transaction. A watch of getChildren fires once, a
// persistent watch fires for each of them.
func TestCloseIsOneTransaction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		g := start(t, Config{})
		c, once, stays := connect(t, g), connect(t, g), connect(t, g)
		c.must(create("/p", nil, 0))
		for i := range 3 {
			c.must(create(fmt.Sprintf("/p/%d", i), nil, 1))
		}
		once.must(watching(op(wire.OpGetChildren, "/p")))
		stays.must(op(wire.OpAddWatch, "/p"))
		c.must(op(wire.OpCloseSession, ""))
		once.wantTold("getChildren", "4 /p")
		stays.wantTold("addWatch", "4 /p", "4 /p", "4 /p")
		r := once.must(op(wire.OpExists, "/p"))
		if want := slices.Repeat([]int64{r.Stat.Pzxid}, 3); !slices.Equal(stays.zxids, want) || r.Stat.Cversion != 6 {
			t.Errorf("zxids %d of %+v", stays.zxids, r.Stat)
		}
	})
}

// 5.4: every request keeps a session alive, and so does a ping, but auth and sasl do not. The same
// ticks count for all sessions.
func TestWhatKeepsASessionAlive(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) { // it waits more than it computes
		g := start(t, Config{})
		watcher := connect(t, g)
		visit(t, g, shortTimeout, "/silent")
		pings, auths := visit(t, g, shortTimeout, "/pings"), visit(t, g, shortTimeout, "/auths")
		ping := wire.Request{Xid: wire.XidPing, Operation: op(wire.OpPing, "")}
		auth := wire.Request{Xid: wire.XidAuth, Operation: wire.Operation{Op: wire.OpAuth}, Auth: wire.Auth{Scheme: "digest", Proof: []byte("bob:pw")}}
		sasl := wire.Request{Xid: 7, Operation: op(wire.OpSASL, "")}
		there := func(path string) bool { return watcher.do(op(wire.OpExists, path)).Err == wire.OK }
		wait(t, "the end of the silent session, and of the one that only sends auth and sasl", func() bool {
			<-time.After(pollPause)
			pings.write(raw(ping))
			if r := pings.receive(ping); r.Err != wire.OK {
				t.Errorf("ping: code %d", r.Err)
			}
			for _, q := range []wire.Request{auth, sasl} {
				_, _ = auths.Write(raw(q))
				_, _ = wire.ReadFrame(auths, nil, 1<<10)
			}
			return !there("/silent") && !there("/auths")
		})
		if !there("/pings") {
			t.Error("pings do not keep a session alive")
		}
	})
}

// 5.7: a client that accepts a read-only server is served like any other.
func TestReadOnlyClient(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := dial(t, start(t, Config{}))
		q := hello()
		q.ReadOnly = true
		c.open(q)
		if c.ReadOnly || c.Old || c.Timeout == 0 {
			t.Errorf("%+v", c.ConnectResponse)
		}
		c.must(create("/a", nil, 0))
	})
}

// 10.4: an answer has the xid of its request, whatever that is.
func TestXidsAreSentBack(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		for _, xid := range []int32{0, 1, 1, -2, -3, -8, math.MinInt32, math.MaxInt32} {
			q := wire.Request{Xid: xid, Operation: op(wire.OpExists, "/")}
			c.write(raw(q))
			if r := c.receive(q); r.Err != wire.OK || r.Stat.NumChildren == 0 {
				t.Errorf("xid %d: %+v", xid, r)
			}
		}
	})
}

// 10.4: a successful write's answer has the write's own zxid. Failures, reads and pings have the
// newest zxid that the client may see.
func TestZxidsOfAnswers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		c := connect(t, start(t, Config{}))
		own := c.must(create("/a", nil, 0)).Zxid
		for _, o := range []wire.Operation{create("/a", nil, 0), op(wire.OpExists, "/a"), op(wire.OpGetData, "/b"), op(wire.OpPing, ""), op(wire.OpSync, "/"), op(wire.OpAddWatch, "/x")} {
			if r := c.do(o); r.Zxid != own {
				t.Errorf("op %d: zxid %d, want %d", o.Op, r.Zxid, own)
			}
		}
		if r := c.must(op(wire.OpSetData, "/a")); r.Zxid != own+1 || r.Stat.Mzxid != r.Zxid {
			t.Errorf("setData: %+v after %d", r, own)
		}
	})
}

// 10.1: the limit applies to requests only. A request may be as long as ZooKeeper allows.
func TestLongFrames(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{FrameSize: 10_000}))
		c.must(create("/p", nil, 0))
		for batch := range 10 {
			var ops []wire.Operation
			for i := range 50 {
				ops = append(ops, create(fmt.Sprintf("/p/%s-%d-%d", strings.Repeat("n", 60), batch, i), nil, 0))
			}
			if r := c.call(multi(ops...)); r.Err != wire.OK {
				t.Fatalf("code %d", r.Err)
			}
		}
		if r := c.must(op(wire.OpGetChildren, "/p")); len(r.Names) != 500 {
			t.Errorf("%d names", len(r.Names))
		}

		// By default a request is long enough for whatever znode the node takes.
		c = connect(t, start(t, Config{}))
		long := create("/"+strings.Repeat("n", engine.PathMax-1), make([]byte, embed.DefaultMaxDataSize), 0)
		long.ACL = nil
		for i := range 100 {
			long.ACL = append(long.ACL, wire.ACL{Perms: wire.PermAll, Scheme: "digest", ID: fmt.Sprintf("%0600d:hash", i)})
		}
		long.ACL = append(long.ACL[1:], openACL()...)
		if r := c.must(long); r.Path != long.Path {
			t.Errorf("the longest: %d bytes, code %d", len(raw(wire.Request{Operation: long})), r.Err)
		}
		if r := c.must(op(wire.OpGetData, long.Path)); len(r.Data) != embed.DefaultMaxDataSize {
			t.Errorf("%d bytes", len(r.Data))
		}
		c.write([]byte{0, 0x20, 0, 0, 0, 0, 0, 1})
		c.endsSilently()

		c = connect(t, start(t, Config{FrameSize: wire.FrameMax}))
		c.write(binary.BigEndian.AppendUint32(nil, wire.FrameMax+1))
		c.endsSilently()
	})
}

// 11.1.2: cons shows the last request of a connection.
func TestLastOps(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Words: []string{"cons"}})
		c := connect(t, g)
		wantLast := func(what, want string) {
			t.Helper()
			if got := ask(t, g, "cons"); !strings.Contains(got, ",lop="+want+",") {
				t.Errorf("after %s cons has no %s: %s", what, want, got)
			}
		}
		// The gateway sets it after it has answered the client.
		wait(t, "the handshake to be the last op", func() bool {
			return strings.Contains(ask(t, g, "cons"), ",lop=SESS,")
		})
		c.must(create("/a", nil, 0))
		for _, test := range []struct {
			op   wire.Operation
			want string
		}{
			{create("/b", nil, 0), "CREA"}, {with(create("/c", nil, 0), of(wire.OpCreate2)), "CREA"}, {op(wire.OpDelete, "/b"), "DELE"},
			{op(wire.OpSetData, "/a"), "SETD"}, {with(op(wire.OpSetACL, "/a"), acls(openACL()...)), "SETA"}, {op(wire.OpReconfig, ""), "RECO"},
			{op(wire.OpSync, "/"), "SYNC"}, {op(wire.OpExists, "/a"), "EXIS"}, {op(wire.OpGetData, "/a"), "GETD"}, {op(wire.OpGetACL, "/a"), "GETA"},
			{op(wire.OpGetChildren, "/a"), "GETC"}, {op(wire.OpGetChildren2, "/a"), "GETC"}, {op(wire.OpGetAllChildrenNumber, "/a"), "GETACN"},
			{op(wire.OpGetEphemerals, ""), "GETE"}, {op(wire.OpSetWatches, ""), "SETW"}, {op(wire.OpSetWatches2, ""), "STW2"},
			{op(wire.OpAddWatch, "/a"), "ADDW"}, {with(op(wire.OpCheckWatches, "/a"), func(o *wire.Operation) { o.Kind = wire.KindAny }), "CHKW"},
			{with(op(wire.OpRemoveWatches, "/a"), func(o *wire.Operation) { o.Kind = wire.KindAny }), "REMW"}, {op(wire.OpWhoAmI, ""), "HOMI"},
			{op(wire.OpMulti, ""), "MULT"}, {op(wire.OpMultiRead, ""), "MLTR"}, {op(wire.OpPing, ""), "PING"}, {create("/a", nil, 0), "CREA"},
		} {
			c.do(test.op)
			wantLast(fmt.Sprintf("op %d", test.op.Op), test.want)
		}
	})
}
