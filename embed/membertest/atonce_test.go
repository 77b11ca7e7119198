package membertest

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
)

// M85: a learner is removed while it is being promoted. One shard counts on its vote already, and
// another takes it out as a learner. It votes until it is out of both.
func TestRemoveMember_BesideAPromotion(t *testing.T) {
	t.Parallel()
	from, to := 72, 78
	if testkit.Night() {
		from, to = 0, 110
	}
	for i := from; i < to && !t.Failed(); i++ {
		testkit.Bubble(t, func(t *testing.T) { removePromoted(t, i) })
	}
}

func removePromoted(t *testing.T, i int) {
	after := time.Duration(i) * 300 * time.Microsecond
	e := embedtest.New(t, 1, embedtest.Options{Seed: uint64(i), Config: func(c *embed.Config) { c.Shards = 3 }})
	ofAge(e)
	embedkit.Write(t, e.Node(1), embedkit.OnShard[:3]...)
	places := []embed.MemberID{e.AddPlace(), e.AddPlace()}
	embedkit.Distant(e, time.Millisecond)
	for _, p := range places {
		e.Start(p)
	}
	for _, p := range places {
		e.Ready(p)
	}
	e.Faults(1).SetDisk(embedtest.Disk{Delay: 2 * time.Millisecond, On: embedtest.Syncs})
	var promoted embed.MemberID
	for promoted == 0 {
		for _, m := range embedkit.EngineOf(e.Node(1)).Members() {
			if m.ID > 1 && m.Wish == session.Voter {
				promoted = embed.MemberID(m.ID)
			}
		}
		<-time.After(100 * time.Microsecond)
	}
	<-time.After(after)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_ = e.Node(1).RemoveMember(ctx, promoted) // it may be refused
	<-time.After(time.Minute)
	e.Faults(1).SetDisk(embedtest.Disk{})
	if err := e.Node(1).Ready(bounded(t)); err != nil {
		t.Errorf("removed %v after the wish to vote: %v", after, err)
	}
}

// M86: two of three voters leave at once beside two that could take their places, and their processes
// end soon. Each waits for its heir only as long as the rest would do without both.
func TestLeave_TwoAtOnceBesideHeirs(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{time.Second, 5 * time.Second, 12 * time.Second} {
		testkit.Bubble(t, func(t *testing.T) {
			e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Voters, c.Tick = 3, embed.DefaultTick }})
			ofAge(e)
			e.TransferLeadership(1)
			embedkit.Joined(e, 2)
			left := make(chan error, 2)
			for _, place := range []embed.MemberID{2, 3} {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					left <- e.Node(place).Leave(ctx)
				}()
			}
			for range 2 {
				if err := <-left; err != nil {
					t.Logf("within %v: %v", limit, err)
				}
			}
			<-time.After(time.Minute)
			if err := e.Node(1).Ready(bounded(t)); err != nil {
				t.Errorf("within %v: %v", limit, err)
			}
			embedkit.Voting(e, 1, 1, 4, 5)
		})
	}
}

// M89: the only voter leaves and has little time. Its heir votes by then, and needs its vote to take it
// out.
func TestLeave_OfTheOnlyVoterInALimitedTime(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		testkit.Bubble(t, func(t *testing.T) {
			e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = 1 + 2*(i%2) }})
			ofAge(e)
			heir := embedkit.Joined(e, 1)[0]
			embedkit.Distant(e, 5*time.Millisecond)
			<-time.After(20 * time.Second) // it is fit to vote
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*12*time.Millisecond+time.Millisecond)
			defer cancel()
			err := e.Node(1).Leave(ctx)
			<-time.After(time.Minute)
			if ready := e.Node(heir).Ready(bounded(t)); ready != nil {
				t.Errorf("Leave within %d ms: %v; the rest: %v", 12*i+1, err, ready)
			}
		})
	}
}

// M91: one of four voters is dead. Two leave at the same moment. Of three who would stay two answer,
// of two only one.
func TestLeave_TwoAtOnceBesideADeadOne(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond, 2 * time.Second} {
		embedkit.Growing(t, 4, nil, func(t *testing.T, e *embedtest.Ensemble) {
			ofAge(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard[0])
			e.TransferLeadership(1)
			<-time.After(10 * time.Second)
			embedkit.Distant(e, time.Millisecond)
			e.Kill(4)
			<-time.After(5 * time.Second)
			left := make(chan error, 2)
			for i, m := range []embed.MemberID{2, 3} {
				go func() {
					<-time.After(time.Duration(i) * gap)
					left <- e.Node(m).Leave(bounded(t))
				}()
			}
			if one, other := <-left, <-left; (one == nil) == (other == nil) || !errors.Is(cmp.Or(one, other), embed.ErrUnsafe) {
				t.Errorf("%v apart: %v, and %v", gap, one, other)
			}
			<-time.After(time.Minute)
			goesOnAlone(t, e)
		})
	}
}

// M92: a voter of four is dismissed for its silence. It comes back when another one dies: three of
// four answer. It is out of one shard, and the others need its vote to take it out of theirs.
func TestRemovals_OfOneThatIsBack(t *testing.T) {
	t.Parallel()
	for i := range 5 {
		short := func(c *embed.Config) {
			c.Shards, c.MaxSessionTimeout, c.DeadAfter = 4, 10*time.Second, 20*time.Second
		}
		embedkit.Growing(t, 4, short, func(t *testing.T, e *embedtest.Ensemble) {
			ofAge(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard...)
			<-time.After(15 * time.Second)
			embedkit.Distant(e, 3*time.Millisecond)
			e.Isolate(4)
			e.Until("the wish that member 4 is out", func() bool { return isToBeOut(e.Node(1), 4) || isToBeOut(e.Node(2), 4) })
			<-time.After(time.Duration(4*i) * time.Millisecond)
			e.Kill(2)
			e.HealAll()
			<-time.After(time.Minute)
			goesOnAlone(t, e)
		})
	}
}
