package promisetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// lagging starts three members that keep little log: a member that misses a few entries needs the
// whole state.
func lagging(t *testing.T) *embedtest.Ensemble {
	return embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Inside = &inside.Seams{Keep: 1} }})
}

// compact asks all members but the one that is away for snapshots, which compact their logs. They
// do so in the background. In real time a busy machine needs more time for that than for a few
// writes, so late says how often the logs were not compacted in time: each time doubles the writes.
func compact(t *testing.T, ens *embedtest.Ensemble, late int, write func() error) {
	t.Helper()
	for range 5 { // more than the log keeps
		must(t, write())
	}
	for _, id := range ens.Members() {
		if id != away {
			must(t, ens.Snapshot(id))
		}
	}
	settle()
	for range 5 << min(late, 8) {
		must(t, write())
	}
}

// D2: a random history passes while a member is away for so long that it gets a snapshot. Before,
// during and after, every watch of that member is compared with the list of all changes. The watch
// is told of each change that it matches, once and in order. Of changes in the gap, a once-watch
// gets one event and any other watch ends with ErrWatchGap. A watch to which nothing happened goes
// on as if there had been no gap.
func TestGuarantee_WatchNoGap_AcrossSnapshots(t *testing.T) {
	embedkit.MembersOnly(t, "the watches of a client end with its connection, changed or not")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		h := newGapHistory(t)
		rounds := 12
		if testing.Short() {
			rounds = 4
		}
		for (h.installs < rounds || h.went == 0 || h.fired == 0 || h.ended == 0) && !t.Failed() {
			h.round()
		}
		t.Logf("%d rounds, %d snapshots installed; of %d watches at a gap: %d went on, %d fired, %d ended; %d events checked",
			h.rounds, h.installs, h.went+h.fired+h.ended, h.went, h.fired, h.ended, h.events)
	})
}

// away is the member that gets the snapshots.
const away embed.MemberID = 3

// A gapHistory is a tree of few znodes, a writer, and watches of every mode on every path of the
// tree.
type gapHistory struct {
	t      *testing.T
	ctx    context.Context
	rng    *rand.Rand
	ens    *embedtest.Ensemble
	writer *embed.Session
	base   string // everything is below it

	// On the member that goes away: plain sees everything, and below, whose root is t, has the
	// watches.
	plain, below *embed.Session
	watches      []*gapWatch
	marker       *embed.Watch // persistent, on marker, which every transaction sets

	changes []gapChange     // all changes, in order
	now     map[string]bool // the znodes below t that exist after them

	rounds, installs, went, fired, ended, events int
}

// A gapChange is one change.
type gapChange struct {
	zxid embed.Zxid
	what embed.EventType
	path string
}

// A gapWatch is one watch, checked up to a change.
type gapWatch struct {
	path  string
	mode  embed.WatchMode
	watch *embed.Watch
	from  embed.Zxid
}

// A gap is the changes that a snapshot replaced: those after low, up to high. The zero value is no
// gap.
type gap struct{ low, high embed.Zxid }

func newGapHistory(t *testing.T) *gapHistory {
	h := &gapHistory{t: t, ctx: bounded(t), rng: testkit.Rand(t), ens: lagging(t), now: make(map[string]bool)}
	h.writer = h.ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	h.base = embedkit.LastPlace()
	for _, path := range []string{h.base, h.base + "/t", h.base + "/marker"} {
		_, err := h.writer.Create(h.ctx, path, nil, embed.Persistent)
		must(t, err)
	}
	h.plain = h.ens.Session(away, embed.SessionOptions{Timeout: time.Minute})
	h.below = h.ens.Session(away, embed.SessionOptions{Timeout: time.Minute, Root: h.base + "/t"})
	for _, path := range gapPaths("", 3) {
		for _, mode := range []embed.WatchMode{embed.WatchOnce, embed.WatchPersistent, embed.WatchRecursive} {
			h.watches = append(h.watches, &gapWatch{path: path, mode: mode})
		}
	}
	return h
}

// gapPaths returns all paths below a path with at most depth components a or b.
func gapPaths(path string, depth int) []string {
	if depth == 0 {
		return nil
	}
	var paths []string
	for _, name := range []string{"/a", "/b"} {
		paths = append(append(paths, path+name), gapPaths(path+name, depth-1)...)
	}
	return paths
}

func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// round lets time pass with the member, without it, and with it again. The events of a watch are
// read before and after the gap, or wait in its buffer until the end.
func (h *gapHistory) round() {
	h.rounds++
	h.sync()
	h.arm()
	h.write(1+h.rng.IntN(5), "")
	h.sync()
	if h.rng.IntN(2) == 0 {
		h.check(gap{})
	}
	g := gap{low: h.last()}

	h.ens.Isolate(away)
	only := []string{"", "/a", "/b", "/a/b"}[h.rng.IntN(4)]
	h.write(1+h.rng.IntN(6), only)
	compact(h.t, h.ens, h.rounds-h.installs-1, func() error {
		_, err := h.writer.Set(h.ctx, h.base, nil, embed.AnyVersion) // nobody watches it
		return err
	})
	h.write(1+h.rng.IntN(3), only)
	g.high = h.last()
	h.ens.HealAll()
	h.sync()
	g = h.seen(g)
	if g != (gap{}) {
		h.installs++
	}
	if h.rng.IntN(2) == 0 {
		h.check(g)
	}
	h.write(h.rng.IntN(6), "")
	h.sync()
	h.check(g)
}

func (h *gapHistory) last() embed.Zxid { return h.changes[len(h.changes)-1].zxid }

func (h *gapHistory) sync() {
	h.t.Helper()
	_, err := h.plain.Sync(h.ctx, "/")
	must(h.t, err)
}

// arm arms the watches that are missing or have ended.
func (h *gapHistory) arm() {
	var err error
	if h.marker == nil || h.marker.Err() != nil {
		h.marker, err = h.plain.Watch(h.ctx, h.base+"/marker", embed.WatchPersistent)
		must(h.t, err)
	}
	for _, w := range h.watches {
		if w.watch == nil {
			w.watch, err = h.below.Watch(h.ctx, w.path, w.mode)
			must(h.t, err)
			w.from = w.watch.Zxid()
		}
	}
}

// write makes n transactions below a path. Each sets the marker last.
func (h *gapHistory) write(n int, only string) {
	for range n {
		var ops []embed.Op
		var made []gapChange
		for range 1 + h.rng.IntN(3) {
			paths := gapPaths("", 3)
			path := paths[h.rng.IntN(len(paths))]
			if path != only && !strings.HasPrefix(path, only+"/") {
				continue
			}
			if op, what, ok := h.op(path); ok {
				ops, made = append(ops, op), append(made, gapChange{what: what, path: path})
			}
		}
		results, err := h.writer.Multi(h.ctx, append(ops, embed.OpSet(h.base+"/marker", nil, embed.AnyVersion))...)
		must(h.t, err)
		zxid := results[len(ops)].Stat.Mzxid
		for _, c := range append(made, gapChange{what: embed.NodeDataChanged, path: "/marker"}) {
			c.zxid = zxid
			h.changes = append(h.changes, c)
		}
	}
}

// op returns a random operation on a path that will succeed, if there is one, and records it.
func (h *gapHistory) op(path string) (embed.Op, embed.EventType, bool) {
	parent := parentOf(path)
	switch {
	case h.now[path] && !h.now[path+"/a"] && !h.now[path+"/b"] && h.rng.IntN(2) == 0:
		delete(h.now, path)
		return embed.OpDelete(h.base+"/t"+path, embed.AnyVersion), embed.NodeDeleted, true
	case h.now[path]:
		return embed.OpSet(h.base+"/t"+path, nil, embed.AnyVersion), embed.NodeDataChanged, true
	case h.now[parent] || parent == "":
		h.now[path] = true
		return embed.OpCreate(h.base+"/t"+path, nil, embed.Persistent), embed.NodeCreated, true
	}
	return embed.Op{}, 0, false
}

// seen asks the marker's watch which changes of a gap a snapshot replaced. Changes of which the
// watch was told came from the log, perhaps all of them.
func (h *gapHistory) seen(g gap) gap {
	told, over := embedkit.Drain(h.marker)
	if err := h.marker.Err(); over && !errors.Is(err, embed.ErrWatchGap) {
		h.t.Fatalf("the marker's watch has ended: %v", err)
	}
	if len(told) > 0 {
		g.low = max(g.low, told[len(told)-1].Zxid)
	}
	if !over {
		return gap{}
	}
	return g
}

// check compares what the watches were told since the last check with what happened.
func (h *gapHistory) check(g gap) {
	h.t.Helper()
	for _, w := range h.watches {
		if w.watch == nil {
			continue
		}
		told, over := embedkit.Drain(w.watch)
		want, end, err := h.expected(w, g)
		if !slices.Equal(told, want) || over != end || !reflect.DeepEqual(w.watch.Err(), err) {
			h.t.Errorf("watch of mode %d on %q, checked up to %d, with a gap from %d to %d:\ntold %v, ended %v: %v\nwant %v, ended %v: %v",
				w.mode, w.path, w.from, g.low, g.high, told, over, w.watch.Err(), want, end, err)
		}
		h.events += len(told)
		w.from = h.last()
		if over {
			w.watch = nil
		}
	}
}

// expected returns the events that a watch must get since its last check, and how it ends, if it
// does.
func (h *gapHistory) expected(w *gapWatch, g gap) (want []embed.Event, end bool, err error) {
	tell := func(after, upTo embed.Zxid) {
		for _, c := range h.changes {
			e, matches := w.match(c)
			if !end && matches && c.zxid > max(after, w.from) && c.zxid <= upTo {
				want = append(want, e)
				end = w.mode == embed.WatchOnce
			}
		}
	}
	if g.high <= w.from { // the watch was checked after the gap, or there was none
		tell(w.from, h.last())
		return want, end, nil
	}
	tell(w.from, g.low)
	if end {
		return want, end, nil
	}
	what, touched := h.touched(w, g)
	switch {
	case !touched:
		h.went++
		tell(g.high, h.last())
		return want, end, nil
	case w.mode == embed.WatchOnce:
		h.fired++
		return append(want, embed.Event{Type: what, Path: w.path, Zxid: g.high}), true, nil
	}
	h.ended++
	return want, true, &embed.GapError{Zxid: g.high}
}

// match returns the event of a change for a watch.
func (w *gapWatch) match(c gapChange) (embed.Event, bool) {
	switch {
	case c.path == w.path, w.mode == embed.WatchRecursive && strings.HasPrefix(c.path, w.path+"/"):
		return embed.Event{Type: c.what, Path: c.path, Zxid: c.zxid}, true
	case w.mode != embed.WatchRecursive && c.what != embed.NodeDataChanged && parentOf(c.path) == w.path:
		return embed.Event{Type: embed.NodeChildrenChanged, Path: w.path, Zxid: c.zxid}, true
	}
	return embed.Event{}, false
}

// touched reports whether a watch missed anything in a gap, or may have, judging by the states
// before and after. A znode that is missing in both may have existed in between if the children of
// the znode above it changed. The event is the first that a second look would show.
func (h *gapHistory) touched(w *gapWatch, g gap) (what embed.EventType, touched bool) {
	was, is := h.at(g.low), h.at(g.high)
	var own, any bool
	changed := make(map[string]bool) // whose children came or went
	for _, c := range h.changes {
		if c.zxid <= g.low || c.zxid > g.high {
			continue
		}
		_, matches := w.match(c)
		any = any || matches
		own = own || c.path == w.path
		if c.what != embed.NodeDataChanged {
			changed[parentOf(c.path)] = true
		}
	}
	switch {
	case !was[w.path] && !is[w.path]:
		path := parentOf(w.path)
		for path != "" && !was[path] && !is[path] {
			path = parentOf(path)
		}
		// A znode that went and came back is another one, and nobody knows what was below it.
		return embed.NodeCreated, changed[path] || path != "" && (!was[path] || !is[path] || h.replaced(path, g))
	case !was[w.path]:
		return embed.NodeCreated, true
	case !is[w.path]:
		return embed.NodeDeleted, true
	case own:
		return embed.NodeDataChanged, true
	}
	return embed.NodeChildrenChanged, any
}

// at returns the znodes that existed at a zxid.
func (h *gapHistory) at(z embed.Zxid) map[string]bool {
	state := make(map[string]bool)
	for _, c := range h.changes {
		if c.zxid <= z && c.what != embed.NodeDataChanged {
			state[c.path] = c.what == embed.NodeCreated
		}
	}
	return state
}

// replaced reports whether a znode was created in a gap.
func (h *gapHistory) replaced(path string, g gap) bool {
	return slices.ContainsFunc(h.changes, func(c gapChange) bool {
		return c.path == path && c.what == embed.NodeCreated && c.zxid > g.low && c.zxid <= g.high
	})
}

// D2, E3.1, E4, E5.5: what becomes of queues while a member is away for so long that it gets a
// snapshot. The watches of its waiters and observers end, and they look again. A hold whose
// contender somebody deleted has ended, and a hold that nobody touched goes on. A lock that is kept
// on that member goes to the contender that came meanwhile.
func TestRecipes_AcrossASnapshot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, rounds := lagging(t), 0
		ens.Until("a snapshot", func() bool { // one more round if the log is not compacted in time
			rounds++
			return recipesWhileAway(t, ens, rounds)
		})
	})
}

// recipesWhileAway plays one round and reports whether there was a snapshot.
func recipesWhileAway(t *testing.T, ens *embedtest.Ensemble, round int) bool {
	path := fmt.Sprint("/round-", round)
	ctx := bounded(t)
	here, there := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(away, embed.SessionOptions{Timeout: time.Minute})
	held := func(s *embed.Session, path string) *lock.Hold {
		hold, err := lock.NewMutex(s, path).Lock(ctx)
		must(t, err)
		return hold
	}
	ahead, kept, deleted := held(here, path+"/queue"), held(there, path+"/kept"), held(there, path+"/deleted")
	granted := make(chan error, 1)
	go func() {
		_, err := lock.NewMutex(there, path+"/queue").Lock(ctx)
		granted <- err
	}()
	keeps, err := lock.NewMutex(there, path+"/keeps").With(lock.Options{Keep: time.Millisecond}).Lock(ctx)
	must(t, err)
	must(t, keeps.Release())
	old, err := election.New(here, path+"/election").Campaign(ctx, []byte("old"))
	must(t, err)
	_, err = there.Sync(ctx, "/")
	must(t, err)
	leaders := make(chan string, 100)
	go func() {
		for l, err := range election.New(there, path+"/election").Observe(ctx) {
			if leaders <- string(l.Value); err != nil {
				return
			}
		}
	}()
	if l := <-leaders; l != "old" {
		t.Fatalf("the observer sees %q", l)
	}
	twoStand := func(path string) func() bool {
		return func() bool {
			names, _, err := here.Children(ctx, path)
			return err == nil && len(names) == 2
		}
	}
	ens.Until("the waiter to queue", twoStand(path+"/queue"))
	marker, err := there.Watch(ctx, path+"/marker", embed.WatchPersistent)
	must(t, err)

	ens.Isolate(away)
	letIn := make(chan error, 1)
	go func() {
		_, err := lock.NewMutex(here, path+"/keeps").Lock(ctx)
		letIn <- err
	}()
	ens.Until("one to queue where the lock is kept", twoStand(path+"/keeps"))
	must(t, ahead.Release())
	must(t, old.Resign())
	_, err = election.New(here, path+"/election").Campaign(ctx, []byte("new"))
	must(t, err)
	must(t, here.Delete(ctx, deleted.Path(), embed.AnyVersion))
	_, err = here.Create(ctx, path+"/marker", nil, embed.Persistent)
	must(t, err)
	compact(t, ens, round-1, func() error {
		_, err := here.Set(ctx, path+"/marker", nil, embed.AnyVersion)
		return err
	})
	ens.HealAll()

	must(t, <-granted)
	must(t, <-letIn)
	for l := ""; l != "new"; {
		if l = <-leaders; l == "" {
			t.Fatal("the observer lost its session")
		}
	}
	select {
	case <-deleted.Done():
	case <-ctx.Done():
	}
	if !errors.Is(deleted.Err(), embed.ErrDeleted) || kept.Err() != nil {
		t.Errorf("the hold whose contender was deleted: %v; the other: %v", deleted.Err(), kept.Err())
	}
	_, over := embedkit.Drain(marker)
	must(t, errors.Join(here.Close(), there.Close()))
	return over && errors.Is(marker.Err(), embed.ErrWatchGap)
}

// B2: what a member sends reaches the others and is applied. The member learns of it only by a
// snapshot, which does not contain the answers. The caller is told that nobody knows, and nothing
// is applied again. Later requests are neither lost nor confused with the ones that were answered.
func TestGuarantee_ExactlyOnce_AcrossASnapshot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens, round := lagging(t), 1
		for ; !swallowed(t, ens, round); round++ {
			if round == 1000 { // the first is enough in virtual time, one in eight in real time
				t.Fatal("no snapshot stood for what a caller waits for")
			}
		}
		t.Logf("%d rounds", round)
	})
}

// swallowed plays one round and reports whether a snapshot swallowed the answer. That may fail: the
// member may lose sight of the leader before it sends anything, or a log that is not compacted in
// time may bring the answer.
func swallowed(t *testing.T, ens *embedtest.Ensemble, round int) bool {
	path := fmt.Sprint("/round-", round)
	ctx := bounded(t)
	here, there := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(away, embed.SessionOptions{Timeout: time.Minute})
	ens.TransferLeadership(1)
	_, err := there.Create(ctx, path, nil, embed.Persistent)
	must(t, err)
	for _, id := range []embed.MemberID{1, 2} {
		ens.Faults(id).SetLink(away, embedtest.Link{Cut: true})
	}
	first := there.Submit(ctx, embed.OpCreate(path+"/once-", nil, embed.Sequential))
	arrived, err := here.Watch(ctx, path+"/once-0000000000", embed.WatchOnce)
	must(t, err)
	if _, ok, err := here.Exists(ctx, path+"/once-0000000000"); err == nil && !ok {
		select {
		case <-arrived.Events():
		case <-time.After(time.Second): // the write is sent when the links are whole
		}
	}
	compact(t, ens, 0, func() error {
		_, err := here.Set(ctx, path, nil, embed.AnyVersion)
		return err
	})
	later := there.Submit(ctx, embed.OpCreate(path+"/later", nil, embed.Persistent))
	ens.HealAll()

	results, err := later.Result()
	lost := errors.Is(err, embed.ErrUnknownOutcome)
	if lost { // a late snapshot stands for this one too
		err = nil
	}
	must(t, err)
	if len(results) > 0 && results[0].Path != path+"/later" {
		t.Errorf("the answer is %v, asked for was %s/later", results, path)
	}
	select {
	case <-first.Done():
	case <-ctx.Done():
		t.Fatal("the first request has no outcome")
	}
	_, err = first.Result()
	unknown := errors.Is(err, embed.ErrUnknownOutcome)
	if err != nil && !unknown {
		t.Errorf("the first request: %v", err)
	}
	names, _, err := there.Children(ctx, path)
	want := []string{"later", "once-0000000000"}
	if lost && sessionsflag.Open != nil && len(names) == 1 {
		want = want[1:] // a client's connection broke, and its request may never have arrived
	}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q: %v", names, want, err)
	}
	must(t, errors.Join(here.Close(), there.Close()))
	return unknown
}
