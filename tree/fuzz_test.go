package tree

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// FuzzTree runs what the input spells on a tree and on the model, and compares results, errors, changes, what readers see
// before and after Publish, and what Drain gives; now and then the tree goes through storage and back.
func FuzzTree(f *testing.F) {
	f.Add([]byte("a short one"))
	for seed := range uint64(8) {
		f.Add(randomBytes(seed, 300))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		runFuzz(t, script)
	})
}

// The same without the fuzzing engine, over more and longer scripts.
func TestTreeAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range uint64(12) {
		runFuzz(t, randomBytes(seed+i, 2000))
	}
}

func randomBytes(seed uint64, n int) []byte {
	rnd := rand.New(rand.NewPCG(seed, seed))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// fuzzPaths are what operations are aimed at, besides the paths that sequential creates have made.
var fuzzPaths = []string{
	"/a", "/b", "/a/b", "/a/b/c", "/a/x-", "/a/y-", "/b/", "/a-b", "/a/x-0000000001", "/b/x-0000000002", "/a/0000000000",
	"/", "", "a", "a/b", "//x", "//a", "/a/", "/a//b", "/a/.", "/a/..", "/.", "/a\x00", "/a/\x7f", "/\u00a0", "/\ue000", "/\U0001f600", "/\xff",
	"/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/x", "/zookeeper/quota/a",
}

// usualPaths is the part of fuzzPaths most operations use, so that enough of them succeed.
const usualPaths = 11

// A fuzzRun is one script being run on both.
type fuzzRun struct {
	t      *testing.T
	script []byte
	tree   *Tree
	model  *model
	image  map[string]Znode // what Drain has given so far
	zxid   Zxid
}

func runFuzz(t *testing.T, script []byte) {
	r := &fuzzRun{t: t, script: script, tree: New(), model: newModel(), image: map[string]Znode{}}
	for len(r.script) > 0 {
		switch b := r.byte(); {
		case b < 230:
			r.transaction()
		case b < 240:
			r.drain()
		case b < 245:
			r.reload(func(string, *Znode) {})
		default:
			r.extreme()
		}
		if err := r.tree.check(); err != nil {
			t.Fatal(err)
		}
	}
	r.drain()
	r.compare(r.model)
}

func (r *fuzzRun) byte() byte {
	if len(r.script) == 0 {
		return 0
	}
	b := r.script[0]
	r.script = r.script[1:]
	return b
}

// pick returns a number below n, which is small.
func (r *fuzzRun) pick(n int) int { return int(r.byte()) % n }

func (r *fuzzRun) path() string {
	switch b := r.byte(); {
	case b < 150:
		return fuzzPaths[r.pick(usualPaths)]
	case b < 190:
		return fuzzPaths[r.pick(len(fuzzPaths))]
	}
	paths := slices.Sorted(maps.Keys(r.model.znodes))
	return paths[r.pick(len(paths))]
}

func (r *fuzzRun) op() Op {
	op := Op{Kind: OpKind(1 + r.pick(4)), Path: r.path(), Version: AnyVersion}
	if b := r.byte(); b < 100 {
		op.Kind = KindCreate
		op.Mode = CreateMode(b % 4)
	} else if b > 250 {
		op.Kind, op.Mode = OpKind(r.pick(7)), CreateMode(r.pick(7))
	}
	if b := r.byte(); b < 60 {
		op.Version = int32(b%5) - 2
	} else if b < 70 {
		op.Version = r.model.znodes[op.Path].Version
	}
	switch b := r.byte(); {
	case b > 200:
		op.Data = []byte{}
	case b > 40:
		op.Data = []byte{b, b}
	}
	return op
}

func (r *fuzzRun) transaction() {
	r.zxid += 1 + Zxid(r.pick(3))
	h := Header{Zxid: r.zxid, Time: int64(1000 * r.zxid), Session: SessionID(r.pick(3))}
	n := 1
	if b := r.byte(); b > 180 {
		n = int(b) % 6
	}
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = r.op()
	}
	before := r.model
	next, want, wantErr := before.apply(h, ops)
	got, err := r.tree.Apply(h, ops)
	if !sameError(err, wantErr) {
		r.t.Fatalf("%+v\nended with %v, want %v", ops, err, wantErr)
	}
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		r.t.Fatalf("%+v\nresults %+v\n   want %+v", ops, got, want)
	}
	if changes := r.tree.Changes(); !slices.Equal(changes, next.changes) {
		r.t.Fatalf("%+v\nchanges %v\n   want %v", ops, changes, next.changes)
	}
	for i := range ops {
		clear(ops[i].Data) // the caller may reuse it
	}
	r.compare(before)
	r.tree.Publish()
	r.model = next
	r.compare(next)
}

// sameError reports whether two errors are the same sentinel at the same place.
func sameError(got, want error) bool {
	var g, w *MultiError
	if errors.As(got, &g) != errors.As(want, &w) || g != nil && g.Index != w.Index {
		return false
	}
	for _, sentinel := range []error{ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty, ErrNoChildrenForEphemerals, ErrInvalidPath, ErrInvalidMode, ErrInvalidKind} {
		if errors.Is(got, sentinel) != errors.Is(want, sentinel) {
			return false
		}
	}
	return (got == nil) == (want == nil)
}

// compare reads every path there is or could be, and holds it against the model.
func (r *fuzzRun) compare(m *model) {
	r.t.Helper()
	if got := r.tree.Visible(); got != m.applied {
		r.t.Fatalf("visible %d, want %d", got, m.applied)
	}
	if got := r.tree.Len(); got != len(m.znodes) {
		r.t.Fatalf("length %d, want %d", got, len(m.znodes))
	}
	names := m.allChildren()
	for _, path := range fuzzPaths {
		r.comparePath(m, path, names)
	}
	for path := range m.znodes {
		r.comparePath(m, path, names)
	}
}

func (r *fuzzRun) comparePath(m *model, path string, children map[string][]string) {
	r.t.Helper()
	z, exists := m.znodes[path]
	stat, ok := r.tree.Exists(path)
	data, getStat, getErr := r.tree.Get(path)
	names, childStat, childErr := r.tree.Children(path)
	if ok != exists || (getErr == nil) != exists || (childErr == nil) != exists {
		r.t.Fatalf("%q: exists %v, get %v, children %v; want existence %v", path, ok, getErr, childErr, exists)
	}
	var siblings []string
	if exists {
		siblings = children[modelParent(path)]
	}
	for _, match := range [][]string{nil, {"x-"}, {"y-", "q"}} {
		got, ok, err := r.tree.Before(path, match...)
		want, wantOK, wantErr := m.before(path, siblings, match)
		if got != want || ok != wantOK || err != wantErr {
			r.t.Fatalf("before %q %q: %q %v %v, want %q %v %v", path, match, got, ok, err, want, wantOK, wantErr)
		}
	}
	if !exists {
		return
	}
	if want := m.stat(path, children[path]); stat != want || getStat != want || childStat != want {
		r.t.Fatalf("%q: stats %+v\n%+v\n%+v, want\n%+v", path, stat, getStat, childStat, want)
	}
	if !reflect.DeepEqual(data, z.Data) {
		r.t.Fatalf("%q: data %#v, want %#v", path, data, z.Data)
	}
	if !slices.Equal(names, children[path]) {
		r.t.Fatalf("%q: children %q, want %q", path, names, children[path])
	}
}

// drain brings the image up to date and compares which paths that took, and the image with Walk.
func (r *fuzzRun) drain() {
	r.t.Helper()
	stop := errors.New("stop")
	if len(r.model.touched) > 0 {
		if err := r.tree.Drain(func(string, Znode, bool) error { return stop }); err != stop {
			r.t.Fatalf("drain ended with %v, want %v", err, stop)
		}
	}
	var paths []string
	err := r.tree.Drain(func(path string, z Znode, exists bool) error {
		paths = append(paths, path)
		delete(r.image, path)
		if exists {
			r.image[path] = z
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if want := slices.Sorted(maps.Keys(r.model.touched)); !slices.Equal(paths, want) {
		r.t.Fatalf("drain gave %q, want %q", paths, want)
	}
	r.model.touched = map[string]bool{}
	paths = nil
	err = r.tree.Walk(func(path string, z Znode) error {
		paths = append(paths, path)
		if !reflect.DeepEqual(z, r.image[path]) || !reflect.DeepEqual(z, r.model.znodes[path].Znode) {
			return fmt.Errorf("%q is %+v, image %+v, model %+v", path, z, r.image[path], r.model.znodes[path])
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if want := slices.Sorted(maps.Keys(r.image)); !slices.Equal(paths, want) {
		r.t.Fatalf("walk gave %q, image has %q", paths, want)
	}
}

// reload makes a new tree of the image, after edit has had a look at every znode.
func (r *fuzzRun) reload(edit func(path string, z *Znode)) {
	r.t.Helper()
	r.drain()
	l := NewLoader()
	for path, z := range r.image {
		edit(path, &z)
		r.image[path] = z
		if err := l.Add(path, z); err != nil {
			r.t.Fatal(err)
		}
	}
	loaded, err := l.Finish(r.tree.Visible())
	if err != nil {
		r.t.Fatal(err)
	}
	r.tree = loaded
}

// extreme brings the counters of one znode to where they are about to wrap.
func (r *fuzzRun) extreme() {
	target := r.path()
	version := []int32{math.MaxInt32 - 1, -3, -2}[r.pick(3)]
	r.reload(func(path string, z *Znode) {
		if path != target {
			return
		}
		m := r.model.znodes[path]
		m.cversion += 2 * (math.MaxInt32 - 2 - m.Created)
		m.Created = math.MaxInt32 - 2
		m.Version = version
		r.model.znodes[path] = m
		*z = m.Znode
	})
}
