package watch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// newClient returns a client on one registry that may read everything.
func newClient(r *Registry) *Client { return newClientOf(r, 0, nil) }

func newClientOf(r *Registry, limit int, mayRead func([]tree.ACL) bool) *Client {
	return NewClient(&Shards{Registries: []*Registry{r}}, limit, mayRead)
}

// woken returns a channel that receives after each wake-up of a client.
func woken(c *Client) <-chan struct{} {
	woken := make(chan struct{}, 1)
	c.OnWake(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	return woken
}

// arm arms watches of a client that has not ended, without a read.
func arm(t *testing.T, c *Client, path string, modes ...Mode) (place Place) {
	t.Helper()
	for _, mode := range modes {
		var err error
		if place, err = c.Arm(path, mode, nil); err != nil {
			t.Fatal(err)
		}
	}
	return place
}

// told takes all queued events.
func told(t *testing.T, c *Client) (texts []string) {
	t.Helper()
	events, err := c.Take(c.At(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		texts = append(texts, fmt.Sprint(e.Type, " ", e.Path))
	}
	return texts
}

func wantTold(t *testing.T, c *Client, want ...string) {
	t.Helper()
	if got := told(t, c); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func change(typ tree.ChangeType, path string) tree.Change { return tree.Change{Type: typ, Path: path} }

// deliver makes one transaction of the changes.
func deliver(r *Registry, changes ...tree.Change) { r.Deliver(r.zxid+1, changes, nil) }

var (
	stds  = []Mode{Data, Children}
	modes = []Mode{Data, Children, Persistent, Recursive}
)

// 6.2: every cause and every kind of watch. P is the znode that changes, Q its parent.
func TestClient_TriggerMatrix(t *testing.T) {
	const p, q, above = "/r/q/p", "/r/q", "/r"
	created, deleted, changed := "NodeCreated "+p, "NodeDeleted "+p, "NodeDataChanged "+p
	list := "NodeChildrenChanged " + q
	for _, c := range []struct {
		cause tree.ChangeType
		path  string
		mode  Mode
		want  string
	}{
		{tree.Created, p, Data, created},
		{tree.Created, p, Children, ""},
		{tree.Created, q, Data, ""},
		{tree.Created, q, Children, list},
		{tree.Created, p, Persistent, created},
		{tree.Created, q, Persistent, list},
		{tree.Created, above, Persistent, ""},
		{tree.Created, p, Recursive, created},
		{tree.Created, q, Recursive, created},
		{tree.Created, above, Recursive, created},
		{tree.Created, "/", Recursive, created},

		{tree.DataChanged, p, Data, changed},
		{tree.DataChanged, p, Children, ""},
		{tree.DataChanged, q, Data, ""},
		{tree.DataChanged, q, Children, ""},
		{tree.DataChanged, p, Persistent, changed},
		{tree.DataChanged, q, Persistent, ""},
		{tree.DataChanged, p, Recursive, changed},
		{tree.DataChanged, q, Recursive, changed},
		{tree.DataChanged, "/", Recursive, changed},

		{tree.Deleted, p, Data, deleted},
		{tree.Deleted, p, Children, deleted},
		{tree.Deleted, q, Data, ""},
		{tree.Deleted, q, Children, list},
		{tree.Deleted, p, Persistent, deleted},
		{tree.Deleted, q, Persistent, list},
		{tree.Deleted, above, Persistent, ""},
		{tree.Deleted, p, Recursive, deleted},
		{tree.Deleted, q, Recursive, deleted},
		{tree.Deleted, "/", Recursive, deleted},

		// Neighbours: below, beside, and with a name that begins alike.
		{tree.Created, p + "/x", Persistent, ""},
		{tree.Created, p + "/x", Recursive, ""},
		{tree.Created, "/r/q/pp", Data, ""},
		{tree.Created, "/r/q/pp", Recursive, ""},
		{tree.Created, "/r/qq", Recursive, ""},
		{tree.Deleted, "/r/q/pp", Children, ""},
	} {
		t.Run(fmt.Sprintf("%v/%v/%s", c.cause, c.mode, c.path), func(t *testing.T) {
			r := NewRegistry()
			w := newClient(r)
			arm(t, w, c.path, c.mode)
			deliver(r, change(c.cause, p))
			if c.want == "" {
				wantTold(t, w)
			} else {
				wantTold(t, w, c.want)
			}
			if used := slices.Contains(stds, c.mode) && c.want != ""; w.Has(c.path, c.mode) == used {
				t.Errorf("the watch is used up: %v, want %v", !used, used)
			}
		})
	}
}

// 6.2.3: the root as a parent is "/", and nothing is above it. 6.2: a SetACL, a check and a failed
// operation are no changes.
func TestClient_RootIsTheParent(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	arm(t, w, "/", modes...)
	deliver(r)
	deliver(r, turn("/", nil, nil))
	deliver(r, change(tree.DataChanged, "/"))
	wantTold(t, w, "NodeDataChanged /")
	deliver(r, change(tree.Created, "/a"))
	wantTold(t, w, "NodeCreated /a", "NodeChildrenChanged /")
}

// 6.1.3: watching twice is watching once. A path may have watches of several modes, and an event
// uses up only the one-time watch.
func TestClient_ModesAreASet(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	arm(t, w, "/a", Data, Data, Children, Children, Persistent, Persistent, Recursive, Recursive)
	if data, children := w.Counts(); data != 1 || children != 1 {
		t.Errorf("%d and %d watches", data, children)
	}
	deliver(r, set("/a")...)
	wantTold(t, w, "NodeDataChanged /a")
	for _, mode := range modes {
		if got := w.Has("/a", mode); got != (mode != Data) {
			t.Errorf("mode %d: %v", mode, got)
		}
	}
	deliver(r, set("/a")...)
	wantTold(t, w, "NodeDataChanged /a")
}

// 6.1.1: all watches of a connection end with it, without events.
func TestClient_EndTakesAllWatches(t *testing.T) {
	r := NewRegistry()
	w, other := newClient(r), newClient(r)
	for i := range 3 * portion {
		arm(t, w, fmt.Sprint("/a/", i), modes...)
	}
	arm(t, other, "/a/1", modes...)
	w.End(nil)
	w.End(errors.New("too late"))
	if err := r.check(); err != nil || r.clients.n != 3 { // one in each table
		t.Errorf("%d marks are left: %v", r.clients.n, err)
	}
	deliver(r, set("/a/1")...)
	if events, err := w.Take(w.At(0)); len(events) != 0 || err != ErrEnded || w.Err() != ErrEnded {
		t.Errorf("told %v, %v", events, err)
	}
	wantTold(t, other, "NodeDataChanged /a/1")
	looked := false
	if _, err := w.Arm("/a", Data, func() bool { looked = true; return true }); err != ErrEnded || looked || w.Has("/a", Data) {
		t.Errorf("armed after the end: %v, looked %v", err, looked)
	}
	if _, err := w.Reset(&Reset{Data: []string{"/a"}}, nil); err != ErrEnded {
		t.Errorf("reset after the end: %v", err)
	}
}

// 6.3.1: one cause and table is one event, however many paths and modes match.
func TestClient_OneEventForACauseAndATable(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	for _, path := range []string{"/", "/a", "/a/b"} {
		arm(t, w, path, modes...)
	}
	deliver(r, set("/a/b")...)
	wantTold(t, w, "NodeDataChanged /a/b")
	deliver(r, set("/a/b")...)
	wantTold(t, w, "NodeDataChanged /a/b")
	deliver(r, change(tree.Created, "/a/b/c"))
	wantTold(t, w, "NodeCreated /a/b/c", "NodeChildrenChanged /a/b")
}

// 6.3.2: the deletion of a znode is one event, and it uses up the child table's one-time watch as
// well.
func TestClient_DeleteIsToldOnce(t *testing.T) {
	for _, data := range []Mode{Data, Persistent, Recursive} {
		r := NewRegistry()
		w := newClient(r)
		arm(t, w, "/a", data, Children)
		deliver(r, change(tree.Deleted, "/a"))
		wantTold(t, w, "NodeDeleted /a")
		if w.Has("/a", Children) {
			t.Errorf("mode %d: the child watch is left", data)
		}
	}
	r := NewRegistry()
	w := newClient(r)
	arm(t, w, "/a", Children)
	deliver(r, change(tree.Deleted, "/a"))
	wantTold(t, w, "NodeDeleted /a")
}

// 6.3.3: the parent's event is a second one, and comes after.
func TestClient_TheParentsEventComesAfter(t *testing.T) {
	for cause, name := range map[tree.ChangeType]string{tree.Created: "NodeCreated", tree.Deleted: "NodeDeleted"} {
		r := NewRegistry()
		w := newClient(r)
		arm(t, w, "/q", Children)
		arm(t, w, "/q/p", Data)
		deliver(r, change(cause, "/q/p"))
		wantTold(t, w, name+" /q/p", "NodeChildrenChanged /q")
	}
	r := NewRegistry() // 14.21
	w := newClient(r)
	arm(t, w, "/q", Recursive, Children)
	deliver(r, change(tree.Created, "/q/p"))
	wantTold(t, w, "NodeCreated /q/p", "NodeChildrenChanged /q")
}

// 6.4.2: all watches of the client share one queue. Its events are in the order of zxids, and
// within a multi in the order of its operations.
func TestClient_OrderIsThatOfTheChanges(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	arm(t, w, "/a", Persistent)
	arm(t, w, "/b", Persistent)
	r.Deliver(7, []tree.Change{change(tree.DataChanged, "/b"), change(tree.Created, "/a/x"), change(tree.DataChanged, "/a"), change(tree.Deleted, "/a/x")}, nil)
	r.Deliver(8, set("/b"), nil)
	events, err := w.Take(w.At(0))
	want := []Event{{Type: NodeDataChanged, Path: "/b", Zxid: 7}, {Type: NodeChildrenChanged, Path: "/a", Zxid: 7}, {Type: NodeDataChanged, Path: "/a", Zxid: 7}, {Type: NodeChildrenChanged, Path: "/a", Zxid: 7}, {Type: NodeDataChanged, Path: "/b", Zxid: 8}}
	if !slices.Equal(events, want) || err != nil {
		t.Errorf("told %v, %v", events, err)
	}
}

// 6.4.1: an event is queued before its change can be read, and no watch can be armed in between.
func TestClient_QueuedBeforeVisible(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	woken := woken(w)
	arm(t, w, "/a", Data)
	r.Deliver(4, set("/a"), publish(func() {
		if len(w.mu.events) != 1 || free(r) {
			t.Error("visible before its event was queued, or while a watch can be armed")
		}
		select {
		case <-woken:
		default:
			t.Error("not woken")
		}
	}))
}

// 6.4.1: an event is queued before its transaction is visible, but it is taken only once it is: a
// client that gets an event reads at once. And no answer after an event has an earlier zxid.
func TestClient_ToldOfWhatIsVisible(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	arm(t, w, "/a", Data)
	var visible atomic.Bool
	placed := make(chan Place, 1)
	r.Deliver(4, set("/a"), publish(func() {
		go func() {
			place := w.At(3)
			if !visible.Load() {
				t.Error("it could be told what nobody could read")
			}
			placed <- place
		}()
		select {
		case <-time.After(20 * time.Millisecond):
		case place := <-placed:
			placed <- place
		}
		visible.Store(true)
	}))
	place := <-placed
	if events, err := w.Take(place); len(events) != 1 || err != nil || place.Zxid != 4 {
		t.Errorf("%+v: told %v, %v", place, events, err)
	}
}

// 3.4, 3.5: the result of look decides whether a watch is armed.
func TestClient_LookDecides(t *testing.T) {
	r := NewRegistry()
	r.Deliver(9, nil, nil)
	w := newClient(r)
	for _, armed := range []bool{false, true} {
		place, err := w.Arm("/a", Data, func() bool {
			if free(r) {
				t.Error("looked without the lock")
			}
			return armed
		})
		if err != nil || place.Zxid != 9 || w.Has("/a", Data) != armed {
			t.Errorf("armed %v: %v, %+v", w.Has("/a", Data), err, place)
		}
	}
}

// 6.4.1, and what clients rely on: events up to the arming belong before its answer, later ones
// after.
func TestClient_PlacesDivideTheEvents(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	arm(t, w, "/a", Persistent)
	deliver(r, set("/a")...)
	first := arm(t, w, "/b", Data)
	deliver(r, set("/a")...)
	deliver(r, set("/b")...)
	second := w.At(3)
	deliver(r, set("/a")...)
	deliver(r, set("/a")...)
	for _, c := range []struct {
		upTo Place
		want []tree.Zxid
	}{{first, []tree.Zxid{1}}, {first, nil}, {w.Until(2), []tree.Zxid{2}}, {w.Until(1), nil},
		{second, []tree.Zxid{3}}, {first, nil}, {w.Until(4), []tree.Zxid{4}}, {w.At(5), []tree.Zxid{5}}, {w.Until(9), nil}, {w.At(5), nil}} {
		events, err := w.Take(c.upTo)
		var got []tree.Zxid
		for _, e := range events {
			got = append(got, e.Zxid)
		}
		if !slices.Equal(got, c.want) || err != nil {
			t.Errorf("up to %+v: %v, %v, want %v", c.upTo, got, err, c.want)
		}
	}
	if first.Zxid != 1 {
		t.Errorf("armed at %d", first.Zxid)
	}
}

// A client that does not take its events ends as a whole, and slows nobody down.
func TestClient_OverflowEndsAll(t *testing.T) {
	r := NewRegistry()
	w, other := newClientOf(r, 3, nil), newClient(r)
	woken := woken(w)
	arm(t, w, "/a", Persistent)
	arm(t, other, "/a", Persistent)
	for range 3 {
		deliver(r, set("/a")...)
	}
	if w.Err() != nil {
		t.Fatal("ended too early")
	}
	<-woken
	deliver(r, set("/a")...)
	<-woken
	deliver(r, set("/a")...)
	if events, err := w.Take(w.At(0)); len(events) > 0 || err != ErrOverflow {
		t.Errorf("told %v, %v", events, err)
	}
	if n := len(told(t, other)); n != 5 {
		t.Errorf("another was told %d times", n)
	}
	w.End(nil)
	if err := r.check(); err != nil || r.clients.n != 2 || w.Err() != ErrOverflow {
		t.Errorf("%d marks are left: %v, %v", r.clients.n, err, w.Err())
	}
}

// stats is a tree: its znodes, with mzxid and pzxid. Those that begin with /hidden may not be read.
type stats map[string][2]tree.Zxid

func (s stats) look(path string) (tree.Stat, bool, bool) {
	z, ok := s[path]
	return tree.Stat{Mzxid: z[0], Pzxid: z[1]}, ok, strings.HasPrefix(path, "/hidden")
}

// 6.6: every row of the table, for a client that has seen zxid 10.
func TestClient_SetWatches(t *testing.T) {
	now := stats{"/": {0, 11}, "/same": {10, 10}, "/data": {11, 3}, "/list": {3, 11}, "/hidden": {11, 11}}
	for _, c := range []struct {
		name string
		was  Reset
		want string
		mode Mode // armed if there is no event
		path string
	}{
		{"dataWatches, node missing", Reset{Data: []string{"/gone"}}, "NodeDeleted /gone", Data, "/gone"},
		{"dataWatches, mzxid > R", Reset{Data: []string{"/data"}}, "NodeDataChanged /data", Data, "/data"},
		{"dataWatches, mzxid = R", Reset{Data: []string{"/same"}}, "", Data, "/same"},
		{"dataWatches, else", Reset{Data: []string{"/list"}}, "", Data, "/list"},
		{"existWatches, node exists", Reset{Exist: []string{"/same"}}, "NodeCreated /same", Data, "/same"},
		{"existWatches, else", Reset{Exist: []string{"/gone"}}, "", Data, "/gone"},
		{"childWatches, node missing", Reset{Children: []string{"/gone"}}, "NodeDeleted /gone", Children, "/gone"},
		{"childWatches, pzxid > R", Reset{Children: []string{"/list"}}, "NodeChildrenChanged /list", Children, "/list"},
		{"childWatches, of the root", Reset{Children: []string{"/"}}, "NodeChildrenChanged /", Children, "/"},
		{"childWatches, pzxid = R", Reset{Children: []string{"/same"}}, "", Children, "/same"},
		{"childWatches, else", Reset{Children: []string{"/data"}}, "", Children, "/data"},
		{"persistentWatches", Reset{Persistent: []string{"/data"}}, "", Persistent, "/data"},
		{"persistentRecursiveWatches", Reset{Recursive: []string{"/gone"}}, "", Recursive, "/gone"},
		{"dataWatches, several shards", Reset{Unknown: true, Data: []string{"/same"}}, "NodeDataChanged /same", Data, "/same"},
		{"childWatches, several shards", Reset{Unknown: true, Children: []string{"/same"}}, "NodeChildrenChanged /same", Children, "/same"},
		{"existWatches, several shards", Reset{Unknown: true, Exist: []string{"/gone"}}, "", Data, "/gone"},
		{"dataWatches, hidden", Reset{Data: []string{"/hidden"}}, "", Data, "/hidden"},
		{"childWatches, hidden", Reset{Children: []string{"/hidden"}}, "", Children, "/hidden"},
		{"dataWatches, hidden, several shards", Reset{Unknown: true, Data: []string{"/hidden"}}, "", Data, "/hidden"},
		{"existWatches, hidden", Reset{Exist: []string{"/hidden"}}, "NodeCreated /hidden", Data, "/hidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRegistry()
			r.Deliver(12, nil, nil)
			w := newClientOf(r, 0, nil)
			c.was.Since = 10
			place, err := w.Reset(&c.was, now.look)
			if err != nil || place.Zxid != 12 {
				t.Fatal(place, err)
			}
			if w.Has(c.path, c.mode) != (c.want == "") {
				t.Error("an immediately fired watch must not be registered, another must")
			}
			events, _ := w.Take(place) // before the answer
			switch {
			case c.want == "" && len(events) == 0:
			case len(events) != 1 || fmt.Sprint(events[0].Type, " ", events[0].Path) != c.want || int64(events[0].Zxid) != -1:
				t.Errorf("told %v, want %q", events, c.want)
			}
		})
	}
}

// Events that do not count against the limit make no room for others once they are taken.
func TestClient_ResumedEventsMakeNoRoomForOthers(t *testing.T) {
	r := NewRegistry()
	c := newClientOf(r, 2, nil)
	if _, err := c.Arm("/a", Persistent, nil); err != nil {
		t.Fatal(err)
	}
	deliver := func(z tree.Zxid) {
		r.Deliver(z, []tree.Change{{Type: tree.DataChanged, Path: "/a"}}, nil)
	}
	place, err := c.Reset(&Reset{Data: make([]string, 10)}, func(string) (tree.Stat, bool, bool) { return tree.Stat{}, false, false })
	if err != nil {
		t.Fatal(err)
	}
	deliver(1)
	if events, err := c.Take(place); err != nil || len(events) != 10 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	deliver(2)
	if err := c.Err(); err != nil {
		t.Fatalf("with as many as the limit: %v", err)
	}
	deliver(3)
	if err := c.Err(); err != ErrOverflow {
		t.Errorf("with one more: %v", err)
	}
}

// An event that a client missed belongs to no transaction. It is sent before every later answer.
func TestClient_MissedEventsGoBeforeAnyAnswer(t *testing.T) {
	r := NewRegistry()
	c := newClientOf(r, 10, nil)
	if _, err := c.Arm("/a", Persistent, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reset(&Reset{Data: []string{"/gone"}}, func(string) (tree.Stat, bool, bool) { return tree.Stat{}, false, false }); err != nil {
		t.Fatal(err)
	}
	for z := range tree.Zxid(2) {
		r.Deliver(z+1, []tree.Change{{Type: tree.DataChanged, Path: "/a"}}, nil)
	}
	events, err := c.Take(c.Until(1))
	var got []tree.Zxid
	for _, e := range events {
		got = append(got, e.Zxid)
	}
	if want := []tree.Zxid{NoZxid, 1}; !slices.Equal(got, want) || err != nil {
		t.Errorf("before the answer of the first transaction: %v, %v, want %v", got, err, want)
	}
}

// 6.6.1: the lists are resumed in their order.
func TestClient_SetWatchesInOrder(t *testing.T) {
	r := NewRegistry()
	w := newClientOf(r, 1, nil) // these events do not count
	was := &Reset{Children: []string{"/x", "/y"}, Exist: []string{"/b"}, Data: []string{"/x"}, Persistent: []string{"/a"}}
	if _, err := w.Reset(was, stats{"/b": {}}.look); err != nil {
		t.Fatal(err)
	}
	deliver(r, set("/a")...) // but this one does
	wantTold(t, w, "NodeDeleted /x", "NodeCreated /b", "NodeDeleted /x", "NodeDeleted /y", "NodeDataChanged /a")
	deliver(r, set("/a")...)
	deliver(r, set("/a")...)
	if w.Err() != ErrOverflow {
		t.Error("what was taken still makes room")
	}
}

// A long list holds nobody up for long: transactions come in between, and the client gets their
// events all the same.
func TestClient_LongSetWatchesLetsOthersIn(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	was := &Reset{Data: make([]string, 50*portion)}
	for i := range was.Data {
		was.Data[i] = fmt.Sprint("/a/", i)
	}
	first, last := was.Data[0], was.Data[len(was.Data)-1]
	delivered := make(chan struct{})
	looked, in := 0, 0
	place, err := w.Reset(was, func(path string) (tree.Stat, bool, bool) {
		if looked++; looked == 1 {
			go func() {
				defer close(delivered)
				r.Deliver(7, []tree.Change{change(tree.DataChanged, first), change(tree.DataChanged, last)}, nil)
			}()
		}
		if testkit.Closed(delivered) {
			if in == 0 {
				in = looked
			}
			if path == last {
				return tree.Stat{Mzxid: 7}, true, false
			}
		}
		return tree.Stat{}, true, false
	})
	if in == 0 {
		t.Fatalf("a transaction has waited for %d watches", looked)
	}
	t.Logf("a transaction has waited for %d watches", in)
	if looked != len(was.Data) || err != nil || place.Zxid != 7 {
		t.Errorf("looked at %d, %+v, %v", looked, place, err)
	}
	wantTold(t, w, "NodeDataChanged "+first, "NodeDataChanged "+last)
	if err := r.check(); err != nil || r.clients.n != len(was.Data)-2 {
		t.Errorf("%d marks: %v", r.clients.n, err)
	}
}

// 3.18, 6.7.1: removeWatches and checkWatches go by the type and the connection, and send no event.
func TestClient_RemoveByType(t *testing.T) {
	for _, mode := range modes {
		r := NewRegistry()
		w, other := newClient(r), newClient(r)
		arm(t, other, "/a", modes...)
		if w.Has("/a", mode) || w.Remove("/a", mode) { // NoWatcher
			t.Errorf("mode %d: there was nothing to remove", mode)
		}
		arm(t, w, "/a", modes...)
		if w.Remove("/b", mode) || w.Remove("/", mode) || w.Remove("/a/b", mode) {
			t.Errorf("mode %d: removed from another path", mode)
		}
		if !w.Has("/a", mode) || !w.Remove("/a", mode) || w.Has("/a", mode) || w.Remove("/a", mode) {
			t.Errorf("mode %d: not removed once", mode)
		}
		for _, left := range modes {
			if w.Has("/a", left) != (left != mode) || !other.Has("/a", left) {
				t.Errorf("mode %d was removed, and mode %d: %v, %v", mode, left, w.Has("/a", left), other.Has("/a", left))
			}
		}
		wantTold(t, w)
		if err := r.check(); err != nil {
			t.Error(err)
		}
	}
}

// 3.18: the type any is every mode, in both tables.
func TestClient_RemoveAny(t *testing.T) {
	for _, mode := range modes {
		r := NewRegistry()
		w := newClient(r)
		arm(t, w, "/a", mode)
		if !w.Has("/a", modes...) || !w.Remove("/a", modes...) || w.Has("/a", modes...) || r.clients.n != 0 {
			t.Errorf("mode %d is left", mode)
		}
	}
}

// 3.17, 6.6.2: a path may be any string.
func TestClient_AnyPath(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	paths := []string{"", "/", "//", "a", "a/b", "/a/", "/a\x00", "/../x", "/a//b"}
	for _, path := range paths {
		arm(t, w, path, modes...)
	}
	deliver(r, change(tree.Deleted, "/a"), change(tree.Created, "/b"))
	if err := r.check(); err != nil {
		t.Error(err)
	}
	for _, path := range paths {
		if !w.Remove(path, modes...) {
			t.Errorf("%q has no watch", path)
		}
	}
	if err := r.check(); err != nil || r.clients.n != 0 || r.clients.depths != nil {
		t.Error(r.clients.n, err)
	}
}

// 6.8: which znode's ACL decides about which event. A client that may not read it gets no event,
// and its one-time watch is used up.
func TestClient_ACLs(t *testing.T) {
	own, parents := []tree.ACL{{ID: "own"}}, []tree.ACL{{ID: "parent's"}}
	for _, c := range []struct {
		name    string
		cause   tree.ChangeType
		watched string
		mode    Mode
		secret  string // the ACL that the client may not read
		isTold  bool
	}{
		{name: "create: the new node's", cause: tree.Created, watched: "/q/p", mode: Data, secret: "own"},
		{name: "create: not the parent's", cause: tree.Created, watched: "/q/p", mode: Data, secret: "parent's", isTold: true},
		{name: "setData: the node's", cause: tree.DataChanged, watched: "/q/p", mode: Data, secret: "own"},
		{name: "delete: the deleted node's", cause: tree.Deleted, watched: "/q/p", mode: Data, secret: "own"},
		{name: "delete, child table: the deleted node's", cause: tree.Deleted, watched: "/q/p", mode: Children, secret: "own"},
		{name: "child created: the parent's", cause: tree.Created, watched: "/q", mode: Children, secret: "parent's"},
		{name: "child deleted: the parent's", cause: tree.Deleted, watched: "/q", mode: Children, secret: "parent's"},
		{name: "child deleted: not the child's", cause: tree.Deleted, watched: "/q", mode: Children, secret: "own", isTold: true},
		{name: "recursive: the changed node's", cause: tree.DataChanged, watched: "/q", mode: Recursive, secret: "own"},
		{name: "recursive: not the watched root's", cause: tree.Created, watched: "/q", mode: Recursive, secret: "parent's", isTold: true},
		{name: "persistent: the changed node's", cause: tree.DataChanged, watched: "/q/p", mode: Persistent, secret: "own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewRegistry()
			w := newClientOf(r, 0, func(acl []tree.ACL) bool { return len(acl) == 0 || acl[0].ID != c.secret })
			arm(t, w, c.watched, c.mode)
			deliver(r, tree.Change{Type: c.cause, Path: "/q/p", ACL: own, ParentACL: parents})
			if n := len(told(t, w)); (n == 1) != c.isTold {
				t.Errorf("told %d events", n)
			}
			if used := slices.Contains(stds, c.mode); w.Has(c.watched, c.mode) == used {
				t.Errorf("used up: %v", !used)
			}
		})
	}
}

// 6.8: the child table does not show a deletion either that the client must not know of. The client
// is judged by the identities it has at that moment.
func TestClient_ACLOfTheMoment(t *testing.T) {
	r := NewRegistry()
	may := false
	w := newClientOf(r, 0, func([]tree.ACL) bool { return may })
	arm(t, w, "/a", Data, Children)
	deliver(r, change(tree.Deleted, "/a"))
	wantTold(t, w)
	if w.Has("/a", modes...) {
		t.Error("not used up")
	}
	arm(t, w, "/a", Persistent)
	may = true
	deliver(r, set("/a")...)
	wantTold(t, w, "NodeDataChanged /a")
	may = false
	deliver(r, set("/a")...)
	wantTold(t, w)
}

// M115: a client of ZooKeeper's protocol is told of no SetACL. One with TellMore is told whether it
// may still read a znode that it watches for good.
func TestClient_WhoMayReadChanges(t *testing.T) {
	r := NewRegistry()
	mayRead := func(acl []tree.ACL) bool { return acl == nil }
	plain, native := newClientOf(r, 0, mayRead), newClientOf(r, 0, mayRead)
	native.TellMore(7)
	for _, w := range []*Client{plain, native} {
		arm(t, w, "/a", modes...)
		arm(t, w, "/", Persistent, Recursive)
		arm(t, w, "/b", modes...)
	}
	deliver(r, turn("/a", nil, secretACL))
	wantTold(t, native, "ReadLost /a")
	deliver(r, turn("/a", secretACL, slices.Clone(secretACL)))
	wantTold(t, native)
	deliver(r, turn("/a", secretACL, nil))
	wantTold(t, native, "ReadGained /a")
	deliver(r, turn("/a", nil, nil))
	wantTold(t, native)
	wantTold(t, plain)
	for _, mode := range modes {
		if !plain.Has("/a", mode) || !native.Has("/a", mode) {
			t.Errorf("mode %d is used up", mode)
		}
	}
	hidden := change(tree.Created, "/b")
	hidden.ACL = secretACL
	deliver(r, hidden)
	wantTold(t, native, "CreatedHidden /b", "NodeChildrenChanged /")
	wantTold(t, plain, "NodeChildrenChanged /")
}

// D2: a snapshot replaces the tree. A one-time watch fires with the event that its watcher would
// notice first. A client with a touched watch of another kind ends.
func TestClient_Install(t *testing.T) {
	touched := map[string]map[Mode]EventType{
		"/data":    {Data: NodeDataChanged, Persistent: NodeDataChanged},
		"/list":    {Children: NodeChildrenChanged, Persistent: NodeChildrenChanged},
		"/gone":    {Data: NodeDeleted, Children: NodeDeleted, Persistent: NodeDeleted},
		"/both":    {Data: NodeDataChanged, Children: NodeChildrenChanged, Persistent: NodeDataChanged},
		"/new":     {Data: NodeCreated},
		"/subtree": {Recursive: NodeDataChanged},
	}
	asked := 0
	look := func(path string, mode Mode) (EventType, []tree.ACL, bool) {
		asked++
		e, ok := touched[path][mode]
		return e, nil, ok
	}
	r := NewRegistry()
	w, other := newClient(r), newClientOf(r, 0, func([]tree.ACL) bool { return false })
	for _, path := range []string{"/same", "/subtree", "/new", "/list", "/gone", "/data", "/both"} {
		arm(t, w, path, Data, Children)
		arm(t, other, path, Data, Children)
	}
	arm(t, w, "/same", Persistent, Recursive)
	published := false
	r.Install(30, look, publish(func() { published = len(w.mu.events) > 0 }))
	if !published {
		t.Error("published without events")
	}
	wantTold(t, w, "NodeDataChanged /both", "NodeChildrenChanged /both", "NodeDataChanged /data", "NodeDeleted /gone", "NodeChildrenChanged /list", "NodeCreated /new")
	wantTold(t, other)
	if data, children := w.Counts(); data != 3 || children != 4 {
		t.Errorf("%d and %d are left", data, children)
	}
	if data, children := other.Counts(); data != 3 || children != 4 {
		t.Errorf("%d and %d are left of one that may not know", data, children)
	}
	if asked != 7*2+2+1 { // once for each path, table and kind, not for each client
		t.Errorf("asked %d times", asked)
	}
	if err := r.check(); err != nil {
		t.Error(err)
	}
	for path, modes := range touched {
		for _, mode := range []Mode{Persistent, Recursive} {
			if _, ok := modes[mode]; !ok {
				continue
			}
			w := newClient(r)
			arm(t, w, path, mode)
			r.Install(31, look, nil)
			var gap *GapError
			if _, err := w.Take(w.At(0)); !errors.As(err, &gap) || gap.Zxid != 31 {
				t.Errorf("%s in mode %d: %v", path, mode, err)
			}
			w.End(nil)
		}
	}
}

// The end of a registry ends its clients as it ends its streams.
func TestClient_CloseOfTheRegistry(t *testing.T) {
	over := errors.New("over")
	r := NewRegistry()
	w, none := newClient(r), newClient(r)
	arm(t, w, "/a", Recursive)
	r.EndAll(ErrGap)
	r.Close(over)
	if w.Err() != ErrGap || none.Err() != nil {
		t.Errorf("ended with %v and %v", w.Err(), none.Err())
	}
	if _, err := none.Arm("/a", Data, nil); err != over {
		t.Errorf("armed: %v", err)
	}
}

// twoShards returns two shards that both have the root.
func twoShards() *Shards {
	return &Shards{Registries: []*Registry{NewRegistry(), NewRegistry()}, Of: func(path string, _ Mode) int {
		switch {
		case path == "/":
			return Everywhere
		case path < "/b":
			return 0
		}
		return 1
	}}
}

// A one-time watch of the root fires once, whichever shard is first, and can be set again at once.
func TestClient_RootOfSeveralShards(t *testing.T) {
	on := twoShards()
	a, b := on.Registries[0], on.Registries[1]
	w := NewClient(on, 0, nil)
	arm(t, w, "/", Children)
	deliver(a, change(tree.Created, "/a"))
	if w.Has("/", Children) {
		t.Error("not used up")
	}
	deliver(b, change(tree.Created, "/b"))
	deliver(a, change(tree.Created, "/aa"))
	wantTold(t, w, "NodeChildrenChanged /")
	arm(t, w, "/", Children, Data)
	deliver(a, change(tree.Deleted, "/a"))
	arm(t, w, "/", Children) // b's mark is still there
	wantTold(t, w, "NodeChildrenChanged /")
	deliver(b, change(tree.Created, "/b2"))
	deliver(a, change(tree.Created, "/a2"))
	wantTold(t, w, "NodeChildrenChanged /")
	arm(t, w, "/", Children)
	if !w.Remove("/", Children) || w.Remove("/", Children) {
		t.Error("not removed once")
	}
	deliver(b, change(tree.Created, "/b3"))
	wantTold(t, w)
	if data, children := w.Counts(); data != 1 || children != 0 || !slices.Equal(w.Paths(), []string{"/"}) {
		t.Errorf("%d and %d watches, %q", data, children, w.Paths())
	}
	arm(t, w, "/", Recursive, Persistent)
	deliver(a, change(tree.Created, "/a3"))
	deliver(b, change(tree.Created, "/b3"))
	wantTold(t, w, "NodeCreated /a3", "NodeChildrenChanged /", "NodeCreated /b3", "NodeChildrenChanged /")
	arm(t, w, "/a", Data)
	arm(t, w, "/c", Children)
	w.End(nil)
	if n := w.Len(); n != 0 {
		t.Errorf("%d watches after the end", n)
	}
	for _, r := range on.Registries {
		if err := r.check(); err != nil || r.clients.n != 0 {
			t.Errorf("%d marks are left: %v", r.clients.n, err)
		}
	}
}

// A watch on several shards counts once, until it has fired or is removed.
func TestClient_LenOfSeveralShards(t *testing.T) {
	on := twoShards()
	a, b := on.Registries[0], on.Registries[1]
	w := NewClient(on, 0, nil)
	want := func(what string, n int) {
		t.Helper()
		if got := w.Len(); got != n {
			t.Errorf("%s: %d watches, want %d", what, got, n)
		}
	}
	arm(t, w, "/", Data, Children)
	want("data and children", 2)
	arm(t, w, "/a", Data)
	want("one on one shard", 3)
	deliver(b, change(tree.Created, "/b"))
	want("fired on the second shard", 2)
	arm(t, w, "/", Children)
	want("set again", 3)
	deliver(a, change(tree.Created, "/aa"))
	want("fired on the first shard", 2)
	arm(t, w, "/", Persistent)
	want("persistent", 3)
	deliver(a, change(tree.DataChanged, "/"))
	want("its data have changed, and the persistent one lasts", 3)
	arm(t, w, "/", Recursive)
	want("recursive", 4)
	if !w.Remove("/", Persistent) || w.Remove("/", Persistent) {
		t.Error("not removed once")
	}
	want("persistent no longer", 2)
	if !w.Remove("/", Recursive) || !w.Remove("/a", Data) {
		t.Error("not removed")
	}
	want("none", 0)
	w.End(nil)
}

// 11.1: the four-letter words count the data table.
func TestClient_Counts(t *testing.T) {
	r := NewRegistry()
	w, other := newClient(r), newClient(r)
	arm(t, w, "/c", Children)
	arm(t, w, "/b", Recursive, Data)
	arm(t, w, "/a", Persistent)
	arm(t, other, "/b", Data)
	arm(t, other, "/d", Recursive)
	if data, children := w.Counts(); data != 2 || children != 2 || r.Watched() != 3 || !slices.Equal(w.Paths(), []string{"/a", "/b"}) {
		t.Errorf("%d and %d watches of %d paths, %q", data, children, r.Watched(), w.Paths())
	}
	deliver(r, set("/b")...)
	w.Remove("/b", Recursive)
	if data, children := w.Counts(); data != 1 || children != 2 || r.Watched() != 2 || !slices.Equal(w.Paths(), []string{"/a"}) {
		t.Errorf("%d and %d watches of %d paths, %q", data, children, r.Watched(), w.Paths())
	}
}

// OnHold's function learns the bytes of watches and events exactly, and none are left at the end. A
// client whose watches exceed the limit ends.
func TestClient_Weight(t *testing.T) {
	r := NewRegistry()
	w := newClient(r)
	held := 0
	w.OnHold(2*(watchBytes+len("/a")), func(n int) { held += n })
	want := func(what string, bytes int) {
		t.Helper()
		if held != bytes {
			t.Errorf("%s: %d bytes are held, want %d", what, held, bytes)
		}
	}
	const one = watchBytes + len("/a")
	arm(t, w, "/a", Data)
	arm(t, w, "/a", Data)
	arm(t, w, "/b", Data)
	want("two watches", 2*one)
	deliver(r, set("/a")...)
	want("one has fired", one+eventBytes+len("/a"))
	told(t, w)
	want("and is told", one)
	arm(t, w, "/c", Children)
	w.Remove("/b", Data)
	arm(t, w, "/d", Recursive)
	want("two others", 2*one)
	deliver(r, set("/d")...)
	if w.Err() != nil {
		t.Errorf("ended too early: %v", w.Err())
	}
	arm(t, w, "/e", Data)
	if w.Err() != ErrTooHeavy {
		t.Errorf("with three watches: %v", w.Err())
	}
	want("ended", 3*one)
	w.End(nil)
	want("gone", 0)
}

// M156: of the watches of a client, those have values that ask for them, the newest request counts, and
// an event that several see has them if one does.
func TestClient_ValuesForWhoAsks(t *testing.T) {
	r := NewRegistry()
	c := newClient(r)
	c.TellMore(7)
	with := func(path string, mode Mode, values bool) {
		t.Helper()
		if _, err := c.ArmWith(path, mode, Options{Values: values}, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, changed tree.Change, values bool) {
		t.Helper()
		r.Deliver(r.zxid+1, []tree.Change{changed}, shown{[]byte("x")})
		events, err := c.Take(c.At(r.zxid))
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %v, %v", when, events, err)
		}
		if _, ok := events[0].Stat(); ok != values {
			t.Errorf("%s: values: %v", when, ok)
		}
	}
	set, child := tree.Change{Type: tree.DataChanged, Path: "/a"}, tree.Change{Type: tree.Created, Path: "/a/b"}
	with("/a", Persistent, false)
	want("none asked", set, false)
	want("none asked", child, false)
	with("/", Recursive, true)
	want("from above", set, true)
	c.Remove("/", Recursive)
	want("no more from above", set, false)
	with("/a", Persistent, true)
	want("asked", set, true)
	want("asked", child, true)
	arm(t, c, "/a", Data)
	want("beside a read", set, true)
	with("/a", Persistent, false)
	want("asked no more", set, false)
	want("asked no more", child, false)
}
