package tree

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// FuzzTree interprets the input as operations and runs them on a tree and on the model. It compares
// results, errors, changes, what readers see before and after Publish, and the output of Drain.
// From time to time the tree goes through storage and back.
func FuzzTree(f *testing.F) {
	f.Add([]byte("a short one"))
	for seed := range uint64(8) {
		f.Add(randomBytes(seed, 300))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		// The cost of the model grows with the square of the length, and a fuzzing worker has ten
		// seconds.
		runFuzz(t, script[:min(len(script), 2000)])
	})
}

// The same without the fuzzing engine, with more and longer scripts.
func TestTreeAgainstModel(t *testing.T) {
	seed := testkit.Seed(t)
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

// fuzzPaths are the targets of operations, besides the paths that sequential creates have made.
var fuzzPaths = []string{
	"/a", "/b", "/a/b", "/a/b/c", "/a/x-", "/a/y-", "/b/", "/a-b", "/a/x-0000000001", "/b/x-0000000002", "/a/0000000000",
	"/", "", "a", "a/b", "//x", "//a", "/a/", "/a//b", "/a/.", "/a/..", "/.", "/a\x00", "/a/\x7f", "/\u00a0", "/\ue000", "/\U0001f600", "/\xff",
	"/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/zookeeper/x", "/zookeeper/quota/a", "/zookeeper/quota/a/b/c",
	"/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/a/zookeeper_stats", "/zookeeper/quota/a/b/zookeeper_limits",
	"/zookeeper/quota/a/b/zookeeper_stats", "/zookeeper/quota/zookeeper_stats", "/zookeeper/quota/zookeeper/zookeeper_stats",
}

// usualPaths is the part of fuzzPaths that most operations use, so that enough of them succeed.
const usualPaths = 11

// A fuzzRun is one script, run on both.
type fuzzRun struct {
	t      *testing.T
	script []byte
	tree   *Tree
	model  *model
	image  map[string]Znode // the znodes that Drain has returned so far
	zxid   Zxid
	pinned *model // the state at the pinned zxid; nil if there is no pin
	pin    *Pin
	log    []logged
}

// A logged is a transaction: operations, or a reap.
type logged struct {
	header Header
	ops    []Op
	path   string
	seen   Seen
}

func newFuzzRun(t *testing.T, script []byte) *fuzzRun {
	return &fuzzRun{t: t, script: script, tree: New(nil), model: newModel(), image: map[string]Znode{}}
}

func runFuzz(t *testing.T, script []byte) {
	r := newFuzzRun(t, script)
	for len(r.script) > 0 {
		switch b := r.byte(); {
		case b < 220:
			r.transaction()
		case b < 223:
			r.reap()
		case b < 227:
			r.endSession()
		case b < 233:
			r.quota()
		case b < 236:
			r.pinOrUnpin()
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
	r.unpin()
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

// pick returns a number below n. n must be small.
func (r *fuzzRun) pick(n int) int { return int(r.byte()) % n }

func (r *fuzzRun) path() string {
	switch b := r.byte(); {
	case b < 70:
		return fuzzPaths[r.pick(usualPaths)]
	case b < 90:
		return fuzzPaths[r.pick(len(fuzzPaths))]
	}
	return r.existing()
}

func (r *fuzzRun) existing() string {
	paths := slices.Sorted(maps.Keys(r.model.znodes))
	return paths[r.pick(len(paths))]
}

// newPath returns a path for a create, most often that of a child of an existing znode.
func (r *fuzzRun) newPath() string {
	if parent := r.existing(); len(parent) < 8 && r.byte() < 150 {
		return strings.TrimSuffix(parent, "/") + []string{"/a", "/b", "/c", "/x-", "/y-", "/"}[r.pick(6)]
	}
	return r.path()
}

// op returns one operation for a transaction, alone or with others.
func (r *fuzzRun) op(alone bool) Op {
	op := Op{Kind: fuzzKinds[r.pick(len(fuzzKinds))], Version: AnyVersion}
	if op.Kind == KindSetACL && !alone {
		op.Kind = KindSet
	}
	switch b := r.byte(); {
	case b < 100 || op.Kind == KindCreate:
		op.Kind = KindCreate
		op.Mode = CreateMode(b % 7)
		op.Path = r.newPath()
	case b > 252:
		op.Kind, op.Mode, op.Width = OpKind(r.pick(15)), CreateMode(r.pick(9)), Width(r.pick(5))
		fallthrough
	default:
		op.Path = r.path()
	}
	if op.Mode.IsTTL() || op.Mode.IsEphemeral() && r.byte() < 100 {
		op.TTL = 1 + int64(r.pick(3))
	}
	switch b := r.byte(); {
	case b < 6:
		op.TTL = fuzzTTLs[r.pick(len(fuzzTTLs))]
	case b > 220 || op.Kind == KindSetACL && b > 20:
		op.ACL = r.acl()
	}
	if b := r.byte(); b < 20 {
		op.Version = int32(b%5) - 2
	} else if b < 60 {
		op.Version = r.model.znodes[op.Path].Version
	} else if b < 80 {
		op.Version = r.model.znodes[op.Path].Aversion
	}
	if op.Kind == KindGuard || op.Kind == KindDelete && r.byte() < 120 {
		op.Czxid = r.model.znodes[op.Path].Czxid + Zxid(r.byte()/200)
	}
	switch op.Kind {
	case KindCheckMzxid, KindCheckLost:
		op.Mzxid = r.model.znodes[op.Path].Mzxid + Zxid(r.byte()/200)
	case KindAdd:
		op.Width, op.Delta = Width(r.pick(4)), fuzzDeltas[r.pick(len(fuzzDeltas))]
	case KindCheckChildren:
		op.Version = int32(len(r.model.children(op.Path)) - 1 + r.pick(3))
	}
	op.Data = r.data(op.Path)
	return op
}

// fuzzKinds are the kinds of operations that anyone may use.
var fuzzKinds = []OpKind{KindCreate, KindSet, KindDelete, KindCheck, KindSetACL, KindGuard, KindCheckChildren, KindCheckMzxid, KindAdd, KindEnsure, KindCheckLost}

// fuzzDeltas are numbers to add, some of which overflow.
var fuzzDeltas = []int64{1, -1, 0, 7, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}

func (r *fuzzRun) data(path string) []byte {
	switch b := r.byte(); {
	case b > 243: // a number
		return Width(b % 3).Format(int64(int8(r.byte())))
	case strings.Contains(path, "/zookeeper_") && b < 200:
		return []byte(fuzzTracks[r.pick(len(fuzzTracks))])
	case b > 200:
		return []byte{}
	case b > 40:
		return bytes.Repeat([]byte{b}, 1+int(b)%4)
	}
	return nil
}

// fuzzTracks are limits and usages.
var fuzzTracks = []string{
	"count=3,bytes=-1", "count=2,bytes=4=;byteHardLimit=8;countHardLimit=5", "countHardLimit=3", "byteHardLimit=6", "bytes=5",
	"count=0;bytes=0", "countHardLimit=0", "", "junk", "count=9223372036854775808", "count=1,,bytes=2;", "count", "count=", "=;",
	"a=5,count=2;", "count=9223372036854775807,bytes=9223372036854775807", "count=+4=9,b=_1", "count=-7,bytes=-2,zz=-0",
	strings.Repeat(";", trackMax-16) + "countHardLimit=0", strings.Repeat(";", trackMax-15) + "countHardLimit=0",
}

// quota adds or removes a quota.
func (r *fuzzRun) quota() {
	subtree := []string{"/a", "/a", "/a/b", "/b", "/a/missing", "/zookeeper", ""}[r.pick(7)]
	path := "/zookeeper/quota"
	var ops []Op
	for name := range strings.SplitSeq(strings.TrimPrefix(subtree, "/"), "/") {
		if name != "" {
			path += "/" + name
			ops = append(ops, Op{Kind: KindCreate, Path: path})
		}
	}
	for _, name := range []string{"/zookeeper_limits", "/zookeeper_stats"} {
		op := Op{Kind: KindCreate, Path: path + name, Data: []byte(fuzzTracks[r.pick(len(fuzzTracks))]), Version: AnyVersion}
		if r.byte() < 30 {
			op.Kind = KindDelete
		}
		ops = append(ops, op)
	}
	ops = slices.DeleteFunc(ops, func(op Op) bool {
		_, exists := r.model.znodes[op.Path]
		return exists == (op.Kind == KindCreate)
	})
	for b := r.byte(); b < 120; b += 60 { // in the same transaction as the change of limits
		ops = slices.Insert(ops, r.pick(len(ops)+1), r.op(false))
	}
	if len(ops) > 0 {
		h := r.header()
		h.System = true
		r.apply(h, ops)
	}
}

// fuzzTTLs are TTLs at and around the limits.
var fuzzTTLs = []int64{0, 1, -1, MaxTTL, MaxTTL + 1, math.MinInt64, math.MaxInt64}

// fuzzACLs are entries of lists; the first few are common ones.
var fuzzACLs = []ACL{
	{31, "world", "anyone"}, {1, "world", "anyone"}, {31, "auth", ""}, {31, "digest", "u:1"}, {31 - 8, "world", "anyone"},
	{2, "digest", "v:2"}, {16, "auth", "ignored"}, {31, "ip", "10.0.0.0/8"}, {1, "ip", "10.1.2.3"}, {5, "ip", "fe80::/10"},
	{0, "world", "anyone"}, {255, "digest", "u:1"}, {-1, "world", "anyone"}, {31, "ip", "10.0.0.0/33"}, {1, "ip", "0.0.0.0/0"},
	{1, "world", "nobody"}, {1, "digest", "u"}, {1, "digest", "u:1:2"}, {1, "digest", "u:1:"}, {31, "super", ""}, {1, "", ""}, {31, "sasl", "x"},
}

// fuzzIdentities are the identities that a requester may have.
var fuzzIdentities = []Identity{
	{"digest", "u:1"}, {"digest", "v:2"}, {"ip", "10.1.2.3"}, {"ip", "11.0.0.1"}, {"ip", "fe80::1"}, {"super", ""}, {"auth", "x"}, {"world", "anyone"}, {"sasl", "x"},
}

func (r *fuzzRun) acl() []ACL {
	list := []ACL{}
	for b := r.byte(); b > 10 && len(list) < 4; b = 4 * (b % 64) {
		if r.byte() < 230 {
			list = append(list, fuzzACLs[r.pick(7)])
		} else {
			list = append(list, fuzzACLs[r.pick(len(fuzzACLs))])
		}
	}
	return list
}

func (r *fuzzRun) who() (who []Identity) {
	switch b := r.byte(); {
	case b < 40:
	case b < 150:
		who = fuzzIdentities[:1]
	case b < 190:
		who = []Identity{{"super", "x"}}
	default:
		for range 1 + b%3 {
			who = append(who, fuzzIdentities[r.pick(len(fuzzIdentities))])
		}
	}
	return slices.Clone(who)
}

func (r *fuzzRun) header() Header {
	r.zxid += 1 + Zxid(r.pick(3))
	return Header{Zxid: r.zxid, Time: int64(1000 * r.zxid), Session: SessionID(r.pick(5)), Identities: r.who(), System: r.byte() < 10}
}

// reap removes, or tries to remove, a znode that may be reaped.
func (r *fuzzRun) reap() {
	path, seen := r.path(), Seen{r.zxid, r.zxid, r.zxid}
	var candidates []string
	for _, p := range slices.Sorted(maps.Keys(r.model.znodes)) {
		if z := r.model.znodes[p]; z.Container || z.TTL > 0 {
			candidates = append(candidates, p)
		}
	}
	if len(candidates) > 0 && r.byte() < 200 {
		path = candidates[r.pick(len(candidates))]
		z := r.model.znodes[path]
		seen = Seen{z.Czxid, z.Mzxid, z.Pzxid}
	}
	switch r.byte() / 16 {
	case 0:
		seen.Czxid++
	case 1:
		seen.Mzxid++
	case 2:
		seen.Pzxid--
	}
	h := r.header()
	h.Identities = nil
	r.log = append(r.log, logged{header: h, path: path, seen: seen})
	next, want := r.model.reap(h, path, seen)
	if err := r.tree.Reap(h, path, seen); err != want {
		r.t.Fatalf("reap %q %+v: %v, want %v", path, seen, err, want)
	}
	r.publish(next)
}

// endSession ends the ephemerals of one session, closed or lost. Sometimes it ends only some of
// them, and includes ephemerals of other sessions.
func (r *fuzzRun) endSession() {
	h := r.header()
	h.System = r.byte() < 240
	kind := []OpKind{KindDelete, KindLose, KindLose}[r.pick(3)]
	var ops []Op
	for _, p := range slices.Sorted(maps.Keys(r.model.znodes)) {
		if r.model.znodes[p].Owner == h.Session && h.Session != 0 {
			ops = append(ops, Op{Kind: kind, Path: p, Version: AnyVersion})
		}
	}
	if r.byte() < 40 {
		ops = append(ops, Op{Kind: KindLose, Path: r.path()})
	}
	if r.byte() < 40 {
		ops = append(ops, Op{Kind: KindConfigure, Data: []byte{r.byte()}})
	}
	if len(ops) > 0 {
		r.apply(h, ops)
	}
}

func (r *fuzzRun) transaction() {
	h := r.header()
	n := 1
	if b := r.byte(); b > 180 {
		n = int(b) % 6
	}
	ops := make([]Op, n)
	for i := range ops {
		ops[i] = r.op(n == 1)
	}
	r.apply(h, ops)
}

func (r *fuzzRun) apply(h Header, ops []Op) {
	r.t.Helper()
	r.log = append(r.log, copyLogged(h, ops))
	next, want, wantErr := r.model.apply(h, ops)
	got, err := r.tree.Apply(h, ops)
	if !sameError(err, wantErr) {
		r.t.Fatalf("%+v\nended with %v, want %v", ops, err, wantErr)
	}
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		r.t.Fatalf("%+v\nresults %+v\n   want %+v", ops, got, want)
	}
	for i := range ops {
		clear(ops[i].Data) // the caller may reuse it
		clear(ops[i].ACL)
	}
	clear(h.Identities)
	r.publish(next)
}

// copyLogged copies a transaction, without sharing memory that the caller may reuse.
func copyLogged(h Header, ops []Op) logged {
	h.Identities = slices.Clone(h.Identities)
	ops = append([]Op{}, ops...)
	for i := range ops {
		ops[i].Data, ops[i].ACL = slices.Clone(ops[i].Data), slices.Clone(ops[i].ACL)
	}
	return logged{header: h, ops: ops}
}

// publish publishes the transaction that made the model. It compares its changes, what readers see
// before and after, and which znodes may be reaped.
func (r *fuzzRun) publish(next *model) {
	r.t.Helper()
	if changes := r.tree.Changes(); len(changes)+len(next.changes) > 0 && !reflect.DeepEqual(changes, next.changes) {
		r.t.Fatalf("changes %v\n   want %v", changes, next.changes)
	}
	if over, want := r.tree.Over(), next.over(); !slices.Equal(over, want) {
		r.t.Fatalf("over %q, want %q", over, want)
	}
	r.compare(r.model)
	r.tree.Publish()
	r.model = next
	r.compare(next)
	if got, want := mortalsOf(r.tree), next.mortals(); !slices.Equal(got, want) {
		r.t.Fatalf("mortals %+v\n   want %+v", got, want)
	}
}

// sameError reports whether two errors have the same sentinel and the same index.
func sameError(got, want error) bool {
	var g, w *MultiError
	if errors.As(got, &g) != errors.As(want, &w) || g != nil && g.Index != w.Index {
		return false
	}
	for _, sentinel := range []error{ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty, ErrNoChildrenForEphemerals, ErrInvalidPath, ErrInvalidMode, ErrInvalidKind,
		ErrInvalidTTL, ErrInvalidACL, ErrNoAuth, ErrQuotaExceeded, ErrNotHeld, ErrTooManyChildren} {
		if errors.Is(got, sentinel) != errors.Is(want, sentinel) {
			return false
		}
	}
	return (got == nil) == (want == nil)
}

// compare reads every path that exists or could exist, and compares it with the model.
func (r *fuzzRun) compare(m *model) {
	r.t.Helper()
	if got := r.tree.Visible(); got != m.applied {
		r.t.Fatalf("visible %d, want %d", got, m.applied)
	}
	if got := r.tree.Len(); got != len(m.znodes) {
		r.t.Fatalf("length %d, want %d", got, len(m.znodes))
	}
	size := 0
	for path, z := range m.znodes {
		size += len(path) + len(z.Data)
	}
	if got := r.tree.Size(); got != size {
		r.t.Fatalf("%d bytes, want %d", got, size)
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
	for _, match := range [][]string{nil, {"x-"}, {"y-", "q"}}[r.zxid%3 : r.zxid%3+1] {
		got, ok, err := r.tree.Before(path, match...)
		want, wantOK, wantErr := m.before(path, siblings, match)
		if got != want || ok != wantOK || err != wantErr {
			r.t.Fatalf("before %q %q: %q %v %v, want %q %v %v", path, match, got, ok, err, want, wantOK, wantErr)
		}
	}
	r.compareViews(m, path, children)
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

// fuzzViews are the requesters for whom reads with permissions are compared.
var fuzzViews = [][]Identity{nil, {{"digest", "u:1"}, {"ip", "10.9.9.9"}}, {{"ip", "fe80::1"}}, {{"super", ""}}}

func (r *fuzzRun) compareViews(m *model, path string, children map[string][]string) {
	r.t.Helper()
	z, exists := m.znodes[path]
	for _, who := range fuzzViews[r.zxid%4 : r.zxid%4+1] {
		v := r.tree.As(who)
		var want error
		switch {
		case !exists:
			want = ErrNoNode
		case !modelMay(z.ACL, who, Read):
			want = ErrNoAuth
		}
		data, stat, err := v.Get(path)
		names, childStat, childErr := v.Children(path)
		below, belowErr := v.Descendants(path)
		if err != want || childErr != want || belowErr != want {
			r.t.Fatalf("%q as %v: get %v, children %v, descendants %v, want %v", path, who, err, childErr, belowErr, want)
		}
		if want == nil {
			wantStat := m.stat(path, children[path])
			if stat != wantStat || childStat != wantStat || !reflect.DeepEqual(data, z.Data) || !slices.Equal(names, children[path]) {
				r.t.Fatalf("%q as %v: %q %q %+v %+v, want %+v", path, who, data, names, stat, childStat, wantStat)
			}
			if want := m.descendants(path); below != want {
				r.t.Fatalf("%q: %d descendants, want %d", path, below, want)
			}
		}
		existsStat, ok, err := v.Exists(path)
		switch {
		case strings.Contains(path, "\x00"):
			if !errors.Is(err, ErrInvalidPath) {
				r.t.Fatalf("%q: exists ended with %v", path, err)
			}
		case !exists && (ok || err != nil), exists && err != want, err == nil && existsStat != stat:
			r.t.Fatalf("%q as %v: exists %+v %v %v, want %+v %v", path, who, existsStat, ok, err, stat, want)
		}
		r.compareACL(m, v, path)
		if v.MayRead(z.ACL) != modelMay(z.ACL, who, Read) {
			r.t.Fatalf("%v may read %v: %v", who, z.ACL, v.MayRead(z.ACL))
		}
	}
}

// compareACL compares what a view shows of an ACL, and Before, which needs a permission on the
// parent.
func (r *fuzzRun) compareACL(m *model, v View, path string) {
	r.t.Helper()
	z, exists := m.znodes[path]
	list, stat, err := v.ACL(path)
	want, wantErr := m.acl(v.who, path)
	if err != wantErr || !slices.Equal(list, want) || err == nil && stat.Aversion != z.Aversion {
		r.t.Fatalf("%q as %v: ACL %v %v, want %v %v", path, v.who, list, err, want, wantErr)
	}
	if !exists {
		return
	}
	wantErr = nil
	if !modelMay(m.znodes[modelParent(path)].ACL, v.who, Read) {
		wantErr = ErrNoAuth
	}
	if _, _, err := v.Before(path); err != wantErr {
		r.t.Fatalf("%q as %v: before %v, want %v", path, v.who, err, wantErr)
	}
}

// pinOrUnpin sets a pin. It lasts until the next call or the next reload.
func (r *fuzzRun) pinOrUnpin() {
	if r.pinned != nil {
		r.unpin()
		return
	}
	if r.pin = r.tree.Pin(); r.pin.zxid != r.model.applied {
		r.t.Fatalf("pinned %d, want %d", r.pin.zxid, r.model.applied)
	}
	r.pinned = r.model.clone()
}

// unpin compares what can be read at the pinned zxid with the state at that time.
func (r *fuzzRun) unpin() {
	r.t.Helper()
	m := r.pinned
	if m == nil {
		return
	}
	children := m.allChildren()
	for path, z := range m.znodes {
		v := r.pin.find(path)
		if v == nil || !reflect.DeepEqual(v.bytes(), z.Data) || v.stat() != m.stat(path, children[path]) ||
			!slices.Equal(v.names(), children[path]) || v.below() != m.descendants(path) {
			r.t.Fatalf("%q at the pinned zxid %d: %+v, want %+v", path, m.applied, v, z)
		}
	}
	for path := range r.model.znodes {
		if _, ok := m.znodes[path]; !ok && r.pin.find(path) != nil {
			r.t.Fatalf("%q exists at the pinned zxid %d", path, m.applied)
		}
	}
	r.pin.Release()
	r.pinned = nil
}

// drain updates the image. It compares the paths that Drain returns, and the image with Walk.
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

// reload builds a new tree from the image, after edit was called for every znode.
func (r *fuzzRun) reload(edit func(path string, z *Znode)) {
	r.t.Helper()
	r.drain()
	r.unpin()
	l := NewLoader(nil)
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

// extreme sets the counters of one znode to values just before they wrap.
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
		m.Version, m.Aversion = version, version
		r.model.znodes[path] = m
		*z = m.Znode
	})
}
