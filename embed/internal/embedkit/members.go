package embedkit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/engine"
)

// Growing runs fn in virtual time with an ensemble of founders that others may join.
func Growing(t *testing.T, founders int, change func(*embed.Config), fn func(t *testing.T, e *embedtest.Ensemble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fn(t, embedtest.New(t, founders, embedtest.Options{Config: change}))
	})
}

// Named gives each member the name of its place, as a platform names its pods.
func Named(c *embed.Config) { c.Name, _, _ = strings.Cut(c.Advertise, ".") }

// Roles returns the members that a node knows, by role.
func Roles(n *embed.Node) map[embed.Role][]embed.MemberID {
	by := make(map[embed.Role][]embed.MemberID)
	for _, m := range n.Members() {
		by[m.Role] = append(by[m.Role], m.ID)
	}
	return by
}

// Voting waits until a node knows exactly these voters.
func Voting(e *embedtest.Ensemble, place embed.MemberID, want ...embed.MemberID) {
	var got []embed.MemberID
	e.Until(fmt.Sprintf("the voters to be %v", want), func() bool {
		got = Roles(e.Node(place))[embed.Voter]
		return slices.Equal(got, want)
	})
}

// Founded waits until the ensemble has a table of its members, and each has said where it is.
func Founded(e *embedtest.Ensemble) {
	e.Until("the table of members", func() bool {
		return !slices.ContainsFunc(e.Node(1).Members(), func(m embed.Member) bool { return m.Name == "" })
	})
}

// Joined starts new members and waits until they are ready.
func Joined(e *embedtest.Ensemble, n int) (places []embed.MemberID) {
	for range n {
		places = append(places, e.Join())
		e.Ready(places[len(places)-1])
	}
	return places
}

// WithLineage waits until every member has the lineage on its disk.
func WithLineage(t *testing.T, e *embedtest.Ensemble) {
	t.Helper()
	for _, m := range e.Members() {
		e.Until("a lineage in the identity file", func() bool {
			text, err := os.ReadFile(filepath.Join(e.Dir(m), "identity"))
			return err == nil && HasLineage(text)
		})
	}
}

// HasLineage reports whether an identity file has the ensemble's lineage.
func HasLineage(identity []byte) bool {
	return regexp.MustCompile(`"lineage": "0*[1-9a-f]`).Match(identity)
}

// Next is the level to which an ensemble rises whose members are all of a build to come.
const Next = engine.LevelMax + 1

// A Scribe writes at a member from time to time, and knows what was acknowledged.
type Scribe struct {
	stop  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	acked []string
	at    time.Time     // Of the newest acknowledged write
	gap   time.Duration // the longest time between two
}

// Scribble begins to write at a place, under a name. It opens a session whenever it needs one.
func Scribble(t *testing.T, e *embedtest.Ensemble, place embed.MemberID, name string, every time.Duration) *Scribe {
	w := &Scribe{stop: make(chan struct{}), at: time.Now()}
	n := e.Node(place)
	w.ended.Go(func() {
		var s *embed.Session
		for i := 0; ; i++ {
			select {
			case <-w.stop:
				return
			case <-n.Done():
				return
			case <-time.After(every):
			}
			if s == nil || s.Err() != nil {
				s, _ = n.NewSession(t.Context(), embed.SessionOptions{})
			}
			if s != nil {
				w.write(t.Context(), s, fmt.Sprintf("/%s-%d", name, i))
			}
		}
	})
	return w
}

func (w *Scribe) write(ctx context.Context, s *embed.Session, path string) {
	if _, err := s.Create(ctx, path, nil, embed.Persistent); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked = append(w.acked, path)
	w.gap = max(w.gap, time.Since(w.at))
	w.at = time.Now()
}

// End stops the scribe, and checks that the members in these places have all that was acknowledged.
func (w *Scribe) End(t *testing.T, e *embedtest.Ensemble, places ...embed.MemberID) {
	t.Helper()
	close(w.stop)
	w.ended.Wait()
	if len(w.acked) == 0 {
		t.Error("nothing was written")
	}
	for _, place := range places {
		e.Ready(place)
		s := e.Session(place, embed.SessionOptions{})
		for _, path := range w.acked {
			if _, found, err := s.Exists(bounded(t), path); err != nil || !found {
				t.Fatalf("member in place %d: %s was acknowledged: %v, %v", place, path, found, err)
			}
		}
	}
	t.Logf("%d writes, at most %v between two", len(w.acked), w.gap)
}

// Distant lets each message between members take so long. In a bubble of testing/synctest commits
// take no time otherwise, so nothing can happen in the middle of one.
func Distant(e *embedtest.Ensemble, d time.Duration) {
	for _, from := range e.Places() {
		for _, to := range e.Places() {
			e.Faults(from).SetLink(to, embedtest.Link{Delay: d})
		}
	}
}
