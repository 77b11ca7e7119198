package embed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
)

func init() { inside.ShardsFlag() }

// sharded starts an ensemble of three members with four shards.
func sharded(t *testing.T) *embedtest.Ensemble {
	t.Helper()
	return embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 4 }})
}

// places are where a test writes: a child of the root for each shard, at most four. Of one shard it is one place; of four,
// each is on another shard, in their order.
func places() []string {
	return []string{"/t", "/q", "/r", "/w"}[:min(max(1, inside.Shards), 4)]
}

// lastPlace is on another shard than sessions if there are several.
func lastPlace() string { return places()[len(places())-1] }

// ofSessions is a znode that is always there, on the first shard: a write to it proves its node alive.
const ofSessions = "/zookeeper"

// With four shards each place is on the shard of its number.
func TestShards_Places(t *testing.T) {
	t.Parallel()
	ens := sharded(t)
	s := ens.Session(1, embed.SessionOptions{})
	for i, p := range []string{"/t", "/q", "/r", "/w"} {
		_, err := s.Create(bounded(t), p, nil, embed.Persistent)
		must(t, err)
		var stat embed.Stat
		for range 10 * (i + 1) { // so that no two shards come to the same zxid
			stat, err = s.Set(bounded(t), p, nil, embed.AnyVersion)
			must(t, err)
		}
		if zxid := ens.Node(1).Status().Shards[i].Zxid; zxid != stat.Mzxid {
			t.Errorf("%s was set at %d, shard %d is at %d", p, stat.Mzxid, i+1, zxid)
		}
	}
	_, err := s.Set(bounded(t), ofSessions, nil, embed.AnyVersion)
	must(t, err)
}

// spread are children of the root of which every shard has some.
func spread() (paths []string) {
	for i := range 12 {
		paths = append(paths, fmt.Sprintf("/app%d", i))
	}
	return paths
}

// The tree looks like one: each path is where its name says, and the root has all of them.
func TestShards_OneTree(t *testing.T) {
	t.Parallel()
	ens := sharded(t)
	ctx := bounded(t)
	s := ens.Session(1, embed.SessionOptions{})
	for _, p := range spread() {
		_, err := s.Create(ctx, p, []byte(p), embed.Persistent)
		must(t, err)
		_, err = s.Create(ctx, p+"/e", nil, embed.Ephemeral)
		must(t, err)
	}
	for _, id := range ens.Members() {
		other := ens.Session(id, embed.SessionOptions{})
		_, err := other.Sync(ctx, "/")
		must(t, err)
		names, stat, err := other.Children(ctx, "/")
		must(t, err)
		want := []string{"zookeeper"}
		for _, p := range spread() {
			want = append(want, p[1:])
		}
		slices.Sort(want)
		if !slices.Equal(names, want) || int(stat.NumChildren) != len(want) {
			t.Errorf("member %d: children %v (%d), want %v", id, names, stat.NumChildren, want)
		}
		for _, p := range spread() {
			data, _, err := other.Get(ctx, p)
			must(t, err)
			if string(data) != p {
				t.Errorf("%s has %q", p, data)
			}
		}
		if n, err := other.CountDescendants(ctx, "/"); err != nil || n != 24+3 {
			t.Errorf("%d descendants, %v", n, err)
		}
	}
	if paths, err := s.Ephemerals(ctx, "/"); err != nil || len(paths) != 12 {
		t.Errorf("ephemerals %v, %v", paths, err)
	}
	_, err := s.Multi(ctx, embed.OpSet("/app0", nil, -1), embed.OpSet("/app1", nil, -1), embed.OpSet("/app2", nil, -1), embed.OpSet("/app3", nil, -1))
	if !errors.Is(err, embed.ErrCrossShard) {
		t.Errorf("a Multi over several shards: %v", err)
	}
	must(t, s.Close())
	other := ens.Session(2, embed.SessionOptions{})
	ens.Until("the ephemerals to go", func() bool {
		for _, p := range spread() {
			if names, _, err := other.Children(ctx, p); err != nil || len(names) > 0 {
				return false
			}
		}
		return true
	})
}

// As many shards as a Config may ask for: all of them serve.
func TestShards_AsManyAsThereMayBe(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = embed.MaxShards }})
	ctx := bounded(t)
	s := ens.Session(1, embed.SessionOptions{})
	for i, served := 0, 0; served < embed.MaxShards; i++ {
		_, err := s.Create(ctx, fmt.Sprintf("/app%d", i), nil, embed.Persistent)
		must(t, err)
		served = 0
		for _, shard := range ens.Node(1).Status().Shards {
			if shard.Zxid > 0 {
				served++
			}
		}
	}
}

// The sessions of a member that dies lose their ephemerals on every shard, and no others do.
func TestShards_SessionsEndEverywhere(t *testing.T) {
	t.Parallel()
	ens := sharded(t)
	ctx := bounded(t)
	dead := ens.Session(3, embed.SessionOptions{Timeout: time.Second})
	alive := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	for _, p := range spread() {
		_, err := alive.Create(ctx, p, nil, embed.Persistent)
		must(t, err)
		_, err = alive.Create(ctx, p+"/alive", nil, embed.Ephemeral)
		must(t, err)
	}
	var holds []*lock.Hold
	for _, p := range spread() {
		h, err := lock.NewMutex(dead, p+"/lock").Lock(ctx)
		must(t, err)
		holds = append(holds, h)
	}
	ens.Kill(3)
	for i, p := range spread() {
		h, err := lock.NewMutex(alive, p+"/lock").Lock(ctx)
		must(t, err)
		if holds[i].Err() == nil {
			t.Error("the dead holder thinks that it holds")
		}
		if h.Token().Compare(holds[i].Token()) <= 0 {
			t.Error("token")
		}
		must(t, h.Release())
	}
	for _, p := range spread() {
		if _, ok, err := alive.Exists(ctx, p+"/alive"); !ok || err != nil {
			t.Errorf("%s/alive: %v, %v", p, ok, err)
		}
	}
}

// The leaderships are spread over the members, go elsewhere when one dies, and come back with it.
func TestShards_LeadersAreSpread(t *testing.T) {
	t.Parallel()
	ens := sharded(t)
	spread := func() bool {
		for _, id := range ens.Members() {
			for i, s := range ens.Node(id).Status().Shards {
				if s.Leader != ens.Members()[i%3] {
					return false
				}
			}
		}
		return true
	}
	ens.Until("the leaderships to be spread", spread)
	ens.Kill(2)
	ens.Until("the others to lead", func() bool {
		for _, s := range ens.Node(1).Status().Shards {
			if s.Leader == 0 || s.Leader == 2 {
				return false
			}
		}
		return true
	})
	ens.Restart(2)
	ens.Until("its leadership to come back", spread)
}

// A watch on the root is told of every shard, in the order of each.
func TestShards_WatchOfTheRoot(t *testing.T) {
	t.Parallel()
	ens := sharded(t)
	ctx := bounded(t)
	s := ens.Session(1, embed.SessionOptions{})
	all, err := s.Watch(ctx, "/", embed.WatchRecursive)
	must(t, err)
	once, err := s.Watch(ctx, "/", embed.WatchOnce)
	must(t, err)
	children, err := s.Watch(ctx, "/", embed.WatchPersistent)
	must(t, err)
	writer := ens.Session(2, embed.SessionOptions{})
	for _, p := range spread() {
		_, err := writer.Create(ctx, p, nil, embed.Persistent)
		must(t, err)
		_, err = writer.Set(ctx, p, []byte("x"), 0)
		must(t, err)
	}
	seen := make(map[string][]embed.EventType)
	for range 2 * len(spread()) {
		e := <-all.Events()
		seen[e.Path] = append(seen[e.Path], e.Type)
		if e.Type == embed.NodeCreated {
			if c := <-children.Events(); c.Type != embed.NodeChildrenChanged || c.Path != "/" {
				t.Errorf("the root: %+v", c)
			}
		}
	}
	for _, p := range spread() {
		if !slices.Equal(seen[p], []embed.EventType{embed.NodeCreated, embed.NodeDataChanged}) {
			t.Errorf("%s: %v", p, seen[p])
		}
	}
	if e, ok := <-once.Events(); !ok || e.Type != embed.NodeChildrenChanged {
		t.Errorf("once: %+v, %v", e, ok)
	}
	if e, ok := <-once.Events(); ok || once.Err() != nil {
		t.Errorf("once, again: %+v, %v", e, once.Err())
	}
	if all.Zxid() != 0 {
		t.Errorf("armed at %d on several shards", all.Zxid())
	}
	must(t, all.Close())
	must(t, s.Close())
	if _, ok := <-children.Events(); ok || !errors.Is(children.Err(), embed.ErrSessionClosed) {
		t.Errorf("after the session: %v, %v", ok, children.Err())
	}
}

// A Lock waits for a quorum as long as its ctx lets it, also where its session is not known yet; who does not wait is not kept
// waiting, and nobody is left in a queue who gave up.
func TestShards_LockOutwaitsAQuorumWhereItsSessionIsNew(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards, c.RequestTimeout = 4, 100*time.Millisecond }})
	ens.MoveLeader(2)
	s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	ens.Isolate(1)
	type outcome struct {
		hold *lock.Hold
		err  error
	}
	granted, gaveUp := make(chan outcome, len(spread())), make(chan error, len(spread()))
	leaving, leave := context.WithCancel(bounded(t))
	for _, p := range spread() {
		go func() {
			h, err := lock.NewMutex(s, p+"/lock").Lock(bounded(t))
			granted <- outcome{h, err}
		}()
		go func() {
			_, err := lock.NewMutex(s, p+"/left").Lock(leaving)
			gaveUp <- err
		}()
	}
	for range 3 { // longer than a call may take
		for _, p := range spread()[:4] {
			if _, err := lock.NewMutex(s, p+"/tried").TryLock(context.Background()); !errors.Is(err, embed.ErrUnavailable) {
				t.Errorf("TryLock: %v", err)
			}
		}
	}
	leave()
	for range spread() {
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("Lock whose ctx ended: %v", err)
		}
	}
	select {
	case got := <-granted:
		t.Fatalf("Lock without a quorum: %v, %v", got.hold, got.err)
	default:
	}
	ens.HealAll()
	for range spread() {
		got := <-granted
		must(t, got.err)
		_ = got.hold.Release() // in the little time that a call has here; the node goes on trying
	}
	ens.Until("everybody to leave the queues", func() bool {
		paths, err := s.Ephemerals(bounded(t), "/")
		return err == nil && len(paths) == 0
	})
}
