package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// A node that ends drops its tree. No read or status at that moment may show the empty tree.
func TestEndBesideReadsAndStatus(t *testing.T) {
	reads := map[string]func(s *Session) (seen bool, err error){
		"Get":         func(s *Session) (bool, error) { _, _, err := s.Get("/a"); return err == nil, err },
		"Exists":      func(s *Session) (bool, error) { _, ok, err := s.Exists("/a"); return ok, err },
		"ACL":         func(s *Session) (bool, error) { _, _, err := s.ACL("/a"); return err == nil, err },
		"Children":    func(s *Session) (bool, error) { _, _, err := s.Children("/a"); return err == nil, err },
		"Descendants": func(s *Session) (bool, error) { n, err := s.Descendants("/a"); return n == 1, err },
	}
	for name, read := range reads {
		for range 30 {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				n.mkdir(s, "/a")
				n.mkdir(s, "/a/b")
				want := n.Status()[0].Zxid
				var both sync.WaitGroup
				both.Go(func() {
					n.finish(outbox.ErrClosed, nil)
					if err := n.shard.Drop(); err != nil {
						t.Error(err)
					}
				})
				for {
					if got := n.Status()[0]; got.Zxid != want {
						t.Fatalf("status %+v, was at %d", got, want)
					}
					if seen, err := read(s); errors.Is(err, outbox.ErrClosed) {
						break
					} else if err != nil || !seen {
						t.Fatalf("%s: %v", name, err)
					}
				}
				both.Wait()
			})
		}
	}
}

// A member that leaves may be out before Leave expects it. That is no failure; any other removal
// is.
func TestFailure_UnlessTheMemberLeaves(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		n := newNode(t)
		var log bytes.Buffer
		n.fails, n.Engine.log = true, slog.New(slog.NewTextHandler(&log, nil))
		if leaves {
			n.departure.Begin()
		}
		n.fail(fmt.Errorf("%w: by its own removal", ErrRemoved))
		n.failureLoop()
		if errors.Is(n.Err(), ErrRemoved) == leaves || leaves && n.Err() != nil {
			t.Errorf("leaves is %v: the node says %v", leaves, n.Err())
		}
		if want := map[bool]error{false: ErrFailed, true: outbox.ErrClosed}[leaves]; !errors.Is(n.over(), want) {
			t.Errorf("leaves is %v: calls are told %v", leaves, n.over())
		}
		if logged := strings.Contains(log.String(), "node failed"); logged == leaves {
			t.Errorf("leaves is %v, and the log is %q", leaves, log.String())
		}
	}
}
