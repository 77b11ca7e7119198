package view_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
}

var (
	must    = testkit.Must
	bounded = testkit.Context
)

// one starts one member with a number of shards.
func one(t testing.TB, shards int) *embedtest.Ensemble {
	t.Helper()
	return embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
		if c.Shards = shards; shards == 0 {
			c.Shards = 1
		}
	}})
}

// shown is what is compared of a znode.
type shown struct {
	value        string
	czxid, mzxid embed.Zxid
	version      int32
}

func shownOf(e view.Entry[string]) shown {
	return shown{e.Value, e.Stat.Czxid, e.Stat.Mzxid, e.Stat.Version}
}

// A stage is a subtree at a zxid.
type stage struct {
	zxid     embed.Zxid
	znodes   map[string]shown
	repaired bool
}

// walk returns the subtree of a path. The paths of the stage are below it: "" is the znode itself.
func walk(ctx context.Context, s *embed.Session, path string) (stage, error) {
	st := stage{znodes: make(map[string]shown)}
	for z, err := range s.Walk(ctx, path) {
		st.zxid = z.Zxid
		if errors.Is(err, embed.ErrNoNode) {
			break
		}
		if err != nil {
			return st, err
		}
		st.znodes[strings.TrimPrefix(z.Path, path)] = shown{string(z.Data), z.Stat.Czxid, z.Stat.Mzxid, z.Stat.Version}
	}
	return st, nil
}

// A validator replays the changes of a view onto its opening state.
type validator struct {
	t    *testing.T
	name string
	path string
	v    *view.View[string]

	stages   []stage // after each transaction
	repaired int     // changes
	gaps     int     // of its own loop
}

func newValidator(t *testing.T, name, path string, v *view.View[string]) *validator {
	w := &validator{t: t, name: name, path: path, v: v}
	w.restart()
	return w
}

// restart takes the state of the view. Nobody may write meanwhile, or it tries again.
func (w *validator) restart() {
	for {
		st := stage{zxid: w.v.Zxid(), znodes: make(map[string]shown), repaired: true}
		var last string
		for path, e := range w.v.All() {
			if len(st.znodes) > 0 && path <= last {
				w.t.Errorf("%s: %s after %s", w.name, path, last)
			}
			last = path
			st.znodes[strings.TrimPrefix(path, w.path)] = shownOf(e)
		}
		if st.zxid == w.v.Zxid() {
			w.stages = append(w.stages, st)
			return
		}
	}
}

func (w *validator) last() stage { return w.stages[len(w.stages)-1] }

// follow replays changes until the view has shown the zxid that over says, once over is known.
func (w *validator) follow(ctx context.Context, over <-chan embed.Zxid) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case end := <-over:
			if err := w.v.Await(ctx, end); err != nil {
				w.t.Errorf("%s: %v", w.name, err)
			}
			// A loop over what there is ends by itself only if the view does.
			_ = w.v.Close()
		case <-ctx.Done():
		}
	}()
	for {
		err := w.replay(ctx)
		if gap, ok := errors.AsType[*embed.GapError](err); ok {
			if gap.Zxid <= w.last().zxid {
				w.t.Errorf("%s: a gap up to %d, after %d", w.name, gap.Zxid, w.last().zxid)
			}
			w.gaps++
			w.restart()
			continue
		}
		if !errors.Is(err, view.ErrClosed) {
			w.t.Errorf("%s: %v", w.name, err)
		}
		return
	}
}

// replay replays changes until the sequence ends.
func (w *validator) replay(ctx context.Context) error {
	now := maps.Clone(w.last().znodes)
	zxid, open := w.last().zxid, false // open: a transaction is not yet whole
	for c, err := range w.v.Changes(ctx, zxid) {
		if err != nil {
			if open {
				w.t.Errorf("%s: %v within a transaction", w.name, err)
			}
			return err
		}
		if c.Zxid < zxid || c.Zxid == zxid && !open || open && c.Zxid != zxid {
			w.t.Errorf("%s: a change of %d after %d, open: %v", w.name, c.Zxid, zxid, open)
		}
		w.step(now, c)
		if e, ok := w.v.Get(c.Path); c.Type != embed.NodeDeleted && ok && e.Stat.Mzxid < c.New.Stat.Mzxid {
			w.t.Errorf("%s: Get shows %d after a change of %d", w.name, e.Stat.Mzxid, c.New.Stat.Mzxid)
		}
		zxid, open = c.Zxid, !c.Last
		if c.Repaired {
			w.repaired++
		}
		if c.Last {
			w.stages = append(w.stages, stage{zxid, maps.Clone(now), c.Repaired})
		}
	}
	return nil
}

// step applies one change, and checks that it fits.
func (w *validator) step(now map[string]shown, c view.Change[string]) {
	rel := strings.TrimPrefix(c.Path, w.path)
	was, there := now[rel]
	fits := c.Err() == nil
	switch c.Type {
	case embed.NodeCreated:
		fits = fits && !there && c.Old == (view.Entry[string]{}) && (c.Repaired || c.New.Stat.Czxid == c.Zxid)
		now[rel] = shownOf(c.New)
	case embed.NodeDataChanged:
		fits = fits && there && shownOf(c.Old) == was && c.New.Stat.Czxid == was.czxid && c.New.Stat.Mzxid > was.mzxid && (c.Repaired || c.New.Stat.Mzxid == c.Zxid)
		now[rel] = shownOf(c.New)
	case embed.NodeDeleted:
		fits = fits && there && shownOf(c.Old) == was && c.New == (view.Entry[string]{})
		delete(now, rel)
	default:
		fits = false
	}
	if !fits {
		w.t.Errorf("%s: %+v does not fit %+v", w.name, c, was)
	}
}

// compare compares the replayed states with what the tree showed at some zxids, as far as keep says.
// It returns how many it could compare: those that a repair or a gap passed over it cannot.
func (w *validator) compare(tree []stage, keep func(path string) bool) (n int) {
	for _, want := range tree {
		i, found := slices.BinarySearchFunc(w.stages, want.zxid, func(st stage, z embed.Zxid) int { return int(st.zxid) - int(z) })
		if !found {
			if i == 0 || i < len(w.stages) && w.stages[i].repaired {
				continue
			}
			i--
		}
		expected := maps.Clone(want.znodes)
		maps.DeleteFunc(expected, func(path string, _ shown) bool { return !keep(path) })
		if got := w.stages[i].znodes; !maps.Equal(got, expected) {
			w.t.Errorf("%s: at zxid %d:\n%v, want\n%v", w.name, want.zxid, got, expected)
			return n
		}
		n++
	}
	return n
}

// names are the components of random paths below a base, two levels of them.
var names = []string{"a", "a-b", "b", "c"}

// randomOps returns random operations below a base, and on the base itself. They may be refused.
func randomOps(ctx context.Context, s *embed.Session, rng *rand.Rand, base string) (ops []embed.Op) {
	for range 1 + rng.IntN(2) {
		path := base
		for range rng.IntN(3) {
			path += "/" + names[rng.IntN(len(names))]
		}
		data := fmt.Append(nil, rng.IntN(1000))
		stat, there, _ := s.Exists(ctx, path)
		switch n := rng.IntN(8); {
		case !there && n == 0:
			ops = append(ops, embed.OpCreate(path, nil, embed.Persistent), embed.OpSet(path, data, embed.AnyVersion), embed.OpDelete(path, embed.AnyVersion))
		case !there:
			ops = append(ops, embed.OpCreate(path, data, embed.Persistent))
		case n < 4 || stat.NumChildren > 0:
			ops = append(ops, embed.OpSet(path, data, embed.AnyVersion))
		case n < 6:
			ops = append(ops, embed.OpDelete(path, embed.AnyVersion))
		default:
			ops = append(ops, embed.OpDelete(path, embed.AnyVersion), embed.OpCreate(path, data, embed.Persistent))
		}
	}
	return ops
}

// plant creates what random writers need below a root.
func plant(ctx context.Context, t *testing.T, s *embed.Session, root string) {
	t.Helper()
	_, err := s.Multi(ctx, embed.OpCreate(root, nil, embed.Persistent), embed.OpCreate(root+"/data", nil, embed.Persistent))
	must(t, err)
}

// writeRandomly sends n random transactions below root/ra and reports errors other than refusals.
// After each that was applied it calls applied. Each sets root/data, so there is no repair without a
// change: the validator knows of every one.
func writeRandomly(ctx context.Context, t *testing.T, s *embed.Session, root string, n int, applied func()) {
	rng := testkit.Rand(t)
	for range n {
		_, err := s.Multi(ctx, append(randomOps(ctx, s, rng, root+"/ra"), embed.OpSet(root+"/data", nil, embed.AnyVersion))...)
		if err == nil {
			applied()
			continue
		}
		if _, refused := errors.AsType[*embed.MultiError](err); !refused {
			t.Error(err)
			return
		}
	}
}

// A brake holds a view up: its Decode waits at the data "brake". So a test can let the view's watch
// overflow.
type brake struct{ entered, release chan struct{} }

func newBrake() brake { return brake{make(chan struct{}, 1), make(chan struct{})} }

func (b brake) codec() value.Codec[string] {
	return value.Codec[string]{Decode: func(data []byte) (string, error) {
		if string(data) == "brake" {
			b.entered <- struct{}{}
			<-b.release
		}
		return string(data), nil
	}}
}

// hold holds the view up by a write to a znode that it shows, and returns the zxid of the write.
func (b brake) hold(ctx context.Context, t *testing.T, s *embed.Session, path string) embed.Zxid {
	t.Helper()
	stat, err := s.Set(ctx, path, []byte("brake"), embed.AnyVersion)
	must(t, err)
	<-b.entered
	return stat.Mzxid
}
