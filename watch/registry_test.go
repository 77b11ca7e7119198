package watch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// publish is a Publisher whose readers never wait.
type publish func()

func (p publish) Announce() {}
func (p publish) Publish()  { p() }

func (p publish) Newest(string) (tree.Found, bool) { return tree.Found{}, false }

func set(path string) []tree.Change { return []tree.Change{{Type: tree.DataChanged, Path: path}} }

// D1, D3: at the moment when a transaction becomes visible, its event is in the buffer, and no
// watch can be armed.
func TestVisibleAfterQueued(t *testing.T) {
	r := NewRegistry()
	events := r.Add("/a", Persistent, Options{}, nil).Events()
	published := false
	r.Deliver(4, set("/a"), publish(func() {
		published = true
		if len(events) != 1 {
			t.Error("visible before its event was queued")
		}
		if free(r) {
			t.Error("visible while a watch can be armed")
		}
	}))
	if !published {
		t.Error("not published")
	}
	if e := <-events; e != (Event{Type: NodeDataChanged, Path: "/a", Zxid: 4}) {
		t.Errorf("got %+v", e)
	}
}

// free reports whether a goroutine other than the caller's can acquire the registry's lock.
func free(r *Registry) bool {
	got := make(chan bool)
	go func() {
		ok := r.mu.TryLock()
		if ok {
			r.mu.Unlock()
		}
		got <- ok
	}()
	return <-got
}

func TestZxid(t *testing.T) {
	r := NewRegistry()
	if z := r.Add("/a", Once, Options{}, nil).Zxid(); z != 0 {
		t.Errorf("armed at %d before anything was matched", z)
	}
	r.Deliver(41, nil, nil)
	r.Deliver(42, set("/b"), nil)
	s := r.Add("/a", Once, Options{}, nil)
	r.Deliver(43, nil, nil)
	if z := s.Zxid(); z != 42 {
		t.Errorf("armed at %d", z)
	}
}

// The same for a watcher that asks for the channel only after the watch has ended.
func TestOverflowUnheard(t *testing.T) {
	r := NewRegistry()
	s := r.Add("/a", Persistent, Options{}, nil)
	for z := tree.Zxid(1); z <= bufferDefault; z++ {
		r.Deliver(z, set("/a"), nil)
	}
	if s.Ended() {
		t.Fatalf("over after %d events: %v", bufferDefault, s.Err())
	}
	r.Deliver(bufferDefault+1, set("/a"), nil)
	if !errors.Is(s.Err(), ErrOverflow) || r.Len() != 0 {
		t.Errorf("ended with %v, %d watches left", s.Err(), r.Len())
	}
	z := tree.Zxid(0)
	for e := range s.Events() {
		if z++; e.Zxid != z {
			t.Errorf("got %+v, want zxid %d", e, z)
		}
	}
	if z != bufferDefault {
		t.Errorf("%d events, want %d", z, bufferDefault)
	}
}

// D3: the watcher receives the events that fitted, then the end and its reason.
func TestOverflow(t *testing.T) {
	r := NewRegistry()
	slow, quick := r.Add("/a", Persistent, Options{Buffer: 2}, nil), r.Add("/a", Recursive, Options{}, nil)
	for z := tree.Zxid(1); z <= 4; z++ {
		r.Deliver(z, set("/a"), nil)
		if e := <-quick.Events(); e.Zxid != z {
			t.Errorf("the other watch got %+v", e)
		}
	}
	if !errors.Is(slow.Err(), ErrOverflow) {
		t.Errorf("got %v", slow.Err())
	}
	for z := tree.Zxid(1); z <= 2; z++ {
		if e := <-slow.Events(); e.Zxid != z {
			t.Errorf("got %+v, want zxid %d", e, z)
		}
	}
	if e, ok := <-slow.Events(); ok {
		t.Errorf("an event after the overflow: %+v", e)
	}
	if r.Len() != 1 || quick.Err() != nil {
		t.Errorf("%d watches left, the other's error is %v", r.Len(), quick.Err())
	}
}

// TestDefaultBuffer fills the buffers of watches that were added without a size.
func TestDefaultBuffer(t *testing.T) {
	for mode, want := range map[Mode]int{Once: 1, Persistent: 64, Recursive: 64} {
		r := NewRegistry()
		if n := cap(r.Add("/a", mode, Options{}, nil).Events()); n != want {
			t.Errorf("mode %d: %d", mode, n)
		}
		if n := cap(r.Add("/a", mode, Options{Buffer: -1}, nil).Events()); n != want {
			t.Errorf("mode %d: %d", mode, n)
		}
	}
	if n := cap(NewRegistry().Add("/a", Once, Options{Buffer: 9}, nil).Events()); n != 1 {
		t.Errorf("a Once watch with room for %d", n)
	}
}

func TestOnceEndsWithItsEvent(t *testing.T) {
	r := NewRegistry()
	s := r.Add("/a", Once, Options{}, nil)
	r.Deliver(1, []tree.Change{{Type: tree.Created, Path: "/a"}, {Type: tree.Created, Path: "/a/b"}, {Type: tree.DataChanged, Path: "/a"}}, nil)
	if got := received(s); len(got) != 1 || got[0] != "NodeCreated /a" {
		t.Errorf("got %q", got)
	}
	if _, open := <-s.Events(); open || s.Err() != nil || r.Len() != 0 {
		t.Errorf("open %v, error %v, %d watches", open, s.Err(), r.Len())
	}
}

func TestEnds(t *testing.T) {
	lost := errors.New("lost")
	end := map[string]func(*Registry, *Stream){
		"close":          func(_ *Registry, s *Stream) { s.Close() },
		"end":            func(_ *Registry, s *Stream) { s.End(lost) },
		"end all":        func(r *Registry, _ *Stream) { r.EndAll(lost) },
		"close registry": func(r *Registry, _ *Stream) { r.Close(lost) },
	}
	for name, fn := range end {
		for _, mode := range []Mode{Once, Persistent, Recursive} {
			for _, opened := range []bool{false, true} {
				t.Run(fmt.Sprint(name, mode, opened), func(t *testing.T) {
					r := NewRegistry()
					s := r.Add("/a", mode, Options{}, nil)
					if opened {
						s.Events()
					}
					fn(r, s)
					want := lost
					if name == "close" {
						want = nil
					}
					s.Close()
					s.End(errors.New("late"))
					r.EndAll(errors.New("late"))
					r.Deliver(1, set("/a"), nil)
					if got := received(s); got != nil || s.Err() != want || r.Len() != 0 {
						t.Errorf("events %q, error %v, %d watches", got, s.Err(), r.Len())
					}
					if _, open := <-s.Events(); open {
						t.Error("the channel is open")
					}
				})
			}
		}
	}
}

func TestAddAfterClose(t *testing.T) {
	r, first := NewRegistry(), errors.New("first")
	r.Close(first)
	r.Close(errors.New("second"))
	s := r.Add("/a", Persistent, Options{Buffer: 4}, nil)
	if _, open := <-s.Events(); open || s.Err() != first || r.Len() != 0 {
		t.Errorf("open %v, error %v, %d watches", open, s.Err(), r.Len())
	}
	r = NewRegistry()
	r.EndAll(first)
	if s := r.Add("/a", Persistent, Options{Buffer: 4}, nil); s.Err() != nil || r.Len() != 1 {
		t.Errorf("after EndAll: error %v, %d watches", s.Err(), r.Len())
	}
}

// TestInstall replaces the tree under touched and untouched watches.
func TestInstall(t *testing.T) {
	r := NewRegistry()
	r.Deliver(10, nil, nil)
	type pair struct{ touched, untouched *Stream }
	pairs := make(map[Mode]pair)
	for _, mode := range []Mode{Once, Persistent, Recursive} {
		pairs[mode] = pair{r.Add("/touched", mode, Options{}, nil), r.Add("/untouched", mode, Options{}, nil)}
	}
	touched := func(path string, _ Mode) (EventType, []tree.ACL, bool) { return NodeDeleted, nil, path == "/touched" }
	events := pairs[Once].touched.Events()
	r.Install(20, touched, publish(func() {
		if len(events) != 1 {
			t.Error("visible before the event was queued")
		}
	}))
	if e, ok := <-events; !ok || e != (Event{Type: NodeDeleted, Path: "/touched", Zxid: 20}) {
		t.Errorf("once: %+v %v", e, ok)
	}
	if err := pairs[Once].touched.Err(); err != nil {
		t.Errorf("once: %v", err)
	}
	for _, mode := range []Mode{Persistent, Recursive} {
		err := pairs[mode].touched.Err()
		var gap *GapError
		if !errors.Is(err, ErrGap) || !errors.As(err, &gap) || gap.Zxid != 20 || !strings.Contains(err.Error(), "20") {
			t.Errorf("mode %d: %v", mode, err)
		}
		if got := received(pairs[mode].touched); got != nil {
			t.Errorf("mode %d: %q", mode, got)
		}
	}
	r.Deliver(21, set("/untouched"), nil)
	for mode, p := range pairs {
		if e := <-p.untouched.Events(); e.Zxid != 21 {
			t.Errorf("mode %d: %+v", mode, e)
		}
	}
	if z := r.Add("/a", Once, Options{}, nil).Zxid(); z != 21 {
		t.Errorf("armed at %d", z)
	}
}

// TestManyOnOnePath ends the watches of one path in an arbitrary order. Nothing is left of any.
func TestManyOnOnePath(t *testing.T) {
	r := NewRegistry()
	var streams []*Stream
	for i := range 3000 {
		streams = append(streams, r.Add("/a", Mode(i%3), Options{}, nil), r.Add(fmt.Sprintf("/a/%d/c", i), Recursive, Options{}, nil))
	}
	for i := range streams {
		streams[i*7919%len(streams)].Close()
	}
	if r.Len() != 0 || len(r.exact)+len(r.recursive) != 0 || r.depths != nil || r.peak != 0 {
		t.Errorf("left: %d watches, %d paths, %d recursive, depths %v", r.Len(), len(r.exact), len(r.recursive), r.depths)
	}
}

func TestNames(t *testing.T) {
	for typ, want := range map[EventType]string{
		NodeCreated: "NodeCreated", NodeDeleted: "NodeDeleted", NodeDataChanged: "NodeDataChanged",
		NodeChildrenChanged: "NodeChildrenChanged", 9: "event type 9",
	} {
		if got := typ.String(); got != want {
			t.Errorf("%d is %q", typ, got)
		}
	}
}

// An event of an Install, like any other, goes only to watchers that may read its znode.
func TestInstallTellsOnlyWhoMayRead(t *testing.T) {
	r := NewRegistry()
	once, all := r.Add("/a", Once, Options{}, stranger()), r.Add("/a", Once, Options{}, nil)
	r.Install(20, func(string, Mode) (EventType, []tree.ACL, bool) { return NodeDataChanged, secretACL, true }, nil)
	if e, ok := <-once.Events(); ok || once.Err() != tree.ErrNoAuth {
		t.Errorf("told of %v, %v", e, once.Err())
	}
	if e, ok := <-all.Events(); !ok || e.Type != NodeDataChanged {
		t.Errorf("not told: %v", all.Err())
	}
}

// M156: an event about a list of children shows the Stat of their parent, and not its data. Of the root
// it shows nothing: no shard knows all of its children.
func TestDeliver_ValuesOfAList(t *testing.T) {
	r := NewRegistry()
	list, root := r.Add("/a", Persistent, Options{Values: true}, nil), r.Add("/", Persistent, Options{Values: true}, nil)
	r.Deliver(1, []tree.Change{{Type: tree.Created, Path: "/a/b"}, {Type: tree.Created, Path: "/c"}}, shown{[]byte("parent")})
	for path, s := range map[string]*Stream{"/a": list, "/": root} {
		e := <-s.Events()
		if _, ok := e.Stat(); e.Type != NodeChildrenChanged || ok != (path == "/a") || e.Data() != nil || Weight(e) > 100 {
			t.Errorf("%s: %v shows %q", path, e, e.Data())
		}
	}
}

// secretACL is one that a stranger may not read.
var secretACL = []tree.ACL{{Perms: tree.Read, Scheme: "digest", ID: "bob:x"}}

func stranger() *Watcher { return &Watcher{MayRead: func(acl []tree.ACL) bool { return acl == nil }} }

func turn(path string, from, to []tree.ACL) tree.Change {
	return tree.Change{Type: tree.ACLChanged, Path: path, FormerACL: from, ACL: to}
}

// M115: a SetACL that takes the permission to read from a watcher ends the watches that see the
// znode. One that gives it ends those that may have missed something. No other SetACL ends a watch.
func TestDeliver_WhoMayReadChanges(t *testing.T) {
	for _, c := range []struct {
		from, to            []tree.ACL
		once, other, unlike error // of a watch of a stranger, and of one of somebody who may read
	}{
		{nil, secretACL, tree.ErrNoAuth, ErrGap, nil},
		{secretACL, nil, nil, ErrGap, nil},
		{secretACL, slices.Clone(secretACL), nil, nil, nil},
		{nil, nil, nil, nil, nil},
	} {
		r := NewRegistry()
		add := func(path string, mode Mode, who *Watcher) *Stream { return r.Add(path, mode, Options{}, who) }
		who := stranger()
		deliver(r, turn("/a/b", c.from, c.to))
		want := map[*Stream]error{
			add("/a/b", Once, who): c.once, add("/a/b", Once, nil): nil, add("/a/b", Once, who): c.once,
			add("/a/b", Persistent, who): c.other, add("/a/b", Persistent, nil): nil,
			add("/a/b", Recursive, who): c.other, add("/a", Recursive, who): c.other, add("/", Recursive, who): c.other,
			add("/", Recursive, nil): nil, add("/a", Once, who): nil, add("/a", Persistent, who): nil,
			add("/a/b/c", Once, who): nil, add("/a/b/c", Recursive, who): nil, add("/b", Persistent, who): nil,
		}
		deliver(r, turn("/a/b", c.from, c.to))
		live := 0
		for s, err := range want {
			if !errors.Is(s.Err(), err) || s.Ended() != (err != nil) {
				t.Errorf("from %v to %v: mode %d of %s ended: %v, %v, want %v", c.from, c.to, s.mode, s.path, s.Ended(), s.Err(), err)
			}
			if gap, ok := errors.AsType[*GapError](s.Err()); ok && gap.Zxid != 2 {
				t.Errorf("the gap is before %d", gap.Zxid)
			}
			if err == nil {
				live++
			}
		}
		if err := r.check(); err != nil || r.Len() != live {
			t.Errorf("%d watches are left, want %d: %v", r.Len(), live, err)
		}
	}
}

// M115: a znode is created hidden. That ends the watches of its path, and none from above.
func TestDeliver_CreatedHidden(t *testing.T) {
	r := NewRegistry()
	who := stranger()
	want := map[*Stream]error{
		r.Add("/a/b", Once, Options{}, who): tree.ErrNoAuth, r.Add("/a/b", Persistent, Options{}, who): ErrGap,
		r.Add("/a/b", Recursive, Options{}, who): ErrGap, r.Add("/a", Recursive, Options{}, who): nil, r.Add("/a/b", Persistent, Options{}, nil): nil,
	}
	deliver(r, tree.Change{Type: tree.Created, Path: "/a/b", ACL: secretACL})
	for s, err := range want {
		if !errors.Is(s.Err(), err) || s.Ended() != (err != nil) {
			t.Errorf("mode %d of %s ended: %v, %v, want %v", s.mode, s.path, s.Ended(), s.Err(), err)
		}
	}
	if err := r.check(); err != nil {
		t.Error(err)
	}
}

// In an Install, an event of zero says that only the ACL may have changed.
func TestInstall_WhoMayReadMayHaveChanged(t *testing.T) {
	r := NewRegistry()
	all := r.Add("/a", Once, Options{}, nil)
	once, lasting := r.Add("/a", Once, Options{}, stranger()), r.Add("/a", Persistent, Options{}, nil)
	r.Install(20, func(string, Mode) (EventType, []tree.ACL, bool) { return 0, secretACL, true }, nil)
	if all.Ended() || once.Err() != tree.ErrNoAuth || !errors.Is(lasting.Err(), ErrGap) {
		t.Errorf("who may read: %v, who may not: %v, a lasting watch: %v", all.Err(), once.Err(), lasting.Err())
	}
}

// The streams are listed by path and mode, no more than are asked for.
func TestStreams(t *testing.T) {
	r := NewRegistry()
	if list, more := r.Streams(10); len(list) > 0 || more {
		t.Errorf("an empty registry has %v, %v", list, more)
	}
	ended := r.Add("/a", Once, Options{}, nil)
	for _, mode := range []Mode{Once, Once, Persistent, Recursive} {
		r.Add("/a", mode, Options{}, nil)
	}
	r.Add("/b", Recursive, Options{}, nil)
	ended.Close()
	list, more := r.Streams(5)
	slices.SortFunc(list, func(a, b Watched) int { return strings.Compare(a.Path, b.Path) })
	if want := []Watched{{"/a", 2, 1, 1}, {"/b", 0, 0, 1}}; !slices.Equal(list, want) || more {
		t.Errorf("the streams are %v, more: %v; want %v", list, more, want)
	}
	if list, more := r.Streams(3); len(list) != 1 || list[0].Once+list[0].Persistent != 3 || !more {
		t.Errorf("three streams are %v, more: %v", list, more)
	}
}
