package promisetest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// growing runs a test with an ensemble of founders that others may join.
func growing(t *testing.T, founders int, change func(*embed.Config), test func(t *testing.T, e *embedtest.Ensemble)) {
	t.Helper()
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		test(t, embedtest.New(t, founders, embedtest.Options{Config: change}))
	})
}

// A fresh node with the address of one member becomes a learner that has everything, and a voter as
// soon as that helps. Nothing that is written meanwhile is lost.
func TestGuarantee_Joins(t *testing.T) {
	growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		w := embedkit.Scribble(t, e, 1, "w", 10*time.Millisecond)
		learner := embedkit.Joined(e, 1)[0]
		there := embedkit.Scribble(t, e, learner, "learner", 10*time.Millisecond)
		embedkit.Joined(e, 3)
		embedkit.Voting(e, 1, 1, 2, 3)
		w.End(t, e, e.Members()...)
		there.End(t, e, e.Members()...)
		if got := embedkit.Roles(e.Node(1))[embed.Learner]; len(got) != 2 {
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
		embedkit.Founded(e)
		w := embedkit.Scribble(t, e, 1, "w", time.Second)
		spare := embedkit.Joined(e, 1)[0]
		e.Kill(3)
		<-time.After(deadAfter)
		embedkit.Voting(e, 1, 1, 2, 4)
		e.Wipe(3)
		e.Restart(3) // as member 5
		e.Kill(2)
		<-time.After(deadAfter)
		embedkit.Voting(e, 1, 1, 4, 5)
		e.Kill(spare)
		e.Wipe(spare)
		e.Restart(spare) // as member 6, under the name of member 4
		embedkit.Voting(e, 1, 1, 5, 6)
		w.End(t, e, 1, 3, spare)
	})
}

// Whatever is asked and whoever dies, no change of the members takes a quorum that was there.
func TestGuarantee_SafeChange(t *testing.T) {
	growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		w := embedkit.Scribble(t, e, 1, "w", 100*time.Millisecond)
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
		w.End(t, e, 1, 2)
	})
}

// Founders found together or not at all, and who has lost a directory joins. So there is one
// ensemble, with everything that was acknowledged.
func TestGuarantee_OneEnsemble(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: embedkit.Named})
		e.Start(1)
		e.Start(2)
		<-time.After(20 * time.Second)
		for _, place := range []embed.MemberID{1, 2} {
			if s := e.Node(place).Status(); s.Joining == "" {
				t.Fatalf("member %d has founded without the third", place)
			}
		}
		e.Restart(3)
		embedkit.Founded(e)
		w := embedkit.Scribble(t, e, 1, "w", 100*time.Millisecond)
		e.Kill(2)
		e.Wipe(2)
		e.Restart(2)
		embedkit.Voting(e, 1, 1, 3, 4)
		w.End(t, e, e.Members()...)

		for _, place := range e.Members() {
			e.Kill(place)
		}
		e.Wipe(2)
		e.Start(2) // nobody answers, and it is a founder by its config
		<-time.After(20 * time.Second)
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
