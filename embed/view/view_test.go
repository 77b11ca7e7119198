package view_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// Whatever is written, the changes of every view lead from one state of the tree to the next. That
// holds for views that overflow, keep little, show a part, or have a root. Deleted and created again
// is two changes even where Version is the same; Curator's caches compared Version (curator@0fc0cbec).
// After a repair no znode is added twice (curator@56525235), and nothing that has gone stays
// (CURATOR-540).
func TestView_ShowsEveryState(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ctx, ens := bounded(t), one(t, shards)
				s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
				rooted := ens.Session(1, embed.SessionOptions{Timeout: time.Minute, Root: "/app"})
				_, err := s.Create(ctx, "/app", nil, embed.Persistent)
				must(t, err)
				plant(ctx, t, s, "/app/t")
				all := func(string) bool { return true }
				levels := func(least, most int) func(string) bool {
					return func(path string) bool {
						n := strings.Count(path, "/")
						return n >= least && n <= most
					}
				}
				open := func(name, path string, s *embed.Session, o view.Options[string], buffer int) *validator {
					v, err := view.OpenBuffer(ctx, s, path, o, buffer)
					must(t, err)
					return newValidator(t, name, path, v)
				}
				validators := map[*validator]func(string) bool{
					open("all", "/app/t", s, view.Options[string]{}, 1<<15):                          all,
					open("overflows", "/app/t", s, view.Options[string]{}, 3):                        all,
					open("children", "/app/t", s, view.Options[string]{Depth: 1}, 1<<15):             levels(1, 1),
					open("two levels", "/app/t", s, view.Options[string]{Depth: 2}, 7):               levels(1, 2),
					open("short history", "/app/t", s, view.Options[string]{History: 9}, 1<<15):      all,
					open("below a root", "/t", rooted, view.Options[string]{}, 1<<15):                all,
					open("the root of a session", "/", rooted, view.Options[string]{}, 1<<15):        nil,
					open("some", "/app/t", s, view.Options[string]{Keep: endsInA}, 1<<15):            endsInA,
					open("some, and overflows", "/app/t", s, view.Options[string]{Keep: endsInA}, 2): endsInA,
				}
				var followers, writers sync.WaitGroup
				over := make(chan embed.Zxid)
				ends := make([]chan embed.Zxid, 0, len(validators))
				for w := range validators {
					end := make(chan embed.Zxid, 1)
					ends = append(ends, end)
					followers.Go(func() { w.follow(ctx, end) })
				}
				txns := 100
				if testkit.Night() {
					txns = 400
				}
				for range 3 {
					writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
					writers.Go(func() { writeRandomly(ctx, t, writer, "/app/t", txns, func() {}) })
				}
				go func() {
					writers.Wait()
					close(over)
				}()
				var tree []stage
				for done := false; !done; {
					select {
					case <-over:
						done = true
					default:
					}
					st, err := walk(ctx, s, "/app/t")
					must(t, err)
					if len(tree) == 0 || tree[len(tree)-1].zxid < st.zxid {
						tree = append(tree, st)
					}
				}
				for _, end := range ends {
					end <- tree[len(tree)-1].zxid
				}
				followers.Wait()
				for w, keep := range validators {
					if keep == nil { // the paths of the stages are below another znode
						continue
					}
					n := w.compare(tree, keep)
					t.Logf("%s: %d states of %d compared, %d changes of repairs, %d gaps", w.name, n, len(tree), w.repaired, w.gaps)
					if n == 0 {
						t.Errorf("%s: nothing was compared", w.name)
					}
				}
			})
		})
	}
}

func endsInA(path string) bool { return strings.HasSuffix(path, "a") }

// A transaction is shown as a whole: how it left each znode.
func TestChanges_OfATransaction(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{})
		v, err := view.Open(ctx, s, "/t", view.Options[string]{})
		must(t, err)
		for _, c := range []struct {
			ops  []embed.Op
			want string
		}{
			{[]embed.Op{embed.OpCreate("/t", []byte("0"), embed.Persistent), embed.OpCreate("/t/a", []byte("1"), embed.Persistent)}, "[NodeCreated /t - 0] [NodeCreated /t/a - 1 last]"},
			{[]embed.Op{embed.OpSet("/t/a", []byte("2"), 0), embed.OpSet("/t/a", []byte("3"), 1)}, "[NodeDataChanged /t/a 1 3 last]"},
			{[]embed.Op{embed.OpCreate("/t/b", nil, embed.Persistent), embed.OpDelete("/t/b", 0), embed.OpSet("/t", []byte("4"), 0)}, "[NodeDataChanged /t 0 4 last]"},
			{[]embed.Op{embed.OpDelete("/t/a", 2), embed.OpCreate("/t/a", []byte("5"), embed.Persistent)}, "[NodeDeleted /t/a 3 -] [NodeCreated /t/a - 5 last]"},
			{[]embed.Op{embed.OpSet("/t/a", []byte("6"), 0), embed.OpDelete("/t/a", 1), embed.OpCreate("/t/a", []byte("7"), embed.Persistent), embed.OpSet("/t/a", []byte("8"), 0)}, "[NodeDeleted /t/a 5 -] [NodeCreated /t/a - 8 last]"},
			{[]embed.Op{embed.OpDelete("/t/a", 1), embed.OpDelete("/t", 1), embed.OpCreate("/t", []byte("9"), embed.Persistent)}, "[NodeDeleted /t/a 8 -] [NodeDeleted /t 4 -] [NodeCreated /t - 9 last]"},
			{[]embed.Op{embed.OpSet("/t", []byte("9"), 0)}, "[NodeDataChanged /t 9 9 last]"},
		} {
			since := v.Zxid()
			_, err := s.Multi(ctx, c.ops...)
			must(t, err)
			var got []string
			for c, err := range v.Changes(ctx, since) {
				must(t, err)
				line := fmt.Sprintf("[%v %s %s %s", c.Type, c.Path, orNone(c.Old), orNone(c.New))
				if c.Last {
					got = append(got, line+" last]")
					break
				}
				got = append(got, line+"]")
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		}
	})
}

func orNone(e view.Entry[string]) string {
	if e.Stat == (embed.Stat{}) {
		return "-"
	}
	return e.Value
}

// A transaction of thousands of changes is one step of a view. If it does not fit the buffer, it is
// one step of a repair.
func TestChanges_OfAMultiOfThousands(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Multi(ctx, embed.OpCreate("/t", nil, embed.Persistent), embed.OpCreate("/t/brake", nil, embed.Persistent))
		must(t, err)
		whole, err := view.Open(ctx, s, "/t", view.Options[string]{Depth: 1, History: 10})
		must(t, err)
		b := newBrake()
		small, err := view.OpenBuffer(ctx, s, "/t", view.Options[string]{Codec: b.codec(), Depth: 1}, 10)
		must(t, err)
		since := b.hold(ctx, t, s, "/t/brake")
		const n = 5000
		var ops []embed.Op
		for i := range n {
			ops = append(ops, embed.OpCreate(fmt.Sprintf("/t/%04d", i), fmt.Append(nil, i), embed.Persistent))
		}
		results, err := s.Multi(ctx, ops...)
		must(t, err)
		close(b.release)
		for name, v := range map[string]*view.View[string]{"whole": whole, "small": small} {
			count := 0
			for c, err := range v.Changes(ctx, since) {
				must(t, err)
				if v.Zxid() < results[0].Stat.Czxid || c.Repaired != (name == "small") || c.New.Value != fmt.Sprint(count) {
					t.Fatalf("%s: %+v of %d", name, c, count)
				}
				if count++; c.Last {
					break
				}
			}
			if all := len(maps.Collect(v.All())); count != n || all != n+1 {
				t.Errorf("%s: %d changes, %d entries", name, count, all)
			}
		}
	})
}

// Ten thousand values of one znode are ten thousand changes.
func TestChanges_OfABurst(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		stat0, err := s.Multi(ctx, embed.OpCreate("/t", nil, embed.Persistent))
		must(t, err)
		v, err := view.Open(ctx, s, "/t", view.Options[string]{})
		must(t, err)
		small, err := view.OpenBuffer(ctx, s, "/t", view.Options[string]{}, 8)
		must(t, err)
		const n = 10_000
		waiting := make([]*embed.Pending, n)
		for i := range n {
			waiting[i] = s.Submit(ctx, embed.OpSet("/t", fmt.Append(nil, i), embed.AnyVersion))
		}
		for _, p := range waiting {
			_, err := p.Result()
			must(t, err)
		}
		i := 0
		for c, err := range v.Changes(ctx, stat0[0].Stat.Czxid) {
			must(t, err)
			if c.New.Value != fmt.Sprint(i) || c.Repaired || !c.Last {
				t.Fatalf("%d: %+v", i, c)
			}
			if i++; i == n {
				break
			}
		}
		must(t, small.Await(ctx, v.Zxid()))
		if e, _ := small.Get("/t"); e.Value != fmt.Sprint(n-1) {
			t.Errorf("%q", e.Value)
		}
	})
}

// A loop that is too slow is told so, between two transactions, with a zxid from which it can go on.
// The view and others do not wait for it.
func TestChanges_SlowConsumer(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(ctx, "/t", nil, embed.Persistent)
		must(t, err)
		v, err := view.Open(ctx, s, "/t", view.Options[string]{History: 10})
		must(t, err)
		set := func(n int) {
			var last embed.Stat
			for range n {
				last, err = s.Set(ctx, "/t", fmt.Append(nil, last.Version+1), embed.AnyVersion)
				must(t, err)
			}
			must(t, v.Await(ctx, last.Mzxid))
			if e, _ := v.Get("/t"); e.Stat != last {
				t.Errorf("the view shows %v, want %v", e.Stat, last)
			}
		}
		since, told := v.Zxid(), 0
		set(1)
		var gap *embed.GapError
		for c, err := range v.Changes(ctx, since) {
			if errors.As(err, &gap) {
				break
			}
			must(t, err)
			if told++; told > 1 {
				t.Errorf("%+v", c)
			}
			set(200) // the loop's slow body
		}
		if gap == nil || gap.Zxid != v.Zxid() {
			t.Fatalf("%v, the view is at %d", gap, v.Zxid())
		}
		set(1)
		next(t, ctx, v, gap.Zxid, func(c view.Change[string], err error) {
			if e, _ := v.Get("/t"); err != nil || c.New != e {
				t.Errorf("%+v, %v", c, err)
			}
		})
	})
}

// Who asks for what is no longer kept gets a gap. From its zxid on nothing is missing.
func TestChanges_SinceAForgottenZxid(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		v, err := view.Open(ctx, s, "/t", view.Options[string]{History: 10})
		must(t, err)
		for _, since := range []embed.Zxid{0, v.Zxid() - 1} {
			next(t, ctx, v, since, func(_ view.Change[string], err error) {
				if gap, ok := errors.AsType[*embed.GapError](err); !ok || gap.Zxid < v.Zxid() {
					t.Errorf("%v", err)
				}
			})
		}
		since := v.Zxid()
		_, err = s.Create(ctx, "/t", []byte("x"), embed.Persistent)
		must(t, err)
		next(t, ctx, v, since, func(c view.Change[string], err error) {
			if err != nil || c.New.Value != "x" {
				t.Errorf("%v, %v", c, err)
			}
		})
		over, cancel := context.WithCancel(ctx)
		cancel()
		next(t, over, v, since, func(_ view.Change[string], err error) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
		// A zxid of the future has no changes until then.
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		next(t, short, v, 1<<60, func(_ view.Change[string], err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		})
	})
}

// next passes on the first element of Changes.
func next(t *testing.T, ctx context.Context, v *view.View[string], since embed.Zxid, fn func(view.Change[string], error)) {
	t.Helper()
	for c, err := range v.Changes(ctx, since) {
		fn(c, err)
		return
	}
	t.Error("no element")
}

// Data that does not decode is a change with an error, and the last good value stays.
func TestGet_KeepsTheLastGoodValue(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/n", []byte("x"), embed.Persistent)
		must(t, err)
		v, err := view.Open(ctx, s, "/n", view.Options[int]{Codec: value.JSON[int]()})
		must(t, err)
		steps := []struct {
			ops   []embed.Op
			value int
			bad   bool
		}{
			{nil, 0, true},
			{[]embed.Op{embed.OpSet("/n", []byte("1"), 0)}, 1, false},
			{[]embed.Op{embed.OpSet("/n", []byte("y"), 1)}, 1, true},
			{[]embed.Op{embed.OpSet("/n", []byte("z"), 2)}, 1, true},
			{[]embed.Op{embed.OpSet("/n", []byte("2"), 3)}, 2, false},
			{[]embed.Op{embed.OpDelete("/n", 4), embed.OpCreate("/n", []byte("w"), embed.Persistent)}, 0, true}, // another znode
		}
		since := v.Zxid()
		for i, step := range steps {
			if step.ops != nil {
				_, err := s.Multi(ctx, step.ops...)
				must(t, err)
				for c, err := range v.Changes(ctx, since) {
					must(t, err)
					since = c.Zxid
					if c.Last {
						if c.New.Value != step.value || (c.Err() != nil) != step.bad {
							t.Errorf("%d: %+v", i, c)
						}
						break
					}
				}
			}
			stat, _, err := s.Exists(ctx, "/n")
			must(t, err)
			if e, ok := v.Get("/n"); !ok || e.Value != step.value || (e.Err != nil) != step.bad || e.Stat != stat {
				t.Errorf("%d: %+v", i, e)
			}
		}
	})
}

// The bytes of a zero codec belong to the view.
func TestOpen_ZeroCodec(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		type text string
		type raw []byte
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/n", []byte("x"), embed.Persistent)
		must(t, err)
		a, err := view.Open(ctx, s, "/n", view.Options[text]{})
		must(t, err)
		b, err := view.Open(ctx, s, "/n", view.Options[raw]{})
		must(t, err)
		ea, _ := a.Get("/n")
		eb, _ := b.Get("/n")
		if ea.Value != "x" || string(eb.Value) != "x" {
			t.Errorf("%q, %q", ea.Value, eb.Value)
		}
	})
}

func TestOpen_Refused(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 4).Session(1, embed.SessionOptions{})
		_, _, err := s.CreateWith(ctx, "/secret", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "digest", ID: "a:b"}}})
		must(t, err)
		for path, want := range map[string]error{"/": embed.ErrCrossShard, "none": embed.ErrInvalidPath, "/secret": embed.ErrNoAuth} {
			if _, err := view.Open(ctx, s, path, view.Options[string]{}); !errors.Is(err, want) {
				t.Errorf("%s: %v", path, err)
			}
		}
		for _, o := range []view.Options[string]{{Depth: -1}, {History: -1}} {
			if _, err := view.Open(ctx, s, "/t", o); !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%v", err)
			}
		}
		if _, err := view.Open(ctx, s, "/t", view.Options[int]{}); !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("%v", err)
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := view.Open(over, s, "/t", view.Options[string]{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		must(t, s.Close())
		if _, err := view.Open(ctx, s, "/t", view.Options[string]{}); !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("%v", err)
		}
	})
}

// A view ends by Close or with its session. All who wait are told why, and Get goes on.
func TestView_Ends(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"view": view.ErrClosed, "session": embed.ErrSessionClosed, "node": embed.ErrClosed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				if name == "node" {
					sessionsflag.Member(t, "a client outlives a member")
				}

				ctx, ens := bounded(t), one(t, 1)
				s := ens.Session(1, embed.SessionOptions{})
				_, err := s.Create(ctx, "/t", []byte("x"), embed.Persistent)
				must(t, err)
				v, err := view.Open(ctx, s, "/t", view.Options[string]{})
				must(t, err)
				must(t, v.Err())
				waiting := make(chan error, 2)
				go func() {
					for _, err := range v.Changes(ctx, v.Zxid()) {
						waiting <- err
					}
				}()
				go func() {
					<-v.Done()
					waiting <- v.Err()
				}()
				switch name {
				case "view":
					must(t, v.Close())
				case "session":
					must(t, s.Close())
				case "node":
					must(t, ens.Node(1).Close())
				}
				for range 2 {
					if err := <-waiting; !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}
				if err := v.Await(ctx, v.Zxid()+1); err == nil {
					t.Error("Await of a view that has ended")
				}
				must(t, v.Await(ctx, v.Zxid()))
				if e, ok := v.Get("/t"); !ok || e.Value != "x" {
					t.Errorf("%v, %v", e, ok)
				}
				must(t, v.Close())
				must(t, v.Close())
				if err := v.Err(); !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			})
		})
	}
}

// A zxid that another member tells makes the view as new as that.
func TestAwait_ShowsWhatAnotherWrote(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), embedtest.New(t, 3, embedtest.Options{})
		writer, reader := ens.Session(1, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
		v, err := view.Open(ctx, reader, "/t", view.Options[string]{})
		must(t, err)
		_, err = writer.Create(ctx, "/t", nil, embed.Persistent)
		must(t, err)
		_, err = writer.Create(ctx, "/other", nil, embed.Persistent)
		must(t, err)
		for i := range 50 {
			stat, err := writer.Set(ctx, "/t", fmt.Append(nil, i), embed.AnyVersion)
			must(t, err)
			if i%2 > 0 {
				other, err := writer.Set(ctx, "/other", nil, embed.AnyVersion)
				must(t, err)
				stat.Mzxid = max(stat.Mzxid, other.Mzxid)
				must(t, v.Await(ctx, stat.Mzxid)) // a zxid of which the view sees no event, with one shard
			}
			must(t, v.Await(ctx, stat.Mzxid))
			if e, _ := v.Get("/t"); e.Value != fmt.Sprint(i) || v.Zxid() < stat.Mzxid {
				t.Fatalf("%q at %d, want %d at %d", e.Value, v.Zxid(), i, stat.Mzxid)
			}
		}
		for waited := false; !waited; { // on a busy machine the ctx may end before Await looks
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			err := v.Await(short, 1<<60)
			cancel()
			if waited = errors.Is(err, embed.ErrUnavailable); !waited && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v", err)
			}
		}
	})
}

// A Decode that hangs holds up its view and nobody else: neither the node nor readers of the view.
// Listeners of Curator (CURATOR-495) and kazoo (kazoo#381) stopped the thread by which events came.
func TestDecode_ThatHangs(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{})
		_, err := s.Create(ctx, "/t", []byte("0"), embed.Persistent)
		must(t, err)
		hang, entered := make(chan struct{}), make(chan struct{}, 100)
		v, err := view.Open(ctx, s, "/t", view.Options[string]{Codec: value.Codec[string]{Decode: func(data []byte) (string, error) {
			if string(data) != "0" {
				entered <- struct{}{}
				<-hang
			}
			return string(data), nil
		}}})
		must(t, err)
		_, err = s.Set(ctx, "/t", []byte("1"), 0)
		must(t, err)
		<-entered
		for range 20 {
			_, err = s.Set(ctx, "/t", []byte("2"), embed.AnyVersion)
			must(t, err)
		}
		if e, ok := v.Get("/t"); !ok || e.Value != "0" {
			t.Errorf("%v, %v", e, ok)
		}
		for _, e := range v.All() {
			if e.Value != "0" {
				t.Errorf("%v", e)
			}
		}
		next(t, ctx, v, 0, func(_ view.Change[string], err error) {
			if _, ok := errors.AsType[*embed.GapError](err); !ok {
				t.Errorf("%v", err)
			}
		})
		close(hang)
		stat, _, err := s.Exists(ctx, "/t")
		must(t, err)
		must(t, v.Await(ctx, stat.Mzxid))
		if e, _ := v.Get("/t"); e.Value != "2" {
			t.Errorf("%v", e)
		}
	})
}

// The paths of a listing are sorted as text, and a range may stop and begin anew.
func TestAll_IsSorted(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{})
		want := []string{"/t", "/t/a", "/t/a-b", "/t/a/b", "/t/b"}
		for _, path := range []string{"/t", "/t/b", "/t/a", "/t/a/b", "/t/a-b"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		v, err := view.Open(ctx, s, "/t", view.Options[string]{})
		must(t, err)
		all := v.All()
		for path := range all {
			if path != "/t" {
				t.Error(path)
			}
			break
		}
		var got []string
		for path := range all {
			got = append(got, path)
			if len(got) == 1 { // a loop shows the state at which it began
				must(t, s.Delete(ctx, "/t/b", 0))
				z, err := s.Sync(ctx, "/t")
				must(t, err)
				must(t, v.Await(ctx, z))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		if _, ok := v.Get("/t/b"); ok {
			t.Error("/t/b is still there")
		}
	})
}

// A view shows what its session may read. A znode that can no longer be read is gone, and one that can
// be read again is there.
func TestView_OfWhatMayBeRead(t *testing.T) {
	sessionsflag.Member(t, "a client hears the events of a transaction one after the other, which overflow no buffer")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), one(t, 1)
		s, admin := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("a:b")}}})
		secret := []embed.ACL{{Perms: embed.PermAll, Scheme: "auth"}}
		_, err := s.Create(ctx, "/t", nil, embed.Persistent)
		must(t, err)
		_, _, err = admin.CreateWith(ctx, "/t/secret", nil, embed.CreateOptions{ACL: secret})
		must(t, err)
		for _, path := range []string{"/t/a", "/t/b"} {
			_, err = admin.Create(ctx, path, []byte("0"), embed.Persistent)
			must(t, err)
		}
		b := newBrake()
		v, err := view.OpenBuffer(ctx, s, "/t", view.Options[string]{Codec: b.codec()}, 2)
		must(t, err)
		_, err = admin.SetACL(ctx, "/t/a", secret, embed.AnyVersion)
		must(t, err)
		_, err = admin.Set(ctx, "/t/a", []byte("1"), 0)
		must(t, err)
		stat, err := admin.Set(ctx, "/t/b", []byte("1"), 0)
		must(t, err)
		must(t, v.Await(ctx, stat.Mzxid))
		a, _ := v.Get("/t/a")
		other, _ := v.Get("/t/b")
		if _, ok := v.Get("/t/secret"); ok || a != (view.Entry[string]{}) || other.Value != "1" {
			t.Errorf("%v, %v, %v", ok, a, other)
		}
		since := b.hold(ctx, t, s, "/t")
		_, err = admin.Multi(ctx, embed.OpCreate("/t/c", nil, embed.Persistent), embed.OpCreate("/t/d", nil, embed.Persistent), embed.OpCreate("/t/e", nil, embed.Persistent))
		must(t, err)
		close(b.release)
		for c, err := range v.Changes(ctx, since) {
			must(t, err)
			if !c.Repaired || c.Type != embed.NodeCreated {
				t.Errorf("%+v", c)
			}
			if c.Last {
				break
			}
		}
		since = v.Zxid()
		_, err = admin.SetACL(ctx, "/t/a", []embed.ACL{{Perms: embed.PermAll, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
		must(t, err)
		next(t, ctx, v, since, func(c view.Change[string], err error) {
			if err != nil || !c.Repaired || c.Path != "/t/a" || c.New.Value != "1" || !c.Last {
				t.Errorf("%+v, %v", c, err)
			}
		})
	})
}

// D6: a znode that is deleted and created again hidden, by one transaction, is shown as deleted.
func TestView_OfAZnodeThatIsHidden(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), one(t, 1)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		boss := ens.Session(1, embed.SessionOptions{Timeout: time.Minute, Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("boss:secret")}}})
		_, err := boss.Put(ctx, "/p/x", []byte("open"))
		must(t, err)
		must(t, syncOf(ctx, s))
		v, err := view.Open(ctx, s, "/p", view.Options[string]{})
		must(t, err)
		since := v.Zxid()
		_, err = boss.Multi(ctx,
			embed.OpSet("/p/x", []byte("moved"), embed.AnyVersion),
			embed.OpDelete("/p/x", embed.AnyVersion),
			embed.OpCreateWith("/p/x", []byte("SECRET"), embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "auth"}}}))
		must(t, err)
		for c, err := range v.Changes(ctx, since) {
			must(t, err)
			if c.Type != embed.NodeDeleted || c.Path != "/p/x" || c.Old.Value != "open" {
				t.Errorf("%+v", c)
			}
			break
		}
		if e, ok := v.Get("/p/x"); ok {
			t.Errorf("it shows %q", e.Value)
		}
		must(t, v.Close())
	})
}
