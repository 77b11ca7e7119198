package membertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// M65: one of two leaves. The other shards need its vote still, although it is out of some.
func TestLeave_OfTwoOnSeveralShards(t *testing.T) {
	t.Parallel()
	for range 4 {
		embedkit.Growing(t, 2, func(c *embed.Config) { c.Shards = len(embedkit.OnShard) }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			must(t, e.Node(2).Leave(bounded(t)))
			embedkit.Voting(e, 1, 1)
			s := e.Session(1, embed.SessionOptions{})
			for _, path := range embedkit.OnShard {
				_, err := s.Create(bounded(t), path, nil, embed.Persistent)
				must(t, err)
			}
		})
	}
}

// M65: the same with two of three that leave at once: each may be out of some shards while the others need
// its vote.
func TestLeave_TwoOfThreeAtOnceOnSeveralShards(t *testing.T) {
	t.Parallel()
	for range 2 {
		embedkit.Growing(t, 3, func(c *embed.Config) { c.Shards = len(embedkit.OnShard) }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			left := make(chan error, 2)
			for _, place := range []embed.MemberID{2, 3} {
				go func() { left <- e.Node(place).Leave(bounded(t)) }()
			}
			for range 2 {
				if err := <-left; err != nil && !errors.Is(err, embed.ErrUnsafe) {
					t.Error(err)
				}
			}
			s := e.Session(1, embed.SessionOptions{})
			for _, path := range embedkit.OnShard {
				_, err := s.Create(bounded(t), path, nil, embed.Persistent)
				must(t, err)
			}
		})
	}
}

// M66: while a member leaves, dragonboat closes one shard after the other. What reads there meanwhile sees
// what was there, or learns that the member is over.
func TestLeave_NobodyReadsAnEmptyTree(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		for _, sync := range []time.Duration{0, 20 * time.Millisecond} {
			t.Run(fmt.Sprintf("shards=%d,fsync=%v", shards, sync), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testReadsWhileLeaving(t, shards, sync) })
			})
		}
	}
}

func testReadsWhileLeaving(t *testing.T, shards int, sync time.Duration) {
	e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards = shards }})
	embedkit.Founded(e)
	ctx := bounded(t)
	s := e.Session(1, embed.SessionOptions{})
	var paths []string
	for i := range 8 {
		paths = append(paths, fmt.Sprintf("/p%d", i))
		_, err := s.Create(ctx, paths[i], nil, embed.Persistent)
		must(t, err)
		_, err = s.Create(ctx, paths[i]+"/child", nil, embed.Persistent)
		must(t, err)
	}
	e.TransferLeadership(1)
	n := e.Node(3)
	door, shut, err := clienttest.Over(n, func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, 3) })
	must(t, err)
	defer shut()
	remote, err := door.NewSession(ctx, embed.SessionOptions{Timeout: 10 * time.Second})
	must(t, err)
	for _, p := range paths {
		_, err := remote.Sync(ctx, p)
		must(t, err)
	}
	e.Faults(3).SetDisk(embedtest.Disk{Delay: sync, On: embedtest.Syncs})
	defer e.Faults(3).SetDisk(embedtest.Disk{})
	left := make(chan error, 1)
	go func() { left <- n.Leave(ctx) }()
	reads, over := 0, make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		for ctx.Err() == nil {
			select {
			case <-over:
				return
			case <-time.After(200 * time.Microsecond):
			}
			for _, p := range paths {
				soon, cancel := context.WithTimeout(ctx, time.Millisecond)
				if names, _, err := remote.Children(soon, p); errors.Is(err, embed.ErrNoNode) || err == nil && len(names) == 0 {
					t.Errorf("a client is told that %s has the children %v, %v", p, names, err)
				}
				if _, found, err := remote.Exists(soon, p); err == nil && !found {
					t.Errorf("a client is told that %s does not exist", p)
				}
				cancel()
			}
		}
	}()
	for peek := n.Peek(); ; {
		for _, p := range paths {
			_, found, err := peek.Exists(p)
			if err == nil && !found {
				t.Errorf("Peek says that %s does not exist", p)
			}
			if err == nil {
				reads++
			}
		}
		select {
		case err := <-left:
			must(t, err)
			close(over)
			<-read
			if reads == 0 {
				t.Error("nothing was read while it left")
			}
			return
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// M70: one of two members leaves. Its process crashes once that is recorded, and comes back. The other
// one goes on alone on all shards, as it does if nothing crashes.
func TestLeave_OfTwoAndARestart(t *testing.T) {
	t.Parallel()
	for range 3 {
		embedkit.Growing(t, 2, func(c *embed.Config) { c.Shards = len(embedkit.OnShard) }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard...)
			<-time.After(30 * time.Second) // nothing here is young
			embedkit.Distant(e, time.Millisecond)
			n := e.Node(2)
			go func() { _ = n.Leave(bounded(t)) }()
			e.Until("the wish to leave", func() bool { return e.Node(1).Members()[1].Leaving != "" })
			e.Kill(2)
			<-time.After(time.Second)
			back := e.Start(2)
			ends(t, back)
			goesOnAlone(t, e)
		})
	}
}

// M70: the ctx of Leave ends while the wish is on its way. The node goes on, and the wish arrives.
func TestLeave_OfTwoWithAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	unknown := 0
	for i := range 8 {
		embedkit.Growing(t, 2, func(c *embed.Config) { c.Shards = len(embedkit.OnShard) }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard...)
			<-time.After(30 * time.Second)
			embedkit.Distant(e, 5*time.Millisecond)
			n := e.Node(2)
			limited, cancel := context.WithTimeout(t.Context(), time.Duration(9+5*i)*time.Millisecond)
			defer cancel()
			if errors.Is(n.Leave(limited), embed.ErrUnknownOutcome) {
				unknown++
				<-time.After(time.Minute)
				goesOnAlone(t, e)
			}
		})
	}
	if unknown == 0 {
		t.Error("no outcome was unknown")
	}
}

// goesOnAlone writes on all shards at member 1, which may have lost the others.
func goesOnAlone(t *testing.T, e *embedtest.Ensemble) {
	t.Helper()
	s := e.Session(1, embed.SessionOptions{})
	for _, path := range embedkit.OnShard[:len(e.Node(1).Status().Shards)] {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := s.Set(ctx, path, nil, embed.AnyVersion)
		cancel()
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// M71: Leave runs out of time when its wish is recorded. The other one of two voters cannot take it out
// without its vote.
func TestLeave_OfTwoInALimitedTime(t *testing.T) {
	t.Parallel()
	for _, ms := range []int{8, 16, 24, 30, 36, 48} {
		embedkit.Growing(t, 2, nil, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard[0])
			<-time.After(30 * time.Second)
			embedkit.Distant(e, time.Millisecond)
			limited, cancel := context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
			defer cancel()
			err := e.Node(2).Leave(limited)
			<-time.After(time.Minute)
			if t.Log(ms, err); err == nil || errors.Is(err, context.DeadlineExceeded) {
				goesOnAlone(t, e)
			}
		})
	}
}

// M71: one of two voters is ephemeral and is shut down, while two new members have just joined. The
// wait for its heirs is longer than Shutdown has time, and the vote is needed until it is out.
func TestLeave_OfTwoBesideHeirs(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 2 * time.Second, 4 * time.Second, 8 * time.Second, 30 * time.Second} {
		embedkit.Growing(t, 2, func(c *embed.Config) { c.Ephemeral, c.Tick = true, embed.DefaultTick }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard[0])
			<-time.After(30 * time.Second)
			embedkit.Joined(e, 2)
			<-time.After(after)
			// Once an heir votes, the others need it no longer, and may wait for the next heir.
			if err := e.Node(2).Shutdown(t.Context()); err != nil && !strings.Contains(err.Error(), "before its member was out: not in time") {
				t.Error(err)
			}
			<-time.After(time.Minute)
			goesOnAlone(t, e)
			embedkit.Voting(e, 1, 1, 3, 4)
		})
	}
}

// A member leaves while callers still open sessions there.
func TestLeave_BesideNewSessions(t *testing.T) {
	t.Parallel()
	for range 3 {
		embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Distant(e, time.Millisecond)
			n := e.Node(2)
			var callers sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for range 8 {
				callers.Go(func() {
					for ctx.Err() == nil {
						s, err := n.NewSession(ctx, embed.SessionOptions{})
						if err != nil {
							return
						}
						_ = s.Close()
					}
				})
			}
			<-time.After(50 * time.Millisecond)
			must(t, n.Leave(bounded(t)))
			cancel()
			callers.Wait()
		})
	}
}

// M74: one of three is removed, and another leaves a moment later. Who is removed is over once it is out
// of one shard, so it is no help on the others: it goes first, and who leaves waits.
func TestLeave_BesideARemoval(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{3, 9, 15, 23} {
		for seed := range time.Duration(2) {
			embedkit.Growing(t, 3, func(c *embed.Config) { c.Shards = len(embedkit.OnShard) }, func(t *testing.T, e *embedtest.Ensemble) {
				embedkit.Founded(e)
				embedkit.Write(t, e.Node(1), embedkit.OnShard...)
				<-time.After(30 * time.Second)
				for _, from := range e.Places() {
					for _, to := range e.Places() {
						e.Faults(from).SetLink(to, embedtest.Link{Delay: (1 + (time.Duration(3*from+5*to)+wait*seed)%8) * time.Millisecond})
					}
				}
				<-time.After(time.Second)
				removed := make(chan error, 1)
				go func() { removed <- e.Node(1).RemoveMember(bounded(t), 3) }()
				<-time.After(wait * time.Millisecond)
				if err := e.Node(2).Leave(bounded(t)); err != nil && !errors.Is(err, embed.ErrUnsafe) {
					t.Error(err)
				}
				must(t, <-removed)
				<-time.After(20 * time.Second)
				goesOnAlone(t, e)
			})
		}
	}
}

// M75: whoever waits for Done closes the node, or ends the process, when a member that leaves serves
// nobody any more. The others have had its vote until then.
func TestLeave_AndTheProcessEndsAtDone(t *testing.T) {
	t.Parallel()
	for i, ends := range []func(e *embedtest.Ensemble, n *embed.Node){
		func(e *embedtest.Ensemble, _ *embed.Node) { e.Kill(2) },
		func(_ *embedtest.Ensemble, n *embed.Node) { n.Close() },
		func(_ *embedtest.Ensemble, n *embed.Node) { n.Close() },
	} {
		embedkit.Growing(t, 2, func(c *embed.Config) { c.Shards, c.Ephemeral = len(embedkit.OnShard), i == 2 }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			embedkit.Write(t, e.Node(1), embedkit.OnShard...)
			<-time.After(30 * time.Second)
			embedkit.Distant(e, time.Millisecond)
			n := e.Node(2)
			left := make(chan struct{})
			go func() {
				defer close(left)
				if i == 2 {
					_ = n.Shutdown(bounded(t))
					return
				}
				_ = n.Leave(bounded(t))
			}()
			<-n.Done()
			ends(e, n)
			<-left
			<-time.After(time.Minute)
			goesOnAlone(t, e)
		})
	}
}

// M105: a member leaves that the leaders of some shards have not reached yet, so it never was there.
// It does not wait to hear of its removal from these.
func TestLeave_BeforeItIsInAllShards(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, func(c *embed.Config) { c.Shards = 4 }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		<-time.After(time.Minute) // the leaderships are even
		four := e.AddPlace()
		shards := e.Node(1).Status().Shards
		for _, s := range shards {
			if s.Leader != shards[0].Leader {
				e.Cut(s.Leader, four)
			}
		}
		e.Start(four)
		e.Until("the newcomer on the first shard", func() bool {
			return e.ID(four) != 0 && len(e.Node(four).Members()) == 4 && e.Node(four).Status().Shards[0].Applied > 0
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, e.Node(four).Leave(ctx))
		e.HealAll()
		e.Until("member 4 to be forgotten", func() bool { return len(e.Node(1).Members()) == 3 })
	})
}

// M106: the leader leaves beside a learner that has long been well. That one votes before the leader
// is out, although the new leader has to see for itself that it is well.
func TestLeave_OfTheLeaderBesideAnHeir(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		embedkit.Joined(e, 1)
		<-time.After(time.Minute)
		e.TransferLeadership(1)
		<-time.After(time.Minute)
		left := make(chan error, 1)
		go func() { left <- e.Node(1).Leave(bounded(t)) }()
		e.Until("member 4 to vote", func() bool {
			voters, err := embedtest.Voters(t.Context(), e.Node(2))
			if err == nil && len(voters[0]) < 3 {
				t.Fatalf("the voters are %v", voters[0])
			}
			return err == nil && slices.Contains(voters[0], 4)
		})
		must(t, <-left)
		embedkit.Voting(e, 2, 2, 3, 4)
	})
}
