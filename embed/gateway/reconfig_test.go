package gateway

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

const planned = "server.1=one.test:7946:0:participant;one.test:2181\n" +
	"server.2=[2001:db8::2]:7946:0:participant\n" +
	"server.4=four.test:7946:0:observer;[2001:db8::4]:2181\n" +
	"server.5=five.test:7946:0:observer\n" +
	"version=1a"

// 3.20: what the three strings of a request ask for, and which of them are refused with which code.
func TestPlanReconfig(t *testing.T) {
	const (
		one  = "server.1=one.test:7946:0:participant;one.test:2181"
		two  = "server.2=[2001:db8::2]:7946:0"
		four = "server.4=four.test:7946:0:observer;[2001:db8::4]:2181"
		null = wire.Null
	)
	ids := func(list ...embed.MemberID) []embed.MemberID { return list }
	for _, c := range []struct {
		joining, leaving, members string
		promote, remove           []embed.MemberID
		err                       error
	}{
		{null, null, null, nil, nil, nil},
		{"", "", null, nil, nil, nil},
		{" , ", ",,", null, nil, nil, nil},
		{one, null, null, nil, nil, nil},
		// The role is participant, and the client's part may be left out.
		{"1=ONE.TEST:7946:0", null, null, nil, nil, nil},
		{"server.1=one.test:7946:0;2181", null, null, nil, nil, nil}, // its port alone
		{"server.1=one.test:7946:0:;0.0.0.0:2181", null, null, nil, nil, nil},
		{two + ", " + one, null, null, nil, nil, nil},
		{"server.2=[2001:db8:0:0:0:0:0:2]:7946:0", null, null, nil, nil, nil},
		{four, null, null, nil, nil, nil},
		{"server.4=four.test:7946:0", null, null, ids(4), nil, nil},
		{"server.5=five.test:7946:0:Participant,server.4=four.test:7946:0:participant;[2001:DB8::4]:2181", null, null, ids(4, 5), nil, nil},
		{null, "5", null, nil, ids(5), nil},
		{null, "1, 2,77", null, nil, nil, errServers}, // nobody would vote
		{"server.4=four.test:7946:0", "1,2", null, ids(4), ids(1, 2), nil},
		{null, "77", null, nil, nil, nil},
		{one, "1", null, nil, nil, nil}, // it leaves and joins
		{null, null, one + "," + two, nil, ids(4, 5), nil},
		{null, null, strings.ReplaceAll(planned, "\n", ","), nil, nil, nil},
		{null, null, planned, nil, nil, nil},
		{"ignored", "ignored", "# a file\n! of lines\n\n" + one + "\n server.5 = five.test:7946:0:observer\n", nil, ids(2, 4), nil},

		{"server.9=nine.test:7946:0", null, null, nil, nil, errServers}, // unknown
		{"server.1=one.test:7946:0:observer", null, null, nil, nil, errServers},
		{"server.1=other.test:7946:0", null, null, nil, nil, errServers},
		{"server.1=one.test:7947:0", null, null, nil, nil, errServers},
		{"server.1=one.test:7946:1", null, null, nil, nil, errServers},
		{"server.1=one.test:7946:0;one.test:2182", null, null, nil, nil, errServers},
		{"server.1=one.test:7946:0;2182", null, null, nil, nil, errServers},
		// It has announced nothing for clients.
		{"server.2=[2001:db8::2]:7946:0;2181", null, null, nil, nil, errServers},
		{"server.1", null, null, nil, nil, errServers},
		{"server.1=a=b", null, null, nil, nil, errServers},
		{"server.1=one.test:7946", null, null, nil, nil, errServers},
		{"server.1=one.test:7946:x", null, null, nil, nil, errServers},
		{"server.1=one.test:7946:0:king", null, null, nil, nil, errServers},
		{"server.1=one.test:7946:0:participant:x", null, null, nil, nil, errServers},
		{"server.1=one.test:7946:0;x:y", null, null, nil, nil, errServers},
		{"server.1=:7946:0", null, null, nil, nil, errServers},
		{"server.1=", null, null, nil, nil, errServers},
		{"server.one=one.test:7946:0", null, null, nil, nil, errMarshalling},
		{"server.=one.test:7946:0", null, null, nil, nil, errMarshalling},
		{null, "one", null, nil, nil, errMarshalling},
		{null, null, "", nil, nil, errServers},
		{null, null, "group.1=1:2", nil, nil, errServers},
		{null, null, "hello", nil, nil, errServers},
		{null, null, "server.x=one.test:7946:0", nil, nil, errMarshalling},
		{strings.Repeat(one+",", serversMax+1), null, null, nil, nil, errServers},
	} {
		got, err := planReconfig(planned, &wire.Reconfig{Joining: c.joining, Leaving: c.leaving, Members: c.members})
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%.80q, %.80q, %.80q: %v, want %v", c.joining, c.leaving, c.members, err, c.err)
		}
		if want := (engine.Reconfig{Promote: c.promote, Remove: c.remove}); err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%.80q, %.80q, %.80q: %+v, want %+v", c.joining, c.leaving, c.members, got, want)
		}
	}
}

// Whatever the strings are, there is an answer. It names only servers of the config, and leaves
// somebody who votes.
func FuzzPlanReconfig(f *testing.F) {
	f.Add(planned, "server.4=four.test:7946:0", "1,2", "", false)
	f.Add(planned, "", "", planned, true)
	f.Add("server.1=[::1]:1:0:participant;[::]:2\nversion=0", "1=[0:0::1]:1:0;2", "9", "", false)
	f.Fuzz(func(t *testing.T, config, joining, leaving, members string, whole bool) {
		q := &wire.Reconfig{Joining: joining, Leaving: leaving, Members: wire.Null}
		if whole {
			q.Members = members
		}
		c, err := planReconfig(config, q)
		if err != nil {
			if _, ok := codeOf(err); !ok {
				t.Fatalf("no code tells %v", err)
			}
			return
		}
		now, err := parseServers(config)
		if err != nil {
			t.Fatal(err)
		}
		votes := 0
		for _, s := range now {
			id := embed.MemberID(s.id)
			promoted, removed := slices.Contains(c.Promote, id), slices.Contains(c.Remove, id)
			if promoted && (s.votes || removed) {
				t.Errorf("server %d is to vote; it votes: %v, is to go: %v", id, s.votes, removed)
			}
			if (s.votes || promoted) && !removed {
				votes++
			}
		}
		if votes == 0 || len(c.Promote)+len(c.Remove) > len(now) {
			t.Errorf("%+v of %d servers, and %d vote", c, len(now), votes)
		}
	})
}

// An ensemble that grows, in virtual time, with a gateway on each member.
type growing struct {
	*embedtest.Ensemble
	t     *testing.T
	gates map[embed.MemberID]*Gateway // by place
}

func grow(t *testing.T, founders int, change func(*embed.Config), fn func(g *growing)) {
	synctest.Test(t, func(t *testing.T) {
		g := &growing{t: t, gates: make(map[embed.MemberID]*Gateway)}
		g.Ensemble = embedtest.New(t, founders, embedtest.Options{Config: func(c *embed.Config) {
			c.SuperDigest = tree.Digest("super:test")
			if change != nil {
				change(c)
			}
		}})
		for _, place := range g.Members() {
			g.open(place)
		}
		fn(g)
	})
}

// open opens the gateway of a place.
func (g *growing) open(place embed.MemberID) {
	g.t.Helper()
	g.gates[place] = startOn(g.t, g.Node(place), Config{Words: []string{"*"}, Reconfig: true, Advertise: fmt.Sprintf("client-%d.test:2181", place)})
}

// join starts a new member with a gateway, and waits until it is ready.
func (g *growing) join() embed.MemberID {
	g.t.Helper()
	place := g.Join()
	g.Ready(place)
	g.open(place)
	return place
}

// connect opens a session at a place. A super identity may do everything.
func (g *growing) connect(place embed.MemberID, super bool) *client {
	g.t.Helper()
	sock, err := g.Dial(g.t.Context(), place)
	if err != nil {
		g.t.Fatal(err)
	}
	c := newClient(g.t, sock)
	c.open(wire.ConnectRequest{Timeout: 60_000, Password: make([]byte, 16)})
	if super {
		c.auth("digest", "super:test")
	}
	return c
}

// rest lets those that have just joined become stable enough to vote.
func rest() { <-time.After(20 * time.Second) }

// config returns what the config says to a client, without its version, and the version.
func (c *client) config() (lines string, version int64) {
	c.t.Helper()
	r := c.must(op(wire.OpGetData, tree.ConfigPath))
	lines, rest, _ := strings.Cut(string(r.Data), "version=")
	if _, err := fmt.Sscanf(rest, "%x", &version); err != nil && len(r.Data) > 0 || version != r.Stat.Mzxid {
		c.t.Errorf("the version is %q in transaction %x", rest, r.Stat.Mzxid)
	}
	if r.Stat.Version != -1 || r.Stat.Czxid != 0 {
		c.t.Errorf("the config has the stat %+v", r.Stat)
	}
	return lines, version
}

// shows waits until the config has exactly these lines: ids of participants, and ids of observers
// below zero. It returns the version.
func (g *growing) shows(c *client, ids ...int) (version int64) {
	g.t.Helper()
	want := ""
	for _, id := range ids {
		role := "participant"
		if id < 0 {
			id, role = -id, "observer"
		}
		want += fmt.Sprintf("server.%d=member-%d.test:1:0:%s;client-%d.test:2181\n", id, id, role, id)
	}
	got := ""
	g.Until(fmt.Sprintf("the config of %v", ids), func() bool {
		got, version = c.config()
		return got == want
	})
	return version
}

// reconfig asks for a change. The strings may be wire.Null.
func (c *client) reconfig(joining, leaving, members string, version int64) wire.Reply {
	c.t.Helper()
	return c.call(wire.Request{Operation: wire.Operation{Op: wire.OpReconfig},
		Reconfig: wire.Reconfig{Joining: joining, Leaving: leaving, Members: members, ConfigID: version}})
}

const null = wire.Null

// line returns what a place says in the config.
func line(place int, role string) string {
	return fmt.Sprintf("server.%d=member-%d.test:1:0:%s;client-%d.test:2181", place, place, role, place)
}

// 3.20: members join as observers, become participants on request, and leave. Every change fires
// the watch of the config, before an answer shows it.
func TestReconfig(t *testing.T) {
	grow(t, 3, nil, func(g *growing) {
		c, watcher := g.connect(1, true), g.connect(2, false)
		watcher.must(wire.Operation{Op: wire.OpAddWatch, Path: tree.ConfigPath, Mode: wire.WatchPersistent})
		before := g.shows(watcher, 1, 2, 3)
		next := func(what string, ids ...int) (version int64) {
			t.Helper()
			watcher.events, watcher.zxids = nil, nil
			version = g.shows(watcher, ids...)
			if len(watcher.zxids) == 0 || watcher.zxids[len(watcher.zxids)-1] != version || watcher.events[0].Type != wire.NodeDataChanged {
				t.Errorf("%s: events %+v of %x, the version is %x", what, watcher.events, watcher.zxids, version)
			}
			if version <= before {
				t.Errorf("%s: version %x after %x", what, version, before)
			}
			before = version
			return version
		}
		for range 2 {
			g.join()
		}
		version := next("two join", 1, 2, 3, -4, -5)

		if r := c.reconfig(line(4, "participant"), null, null, -1); r.Err != wire.NewConfigNoQuorum {
			t.Fatalf("a member that has just joined is to vote: %v", r.Err)
		}
		rest()
		r := c.reconfig(line(4, "participant")+","+line(5, "participant"), null, null, version)
		if r.Err != wire.OK || !strings.Contains(string(r.Data), line(5, "participant")) || r.Stat.Version != -1 || r.Stat.Mzxid <= version || r.Zxid < r.Stat.Mzxid {
			t.Fatalf("two are to vote: %v, %q, %+v", r.Err, r.Data, r.Stat)
		}
		next("two vote", 1, 2, 3, 4, 5)
		if r := c.reconfig(null, "5", null, version); r.Err != wire.BadVersion {
			t.Errorf("for an old version: %v", r.Err)
		}
		r = c.reconfig(null, "5", null, before)
		if r.Err != wire.OK || strings.Contains(string(r.Data), "server.5=") {
			t.Fatalf("one is to leave: %v, %q", r.Err, r.Data)
		}
		next("one has left", 1, 2, 3, 4)
		whole := strings.Join([]string{line(1, "participant"), line(2, "participant"), line(4, "participant")}, ",")
		if r := c.reconfig(null, null, whole, -1); r.Err != wire.OK || strings.Contains(string(r.Data), "server.3=") {
			t.Fatalf("all but one are to stay: %v, %q", r.Err, r.Data)
		}
		version = next("three are left", 1, 2, 4)

		// What is so already changes nothing.
		r = c.reconfig(line(4, "participant"), "3,5,77", null, version)
		if r.Err != wire.OK || r.Stat.Mzxid != version {
			t.Errorf("nothing to do: %v, %+v, the version is %x", r.Err, r.Stat, version)
		}
		if _, now := c.config(); now != version {
			t.Errorf("the version is %x, was %x", now, version)
		}
	})
}

// 3.20: a refusal changes nothing, and its code says why.
func TestReconfig_Refusals(t *testing.T) {
	grow(t, 3, nil, func(g *growing) {
		super, plain := g.connect(1, true), g.connect(1, false)
		g.join()
		version := g.shows(super, 1, 2, 3, -4)
		rest()
		learner := line(4, "participant")
		for _, c := range []struct {
			what             string
			who              *client
			joining, leaving string
			version          int64
			want             wire.Code
		}{
			{"another version", super, learner, null, version + 1, wire.BadVersion},
			{"another version, and garbage", super, "garbage", null, version + 1, wire.BadVersion},
			{"no version", super, learner, null, 0, wire.BadVersion},
			{"garbage", super, "garbage", null, -1, wire.BadArguments},
			{"an id that is no number", super, null, "x", -1, wire.MarshallingError},
			{"a server that is no member", super, "server.9=nine.test:1:0:observer;2181", null, -1, wire.BadArguments},
			{"a voter as observer", super, line(1, "observer"), null, -1, wire.BadArguments},
			{"another address", super, "server.1=member-1.test:2:0:participant", null, -1, wire.BadArguments},
			{"nobody is left", super, null, "1,2,3", -1, wire.BadArguments},
			{"without permission", plain, learner, null, version, wire.NoAuth},
			{"without permission, and another version", plain, learner, null, version + 1, wire.NoAuth},
			{"without permission, and garbage", plain, "garbage", "x", -1, wire.NoAuth},
			{"without permission, and a server that is no member", plain, "server.9=nine.test:1:0:observer;2181", null, -1, wire.NoAuth},
			{"without permission to remove", plain, null, "3", -1, wire.NoAuth},
			{"without permission to do nothing", plain, line(1, "participant"), null, -1, wire.NoAuth},
		} {
			if r := c.who.reconfig(c.joining, c.leaving, null, c.version); r.Err != c.want || len(r.Data) > 0 {
				t.Errorf("%s: code %v with %q, want %v", c.what, r.Err, r.Data, c.want)
			}
		}
		if now := g.shows(super, 1, 2, 3, -4); now != version {
			t.Errorf("the version is %x, was %x", now, version)
		}

		// One of three is silent. Without one more, the others would be no quorum.
		g.Kill(3)
		rest()
		if r := super.reconfig(null, "2", null, -1); r.Err != wire.NewConfigNoQuorum {
			t.Errorf("the last but one that answers is to leave: %v", r.Err)
		}
		if r := super.reconfig(null, "3", null, -1); r.Err != wire.OK {
			t.Errorf("one that is silent is to leave: %v", r.Err)
		}

		// A super identity may let others write the config, and so change the members.
		super.must(with(op(wire.OpSetACL, tree.ConfigPath), acls(wire.ACL{Perms: wire.PermRead | wire.PermWrite, Scheme: "world", ID: "anyone"})))
		if r := plain.reconfig(null, "4", null, -1); r.Err != wire.OK || strings.Contains(string(r.Data), "server.4=") {
			t.Errorf("with permission: %v, %q", r.Err, r.Data)
		}
	})
}

// M2: a voter that is alone does not get one more voter, because then either failure would stop
// both. It gets two.
func TestReconfig_OneBecomesThree(t *testing.T) {
	grow(t, 1, func(c *embed.Config) { c.Voters = 1 }, func(g *growing) {
		c := g.connect(1, true)
		g.join()
		g.join()
		g.shows(c, 1, -2, -3)
		rest()
		if r := c.reconfig(line(2, "participant"), null, null, -1); r.Err != wire.NewConfigNoQuorum {
			t.Errorf("one more is to vote: %v", r.Err)
		}
		if r := c.reconfig(line(2, "participant")+","+line(3, "participant"), null, null, -1); r.Err != wire.OK {
			t.Errorf("two more are to vote: %v", r.Err)
		}
		g.shows(c, 1, 2, 3)
	})
}

// M62: with several shards, who is out of one is over on all. So those who stay must be a quorum
// beside those who go.
func TestReconfig_OnSeveralShards(t *testing.T) {
	grow(t, 3, func(c *embed.Config) { c.Shards = 4 }, func(g *growing) {
		c := g.connect(1, true)
		g.shows(c, 1, 2, 3)
		rest()
		if r := c.reconfig(null, "2,3", null, -1); r.Err != wire.NewConfigNoQuorum {
			t.Errorf("two of three are to leave: %v", r.Err)
		}
		if r := c.reconfig(null, "3", null, -1); r.Err != wire.OK {
			t.Errorf("one of three is to leave: %v", r.Err)
		}
		if r := c.reconfig(null, "2", null, -1); r.Err != wire.NewConfigNoQuorum {
			t.Errorf("one of two is to leave: %v", r.Err)
		}
		g.shows(c, 1, 2)
	})
}

// M8: the leader is removed like any other. It hands the leadership over first.
func TestReconfig_RemovesTheLeader(t *testing.T) {
	grow(t, 3, nil, func(g *growing) {
		c := g.connect(1, true)
		g.shows(c, 1, 2, 3)
		rest()
		g.TransferLeadership(3)
		rest()
		if r := c.reconfig(null, "3", null, -1); r.Err != wire.OK {
			t.Fatalf("the leader is to leave: %v", r.Err)
		}
		g.shows(c, 1, 2)
	})
}

// A client whose own member is removed loses its connection.
func TestReconfig_RemovesItsOwnMember(t *testing.T) {
	grow(t, 3, nil, func(g *growing) {
		c, other := g.connect(3, true), g.connect(1, false)
		g.shows(c, 1, 2, 3)
		rest()
		c.send(wire.Request{Operation: wire.Operation{Op: wire.OpReconfig}, Reconfig: wire.Reconfig{Joining: null, Leaving: "3", Members: null, ConfigID: -1}})
		c.endsSilently()
		g.shows(other, 1, 2)
	})
}

// M1: of two changes for one version, at two members and at the same time, one is made.
func TestReconfig_TwoAtOnce(t *testing.T) {
	grow(t, 5, func(c *embed.Config) { c.Voters = 5 }, func(g *growing) {
		one, two := g.connect(1, true), g.connect(2, true)
		version := g.shows(one, 1, 2, 3, 4, 5)
		g.shows(two, 1, 2, 3, 4, 5)
		rest()
		ask := func(c *client, leaving string) wire.Request {
			return c.send(wire.Request{Operation: wire.Operation{Op: wire.OpReconfig}, Reconfig: wire.Reconfig{Joining: null, Leaving: leaving, Members: null, ConfigID: version}})
		}
		first, second := ask(one, "5"), ask(two, "4")
		got := []wire.Code{one.receive(first).Err, two.receive(second).Err}
		slices.Sort(got)
		if got[1] != wire.OK || got[0] != wire.ReconfigInProgress && got[0] != wire.BadVersion {
			t.Errorf("the codes are %v", got)
		}
		lines, _ := one.config()
		if n := strings.Count(lines, "server."); n != 4 {
			t.Errorf("%d members are left:\n%s", n, lines)
		}
	})
}

// M49: the config shows a client's address while a gateway announces one.
func TestAdvertise(t *testing.T) {
	grow(t, 1, nil, func(g *growing) {
		c := g.connect(1, false)
		g.shows(c, 1)
		if got := g.Node(1).Members()[0].Client; got != "client-1.test:2181" {
			t.Errorf("Members says that clients connect to %q", got)
		}
		_ = g.gates[1].Close()
		g.gates[1] = startOn(g.t, g.Node(1), Config{})
		c = g.connect(1, false)
		g.Until("the address to go", func() bool {
			lines, _ := c.config()
			return lines == "server.1=member-1.test:1:0:participant\n"
		})
	})
}

func TestAdvertise_OneGatewayOfANode(t *testing.T) {
	n := embedtest.New(t, 1, embedtest.Options{Config: embedkit.Patient}).Node(1)
	first := startOn(t, n, Config{Advertise: "one.test:2181"})
	startOn(t, n, Config{})
	two := Config{Listen: "127.0.0.1:0", Advertise: "two.test:2181"}
	if _, err := Start(n, two); err == nil || !strings.Contains(err.Error(), "another gateway") {
		t.Errorf("a second gateway announces another address: %v", err)
	}
	_ = first.Close()
	startOn(t, n, two)
	if err := first.Close(); err != nil { // again
		t.Error(err)
	}
	if _, err := Start(n, two); err == nil {
		t.Error("the second close of the first gateway has taken back what the second one announced")
	}
}

func TestReconfigConfig(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for _, bad := range []string{"a.test", "a.test:zookeeper", "a.test:0", ":2181", "0.0.0.0:2181", "[::]:2181", "a b:1", strings.Repeat("a", engine.AddressMax) + ":1"} {
			if err := (Config{Listen: ":2181", Advertise: bad}).Validate(); err == nil || !strings.Contains(err.Error(), "Advertise") {
				t.Errorf("Advertise %.20q: %v", bad, err)
			}
		}
		if err := (Config{Listen: ":2181", Advertise: "[2001:db8::1]:2181", Reconfig: true}).Validate(); err != nil {
			t.Error(err)
		}
	})
}

// 11.1: the words of an ensemble with learners: who is an observer, and what the leader counts.
func TestWordsOfObservers(t *testing.T) {
	grow(t, 3, nil, func(g *growing) {
		c := g.connect(1, true)
		g.join()
		g.join()
		g.shows(c, 1, 2, 3, -4, -5)
		says := func(place embed.MemberID, word string, want ...string) {
			t.Helper()
			text := ""
			g.Until(fmt.Sprintf("%s of member %d to have %q", word, place, want), func() bool {
				g.TransferLeadership(2)
				text = "\n" + string(g.gates[place].word(word))
				return !slices.ContainsFunc(want, func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") })
			})
			if place > 3 && strings.Contains(text, "zk_synced_") {
				t.Errorf("an observer counts others:\n%s", text)
			}
		}
		says(1, "srvr", "Mode: follower")
		says(2, "stat", "Mode: leader")
		for place := embed.MemberID(4); place <= 5; place++ {
			says(place, "srvr", "Mode: observer")
			says(place, "mntr", "zk_server_state\tobserver", "zk_peer_state\tobserving - broadcast", "zk_quorum_size\t3")
			if got := string(g.gates[place].word("isro")); got != "rw" {
				t.Errorf("isro of an observer: %q", got)
			}
		}
		says(2, "mntr", "zk_server_state\tleader", "zk_quorum_size\t3", "zk_learners\t4", "zk_synced_followers\t2", "zk_synced_non_voting_followers\t0", "zk_synced_observers\t2")
		says(1, "mntr", "zk_server_state\tfollower", "zk_quorum_size\t3", "zk_synced_observers\t0")
		for place := range g.gates { // each may be behind the member that the client asks
			g.Until(fmt.Sprintf("conf of member %d to end in the ensemble's config", place), func() bool {
				data := c.must(op(wire.OpGetData, tree.ConfigPath)).Data
				return strings.HasSuffix(string(g.gates[place].word("conf")), "\nmembership: \n"+string(data))
			})
		}

		g.Kill(3)
		g.Kill(5)
		says(2, "mntr", "zk_quorum_size\t3", "zk_synced_followers\t1", "zk_synced_observers\t1")
		rest()
		if r := c.reconfig(line(4, "participant"), "3,5", null, -1); r.Err != wire.OK {
			t.Fatalf("members 3 and 5 are replaced by 4: %v", r.Err)
		}
		says(2, "mntr", "zk_quorum_size\t3", "zk_learners\t2", "zk_synced_followers\t2", "zk_synced_observers\t0")
		says(4, "srvr", "Mode: follower")
	})
}

// A young ensemble tells at once what is wrong with a request, and lets one wait that is in order. Its
// client hears something meanwhile, as often as an answer to a ping is due.
func TestReconfig_OfAYoungEnsemble(t *testing.T) {
	grow(t, 3, nil, func(g *growing) {
		t := g.t
		super, plain := g.connect(1, true), g.connect(1, false)
		begin := time.Now()
		if r := plain.reconfig(null, "3", null, -1); r.Err != wire.NoAuth {
			t.Errorf("without permission: %v", r.Err)
		}
		if r := super.reconfig("garbage", null, null, -1); r.Err != wire.BadArguments {
			t.Errorf("garbage: %v", r.Err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the refusals took %v", took)
		}
		sock, err := g.Dial(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		short := newClient(t, sock)
		short.open(wire.ConnectRequest{Timeout: 2000, Password: make([]byte, 16)})
		short.auth("digest", "super:test")
		q := short.send(wire.Request{Operation: wire.Operation{Op: wire.OpReconfig}, Reconfig: wire.Reconfig{Joining: null, Leaving: "3", Members: null, ConfigID: -1}})
		pings := 0
		for heard := time.Now(); ; heard = time.Now() {
			var r wire.Reply
			if _, err := r.DecodeHeader(short.read()); err != nil {
				t.Fatal(err)
			}
			if silent := time.Since(heard); silent > time.Duration(short.Timeout)*time.Millisecond/2 {
				t.Errorf("silent for %v of %d ms", silent, short.Timeout)
			}
			if r.Xid == q.Xid {
				if r.Err != wire.OK {
					t.Errorf("one is to leave: %v", r.Err)
				}
				break
			}
			if pings++; r.Xid != wire.XidPing || r.Err != wire.OK {
				t.Errorf("an answer with xid %d and code %v", r.Xid, r.Err)
			}
		}
		if took := time.Since(begin); pings == 0 && took > time.Second { // the ensemble may be older by now
			t.Errorf("no sign of life in %v", took)
		}
		short.must(op(wire.OpPing, ""))
	})
}
