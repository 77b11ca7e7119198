package membertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// besideSyncs runs fn while sessions at some members read all the time what is acknowledged. While such
// a read is under way, dragonboat sends its heartbeats to voters only.
func besideSyncs(t *testing.T, e *embedtest.Ensemble, places []embed.MemberID, fn func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for _, m := range places {
		s, err := e.Node(m).NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		for range 8 {
			readers.Go(func() {
				for ctx.Err() == nil {
					_, _ = s.Sync(ctx, "/")
					<-time.After(100 * time.Microsecond) // a lone voter answers at once, and time must go on
				}
			})
		}
	}
	fn()
	cancel()
	readers.Wait()
}

// M72: an observer hears of its leader, however much is read elsewhere.
func TestLearners_HearOfTheirLeaderBesideReads(t *testing.T) {
	t.Parallel()
	for range 2 {
		embedkit.Growing(t, 3, func(c *embed.Config) { c.Observer = c.ID == 0 }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			observer := embedkit.Joined(e, 1)[0]
			<-time.After(30 * time.Second) // nothing here is young
			embedkit.Distant(e, 5*time.Millisecond)
			besideSyncs(t, e, []embed.MemberID{1, 2, 3}, func() {
				for range 500 {
					<-time.After(10 * time.Millisecond)
					if e.Node(observer).Status().Shards[0].Leader == 0 {
						t.Error("it knows no leader")
						return
					}
				}
			})
		})
	}
}

// M72: one of two voters goes while reads are under way, which nobody is left to confirm. Learners of
// the other one hear of it all the same: an observer serves, and new members vote.
func TestLearners_HearOfALoneVoter(t *testing.T) {
	t.Parallel()
	for i, leaves := range []bool{false, true, true, true} {
		embedkit.Growing(t, 2, func(c *embed.Config) { c.Observer = c.ID == 0 && i%2 == 0 }, func(t *testing.T, e *embedtest.Ensemble) {
			ctx := bounded(t)
			embedkit.Founded(e)
			<-time.After(time.Duration(30*1000+i) * time.Millisecond)
			var observer embed.MemberID
			if i%2 == 0 {
				observer = embedkit.Joined(e, 1)[0]
			}
			embedkit.Distant(e, 2*time.Millisecond)
			besideSyncs(t, e, []embed.MemberID{1}, func() {
				if leaves {
					must(t, e.Node(2).Leave(ctx))
				} else {
					must(t, e.Node(1).RemoveMember(ctx, 2))
				}
			})
			<-time.After(time.Minute)
			if observer != 0 {
				writes(t, e, observer, "/by-the-observer")
				return
			}
			embedkit.Joined(e, 2)
			embedkit.Voting(e, 1, 1, 3, 4)
		})
	}
}

// M72: some learners are dead. The others hear of their leader no later for that.
func TestLearners_HearOfTheirLeaderBesideTheDead(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, func(c *embed.Config) { c.Observer = c.ID == 0 }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		observers := embedkit.Joined(e, 4)
		<-time.After(30 * time.Second)
		embedkit.Distant(e, 5*time.Millisecond)
		for _, m := range observers[:3] {
			e.Isolate(m)
		}
		besideSyncs(t, e, []embed.MemberID{1, 2, 3}, func() {
			for range 500 {
				<-time.After(10 * time.Millisecond)
				if e.Node(observers[3]).Status().Shards[0].Leader == 0 {
					t.Error("it knows no leader")
					return
				}
			}
		})
	})
}

// A member that does not vote may be down for an hour, or for DeadAfter if that is longer, or for ever
// if DeadAfter is negative.
func TestLearners_AwayForLong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		deadAfter, away time.Duration
		stays           bool
	}{
		{0, 50 * time.Minute, true},
		{0, 62 * time.Minute, false},
		{2 * time.Hour, 62 * time.Minute, true},
		{-1, 62 * time.Minute, true},
	} {
		slow := func(o *embed.Config) { o.Tick, o.DeadAfter = 200*time.Millisecond, c.deadAfter }
		embedkit.Growing(t, 3, slow, func(t *testing.T, e *embedtest.Ensemble) {
			ofAge(e)
			learner := embedkit.Joined(e, 1)[0]
			e.Stop(learner)
			<-time.After(c.away)
			n := e.Start(learner)
			if c.stays {
				e.Ready(learner)
				return
			}
			<-n.Done()
			if err := n.Err(); !errors.Is(err, embed.ErrRemoved) {
				t.Errorf("DeadAfter %v, away for %v: %v", c.deadAfter, c.away, err)
			}
		})
	}
}
