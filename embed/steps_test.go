package embed_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// steps returns three members.
func steps(t *testing.T) *embedtest.Ensemble { return embedtest.New(t, 3, embedtest.Options{}) }

// All who add to one number are counted, and each is told its own sum.
func TestAdd_CountsAll(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), steps(t)
		first := ens.Session(1, embed.SessionOptions{})
		_, err := first.Create(ctx, "/n", nil, embed.Persistent)
		must(t, err)
		const callers, adds = 9, 30
		var mu sync.Mutex
		var sums []int64
		var wg sync.WaitGroup
		for i := range callers {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			wg.Go(func() {
				for range adds {
					r, err := s.Multi(ctx, embed.OpAdd("/n", 2, embed.Int64))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					sums = append(sums, r[0].Value)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(sums)
		for i, sum := range sums {
			if sum != int64(2*(i+1)) {
				t.Fatalf("sum %d is %d", i, sum)
			}
		}
		_, err = first.Sync(ctx, "/n")
		must(t, err)
		data, stat, err := first.Get(ctx, "/n")
		must(t, err)
		if n, err := embed.Int64.Parse(data); n != 2*callers*adds || err != nil || stat.Version != callers*adds {
			t.Errorf("%d, %v, version %d", n, err, stat.Version)
		}
	})
}

// A step that is refused says why, and changes nothing.
func TestSteps_Refused(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := steps(t).Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/n", embed.Int64.Format(math.MaxInt64), embed.Persistent)
		must(t, err)
		stat, _, err := s.Exists(ctx, "/n")
		must(t, err)
		for _, c := range []struct {
			op   embed.Op
			want error
		}{
			{embed.OpAdd("/n", 1, embed.Int64), embed.ErrOverflow},
			{embed.OpAdd("/n", 1, embed.Int32), embed.ErrNotNumber},
			{embed.OpAdd("/n", 1, embed.Text), embed.ErrNotNumber},
			{embed.OpAdd("/n", 1, 7), embed.ErrInvalidMode},
			{embed.OpAdd("/none", 1, embed.Int64), embed.ErrNoNode},
			{embed.OpAdd("n", 1, embed.Int64), embed.ErrInvalidPath},
			{embed.OpCheckMzxid("/n", stat.Mzxid+1), embed.ErrBadVersion},
			{embed.OpCheckMzxid("/none", 0), embed.ErrNoNode},
			{embed.OpEnsure("/x/y"), embed.ErrNoNode},
			{embed.OpEnsure("/x/"), embed.ErrInvalidPath},
		} {
			if _, err := s.Multi(ctx, embed.OpCreate("/other", nil, embed.Persistent), c.op); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		}
		if _, there, err := s.Exists(ctx, "/other"); there || err != nil {
			t.Errorf("%v, %v", there, err)
		}
		if now, _, err := s.Exists(ctx, "/n"); now != stat || err != nil {
			t.Errorf("%v, %v", now, err)
		}
	})
}

// Whoever is first creates what is missing, in one commit, and nobody else fails for it.
func TestEnsure_WhoeverIsFirst(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), steps(t)
		var wg sync.WaitGroup
		var mu sync.Mutex
		made := make(map[string]int)
		for i := range 6 {
			s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
			wg.Go(func() {
				r, err := s.Multi(ctx, embed.OpEnsure("/a"), embed.OpEnsure("/a/b"), embed.OpCreate(fmt.Sprint("/a/b/", i), nil, embed.Ephemeral))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, one := range r {
					made[one.Path]++
				}
			})
		}
		wg.Wait()
		if made["/a"] != 1 || made["/a/b"] != 1 || made[""] != 10 || made["/a/b/5"] != 1 {
			t.Errorf("%v", made)
		}
	})
}

// A check of mzxid tells a znode that was created again from the one that was read.
func TestCheckMzxid_OfAZnodeThatWasCreatedAgain(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := steps(t).Session(1, embed.SessionOptions{Root: "/root"})
		_, err := s.Multi(ctx, embed.OpEnsure("/"), embed.OpCreate("/a", nil, embed.Persistent))
		must(t, err)
		read, _, err := s.Exists(ctx, "/a")
		must(t, err)
		_, err = s.Multi(ctx, embed.OpCheckMzxid("/a", read.Mzxid), embed.OpDelete("/a", 0), embed.OpCreate("/a", nil, embed.Persistent))
		must(t, err)
		if _, err := s.Multi(ctx, embed.OpCheckMzxid("/a", read.Mzxid), embed.OpDelete("/a", read.Version)); !errors.Is(err, embed.ErrBadVersion) {
			t.Errorf("%v", err)
		}
	})
}

// Pages have every name once, in order, and as many as were asked for.
func TestPage_HasAllNames(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		for _, shards := range []int{1, 4} {
			ctx := bounded(t)
			ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = shards }})
			s := ens.Session(1, embed.SessionOptions{})
			for i := range 75 {
				_, err := s.Create(ctx, fmt.Sprint("/n", i*i), nil, embed.Persistent)
				must(t, err)
			}
			_, err := s.Create(ctx, "/n0/child", nil, embed.Persistent)
			must(t, err)
			for _, path := range []string{"/", "/n0", "/n1"} {
				want, _, err := s.Children(ctx, path)
				must(t, err)
				for _, n := range []int{1, 7, 24, 25, 1000} {
					var got []string
					for after := ""; ; after = got[len(got)-1] {
						names, err := s.Page(ctx, path, after, n)
						must(t, err)
						if got = append(got, names...); len(names) < n {
							break
						}
					}
					if !slices.Equal(got, want) {
						t.Errorf("pages of %d of %s: %q, want %q", n, path, got, want)
					}
				}
			}
			if names, err := s.Page(ctx, "/", "n2", 3); !slices.Equal(names, []string{"n2025", "n2116", "n2209"}) || err != nil {
				t.Errorf("after a name that is not there: %q, %v", names, err)
			}
			if _, err := s.Page(ctx, "/none", "", 1); !errors.Is(err, embed.ErrNoNode) {
				t.Errorf("%v", err)
			}
			if _, err := s.Page(ctx, "/", "", 0); !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%v", err)
			}
		}
	})
}

// A Walk shows a subtree at one zxid, whatever is written meanwhile.
func TestWalk_OneZxid(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 1, embedtest.Options{})
		out := ens.Session(1, embed.SessionOptions{})
		_, err := out.Create(ctx, "/app", nil, embed.Persistent)
		must(t, err)
		s := ens.Session(1, embed.SessionOptions{Root: "/app"})
		for _, path := range []string{"/t", "/t/b", "/t/b/c", "/t/a", "/t/a-b", "/u"} {
			_, err := s.Create(ctx, path, []byte(path), embed.Persistent)
			must(t, err)
		}
		_, _, err = s.CreateWith(ctx, "/t/a/secret", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "digest", ID: "a:b"}}})
		must(t, err)
		at, err := s.Sync(ctx, "/t")
		must(t, err)
		var got []string
		for z, err := range s.Walk(ctx, "/t") {
			must(t, err)
			if string(z.Data) != z.Path || z.Stat.DataLength != int32(len(z.Path)) || z.Zxid != at {
				t.Errorf("%s is %q of zxid %d, want %d", z.Path, z.Data, z.Zxid, at)
			}
			got = append(got, z.Path)
			_, err = s.Create(ctx, z.Path+"-new", nil, embed.Persistent)
			must(t, err)
			if z.Path == "/t" {
				_, err = s.Set(ctx, "/t/b", []byte("changed"), 0)
				must(t, err)
				must(t, s.Delete(ctx, "/t/b/c", 0))
			}
		}
		if want := []string{"/t", "/t/a", "/t/a-b", "/t/b", "/t/b/c"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		for range s.Walk(ctx, "/t") {
			break // and nothing is pinned
		}
	})
}

// A Walk with a depth shows so many levels, and does not look at what is deeper.
func TestWalk_Depth(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := embedtest.New(t, 1, embedtest.Options{}).Session(1, embed.SessionOptions{})
		all := []string{"/t", "/t/a", "/t/a/x", "/t/a/x/1", "/t/a-b", "/t/a-b/y", "/t/b"}
		for _, path := range all {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		for depth, want := range [][]string{0: all, 1: {"/t", "/t/a", "/t/a-b", "/t/b"},
			2: {"/t", "/t/a", "/t/a/x", "/t/a-b", "/t/a-b/y", "/t/b"}, 3: all, 4: all} {
			var got []string
			for z, err := range s.WalkWith(ctx, "/t", embed.WalkOptions{Depth: depth}) {
				must(t, err)
				got = append(got, z.Path)
			}
			if !slices.Equal(got, want) {
				t.Errorf("depth %d: %q, want %q", depth, got, want)
			}
		}
		for z, err := range s.WalkWith(ctx, "/t", embed.WalkOptions{Depth: -1}) {
			if !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%v, %v", z, err)
			}
		}
	})
}

func TestWalk_Refused(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 4 }})
		s := ens.Session(1, embed.SessionOptions{})
		for path, want := range map[string]error{"/": embed.ErrCrossShard, "/none": embed.ErrNoNode, "none": embed.ErrInvalidPath} {
			if all, err := embedkit.Walk(ctx, s, path); !errors.Is(err, want) || len(all) > 0 {
				t.Errorf("%s: %v, %v", path, all, err)
			}
		}
		_, _, err := s.CreateWith(ctx, "/secret", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "digest", ID: "a:b"}}})
		must(t, err)
		if _, err := embedkit.Walk(ctx, s, "/secret"); !errors.Is(err, embed.ErrNoAuth) {
			t.Errorf("%v", err)
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := embedkit.Walk(over, s, "/zookeeper/config"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		must(t, s.Close())
		if _, err := embedkit.Walk(ctx, s, "/zookeeper/config"); !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("%v", err)
		}
	})
}

// A member that waits for a zxid which it was told shows what that transaction wrote.
func TestAwait_ShowsWhatAnotherWrote(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 3, embedtest.Options{})
		writer, reader := ens.Session(1, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
		_, err := writer.Create(ctx, "/a", nil, embed.Persistent)
		must(t, err)
		for range 50 {
			stat, err := writer.Set(ctx, "/a", nil, embed.AnyVersion)
			must(t, err)
			must(t, reader.Await(ctx, "/a", stat.Mzxid))
			if now, _, err := reader.Exists(ctx, "/a"); now.Mzxid < stat.Mzxid || err != nil {
				t.Fatalf("zxid %d is shown after %d: %v", now.Mzxid, stat.Mzxid, err)
			}
		}
		for waited := false; !waited; { // on a busy machine the ctx may end before Await looks
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			err := reader.Await(short, "/a", 1<<60)
			cancel()
			if waited = errors.Is(err, embed.ErrUnavailable); !waited && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
		}
		waiting := make(chan error)
		go func() { waiting <- reader.Await(ctx, "/a", 1<<60) }()
		go reader.Close()
		if err := <-waiting; !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("%v", err)
		}
	})
}

// A watch with values has the data and the Stat of each change, although later ones have replaced
// them when it is read.
func TestWatch_Values(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		for _, shards := range []int{1, 4} {
			ctx := bounded(t)
			s := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = shards }}).Session(1, embed.SessionOptions{})
			with := embed.WatchOptions{Buffer: 1000, Values: true}
			deep, err := s.WatchWith(ctx, "/", embed.WatchRecursive, with)
			must(t, err)
			own, err := s.WatchWith(ctx, "/a", embed.WatchPersistent, with)
			must(t, err)
			plain, err := s.Watch(ctx, "/a", embed.WatchOnce)
			must(t, err)
			_, err = s.Create(ctx, "/a", []byte("0"), embed.Persistent)
			must(t, err)
			stats := map[string]embed.Stat{}
			for i := 1; i < 300; i++ {
				stats[fmt.Sprint(i)], err = s.Set(ctx, "/a", fmt.Append(nil, i), embed.AnyVersion)
				must(t, err)
			}
			_, err = s.Create(ctx, "/a/b", nil, embed.Persistent)
			must(t, err)
			_, err = s.Multi(ctx, embed.OpDelete("/a/b", 0), embed.OpDelete("/a", embed.AnyVersion))
			must(t, err)
			for name, w := range map[string]*embed.Watch{"recursive": deep, "persistent": own} {
				for i := range 300 {
					e := <-w.Events()
					stat, ok := e.Stat()
					if want, known := stats[string(e.Data())]; string(e.Data()) != fmt.Sprint(i) || !ok || known && stat != want || stat.Mzxid != e.Zxid || e.Path != "/a" {
						t.Fatalf("%s: change %d is %v with %q and %v", name, i, e, e.Data(), stat)
					}
				}
				told, _ := embedkit.Drain(w)
				for i, e := range told {
					stat, ok := e.Stat()
					switch {
					case e.Type == embed.NodeChildrenChanged && i == 0: // b was created
						if !ok || stat.NumChildren != 1 || stat.Pzxid != e.Zxid || e.Data() != nil {
							t.Errorf("%s: %v, %+v, %q", name, e, stat, e.Data())
						}
					case ok != (e.Type == embed.NodeCreated), len(e.Data()) > 0:
						t.Errorf("%s: %v, %q", name, e, e.Data())
					}
				}
				if len(told) < 3 {
					t.Errorf("%s: %v", name, told)
				}
			}
			if e := <-plain.Events(); e.Data() != nil {
				t.Errorf("%q", e.Data())
			}
			if _, err := s.WatchWith(ctx, "/a", embed.WatchOnce, embed.WatchOptions{Buffer: embed.BufferMax + 1}); !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%v", err)
			}
		}
	})
}
