package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// sides starts two servers. It returns a config to copy all from one to the other.
func sides(t *testing.T) (cfg Config, from, to *hand) {
	t.Helper()
	a, b := start(t, gateway.Config{}), start(t, gateway.Config{})
	cfg = Config{From: Side{[]string{a}, "/a", super, nil}, To: Side{[]string{b}, "/b", super, nil}}
	return cfg, take(t, a, super...), take(t, b, super...)
}

// A copy has all of a subtree, under another path, and nothing else.
func TestRun(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "root")
	from.create("/ab", "beside it")
	for i := range 200 {
		from.create(fmt.Sprintf("/a/%d", i), fmt.Sprint(i))
		from.create(fmt.Sprintf("/a/%d/below", i), "")
	}
	from.must(wire.Operation{Op: wire.OpCreate, Path: "/a/null", ACL: open})
	from.must(restriction("/a/7", digestACL("u:pw"),
		wire.ACL{Perms: wire.PermRead, Scheme: "ip", ID: "10.0.0.0/8"}))
	from.must(wire.Operation{Op: wire.OpCreateContainer, Path: "/a/c", ACL: open,
		Flags: wire.FlagsContainer})
	from.must(wire.Operation{Op: wire.OpCreateTTL, Path: "/a/ttl", ACL: open, Flags: wire.FlagsTTL,
		TTL: 1 << 30})
	from.must(wire.Operation{Op: wire.OpCreate, Path: "/a/7/e", ACL: open, Flags: wire.FlagsEphemeral})
	to.create("/other", "stays")

	r, err := Run(testkit.Context(t), cfg)
	must(t, err)
	if !r.Equal() || r.Source.Znodes != 404 || r.Target.Znodes != 404 || r.Source.Ephemerals != 1 ||
		r.Created != 404 || r.Changed != 0 {
		t.Errorf("%+v", r)
	}
	sameTrees(t, from, "/a", to, "/b")
	stays := func(s string) bool { return strings.HasPrefix(s, `/other "stays"`) }
	if got := to.dump("/"); len(got) != 405 || !slices.ContainsFunc(got, stays) {
		t.Errorf("%d znodes", len(got))
	}
}

// A subtree that is there already is not touched, unless the caller says so.
func TestRun_Existing(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "root")
	from.create("/a/x", "new")
	from.create("/a/y", "")
	to.create("/b", "theirs")
	to.create("/b/x", "old")
	to.create("/b/z", "")
	to.create("/b/z/1", "")
	before := to.dump("/")
	r, err := Run(testkit.Context(t), cfg)
	testkit.WantErr(t, err, ErrExists)
	if got := to.dump("/"); !slices.Equal(got, before) || r.Created+r.Changed+r.Deleted != 0 {
		t.Errorf("%+v, %q", r, got)
	}

	cfg.Overwrite = true
	r, err = Run(testkit.Context(t), cfg)
	must(t, err)
	want := []Difference{{"/b/z", "only at the target"}, {"/b/z/1", "only at the target"}}
	if r.Equal() || r.Different != 2 || !slices.Equal(r.Differences, want) || r.Changed != 2 ||
		r.Created != 1 || r.Deleted != 0 {
		t.Errorf("%+v", r)
	}

	to.must(wire.Operation{Op: wire.OpCreate, Path: "/b/z/e", ACL: open, Flags: wire.FlagsEphemeral})
	cfg.Prune = true
	r, err = Run(testkit.Context(t), cfg)
	must(t, err)
	if r.Equal() || r.Different != 1 || r.Deleted != 1 ||
		!strings.Contains(r.Differences[0].Why, "an ephemeral") {
		t.Errorf("with an ephemeral of somebody: %+v", r)
	}
	to.delete("/b/z/e")
	if r, err = Run(testkit.Context(t), cfg); err != nil || !r.Equal() || r.Deleted != 1 ||
		r.Changed+r.Created != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	sameTrees(t, from, "/a", to, "/b")
}

// Into the root of a tree, what is not the ensemble's own is copied, and the root stays as it is.
func TestRun_IntoTheRoot(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "not copied")
	from.create("/a/x", "1")
	cfg.To.Path, cfg.RootStays = "/", true
	r, err := Run(testkit.Context(t), cfg)
	if err != nil || !r.Equal() || r.Created != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	sameTrees(t, from, "/a", to, "/")
	_, err = Run(testkit.Context(t), cfg)
	testkit.WantErr(t, err, ErrExists)

	cfg.From.Path, cfg.To.Path, cfg.RootStays = "/", "/all", false
	if r, err = Run(testkit.Context(t), cfg); err != nil || !r.Equal() || r.Source.Znodes != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	sameTrees(t, from, "/", to, "/all")
}

// Only /zookeeper of the whole tree is the ensemble's own, on either side. What cannot come there is
// named as a difference, with the reason.
func TestRun_ZnodesNamedZookeeper(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	for _, path := range []string{"/a", "/a/x", "/a/zookeeper", "/a/zookeeper/config"} {
		from.create(path, "mine")
	}
	r, err := Run(testkit.Context(t), cfg)
	if err != nil || !r.Equal() || r.Created != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	sameTrees(t, from, "/a", to, "/b")
	into := cfg
	into.To.Path, into.RootStays, into.Overwrite = "/", true, true
	to.delete("/b/zookeeper/config")
	to.delete("/b/zookeeper")
	to.delete("/b/x")
	to.delete("/b")
	r, err = Run(testkit.Context(t), into)
	want := Difference{"/a/zookeeper", "only at the source: /zookeeper of the target is the ensemble's own"}
	if err != nil || r.Equal() || r.Different != 2 || r.Differences[0] != want || r.Created != 1 {
		t.Errorf("%+v, %v", r, err)
	}

	to.create("/all", "")
	to.create("/all/zookeeper", "theirs")
	back := cfg
	back.From.Path, back.To.Path, back.Overwrite = "/", "/all", true
	r, err = Run(testkit.Context(t), back)
	want = Difference{"/all/zookeeper", "only at the target"}
	if err != nil || r.Different != 1 || r.Differences[0] != want {
		t.Errorf("%+v, %v", r, err)
	}
	back.Prune = true
	if r, err = Run(testkit.Context(t), back); err != nil || !r.Equal() || r.Deleted != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Whatever happens to the source's znodes while a copy follows happens to the target's.
func TestRun_Follow(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	for range 5 {
		from.create("/a/x", "1") // counts, for the numbers below
		from.delete("/a/x")
	}
	from.create("/a/x", "1")
	from.create("/a/x/y", "1")
	c := follow(t, cfg)
	c.says("walked")
	to.sees("/b/x/y", "1")
	from.set("/a/x", "2")
	to.sees("/b/x", "2")
	from.delete("/a/x/y")
	from.delete("/a/x")
	to.sees("/b/x", "")
	from.create("/a/x", "3")
	from.create("/a/x/y", "3")
	to.sees("/b/x/y", "3")
	first := from.must(wire.Operation{Op: wire.OpCreate, Path: "/a/n-", Data: []byte("q"), ACL: open,
		Flags: wire.FlagsSequential})
	from.delete(first.Path)
	q := from.must(wire.Operation{Op: wire.OpCreate, Path: "/a/n-", Data: []byte("q"), ACL: open,
		Flags: wire.FlagsSequential})
	to.sees("/b"+strings.TrimPrefix(q.Path, "/a"), "q")
	from.must(restriction("/a/x", digestACL("u:pw"))) // nobody hears of it before the walk at the end
	r := c.cutOver()
	if !r.Equal() || r.Deleted < 2 || !slices.Equal(r.Again, []string{"/b"}) {
		t.Errorf("%+v\n%s", r, c.said())
	}
	sameTrees(t, from, "/a", to, "/b")
}

// A source that loses the whole subtree ends the copy. The target keeps what was copied.
func TestRun_TheSubtreeVanishes(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	from.create("/a/x", "1")
	to.create("/b", "")
	to.create("/b/theirs", "")
	cfg.Overwrite = true
	c := follow(t, cfg)
	c.says("walked")
	both := []wire.Operation{deletion("/a/x"), deletion("/a")}
	_, err := from.zk.Call(testkit.Context(t), wire.Request{Operation: wire.Operation{Op: wire.OpMulti}, Ops: both})
	must(t, err)
	<-c.ended
	if c.err == nil || !strings.Contains(c.err.Error(), "/a: the source does not have it any more") {
		t.Errorf("%v", c.err)
	}
	to.must(wire.Operation{Op: wire.OpExists, Path: "/b/theirs"})
	to.must(wire.Operation{Op: wire.OpExists, Path: "/b"})
}

// A copy that follows goes on by itself when its session with the source ends, although it has
// nothing to ask for: the end is heard, not found.
func TestRun_SessionEndsWhileIdle(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	relay := newRelay(t, cfg.From.Servers[0])
	cfg.From.Servers = []string{relay.addr()}
	c := follow(t, cfg)
	c.says("walked")
	for i := range 3 {
		relay.expire(t)
		from.create(fmt.Sprintf("/a/%d", i), "new")
		to.sees(fmt.Sprintf("/b/%d", i), "new")
	}
	if r := c.cutOver(); !r.Equal() {
		t.Errorf("%+v\n%s", r, c.said())
	}
}

// A new session may be with a server that is behind the one of the session before. So each begins
// with a sync, before anything is read in it: otherwise the comparison after the last sync would call
// a target equal that has lost what the source has acknowledged.
func TestRun_EachSessionBeginsWithASync(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	source, target := newRelay(t, cfg.From.Servers[0]), newRelay(t, cfg.To.Servers[0])
	cfg.From.Servers, cfg.To.Servers = []string{source.addr()}, []string{target.addr()}
	c := follow(t, cfg)
	c.says("walked")
	n := 0
	write := func() { // so that the target is used
		n++
		from.create(fmt.Sprintf("/a/%d", n), "new")
	}
	for range 2 {
		for _, relay := range []*relay{source, target} {
			was := relay.now()
			testkit.Until(t, "another session", func() bool {
				relay.end(was)
				write()
				return relay.now().SessionID != was.SessionID
			})
			write()
			to.sees(fmt.Sprintf("/b/%d", n), "new")
			if ops := relay.firstOps(); !slices.Contains(ops, wire.OpSync) {
				t.Errorf("the new session began with %v", ops)
			}
		}
	}
	if r := c.cutOver(); !r.Equal() {
		t.Errorf("%+v\n%s", r, c.said())
	}
}

// A copy into its own tree, one path within the other, does not begin, whatever the addresses are.
// Two paths of one tree that are apart are copied, and so are the same paths of two trees.
func TestRun_IntoItsOwnTree(t *testing.T) {
	t.Parallel()
	cfg, from, other := sides(t)
	for _, path := range []string{"/a", "/a/x", "/a/x/y", "/b"} {
		from.create(path, "1")
	}
	same := newRelay(t, cfg.From.Servers[0]).addr()
	before := from.dump("/")
	run := func(from, server, to string) error {
		cfg.From.Path, cfg.To.Path, cfg.To.Servers = from, to, []string{server}
		cfg.Overwrite, cfg.RootStays = true, to == "/"
		cfg.Prune = true
		_, err := Run(testkit.Context(t), cfg)
		return err
	}
	elsewhere := cfg.To.Servers[0]
	for _, paths := range [][2]string{{"/a", "/a"}, {"/a", "/a/copy"}, {"/a", "/a/x"}, {"/a/x", "/a"}, {"/a", "/"}, {"/", "/all"}, {"/", "/"}} {
		testkit.WantErr(t, run(paths[0], same, paths[1]), ErrOneTree)
		if got := from.dump("/"); !slices.Equal(got, before) {
			t.Errorf("%q: %q", paths, got)
		}
	}
	must(t, run("/a", same, "/b/copy"))
	sameTrees(t, from, "/a", from, "/b/copy")
	for _, paths := range [][2]string{{"/a", "/a"}, {"/a", "/a/copy"}, {"/a/x", "/a"}, {"/a", "/"}, {"/", "/"}} {
		if err := run(paths[0], elsewhere, paths[1]); err != nil {
			t.Errorf("%q: %v", paths, err)
		}
		sameTrees(t, from, paths[0], other, paths[1])
	}
}

// A source that never stops changing does not keep a copy from its end. The comparison then tells
// how far it came.
func TestRun_GoesOnChanging(t *testing.T) {
	t.Parallel()
	cfg, from, _ := sides(t)
	from.create("/a", "")
	w := write(t, cfg.From.Servers)
	w.await(t, 100)
	if r, err := Run(testkit.Context(t), cfg); err != nil || r.Source.Znodes == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	w.end()
	cfg.Overwrite, cfg.Prune = true, true
	if r, err := Run(testkit.Context(t), cfg); err != nil || !r.Equal() {
		t.Errorf("%+v, %v", r, err)
	}
}

// What somebody changes at the target is found, and named.
func TestRun_PlantedDifferences(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	for i := range 30 {
		from.create(fmt.Sprintf("/a/%02d", i), "same")
	}
	c := follow(t, cfg)
	c.says("walked")
	to.set("/b/03", "other")
	to.must(restriction("/b/04", digestACL("u:pw")))
	to.delete("/b/05")
	to.create("/b/06/extra", "")
	to.must(wire.Operation{Op: wire.OpCreate, Path: "/b/06/e", ACL: open, Flags: wire.FlagsEphemeral})
	to.set("/b/07", "")
	to.must(wire.Operation{Op: wire.OpSetData, Path: "/b/08", Version: -1})
	for i := 10; i < 20; i++ {
		to.set(fmt.Sprintf("/b/%d", i), "other")
	}
	r := c.cutOver()
	want := []Difference{
		{"/a/03", "other data"}, {"/a/04", "another ACL"}, {"/a/05", "only at the source"},
		{"/b/06/extra", "only at the target"}, {"/a/07", "other data"}, {"/a/08", "other data"},
		{"/a/10", "other data"}, {"/a/11", "other data"}, {"/a/12", "other data"},
		{"/a/13", "other data"},
	}
	if r.Equal() || r.Source.Digest == r.Target.Digest || r.Different != 16 ||
		!slices.Equal(r.Differences, want) || r.Target.Ephemerals != 1 {
		t.Errorf("%+v", r)
	}
}

// A deleted znode stays at the target if somebody else's znodes are below it. It is named, and
// nothing of theirs is lost.
func TestRun_OthersBelow(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	from.create("/a/x", "1")
	from.create("/a/y", "1")
	c := follow(t, cfg)
	c.says("walked")
	to.create("/b/x/theirs", "")
	from.delete("/a/x")
	from.delete("/a/y")
	to.sees("/b/y", "")
	from.create("/a/y", "2")
	to.sees("/b/y", "2")
	r := c.cutOver()
	if r.Equal() || r.Different != 2 ||
		!strings.HasPrefix(r.Differences[0].Why, "only at the target: deleted at the source, but") {
		t.Errorf("%+v", r)
	}
}

// A znode that a client may not read, or whose ACL it may not see, is named, and never copied with
// a wrong ACL. What the superuser copies is whole.
func TestRun_NotReadable(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	from.create("/a/ok", "1")
	from.create("/a/masked", "2")
	from.create("/a/masked/below", "2")
	from.create("/a/secret", "3")
	from.must(restriction("/a/masked", digestACL("u:pw"),
		wire.ACL{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}))
	from.must(restriction("/a/secret", digestACL("u:pw")))
	cfg.From.Auth = nil
	r, err := Run(testkit.Context(t), cfg)
	must(t, err)
	if r.Equal() || r.Different != 3 || r.Differences[0].Path != "/a/masked" ||
		!strings.Contains(r.Differences[0].Why, "no digests") ||
		r.Differences[2].Path != "/a/secret" || !strings.Contains(r.Differences[2].Why, "NoAuth") {
		t.Errorf("%+v", r)
	}
	to.sees("/b/ok", "1")
	to.sees("/b/masked", "")
	cfg.From.Auth, cfg.Overwrite = super, true
	if r, err = Run(testkit.Context(t), cfg); err != nil || !r.Equal() {
		t.Errorf("%+v, %v", r, err)
	}
	sameTrees(t, from, "/a", to, "/b")
}

// A znode that does not fit into a frame of the target is named. The others are copied, although
// each attempt costs the connection.
func TestRun_TooLarge(t *testing.T) {
	t.Parallel()
	a, b := start(t, gateway.Config{}), start(t, gateway.Config{FrameSize: 8 << 10})
	from, to := take(t, a), take(t, b)
	from.create("/a", "")
	for i := range 100 {
		from.create(fmt.Sprintf("/a/%02d", i), "small")
	}
	from.create("/a/large", strings.Repeat("x", 9<<10))
	from.create("/a/large/below", "")
	r, err := Run(testkit.Context(t), Config{From: Side{Servers: []string{a}, Path: "/a"},
		To: Side{Servers: []string{b}, Path: "/b"}})
	must(t, err)
	if r.Equal() || r.Different != 2 || r.Differences[0].Path != "/a/large" ||
		!strings.Contains(r.Differences[0].Why, "too large for a frame") {
		t.Errorf("%+v", r)
	}
	from.delete("/a/large/below")
	from.delete("/a/large")
	sameTrees(t, from, "/a", to, "/b")
}

// A copy that cannot begin changes nothing, and says why.
func TestRun_CannotBegin(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	before := to.dump("/")
	wants := func(cfg Config, part string) {
		t.Helper()
		r, err := Run(testkit.Context(t), cfg)
		if err == nil || !strings.Contains(err.Error(), part) || r.Created != 0 {
			t.Errorf("%+v, %v, want %q", r, err, part)
		}
	}
	wants(cfg, "source: /a: there is no such znode")
	from.must(wire.Operation{Op: wire.OpCreate, Path: "/a", ACL: open, Flags: wire.FlagsEphemeral})
	wants(cfg, "it is an ephemeral")
	from.delete("/a")
	from.create("/a", "")
	below := cfg
	below.To.Path = "/none/b"
	wants(below, "/none/b: its parent must exist")
	wrong := cfg
	wrong.To.Auth = []wire.Auth{{Scheme: "none", Proof: []byte("x")}}
	wants(wrong, "target: KeeperErrorCode = AuthFailed")
	if got := to.dump("/"); !slices.Equal(got, before) {
		t.Errorf("%q", got)
	}
	cfg.From.Path = "/a"
	if _, err := Run(testkit.Context(t), cfg); err != nil {
		t.Error(err)
	}
}

// The end of the context ends a copy that follows, and leaves no goroutine.
func TestRun_Stopped(t *testing.T) {
	t.Parallel()
	cfg, from, to := sides(t)
	from.create("/a", "")
	ctx, cancel := context.WithCancel(testkit.Context(t))
	cfg.CutOver = make(chan struct{})
	var r Result
	ended := make(chan error, 1)
	go func() {
		var err error
		r, err = Run(ctx, cfg)
		ended <- err
	}()
	testkit.Until(t, "/b", func() bool {
		_, err := to.do(wire.Operation{Op: wire.OpExists, Path: "/b"})
		return err == nil
	})
	from.create("/a/x", "seen")
	to.sees("/b/x", "seen")
	cancel()
	testkit.WantErr(t, <-ended, context.Canceled)
	if r.Created < 1 || r.Created > 2 || r.Equal() { // the answer to the second may be lost
		t.Errorf("%+v", r)
	}
}
