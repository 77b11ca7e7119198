package promisetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// With four shards, each place is on the shard of its number.
func TestShards_Places(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		s := ens.Session(1, embed.SessionOptions{})
		for i, p := range embedkit.OnShard {
			_, err := s.Create(bounded(t), p, nil, embed.Persistent)
			must(t, err)
			var stat embed.Stat
			for range 10 * (i + 1) { // so that no two shards reach the same zxid
				stat, err = s.Set(bounded(t), p, nil, embed.AnyVersion)
				must(t, err)
			}
			if zxid := ens.Node(1).Status().Shards[i].Zxid; zxid != stat.Mzxid {
				t.Errorf("%s was set at %d, shard %d is at %d", p, stat.Mzxid, i+1, zxid)
			}
		}
		_, err := s.Set(bounded(t), embedkit.OfSessions, nil, embed.AnyVersion)
		must(t, err)
	})
}

// spread returns children of the root; every shard has some.
func spread() (paths []string) {
	for i := range 12 {
		paths = append(paths, fmt.Sprintf("/app%d", i))
	}
	return paths
}

// F1: every shard has a root, and together they look like one. Sequential children have numbers,
// and the Stat is the sum. What cannot be the same everywhere at once is refused. A quota is on the
// shard where it counts.
func TestShards_TheRoot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		prefixes := []string{"/", "/job-", "/task-", "/step-", "/lock-", "/n-", "/p-"}
		for _, prefix := range prefixes {
			before := ""
			for i := range 3 {
				name, err := s.Create(ctx, prefix, []byte{byte(i)}, embed.Sequential)
				must(t, err)
				if len(name) != len(prefix)+10 || !strings.HasPrefix(name, prefix) || name <= before {
					t.Errorf("created %s after %s", name, before)
				}
				_, _, err = claim.Before(ctx, s, name)
				embedkit.WantCrossShard(t, "a place among the root's children", err)
				if data, _, err := s.Get(ctx, name); err != nil || !slices.Equal(data, []byte{byte(i)}) {
					t.Errorf("%s has %v, %v", name, data, err)
				}
				before = name
			}
		}
		_, stat, err := s.Get(ctx, "/")
		must(t, err)
		// The first shard's Cversion begins at -1.
		if want := 1 + 3*len(prefixes); int(stat.NumChildren) != want || int(stat.Cversion) != want-2 {
			t.Errorf("the root's Stat has %d children and the child version %d, want %d children", stat.NumChildren, stat.Cversion, want)
		}
		_, err = s.Set(ctx, "/", nil, embed.AnyVersion)
		embedkit.WantCrossShard(t, "the root's data", err)
		_, err = s.SetACL(ctx, "/", embed.OpenACL(), embed.AnyVersion)
		embedkit.WantCrossShard(t, "the root's ACL", err)
		_, err = s.Create(ctx, "/zookeeper/quota/zookeeper_limits", []byte("count=2,bytes=-1"), embed.Persistent)
		embedkit.WantCrossShard(t, "the root's quota", err)

		for _, path := range embedkit.OnShard {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
			_, err = s.Create(ctx, "/zookeeper/quota"+path, nil, embed.Persistent)
			must(t, err)
			_, err = s.Create(ctx, "/zookeeper/quota"+path+"/zookeeper_limits", []byte("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2"), embed.Persistent)
			must(t, err)
			_, err = s.Create(ctx, "/zookeeper/quota"+path+"/zookeeper_stats", nil, embed.Persistent)
			must(t, err)
			_, err = s.Create(ctx, path+"/a", nil, embed.Persistent)
			must(t, err)
			if _, err = s.Create(ctx, path+"/b", nil, embed.Persistent); !errors.Is(err, embed.ErrQuotaExceeded) {
				t.Errorf("%s: beyond its quota: %v", path, err)
			}
		}
		names, _, err := s.Children(ctx, "/zookeeper/quota")
		must(t, err)
		for _, path := range embedkit.OnShard {
			if !slices.Contains(names, path[1:]) {
				t.Errorf("the quotas are of %v, %s is missing", names, path)
			}
		}
	})
}

// The tree looks like one: each path is where its name says, and the root has all of them.
func TestShards_OneTree(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
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
		for i, shard := range ens.Node(1).Status().Shards {
			if shard.Shard != i+1 || shard.Leader == 0 || shard.Term == 0 || shard.Applied == 0 || shard.Zxid == 0 {
				t.Errorf("status of shard %d: %+v", i+1, shard)
			}
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
	})
}

// With the largest number of shards, all of them serve.
func TestShards_AsManyAsThereMayBe(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
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
	})
}

// The sessions of a member that dies lose their ephemerals on every shard. Other sessions lose
// none.
func TestShards_SessionsEndEverywhere(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		alive := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		for _, p := range spread() {
			_, err := alive.Create(ctx, p, nil, embed.Persistent)
			must(t, err)
			_, err = alive.Create(ctx, p+"/alive", nil, embed.Ephemeral)
			must(t, err)
		}
		dead := ens.Session(3, embed.SessionOptions{Timeout: embedkit.LivesAWhile})
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
	})
}

// The leaderships are spread over the members, go elsewhere when a member dies, and come back with
// it.
func TestShards_LeadersAreSpread(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
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
	})
}

// A watch on the root tells of every shard, in the order of each.
func TestShards_WatchOfTheRoot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
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
	})
}

// A Lock waits for a quorum as long as its ctx allows, even on a shard that does not know its
// session yet. A caller that does not want to wait does not have to. Nobody who gave up stays in a
// queue.
func TestShards_LockOutwaitsAQuorumWhereItsSessionIsNew(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards, c.RequestTimeout = 4, 100*time.Millisecond }})
		ens.TransferLeadership(2)
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
			_ = got.hold.Release() // may time out here; the node keeps trying
		}
		ens.Until("everybody to leave the queues", func() bool {
			paths, err := s.Ephemerals(bounded(t), "/")
			return err == nil && len(paths) == 0
		})
	})
}

// E2, E8: on every shard a lock is granted in the order of arrival, to one at a time, and its Guard
// works for writes there. An election has one leader. A Guard of another shard is refused, with
// advice.
func TestShards_RecipesOnEach(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		var sessions []*embed.Session
		for _, id := range ens.Members() {
			sessions = append(sessions, ens.Session(id, embed.SessionOptions{Timeout: time.Minute}))
		}
		for i, path := range embedkit.OnShard {
			data, elsewhere := path+"/data", embedkit.OnShard[(i+1)%len(embedkit.OnShard)]
			for _, p := range []string{path, data, elsewhere} {
				if _, err := sessions[0].Create(ctx, p, nil, embed.Persistent); err != nil && !errors.Is(err, embed.ErrNodeExists) {
					t.Fatal(err)
				}
			}
			var queue []<-chan *lock.Hold
			for n, s := range sessions {
				granted := make(chan *lock.Hold, 1)
				queue = append(queue, granted)
				go func() {
					hold, err := lock.NewMutex(s, path+"/lock").Lock(ctx)
					if err != nil {
						t.Error(err)
					}
					granted <- hold
				}()
				ens.Until("it to queue", func() bool {
					names, _, _ := sessions[0].Children(ctx, path+"/lock")
					return len(names) == n+1
				})
			}
			for n, s := range sessions {
				hold := <-queue[n]
				for _, later := range queue[n+1:] {
					if len(later) > 0 {
						t.Errorf("%s: granted while number %d holds", path, n)
					}
				}
				_, err := s.Multi(ctx, lock.Guard(hold), embed.OpSet(data, []byte{byte(n)}, int32(n)))
				must(t, err)
				_, err = s.Multi(ctx, lock.Guard(hold), embed.OpSet(elsewhere, []byte("x"), embed.AnyVersion))
				var at *embed.MultiError
				if !errors.Is(err, embed.ErrCrossShard) || !errors.As(err, &at) || at.Index != 1 {
					t.Fatalf("a write on another shard than its guard: %v", err)
				}
				for _, word := range []string{path + "/lock/", elsewhere, fmt.Sprint("shard ", i+1), "below one first component"} {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("the error does not say %q: %v", word, err)
					}
				}
				must(t, hold.Release())
			}
			_, err := sessions[0].Sync(ctx, "/")
			must(t, err)
			if _, stat, err := sessions[0].Get(ctx, data); err != nil || stat.Version != int32(len(sessions)) {
				t.Errorf("%s: version %d, %v", data, stat.Version, err)
			}
			if got, _, err := sessions[0].Get(ctx, elsewhere); err != nil || len(got) != 0 {
				t.Errorf("%s: %q, %v", elsewhere, got, err)
			}
			for n, s := range sessions {
				leadership, err := election.New(s, path+"/election").Campaign(ctx, []byte{byte(n)})
				must(t, err)
				other := sessions[(n+1)%len(sessions)]
				_, err = other.Sync(ctx, path)
				must(t, err)
				if leader, err := election.New(other, path+"/election").Leader(ctx); err != nil || !slices.Equal(leader.Value, []byte{byte(n)}) {
					t.Errorf("%s: the leader is %v, %v", path, leader, err)
				}
				must(t, leadership.Resign())
			}
		}
	})
}

// A holder on a member that is cut off learns of its loss before anybody else is granted the lock,
// on every shard.
func TestShards_ToldFirst(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		cut, next := ens.Session(3, embed.SessionOptions{Timeout: 5 * time.Second}), ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		var holds []*lock.Hold
		for _, path := range embedkit.OnShard {
			hold, err := lock.NewMutex(cut, path+"/lock").Lock(ctx)
			must(t, err)
			holds = append(holds, hold)
		}
		ens.Isolate(3)
		var all sync.WaitGroup
		for i, path := range embedkit.OnShard {
			all.Go(func() {
				hold, err := lock.NewMutex(next, path+"/lock").Lock(ctx)
				if lost := holds[i].Err(); lost == nil || err != nil {
					t.Errorf("%s: granted (%v), and the holder was told %v", path, err, lost)
				}
				if err == nil && hold.Token().Compare(holds[i].Token()) <= 0 {
					t.Errorf("%s: token %v after %v", path, hold.Token(), holds[i].Token())
				}
			})
		}
		all.Wait()
	})
}

// On every shard, watches of every mode tell what becomes of a znode that exists, of one that does
// not, and of children.
func TestShards_WatchesOnEach(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		s, writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		for _, path := range embedkit.OnShard {
			child := path + "/child"
			modes := []embed.WatchMode{embed.WatchOnce, embed.WatchPersistent, embed.WatchRecursive}
			var watches []*embed.Watch
			for _, mode := range modes {
				w, err := s.Watch(ctx, path, mode)
				must(t, err)
				watches = append(watches, w)
			}
			_, err := writer.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
			_, err = writer.Set(ctx, path, nil, 0)
			must(t, err)
			_, err = writer.Create(ctx, child, nil, embed.Persistent)
			must(t, err)
			must(t, writer.Delete(ctx, child, 0))
			must(t, writer.Delete(ctx, path, 1))
			_, err = s.Sync(ctx, path)
			must(t, err)
			created, set, gone := embed.NodeCreated, embed.NodeDataChanged, embed.NodeDeleted
			for i, want := range [][]string{
				{event(created, path)},
				{event(created, path), event(set, path), event(embed.NodeChildrenChanged, path), event(embed.NodeChildrenChanged, path), event(gone, path)},
				{event(created, path), event(set, path), event(created, child), event(gone, child), event(gone, path)},
			} {
				told, over := embedkit.Drain(watches[i])
				var got []string
				for _, e := range told {
					got = append(got, event(e.Type, e.Path))
				}
				if !slices.Equal(got, want) || over != (modes[i] == embed.WatchOnce) {
					t.Errorf("%s, mode %d: told %v, ended %v; want %v", path, modes[i], got, over, want)
				}
			}
		}
	})
}

func event(what embed.EventType, path string) string { return fmt.Sprint(what, " ", path) }

// D5: a recursive watch on the root tells of every change on every shard once, in the order of each
// shard. Meanwhile a member that leads some shards is killed and comes back.
func TestShards_WatchOfTheRootMissesNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const sets = 150
		ens := embedkit.Sharded(t)
		ctx := bounded(t)
		s, writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(3, embed.SessionOptions{Timeout: time.Minute})
		for _, path := range embedkit.OnShard {
			_, err := writer.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		_, err := s.Sync(ctx, "/")
		must(t, err)
		all, err := s.Watch(ctx, "/", embed.WatchRecursive)
		must(t, err)
		var running sync.WaitGroup
		written := make([][]embed.Zxid, len(embedkit.OnShard))
		// Changes not yet told must fit into the watch's buffer.
		room := make(chan struct{}, embedkit.WatchBuffer-len(embedkit.OnShard))
		for i, path := range embedkit.OnShard {
			running.Go(func() {
				for version := range int32(sets) {
					select {
					case room <- struct{}{}:
					case <-ctx.Done():
					}
					stat, err := writer.Set(ctx, path, nil, version)
					if err != nil {
						t.Error(err)
						return
					}
					written[i] = append(written[i], stat.Mzxid)
				}
			})
		}
		told := make(map[string][]embed.Zxid)
		var count atomic.Int64
		running.Go(func() {
			for count.Load() < int64(sets*len(embedkit.OnShard)) {
				select {
				case e, ok := <-all.Events():
					if !ok || e.Type != embed.NodeDataChanged {
						t.Errorf("event %d is %+v: %v", count.Load(), e, all.Err())
						return
					}
					told[e.Path] = append(told[e.Path], e.Zxid)
					count.Add(1)
					<-room
				case <-ctx.Done():
					t.Errorf("told of %d changes", count.Load())
					return
				}
			}
		})
		ens.Until("a third of the events", func() bool { return count.Load() >= sets })
		ens.Kill(2)
		ens.Until("two thirds of the events", func() bool { return count.Load() >= 2*sets })
		ens.Start(2)
		running.Wait()
		for i, path := range embedkit.OnShard {
			if !slices.Equal(told[path], written[i]) {
				t.Errorf("%s: told of %v, written were %v", path, told[path], written[i])
			}
		}
	})
}

// D2, D5: a member gets the state of one shard from another member. That ends only the watches that
// see something of what happened on that shard meanwhile. All others go on.
func TestShards_AGapOnOne(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{
			Config: func(c *embed.Config) { c.Shards, c.Inside = len(embedkit.OnShard), &inside.Seams{Keep: 1} },
		})
		ctx := bounded(t)
		writer, s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(away, embed.SessionOptions{Timeout: time.Minute})
		for _, path := range embedkit.OnShard {
			_, err := writer.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		rounds := 0
		ens.Until("a snapshot", func() bool { // one more round if the log is not compacted in time
			rounds++
			return gapOnOne(t, ctx, ens, writer, s, rounds)
		})
	})
}

// gapOnOne plays one round and reports whether there was a snapshot.
func gapOnOne(t *testing.T, ctx context.Context, ens *embedtest.Ensemble, writer, s *embed.Session, round int) bool {
	touched := embedkit.OnShard[2]
	watch := func(path string, mode embed.WatchMode) *embed.Watch {
		w, err := s.Watch(ctx, path, mode)
		must(t, err)
		return w
	}
	_, err := s.Sync(ctx, "/")
	must(t, err)
	root, children := watch("/", embed.WatchRecursive), watch("/", embed.WatchPersistent)
	var below []*embed.Watch
	for _, path := range embedkit.OnShard {
		below = append(below, watch(path, embed.WatchRecursive))
	}
	ens.Isolate(away)
	for range 20 {
		_, err := writer.Set(ctx, touched, nil, embed.AnyVersion)
		must(t, err)
	}
	for _, id := range ens.Members() {
		if id != away {
			must(t, ens.Snapshot(id))
		}
	}
	for range 20 {
		_, err := writer.Set(ctx, touched, nil, embed.AnyVersion)
		must(t, err)
	}
	ens.HealAll()
	_, err = s.Sync(ctx, "/")
	must(t, err)
	var gap *embed.GapError
	if !errors.As(below[2].Err(), &gap) {
		return false
	}
	if !errors.Is(root.Err(), embed.ErrWatchGap) {
		t.Errorf("the watch that saw the gap's shard among others: %v", root.Err())
	}
	for i, path := range embedkit.OnShard {
		if i != 2 {
			stat, err := writer.Set(ctx, path, nil, embed.AnyVersion)
			must(t, err)
			if e := <-below[i].Events(); e.Type != embed.NodeDataChanged || e.Path != path || e.Zxid != stat.Mzxid {
				t.Errorf("%s: told %+v of the write at %d, %v", path, e, stat.Mzxid, below[i].Err())
			}
		}
		name := fmt.Sprintf("%s-%d", path, round) // on any shard
		_, err = writer.Create(ctx, name, nil, embed.Persistent)
		must(t, err)
		if e := <-children.Events(); e.Type != embed.NodeChildrenChanged || e.Path != "/" {
			t.Errorf("the root's children: told %+v of %s, %v", e, name, children.Err())
		}
	}
	return true
}

// After a Sync of the root, reads show what was acknowledged on any shard, even on a member where
// one shard is slow.
func TestShards_SyncOfTheRoot(t *testing.T) {
	t.Parallel()
	slow := embedkit.NewStall(bounded(t))
	ens := embedtest.New(t, 3, embedkit.InMemory(embedtest.Options{Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.Shards, c.Schemes = len(embedkit.OnShard), map[string]embed.Scheme{"stall": &embedkit.Stall{}}
		if c.ID == 3 {
			c.Schemes["stall"] = slow
		}
	}}))
	t.Cleanup(slow.End)
	ctx := bounded(t)
	writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute, Auth: []embed.Auth{{Scheme: "stall"}}})
	reader := ens.Session(3, embed.SessionOptions{Timeout: time.Minute})
	acl := append(embed.ReadACL(), embed.ACL{Perms: embed.PermWrite, Scheme: "stall", ID: "anybody"})
	_, _, err := writer.CreateWith(ctx, embedkit.OnShard[3], nil, embed.CreateOptions{ACL: acl})
	must(t, err)
	slow.Begin()
	_, err = writer.Set(ctx, embedkit.OnShard[3], []byte("x"), 0)
	must(t, err)
	for _, path := range embedkit.OnShard[:3] {
		_, err := writer.Create(ctx, path, nil, embed.Persistent)
		must(t, err)
		stat, _, err := writer.Exists(ctx, path)
		must(t, err)
		if z, err := reader.Sync(ctx, path); err != nil || z < stat.Czxid {
			t.Errorf("Sync of %s: %d after %d, %v", path, z, stat.Czxid, err)
		}
	}
	synced := make(chan error, 1)
	go func() {
		z, err := reader.Sync(ctx, "/")
		if z != 0 {
			err = fmt.Errorf("a zxid of several shards: %d", z)
		}
		synced <- err
	}()
	ens.Until("the machine to stand still", func() bool { return slow.Stands() > 0 })
	for range 20 {
		_, err := reader.Sync(ctx, embedkit.OnShard[0])
		must(t, err)
	}
	select {
	case err := <-synced:
		t.Fatalf("Sync did not wait for the slow shard: %v", err)
	default:
	}
	slow.End()
	must(t, <-synced)
	names, _, err := reader.Children(ctx, "/")
	must(t, err)
	if len(names) != len(embedkit.OnShard)+1 {
		t.Errorf("children %v", names)
	}
	if data, _, err := reader.Get(ctx, embedkit.OnShard[3]); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
}
