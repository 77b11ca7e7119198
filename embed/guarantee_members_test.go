package embed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// A scribe writes at a member from time to time, and knows what was acknowledged.
type scribe struct {
	stop  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	acked []string
	at    time.Time     // of the newest acknowledged write
	gap   time.Duration // the longest time between two
}

// scribble begins to write at a place, under a name. It opens a session whenever it needs one.
func scribble(t *testing.T, e *embedtest.Ensemble, place embed.MemberID, name string, every time.Duration) *scribe {
	w := &scribe{stop: make(chan struct{}), at: time.Now()}
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

func (w *scribe) write(ctx context.Context, s *embed.Session, path string) {
	if _, err := s.Create(ctx, path, nil, embed.Persistent); err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked = append(w.acked, path)
	w.gap = max(w.gap, time.Since(w.at))
	w.at = time.Now()
}

// end stops the scribe, and checks that the members in these places have all that was acknowledged.
func (w *scribe) end(t *testing.T, e *embedtest.Ensemble, places ...embed.MemberID) {
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

// A fresh node with the address of one member becomes a learner that has everything, and a voter as
// soon as that helps. Nothing that is written meanwhile is lost.
func TestGuarantee_Joins(t *testing.T) {
	growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		w := scribble(t, e, 1, "w", 10*time.Millisecond)
		learner := joined(e, 1)[0]
		there := scribble(t, e, learner, "learner", 10*time.Millisecond)
		joined(e, 3)
		voting(e, 1, 1, 2, 3)
		w.end(t, e, e.Members()...)
		there.end(t, e, e.Members()...)
		if got := roles(e.Node(1))[embed.Learner]; len(got) != 2 {
			t.Errorf("the learners are %v", got)
		}
	})
}

// A voter that dies, loses its disk or comes back as a new process is replaced, and nobody helps.
// Then the ensemble survives as many failures as before (dapr#8305).
func TestGuarantee_Replaces(t *testing.T) {
	const deadAfter = 20 * time.Second
	growing(t, 3, func(c *embed.Config) {
		c.MaxSessionTimeout, c.DeadAfter = deadAfter/2, deadAfter
	}, func(t *testing.T, e *embedtest.Ensemble) {
		founded(e)
		w := scribble(t, e, 1, "w", time.Second)
		spare := joined(e, 1)[0]
		e.Kill(3)
		<-time.After(deadAfter)
		voting(e, 1, 1, 2, 4)
		e.Wipe(3)
		e.Restart(3) // as member 5
		e.Kill(2)
		<-time.After(deadAfter)
		voting(e, 1, 1, 4, 5)
		e.Kill(spare)
		e.Wipe(spare)
		e.Restart(spare) // as member 6, under the name of member 4
		voting(e, 1, 1, 5, 6)
		w.end(t, e, 1, 3, spare)
	})
}

// Whatever is asked and whoever dies, no change of the members takes a quorum that was there.
func TestGuarantee_SafeChange(t *testing.T) {
	growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		founded(e)
		w := scribble(t, e, 1, "w", 100*time.Millisecond)
		e.Kill(3)
		leader := e.Leader()
		e.Until("the silence to show", func() bool { return !e.Node(leader).Members()[2].Answers })
		var all sync.WaitGroup
		for _, at := range []embed.MemberID{1, 2} {
			for _, m := range []embed.MemberID{1, 2} {
				n := e.Node(at)
				all.Go(func() {
					if err := n.RemoveMember(t.Context(), m); !errors.Is(err, embed.ErrUnsafe) {
						t.Errorf("removing member %d, of two that answer of three: %v", m, err)
					}
				})
			}
			if err := e.Node(at).Leave(bounded(t)); !errors.Is(err, embed.ErrUnsafe) {
				t.Errorf("member %d leaves, of two that answer of three: %v", at, err)
			}
		}
		all.Wait()
		for _, m := range e.Node(leader).Members() {
			if m.Leaving != "" {
				t.Errorf("member %d is to go: %s", m.ID, m.Leaving)
			}
		}
		_, err := e.Session(1, embed.SessionOptions{}).Create(bounded(t), "/goes-on", nil, embed.Persistent)
		must(t, err)
		w.end(t, e, 1, 2)
	})
}

// Founders found together or not at all, and who has lost a directory joins. So there is one
// ensemble, with everything that was acknowledged.
func TestGuarantee_OneEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Join: true, Stopped: true})
		e.Start(1)
		e.Start(2)
		<-time.After(time.Minute)
		for _, place := range []embed.MemberID{1, 2} {
			if s := e.Node(place).Status(); s.Joining == "" {
				t.Fatalf("member %d has founded without the third", place)
			}
		}
		e.Restart(3)
		founded(e)
		w := scribble(t, e, 1, "w", 100*time.Millisecond)
		e.Kill(2)
		e.Wipe(2)
		e.Restart(2)
		voting(e, 1, 1, 3, 4)
		w.end(t, e, e.Members()...)

		for _, place := range e.Members() {
			e.Kill(place)
		}
		e.Wipe(2)
		e.Start(2) // nobody answers, and it is a founder by its config
		<-time.After(time.Minute)
		if s := e.Node(2).Status(); s.Joining == "" {
			t.Fatal("a founder that has lost its directory has founded again")
		}
		e.Start(1)
		e.Start(3)
		for _, place := range e.Members() {
			e.Ready(place)
		}
	})
}
