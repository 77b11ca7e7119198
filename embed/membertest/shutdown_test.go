package membertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// ephemeral makes all members ephemeral.
func ephemeral(c *embed.Config) { c.Ephemeral = true }

// ways are the calls by which an ephemeral member leaves.
var ways = []func(*embed.Node, context.Context) error{(*embed.Node).Leave, (*embed.Node).Shutdown}

// M77: the ctx of Shutdown ends while the wish of an ephemeral member, one of two voters, is on its
// way. Its vote is needed until it is out. If it had no time to wish anything, it says so, and
// remains a member.
func TestShutdown_OfTwoWithAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	late := 0
	for i := range 10 {
		embedkit.Growing(t, 2, ephemeral, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard[0])
			<-time.After(30 * time.Second)
			embedkit.Distant(e, 5*time.Millisecond)
			limit := time.Duration(9+5*i) * time.Millisecond
			limited, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			err := e.Node(2).Shutdown(limited)
			if err == nil && time.Since(began) > limit {
				late++
			}
			<-time.After(time.Minute)
			switch e.Kill(2); {
			case errors.Is(err, embed.ErrUnavailable), errors.Is(err, embed.ErrUnknownOutcome):
				e.Start(2) // it may be a member still
				e.Ready(2)
			case err != nil:
				t.Errorf("ctx of %v: %v", limit, err)
			}
			goesOnAlone(t, e)
		})
	}
	if late == 0 {
		t.Error("no ctx ended while the wish was on its way")
	}
}

// M78: another call wants the same, and its ctx ends before. The member leaves as if nobody else
// had asked.
func TestShutdown_BesideALeave(t *testing.T) {
	t.Parallel()
	for _, first := range ways {
		for i := range 8 {
			embedkit.Growing(t, 3, ephemeral, func(t *testing.T, e *embedtest.Ensemble) {
				embedkit.Founded(e)
				<-time.After(30 * time.Second)
				e.TransferLeadership(1)
				<-time.After(30 * time.Second)
				embedkit.Distant(e, 5*time.Millisecond)
				n, left := e.Node(3), make(chan error, 1)
				s := e.Session(3, embed.SessionOptions{})
				go func() { left <- first(n, bounded(t)) }()
				<-time.After(time.Duration(5*i) * time.Millisecond)
				limited, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				defer cancel()
				_ = n.Leave(limited)
				if err := errors.Join(<-left, n.Err()); err != nil || errors.Is(s.Err(), embed.ErrFailed) {
					t.Errorf("after %v: %v; the session says %v", 5*i, err, s.Err())
				}
				embedkit.Voting(e, 1, 1, 2)
			})
		}
	}
}

// M79: the only voter leaves, and there are learners. One of them votes before it is out.
func TestShutdown_OfTheOnlyVoter(t *testing.T) {
	t.Parallel()
	for _, learners := range []int{1, 2, 3} {
		for _, shards := range []int{1, len(embedkit.OnShard)} {
			for _, end := range ways {
				embedkit.Growing(t, 1, func(c *embed.Config) {
					c.Ephemeral, c.Shards, c.Tick = true, shards, embed.DefaultTick
				}, func(t *testing.T, e *embedtest.Ensemble) { testTheOnlyVoterLeaves(t, e, learners, end) })
			}
		}
	}
}

func testTheOnlyVoterLeaves(t *testing.T, e *embedtest.Ensemble, learners int,
	end func(*embed.Node, context.Context) error) {
	embedkit.Founded(e)
	paths := embedkit.OnShard[:len(e.Node(1).Status().Shards)]
	embedkit.Write(t, e.Node(1), paths...)
	<-time.After(30 * time.Second)
	places := embedkit.Joined(e, learners)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, end(e.Node(1), ctx))
	e.Kill(1)
	e.Wipe(1)
	<-time.After(time.Minute)
	s := e.Session(places[0], embed.SessionOptions{})
	for _, path := range paths {
		_, err := s.Set(bounded(t), path, nil, embed.AnyVersion)
		must(t, err)
	}
}

// M79: nobody can take the place of the only voter. Shutdown says so at once, or when its ctx ends,
// and closes the node. Its directory brings the ensemble back.
func TestShutdown_OfTheOnlyVoterWithoutAnHeir(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		others func(e *embedtest.Ensemble)
		atMost time.Duration
	}{
		"nobody else": {func(*embedtest.Ensemble) {}, time.Second},
		"a learner that is down": {func(e *embedtest.Ensemble) {
			e.Kill(embedkit.Joined(e, 1)[0])
			<-time.After(time.Minute)
		}, time.Second},
		"a learner that has just begun": {func(e *embedtest.Ensemble) {
			embedkit.Joined(e, 1)
		}, 5 * time.Second},
	} {
		embedkit.Growing(t, 1, func(c *embed.Config) {
			c.Ephemeral, c.Tick = true, embed.DefaultTick
		}, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard[0])
			<-time.After(30 * time.Second)
			c.others(e)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			n, began := e.Node(1), time.Now()
			if err := n.Shutdown(ctx); !errors.Is(err, embed.ErrUnsafe) {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(began); took > c.atMost {
				t.Errorf("%s: it took %v", what, took)
			}
			<-n.Done()
			must(t, n.Err())
			e.Kill(1)
			e.Start(1)
			e.Ready(1)
			goesOnAlone(t, e)
		})
	}
}

// An ephemeral member that shuts down opens no session, although it may have to wait before it
// leaves.
func TestShutdown_OpensNoSession(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, ephemeral, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.Isolate(3) // nobody says that it may leave
		n, shut := e.Node(3), make(chan error, 1)
		go func() { shut <- n.Shutdown(bounded(t)) }()
		<-time.After(time.Millisecond)
		if _, err := n.NewSession(bounded(t), embed.SessionOptions{}); !errors.Is(err, embed.ErrClosed) {
			t.Error(err)
		}
		e.HealAll()
		must(t, <-shut)
		embedkit.Voting(e, 1, 1, 2)
	})
}
