package view_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A member that was away for so long that it gets the state of another goes on with its views. They
// show what differs as changes that are repaired, and everything else as it came. Curator's cache
// never came back after a reconnect (CURATOR-153).
func TestView_AcrossSnapshots(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const away = 3
		ctx := bounded(t)
		ens := embedtest.New(t, 3, embedtest.Options{KeepEntries: 1, Config: func(c *embed.Config) { c.Shards = 1 }})
		writer, there := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(away, embed.SessionOptions{Timeout: time.Minute})
		_, err := writer.Create(ctx, "/other", nil, embed.Persistent)
		must(t, err)
		plant(ctx, t, writer, "/t")
		must(t, syncOf(ctx, there))
		v, err := view.Open(ctx, there, "/t", view.Options[string]{})
		must(t, err)
		w := newValidator(t, "away", "/t", v)
		var tree []stage
		look := func() {
			st, err := walk(ctx, writer, "/t")
			must(t, err)
			tree = append(tree, st)
		}
		look()
		end, followed := make(chan embed.Zxid, 1), make(chan struct{})
		go func() {
			defer close(followed)
			w.follow(ctx, end)
		}()
		rng := testkit.Rand(t)
		installs, rounds := 0, 0
		write := func(n int) {
			writeRandomly(ctx, t, writer, "/t", n, look)
		}
		for ; installs < 3 && !t.Failed(); rounds++ {
			write(1 + rng.IntN(20))
			ens.Isolate(away)
			before, _, err := there.Exists(ctx, "/other")
			must(t, err)
			write(1 + rng.IntN(20))
			for _, id := range []embed.MemberID{1, 2} {
				must(t, ens.Snapshot(id))
			}
			watch, err := there.Watch(ctx, "/other", embed.WatchPersistent)
			must(t, err)
			for range 5 << min(rounds-installs, 8) {
				_, err := writer.Set(ctx, "/other", nil, embed.AnyVersion)
				must(t, err)
			}
			write(1 + rng.IntN(5))
			ens.HealAll()
			after, _, err := writer.Exists(ctx, "/other")
			must(t, err)
			must(t, there.Await(ctx, "/other", after.Mzxid))
			// The watch of a znode that has changed ends at a gap, and else has an event.
			for e, ok := <-watch.Events(); ok && e.Zxid < after.Mzxid; e, ok = <-watch.Events() {
			}
			if errors.Is(watch.Err(), embed.ErrWatchGap) || errors.Is(watch.Err(), embed.ErrWatchOverflow) && after.Version-before.Version > 64 {
				installs++
			}
			_ = watch.Close()
		}
		write(10)
		end <- tree[len(tree)-1].zxid
		<-followed
		n := w.compare(tree, func(string) bool { return true })
		t.Logf("%d rounds, %d installs, %d changes of repairs, %d of %d states compared", rounds, installs, w.repaired, n, len(tree))
		if n == 0 {
			t.Error("nothing was compared")
		}
	})
}

func syncOf(ctx context.Context, s *embed.Session) error {
	_, err := s.Sync(ctx, "/")
	return err
}

// A znode that was deleted and created again within a gap is two changes, although its data and
// Version are those of the old one.
func TestChanges_CreatedAgainInAGap(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		for _, path := range []string{"/t", "/t/a", "/t/b", "/t/c", "/t/brake"} {
			_, err := s.Create(ctx, path, []byte("x"), embed.Persistent)
			must(t, err)
		}
		b := newBrake()
		v, err := view.OpenBuffer(ctx, s, "/t", view.Options[string]{Codec: b.codec(), Depth: 1}, 1)
		must(t, err)
		since := b.hold(ctx, t, s, "/t/brake")
		_, err = s.Multi(ctx, embed.OpDelete("/t/a", 0), embed.OpCreate("/t/a", []byte("x"), embed.Persistent), embed.OpSet("/t/b", []byte("x"), 0), embed.OpDelete("/t/c", 0))
		must(t, err)
		close(b.release)
		var got []string
		for c, err := range v.Changes(ctx, since) {
			must(t, err)
			if !c.Repaired {
				t.Errorf("%+v", c)
			}
			if got = append(got, fmt.Sprint(c.Type, " ", c.Path)); c.Last {
				break
			}
		}
		if want := "[NodeDeleted /t/a NodeCreated /t/a NodeDataChanged /t/b NodeDeleted /t/c]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	})
}

// A view of a znode that is missing is whole and empty. It asks nobody again and again, as Curator's
// cache did (CURATOR-240) and kazoo's (kazoo@83dca97), and it does not stop for ever, as kazoo's
// ChildrenWatch. When the container of its znodes is reaped, and created again, it goes on
// (curator@21b08778).
func TestView_TheRootComesAndGoes(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.ContainerCheckInterval = c.Tick }})
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		v, err := view.Open(ctx, s, "/box/t", view.Options[string]{})
		must(t, err)
		for range v.All() {
			t.Error("there is something")
		}
		for i := range 3 {
			since := v.Zxid()
			_, err := s.Multi(ctx, embed.OpCreate("/box", nil, embed.Container), embed.OpCreate("/box/t", nil, embed.Container), embed.OpCreate("/box/t/a", fmt.Append(nil, i), embed.Persistent))
			must(t, err)
			must(t, s.Delete(ctx, "/box/t/a", 0))
			ens.Until("the root to be reaped", func() bool {
				_, there, err := s.Exists(ctx, "/box")
				return err == nil && !there
			})
			var got []string
			for c, err := range v.Changes(ctx, since) {
				must(t, err)
				got = append(got, fmt.Sprint(c.Type, " ", c.Path))
				if c.Type == embed.NodeDeleted && c.Path == "/box/t" {
					break
				}
			}
			if want := "[NodeCreated /box/t NodeCreated /box/t/a NodeDeleted /box/t/a NodeDeleted /box/t]"; fmt.Sprint(got) != want {
				t.Errorf("%v, want %s", got, want)
			}
			for range v.All() {
				t.Error("there is something")
			}
		}
	})
}

// Views open while znodes come and go. Each is whole when Open returns: it shows everything that was
// acknowledged before. A znode that went during the start kept Curator's cache from ever being whole
// (Netflix/curator#261).
func TestOpen_WhileZnodesComeAndGo(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), one(t, 0)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		plant(ctx, t, s, "/t")
		writing, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
			for writing.Err() == nil {
				writeRandomly(ctx, t, writer, "/t", 10, func() {})
			}
		}()
		opens := 100
		if testing.Short() {
			opens = 20
		}
		for range opens {
			before, err := walk(ctx, s, "/t")
			must(t, err)
			v, err := view.OpenBuffer(ctx, s, "/t", view.Options[string]{}, 1+testkit.Rand(t).IntN(100))
			must(t, err)
			if v.Zxid() < before.zxid {
				t.Errorf("a view at %d after a walk at %d", v.Zxid(), before.zxid)
			}
			w := newValidator(t, "opened", "/t", v)
			end := make(chan embed.Zxid, 1)
			now, err := walk(ctx, s, "/t")
			must(t, err)
			end <- now.zxid
			w.follow(ctx, end)
			w.compare([]stage{before, now}, func(string) bool { return true })
		}
		stop()
		<-done
	})
}

// A view of more than 65,535 znodes opens. For Curator's cache they were too many (CURATOR-690).
func TestOpen_MoreZnodesThan65535(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		const n = 66_000
		fill(t, s, n)
		v, err := view.Open(ctx, s, "/many", view.Options[string]{Depth: 1})
		must(t, err)
		count := 0
		for range v.All() {
			count++
		}
		if e, ok := v.Get(many(n - 1)); count != n || !ok || e.Value != fmt.Sprint(n-1) {
			t.Errorf("%d entries, the last is %v, %v", count, e, ok)
		}
	})
}

func many(i int) string { return fmt.Sprintf("/many/znode-%06d", i) }

// fill creates n znodes.
func fill(t testing.TB, s *embed.Session, n int) {
	t.Helper()
	ctx := bounded(t)
	_, err := s.Create(ctx, "/many", nil, embed.Persistent)
	must(t, err)
	for i := 0; i < n; {
		var ops []embed.Op
		for ; len(ops) < 3000 && i < n; i++ {
			ops = append(ops, embed.OpCreate(many(i), fmt.Append(nil, i), embed.Persistent))
		}
		_, err := s.Multi(ctx, ops...)
		must(t, err)
	}
}

// A view that was closed leaves no goroutine and no watch. Curator's caches left some (curator#524,
// curator#543).
func TestClose_LeavesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), one(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/t", nil, embed.Persistent)
		must(t, err)
		var before int
		cycle := func() {
			v, err := view.Open(ctx, s, "/t", view.Options[string]{})
			must(t, err)
			over := make(chan struct{})
			go func() {
				defer close(over)
				for range v.Changes(ctx, v.Zxid()) {
				}
			}()
			_, err = s.Set(ctx, "/t", nil, embed.AnyVersion)
			must(t, err)
			must(t, v.Close())
			<-over
		}
		cycle()
		before = runtime.NumGoroutine()
		for range 50 {
			cycle()
		}
		for _, path := range []string{"/", "none"} {
			if v, err := view.Open(ctx, s, path, view.Options[string]{Depth: -1}); err == nil {
				t.Errorf("%v", v)
			}
		}
		ens.Until("the goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
		if t.Failed() {
			t.Logf("%s", testkit.Stacks())
		}
	})
}
