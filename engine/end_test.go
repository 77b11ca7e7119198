package engine

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// A node that ends drops its tree. Neither a read nor a status beside it takes the empty one for what there is.
func TestEndBesideReadsAndStatus(t *testing.T) {
	on := startCounted(t, 1)[0]
	s, err := on.OpenSession(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/a"}, {Kind: tree.KindCreate, Path: "/a/b"}}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := on.home()
	full, empty, want := m.tree.Load(), tree.New(nil), m.figures()
	defer m.tree.Store(full)
	reads := map[string]func(s *Session) (seen bool, err error){
		"Get":         func(s *Session) (bool, error) { _, _, err := s.Get("/a"); return err == nil, err },
		"Exists":      func(s *Session) (bool, error) { _, ok, err := s.Exists("/a"); return ok, err },
		"ACL":         func(s *Session) (bool, error) { _, _, err := s.ACL("/a"); return err == nil, err },
		"Children":    func(s *Session) (bool, error) { _, _, err := s.Children("/a"); return err == nil, err },
		"Descendants": func(s *Session) (bool, error) { n, err := s.Descendants("/a"); return n == 1, err },
	}
	for name, read := range reads {
		for range 3000 {
			s := &Session{engine: on.Engine, owner: outbox.NewOwner(1, false)}
			m.last.Store(nil)
			m.tree.Store(full)
			var both sync.WaitGroup
			both.Go(func() { // the order of Engine.finish and machine.Close
				s.owner.End(outbox.ErrClosed)
				last := m.figures()
				m.last.Store(&last)
				m.tree.Store(empty)
			})
			for {
				if got := m.figures(); got.Zxid != want.Zxid {
					t.Fatalf("status %+v, was %+v", got, want)
				}
				if seen, err := read(s); errors.Is(err, outbox.ErrClosed) {
					break
				} else if err != nil || !seen {
					t.Fatalf("%s: %v", name, err)
				}
			}
			both.Wait()
		}
	}
	m.last.Store(nil)
}
