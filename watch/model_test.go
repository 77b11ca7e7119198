package watch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// model is a watch in its simplest form, without regard to cost: every watch looks at every change.
type model struct {
	path   string
	mode   Mode
	zxid   tree.Zxid
	room   int
	queued []Event
	ended  bool
	err    error
}

func (m *model) see(z tree.Zxid, c tree.Change) {
	e, matches := m.match(z, c)
	switch {
	case m.ended || !matches:
	case len(m.queued) == m.room:
		m.end(ErrOverflow)
	default:
		m.queued = append(m.queued, e)
		if m.mode == Once {
			m.end(nil)
		}
	}
}

func (m *model) match(z tree.Zxid, c tree.Change) (Event, bool) {
	own := map[tree.ChangeType]EventType{tree.Created: NodeCreated, tree.Deleted: NodeDeleted, tree.DataChanged: NodeDataChanged}
	below := c.Path == m.path || strings.HasPrefix(c.Path, strings.TrimSuffix(m.path, "/")+"/")
	switch {
	case c.Path == m.path, m.mode == Recursive && below:
		return Event{Type: own[c.Type], Path: c.Path, Zxid: z}, true
	case m.mode != Recursive && c.Type != tree.DataChanged && tree.Parent(c.Path) == m.path:
		return Event{Type: NodeChildrenChanged, Path: m.path, Zxid: z}, true
	}
	return Event{}, false
}

func (m *model) end(err error) {
	if !m.ended {
		m.ended, m.err = true, err
	}
}

// watched pairs a stream with its model.
type watched struct {
	stream *Stream
	model  *model
}

// compare compares everything that can be seen of a stream without receiving.
func (w watched) compare(t *testing.T) {
	t.Helper()
	if w.stream.Zxid() != w.model.zxid || w.stream.Err() != w.model.err || w.stream.Ended() != w.model.ended {
		t.Fatalf("%+v\nthe model is %+v", w.stream, w.model)
	}
}

// receive receives up to n events from the buffer.
func (w watched) receive(t *testing.T, n int) {
	t.Helper()
	for ; n > 0 && len(w.model.queued) > 0; n-- {
		select {
		case e := <-w.stream.Events():
			if e != w.model.queued[0] {
				t.Fatalf("received %+v, the model has %+v", e, w.model.queued)
			}
			w.model.queued = w.model.queued[1:]
		default:
			t.Fatalf("received nothing, the model has %+v", w.model.queued)
		}
	}
	if len(w.model.queued) > 0 {
		return
	}
	select {
	case e, open := <-w.stream.Events():
		if open || !w.model.ended {
			t.Fatalf("received %+v (open %v), the model has nothing", e, open)
		}
	default:
		if w.model.ended {
			t.Fatal("the channel is open, the model has ended")
		}
	}
}

var paths = []string{"/", "/a", "/a/b", "/a/b/c", "/a/bb", "/ab", "/b", "/a/b/c/d/e"}

func FuzzRegistry(f *testing.F) {
	for seed := range uint64(64) {
		r := rand.New(rand.NewPCG(seed, 5))
		script := make([]byte, 500)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		next := func(n int) int {
			if len(script) == 0 {
				return 0
			}
			b := script[0]
			script = script[1:]
			return int(b) % n
		}
		r := NewRegistry()
		var all []watched
		var z tree.Zxid
		for len(script) > 0 {
			switch kind := next(16); {
			case kind < 4:
				path, mode, buffer := paths[next(len(paths))], Mode(next(3)), next(4)
				m := &model{path: path, mode: mode, zxid: z, room: buffer}
				switch {
				case mode == Once:
					m.room = 1
				case buffer == 0:
					m.room = bufferDefault
				}
				all = append(all, watched{r.Add(path, mode, Options{Buffer: buffer}, nil), m})
			case kind < 10:
				z++
				var changes []tree.Change
				for range next(4) {
					changes = append(changes, tree.Change{Type: tree.ChangeType(1 + next(3)), Path: paths[next(len(paths))]})
				}
				changes = slices.DeleteFunc(changes, func(c tree.Change) bool {
					return c.Path == "/" && c.Type != tree.DataChanged // the root is never created or deleted
				})
				r.Deliver(z, changes, nil)
				for _, c := range changes {
					for _, w := range all {
						w.model.see(z, c)
					}
				}
			case kind < 13:
				if len(all) > 0 {
					all[next(len(all))].receive(t, next(4))
				}
			case kind == 13:
				if len(all) > 0 {
					w, err := all[next(len(all))], []error{nil, errors.New("ended")}[next(2)]
					w.stream.End(err)
					w.model.end(err)
				}
			case kind == 14:
				z += 10
				install(r, all, z, paths[next(len(paths))])
			case next(16) == 0:
				err := errors.New("all")
				r.EndAll(err)
				for _, w := range all {
					w.model.end(err)
				}
			}
			live := 0
			for _, w := range all {
				if w.compare(t); !w.model.ended {
					live++
				}
			}
			if err := r.check(); err != nil || r.Len() != live {
				t.Fatalf("%d watches, the model has %d: %v", r.Len(), live, err)
			}
		}
		for _, w := range all {
			w.receive(t, bufferDefault+1)
		}
	})
}

// install replaces the tree, with everything at and below a path touched.
func install(r *Registry, all []watched, z tree.Zxid, path string) {
	touched := func(p string, _ Mode) bool { return strings.HasPrefix(p, path) }
	r.Install(z, func(p string, m Mode) (EventType, []tree.ACL, bool) { return NodeDataChanged, nil, touched(p, m) }, nil)
	for _, w := range all {
		m := w.model
		switch {
		case m.ended || !touched(m.path, m.mode):
		case m.mode == Once:
			m.queued = append(m.queued, Event{Type: NodeDataChanged, Path: m.path, Zxid: z})
			m.end(nil)
		default:
			m.end(w.stream.Err())
			var gap *GapError
			if !errors.As(m.err, &gap) || gap.Zxid != z {
				m.err = fmt.Errorf("want a gap at %d", z)
			}
		}
	}
}

// check returns the first broken invariant of the registry.
func (r *Registry) check() error {
	n := 0
	for _, l := range []lists{r.exact, r.recursive} {
		for path, s := range l {
			for prev := (*Stream)(nil); s != nil; prev, s = s, s.next {
				if s.path != path || s.prev != prev || s.Ended() {
					return fmt.Errorf("the list of %s has %+v", path, s)
				}
				n++
			}
		}
	}
	if n != r.n {
		return fmt.Errorf("%d streams listed, %d counted", n, r.n)
	}
	depths := make(map[int]int)
	for path := range r.recursive {
		depths[depthOf(path)]++
	}
	for d, count := range r.depths {
		if depths[d] != count {
			return fmt.Errorf("%d recursive paths at depth %d, %d counted", depths[d], d, count)
		}
		delete(depths, d)
	}
	if len(depths) > 0 || len(r.depths) > 0 && r.depths[len(r.depths)-1] == 0 {
		return fmt.Errorf("depths %v, uncounted %v", r.depths, depths)
	}
	return r.clients.check()
}
