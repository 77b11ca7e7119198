package engine

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// readsOf has all reads that do not wait.
var readsOf = map[string]func(s *Session) error{
	"Get":         func(s *Session) error { _, _, err := s.Get("/a"); return err },
	"Exists":      func(s *Session) error { _, _, err := s.Exists("/a"); return err },
	"ACL":         func(s *Session) error { _, _, err := s.ACL("/a"); return err },
	"Children":    func(s *Session) error { _, _, err := s.Children("/a"); return err },
	"Descendants": func(s *Session) error { _, err := s.Descendants("/a"); return err },
	"Before":      func(s *Session) error { _, _, err := s.Before("/a/n-0000000001"); return err },
}

// A reader of a session that is over may hold a shard's watch registry, whose lock comes below the
// keeper's. So the reader gets the reason, and no clock is compared. A comparison could end a
// session with a watch, which would lock the registry again.
func TestReadsOfASessionThatIsOverAskNothingOfTheKeeper(t *testing.T) {
	for name, read := range readsOf {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				gone, late := n.open(testTimeout), n.open(testTimeout)
				n.mkdir(gone, "/a")
				go gone.Close()
				n.commit()
				w, err := late.Watch("/a", watch.Data, watch.Options{}, "")
				if err != nil {
					t.Fatal(err)
				}
				n.fake.Pause(2 * testTimeout) // anyone who compares the clock ends late
				if err := read(gone); err != session.ErrClosed {
					t.Errorf("the read returned %v", err)
				}
				if late.Live() != nil {
					t.Fatal("a read has ended another session")
				}
				if _, err := n.WatchRemotely(0).Arm("/", watch.Data, func() bool { return read(gone) == nil }); err != nil {
					t.Fatal(err)
				}
				if late.Err() != session.ErrExpired || w.Err() != session.ErrExpired {
					t.Errorf("the clock was not compared after all: %v, %v", late.Err(), w.Err())
				}
			})
		})
	}
}

// A busy keeper must not delay readers that hold a registry's lock, because the keeper may wait for
// that lock.
func TestReadsDoNotWaitForTheKeeper(t *testing.T) {
	n := startCounted(t, 1)[0]
	busy, err := n.OpenSession(t.Context(), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := n.OpenSession(t.Context(), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Submit(t.Context(), []tree.Op{create("/a")}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	changes, release := make(chan struct{}), make(chan struct{})
	busy.OnStateChange(func() { close(changes); <-release }) // under the keeper's lock
	go busy.Close()
	<-changes
	done := make(chan struct{})
	go func() {
		defer close(done)
		for name, read := range readsOf {
			if err := read(gone); err != session.ErrClosed {
				t.Errorf("%s: %v", name, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("a read waits for the keeper's lock")
	}
	close(release)
	<-done
}
