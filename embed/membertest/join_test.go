package membertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// ends waits until a member has failed because it is out.
func ends(t *testing.T, n *embed.Node) {
	t.Helper()
	select {
	case <-n.Done():
	case <-time.After(time.Minute):
	}
	if err := n.Err(); !errors.Is(err, embed.ErrRemoved) {
		t.Errorf("a member that is out says %v", err)
	}
}

// M2, etcd#3477: a node that knows the address of one member becomes a learner that serves, and a
// third one makes voters of all three: with two, either failure would stop both. What was there
// stays there.
func TestJoin_OneBecomesThree(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ctx := bounded(t)
		s := e.Session(1, embed.SessionOptions{})
		for i := range 100 {
			_, err := s.Create(ctx, fmt.Sprintf("/before-%d", i), []byte("data"), embed.Persistent)
			must(t, err)
		}
		two := embedkit.Joined(e, 1)[0]
		if id := e.ID(two); id != 2 {
			t.Errorf("the second member has the id %d", id)
		}
		there := e.Session(two, embed.SessionOptions{})
		_, err := there.Create(ctx, "/by-the-learner", nil, embed.Persistent)
		must(t, err)
		_, _, err = there.Get(ctx, "/before-99")
		must(t, err)
		<-time.After(time.Minute)
		embedkit.Voting(e, 1, 1)
		three := embedkit.Joined(e, 1)[0]
		for _, place := range e.Members() {
			embedkit.Voting(e, place, 1, 2, 3)
		}
		e.Kill(1)
		e.Until("another leader", func() bool { return e.Leader() != 1 })
		_, err = e.Session(three, embed.SessionOptions{}).Create(ctx, "/after", nil, embed.Persistent)
		must(t, err)
	})
}

// A member that joined comes back after a restart as itself, before and after its log was cut.
func TestJoin_RestartOfAMemberThatJoined(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		places := embedkit.Joined(e, 2)
		embedkit.Voting(e, 1, 1, 2, 3)
		for range 2 {
			for _, place := range e.Members() {
				id := e.ID(place)
				e.Kill(place)
				e.Restart(place)
				if got := e.ID(place); got != id {
					t.Fatalf("member %d has come back as %d", id, got)
				}
			}
			for _, place := range places {
				must(t, e.Snapshot(place))
			}
		}
	})
}

// M40: a member that leaves frees its locks at once, and a learner takes its place, also that of
// the leader and founder.
func TestLeave_ALearnerTakesThePlace(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ctx := bounded(t)
		embedkit.Joined(e, 3)
		embedkit.Voting(e, 2, 1, 2, 3)
		_, err := lock.NewMutex(e.Session(1, embed.SessionOptions{Timeout: time.Minute}), "/lock").Lock(ctx)
		must(t, err)
		n := e.Node(1)
		must(t, n.Leave(ctx))
		began := time.Now()
		_, err = lock.NewMutex(e.Session(2, embed.SessionOptions{}), "/lock").Lock(ctx)
		must(t, err)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the lock of a member that has left was free after %v", took)
		}
		embedkit.Voting(e, 2, 2, 3, 4)
	})
}

// M53, M61: a member that is to go crashes before it is out, while its vote still counts, and so does
// another one, before or after it. It comes back as a replica, and the ensemble has the quorum that
// it needs to take it out.
func TestLeave_ItsVoteCountsUntilItIsOut(t *testing.T) {
	t.Parallel()
	for _, crashes := range [][]embed.MemberID{{2, 3}, {3, 2}} {
		t.Run(fmt.Sprint(crashes), func(t *testing.T) { testCrashesWhileLeaving(t, crashes) })
	}
}

func testCrashesWhileLeaving(t *testing.T, crashes []embed.MemberID) {
	logs := &embedkit.Journal{}
	embedkit.Growing(t, 3, func(c *embed.Config) { c.Logger = logs.Logger() }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		embedkit.Joined(e, 1) // its heir, for which it waits
		ctx, leaving := bounded(t), e.Node(2)
		left := make(chan error)
		go func() { left <- leaving.Leave(ctx) }()
		e.Until("the wish to leave", func() bool { return e.Node(1).Members()[1].Leaving != "" })
		for _, place := range crashes {
			e.Kill(place)
		}
		if err := <-left; err == nil {
			t.Fatal("it was out before it crashed, although its heir does not vote yet")
		}
		back := e.Start(2)
		e.Until("it to say that it is to go", func() bool {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := back.Ready(soon)
			return errors.Is(err, embed.ErrRemoved) && strings.Contains(err.Error(), "its vote counts until")
		})
		if !logs.Says("this member is to go") {
			t.Error("its log does not say that it is to go")
		}
		_, err := e.Session(1, embed.SessionOptions{}).Create(ctx, "/goes-on", nil, embed.Persistent)
		must(t, err)
		embedkit.Voting(e, 1, 1, 3, 4)
		<-back.Done()
		if err := back.Err(); !errors.Is(err, embed.ErrRemoved) {
			t.Errorf("the member that is out says %v", err)
		}
	})
}

// A learner that lost its directory comes back under its name. Its old record goes at once.
func TestJoin_AWipedLearnerIsReplaced(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, embedkit.Named, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		place := embedkit.Joined(e, 1)[0]
		e.Kill(place)
		e.Wipe(place)
		e.Start(place)
		e.Ready(place)
		began := time.Now()
		e.Until("the old record to go", func() bool {
			return !slices.ContainsFunc(e.Node(1).Members(), func(m embed.Member) bool { return m.ID == 4 })
		})
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		embedkit.Voting(e, 1, 1, 2, 3)
	})
}

// Config.Observer counts when a member joins. A later value changes nothing, and the log says so.
func TestJoin_ObserverCountsThenOnly(t *testing.T) {
	t.Parallel()
	logs := &embedkit.Journal{}
	observer := false
	embedkit.Growing(t, 1, func(c *embed.Config) { c.Observer, c.Logger = observer, logs.Logger() }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		embedkit.Joined(e, 2)
		embedkit.Voting(e, 1, 1, 2, 3)
		const line = "Config.Observer has no effect: it counts when a member joins"
		if logs.Says(line) {
			t.Fatal("nothing has changed")
		}
		e.Kill(3)
		observer = true
		e.Start(3)
		e.Until("a line about it", func() bool { return logs.Says(line) })
		embedkit.Voting(e, 3, 1, 2, 3)
		if e.Node(3).Members()[2].Observer {
			t.Error("a voter became an observer")
		}
	})
}

// The last member that votes cannot leave.
func TestLeave_TheLast(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		if err := e.Node(1).Leave(bounded(t)); !errors.Is(err, embed.ErrUnsafe) {
			t.Fatal(err)
		}
		_, err := e.Session(1, embed.SessionOptions{}).Create(bounded(t), "/goes-on", nil, embed.Persistent)
		must(t, err)
	})
}

// M15: two of three leave at the same time. Each has the vote of the other for as long as its own
// removal needs it, and the one that stays goes on alone.
func TestLeave_TwoOfThreeAtOnce(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		left := make(chan error, 2)
		for _, place := range []embed.MemberID{2, 3} {
			n := e.Node(place)
			go func() { left <- n.Leave(bounded(t)) }()
		}
		for range 2 {
			must(t, <-left)
		}
		embedkit.Voting(e, 1, 1)
		_, err := e.Session(1, embed.SessionOptions{}).Create(bounded(t), "/goes-on", nil, embed.Persistent)
		must(t, err)
	})
}

// M50: the directory of a member that has left is started again. It joins as a new member, and
// nothing of its log counts.
func TestLeave_TheDirectoryIsStartedAgain(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, func(c *embed.Config) { c.Ephemeral = true }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.Stop(2)
		embedkit.Voting(e, 1, 1, 3)
		e.Restart(2)
		if id := e.ID(2); id != 4 {
			t.Errorf("it has come back as member %d", id)
		}
		embedkit.Voting(e, 2, 1, 3, 4)
	})
}

// With an ephemeral directory Shutdown leaves.
func TestLeave_EphemeralMembersRollOver(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, func(c *embed.Config) { c.Ephemeral = true }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Joined(e, 2)
		embedkit.Voting(e, 1, 1, 2, 3)
		for old := embed.MemberID(1); old <= 3; old++ {
			next := embedkit.Joined(e, 1)[0]
			must(t, e.Node(old).Shutdown(bounded(t)))
			e.Until("the old member to be gone", func() bool {
				return !slices.ContainsFunc(e.Node(next).Members(), func(m embed.Member) bool { return m.ID == old })
			})
		}
		embedkit.Voting(e, 4, 4, 5, 6)
	})
}

// M37: a removed member fails, and says why. Its directory is never let in again; an empty one is.
func TestRemoveMember(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ctx := bounded(t)
		embedkit.Founded(e)
		gone := e.Node(2)
		must(t, e.Node(3).RemoveMember(ctx, 2))
		<-gone.Done()
		if err := gone.Err(); !errors.Is(err, embed.ErrRemoved) {
			t.Errorf("the removed member says %v", err)
		}
		must(t, gone.Close())
		embedkit.Voting(e, 1, 1, 3)
		if err := e.Node(1).RemoveMember(ctx, 9); err == nil {
			t.Error("a member that does not exist was removed")
		}
	})
}

// M38: dragonboat empties the image of a member that is out. Its node is over before that, so
// nobody reads that a znode is gone.
func TestRemoveMember_NobodyReadsAnEmptyTree(t *testing.T) {
	t.Parallel()
	for _, place := range []embed.MemberID{2, 3} {
		embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			gone, s := e.Node(place), e.Session(place, embed.SessionOptions{})
			_, err := s.Create(bounded(t), "/there", nil, embed.Persistent)
			must(t, err)
			read := make(chan int)
			go func() {
				begun, reads, found, err := time.Now(), 0, true, error(nil)
				for err == nil && found && time.Since(begun) < 10*time.Second {
					<-time.After(time.Millisecond)
					_, found, err = s.Exists(t.Context(), "/there")
					reads++
				}
				if err == nil {
					t.Errorf("it still reads after its removal, and finds the znode: %v", found)
				}
				read <- reads
			}()
			<-time.After(10 * time.Millisecond)
			must(t, e.Node(1).RemoveMember(bounded(t), place))
			if reads := <-read; reads < 2 {
				t.Error("it has read nothing before it was removed")
			}
			ends(t, gone)
		})
	}
}

// M32: a member that is cut off holds a lock, and is removed. That ends none of its sessions, so
// nobody else has the lock before the holder knows that it has lost it.
func TestRemoveMember_OneThatIsCutOffHoldsALock(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ctx := bounded(t)
		embedkit.Founded(e)
		e.TransferLeadership(1)
		held, err := lock.NewMutex(e.Session(3, embed.SessionOptions{Timeout: 20 * time.Second}), "/lock").Lock(ctx)
		must(t, err)
		e.Isolate(3)
		must(t, e.Node(1).RemoveMember(ctx, 3))
		if held.Err() != nil {
			t.Fatalf("the hold has ended before the removal: %v", held.Err())
		}
		_, err = lock.NewMutex(e.Session(2, embed.SessionOptions{}), "/lock").Lock(ctx)
		must(t, err)
		if held.Err() == nil {
			t.Error("two hold the lock")
		}
		e.HealAll()
	})
}

// M62: with several shards, who is out of one is over on all. So a removal must not need the vote
// of the member on the others.
func TestRemoveMember_OfTwoOnSeveralShards(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, func(c *embed.Config) { c.Shards = 4 }, func(t *testing.T, e *embedtest.Ensemble) {
		ctx := bounded(t)
		embedkit.Founded(e)
		removed := make(chan error)
		go func() { removed <- e.Node(1).RemoveMember(ctx, 3) }()
		e.Until("the first removal", func() bool { return e.Node(1).Members()[2].Leaving != "" })
		if err := e.Node(1).RemoveMember(ctx, 2); !errors.Is(err, embed.ErrUnsafe) {
			t.Errorf("removing one of two: %v", err)
		}
		must(t, <-removed)
		s := e.Session(1, embed.SessionOptions{})
		for _, path := range embedkit.OnShard {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		must(t, e.Node(2).Leave(ctx))
		embedkit.Voting(e, 1, 1)
		for _, path := range embedkit.OnShard {
			_, err := s.Set(ctx, path, nil, embed.AnyVersion)
			must(t, err)
		}
	})
}

// M62: three of five are removed at once. Each removal is safe by itself, and together they must
// not take the quorum of the second shard.
func TestRemoveMember_SeveralAtOnce(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 5, func(c *embed.Config) { c.Shards = 2; c.Voters = 1 }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		<-time.After(3 * time.Second)
		led := func(shard int, m embed.MemberID) bool {
			return e.Node(1).Status().Shards[shard-1].Leader == m
		}
		lead := func(shard int, m embed.MemberID) {
			e.Until("leader", func() bool {
				if led(shard, m) {
					return true
				}
				for i := embed.MemberID(1); i <= 5; i++ {
					_ = e.Node(i).TransferLeadership(shard, m)
				}
				<-time.After(200 * time.Millisecond)
				return led(shard, m)
			})
		}
		lead(1, 1)
		<-time.After(6 * time.Second)
		lead(2, 5)
		lead(1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		errs := make(chan error, 3)
		for _, m := range []embed.MemberID{5, 4, 3} {
			go func() { errs <- e.Node(1).RemoveMember(ctx, m) }()
			<-time.After(1 * time.Millisecond)
		}
		for range 3 {
			if err := <-errs; err != nil && !errors.Is(err, embed.ErrUnsafe) {
				t.Error(err)
			}
		}
		s := e.Session(1, embed.SessionOptions{})
		for _, path := range embedkit.OnShard[:2] {
			_, err := s.Create(bounded(t), path, nil, embed.Persistent)
			must(t, err)
		}
	})
}

// M63: a learner is removed while it is down, and comes back when the others have stopped dialling
// it. A learner says nothing by itself; it asks, and learns that it is out.
func TestRemoveMember_ALearnerThatIsDown(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		learner := embedkit.Joined(e, 1)[0]
		id := e.ID(learner)
		e.Kill(learner)
		must(t, e.Node(1).RemoveMember(bounded(t), id))
		<-time.After(time.Minute)
		n := e.Start(learner)
		select {
		case <-n.Done():
		case <-time.After(time.Minute):
			t.Fatal("after a minute it does not know that it is out")
		}
		if err := n.Err(); !errors.Is(err, embed.ErrRemoved) {
			t.Errorf("the removed learner says %v", err)
		}
	})
}

// M1: without the members that answer there would be no quorum: nothing is changed.
func TestRemoveMember_Unsafe(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.Kill(3)
		leader := e.Leader()
		e.Until("the silence to show", func() bool { return !e.Node(leader).Members()[2].Answers })
		if err := e.Node(1).RemoveMember(bounded(t), 3-leader); !errors.Is(err, embed.ErrUnsafe) {
			t.Fatal(err)
		}
		for _, m := range e.Node(1).Members() {
			if m.Leaving != "" {
				t.Errorf("member %d is to go: %s", m.ID, m.Leaving)
			}
		}
	})
}

// M6: a dead voter is replaced by a learner after DeadAfter, and a wiped one comes back as a new
// member. M13: no default makes a stranger of a process that is away for some minutes. M5: one that
// comes back with its old directory is told that it is out, and its next start is a new member.
func TestJoin_DeadAndWipedMembersAreReplaced(t *testing.T) {
	t.Parallel()
	slow := func(c *embed.Config) {
		embedkit.Named(c)
		c.Tick = 5 * embedtest.DefaultTick // a quarter of an hour passes
	}
	embedkit.Growing(t, 3, slow, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.Kill(3)
		e.Wipe(3)
		e.Restart(3)
		if id := e.ID(3); id != 4 {
			t.Fatalf("the wiped member has come back as %d", id)
		}
		embedkit.Voting(e, 1, 1, 2, 4)
		e.Kill(2)
		embedkit.Joined(e, 1)
		began := time.Now()
		<-time.After(embed.DefaultDeadAfter - time.Minute)
		if got := embedkit.Roles(e.Node(1))[embed.Voter]; !slices.Equal(got, []embed.MemberID{1, 2, 4}) {
			t.Errorf("the voters are %v before DeadAfter", got)
		}
		<-time.After(time.Minute)
		embedkit.Voting(e, 1, 1, 4, 5)
		t.Logf("the dead member was replaced after %v", time.Since(began))
		old := e.Start(2)
		ends(t, old)
		embedkit.Voting(e, 1, 1, 4, 5)
		e.Kill(2)
		e.Restart(2)
		if id := e.ID(2); id != 6 {
			t.Errorf("it has come back as member %d", id)
		}
	})
}

// M90: a member takes the place of a dead voter, and dies as soon as it votes. The others go on.
func TestJoin_AReplacementDiesAtOnce(t *testing.T) {
	t.Parallel()
	slow := func(c *embed.Config) { c.Tick = 5 * embedtest.DefaultTick } // a quarter of an hour passes
	embedkit.Growing(t, 3, slow, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		four := embedkit.Joined(e, 1)[0]
		e.Kill(3)
		for e.Leader() == 0 || !slices.Contains(embedkit.Roles(e.Node(e.Leader()))[embed.Voter], 4) {
			<-time.After(10 * time.Millisecond)
		}
		e.Kill(four)
		embedkit.Write(t, e.Node(1), "/after")
		embedkit.Has(t, e.Node(2), "/after")
	})
}

// M18, hazelcast#14088, rqlite#1293: all members come back at other addresses at once. Only the name
// of the seeds still leads to them.
func TestJoin_AllAddressesChange(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Joined(e, 2)
		embedkit.Voting(e, 1, 1, 2, 3)
		for _, place := range e.Members() {
			e.Kill(place)
			e.Readdress(place)
		}
		for _, place := range e.Members() {
			e.Start(place)
		}
		for _, place := range e.Members() {
			e.Ready(place)
		}
		e.Until("the new addresses", func() bool {
			return !slices.ContainsFunc(e.Node(1).Members(), func(m embed.Member) bool { return !strings.HasSuffix(m.Address, ":2") })
		})
	})
}

// M23: a node that does not fit is told what to change, and nothing of it is recorded.
func TestJoin_WhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*embed.Config)
		want   string
	}{
		"ensemble": {func(c *embed.Config) { c.Ensemble = "others" }, `Ensemble is "others"`},
		"shards":   {func(c *embed.Config) { c.Shards = 7 }, "Shards is 7"},
		"tick":     {func(c *embed.Config) { c.Tick *= 5 }, "Tick is 50ms"},
		"name":     {func(c *embed.Config) { c.Name = "pod" }, "give each replica a Name of its own"},
		"schemes":  {func(c *embed.Config) { c.Schemes = nil }, `Schemes lack "token", which the ensemble's ACLs use: set Config.Schemes`},
		"level":    {func(c *embed.Config) { c.HoldLevel = 1 }, fmt.Sprint("the ensemble is at level ", embedkit.Next)},
	} {
		t.Run(name, func(t *testing.T) {
			var join bool
			embedkit.Growing(t, 1, func(cfg *embed.Config) {
				cfg.Name, cfg.Schemes = "", map[string]embed.Scheme{"token": embedkit.Tokens{}}
				cfg.Inside = &inside.Seams{Next: true}
				if cfg.ID != 0 {
					cfg.Name = "pod"
				}
				if join {
					c.change(cfg)
				}
			}, func(t *testing.T, e *embedtest.Ensemble) {
				embedkit.Founded(e)
				join = true
				two := e.Join()
				e.Until("the refusal", func() bool { return strings.Contains(e.Node(two).Status().Joining, c.want) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := e.Node(two).Ready(ctx); !errors.Is(err, embed.ErrJoining) {
					t.Errorf("Ready says %v", err)
				}
				if got := e.Node(1).Members(); len(got) != 1 {
					t.Errorf("members are %v", got)
				}
			})
		})
	}
}

// An ephemeral member that was removed cannot leave any more. Its Shutdown gives everything back.
func TestLeave_AfterTheRemoval(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, func(c *embed.Config) { c.Ephemeral = true }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		must(t, e.Node(3).RemoveMember(bounded(t), 2))
		n := e.Node(2)
		<-n.Done()
		if err := n.Shutdown(bounded(t)); !errors.Is(err, embed.ErrFailed) {
			t.Errorf("Shutdown says %v", err)
		}
	})
}

// M52: founders that have one Name by mistake do not pass for replacements of one another. A node
// that wants to join under it is refused.
func TestJoin_OneNameForAll(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, func(c *embed.Config) {
		if c.ID != 0 {
			c.Name = "service"
		}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		embedkit.Joined(e, 1)
		<-time.After(time.Minute)
		e.Kill(1)
		<-time.After(time.Minute)
		if m := e.Node(2).Members()[0]; m.Leaving != "" || m.Role != embed.Voter {
			t.Errorf("after a minute of silence member 1 is %+v", m)
		}
		e.Restart(1)
	})
}

// Status can be asked while a node joins. The race detector watches.
func TestJoin_StatusMeanwhile(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		two := e.Join()
		n, stop, ended := e.Node(two), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					n.Status()
				}
			}
		}()
		e.Ready(two)
		close(stop)
		<-ended
	})
}

// M64: the disk of the only voter fails while a learner writes, and what was not synced is lost. What
// was acknowledged at the learner is there when the voter is back, and nobody finds two histories.
func TestJoin_ALoneVoterDies(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		learner := embedkit.Joined(e, 1)[0]
		for fails := range 3 {
			w := embedkit.Scribble(t, e, learner, fmt.Sprint("w", fails), 2*time.Millisecond)
			// The snapshot after its start holds a mutex: with a slow disk it would stop the clock.
			<-time.After(1500 * time.Millisecond)
			e.Faults(1).SetDisk(embedtest.Disk{Err: syscall.ENOSPC, On: embedtest.Syncs, After: 5 + fails, Delay: 20 * time.Millisecond})
			<-e.Node(1).Done()
			e.PowerCut(1)
			e.Faults(1).SetDisk(embedtest.Disk{})
			e.Restart(1)
			w.End(t, e, 1, learner)
			if err := e.Node(learner).Err(); err != nil {
				t.Fatalf("the learner has failed: %v", err)
			}
		}
	})
}

// M44: many start at once, as after a deployment. Each becomes a member of its own and is ready, and
// the founder goes on meanwhile.
func TestJoin_ManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 19
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		w := embedkit.Scribble(t, e, 1, "w", 100*time.Millisecond)
		var places []embed.MemberID
		for range many {
			places = append(places, e.Join())
		}
		ids := map[embed.MemberID]bool{1: true}
		for _, place := range places {
			e.Ready(place)
			ids[e.ID(place)] = true
		}
		if len(ids) != 1+many || len(e.Node(1).Members()) != 1+many {
			t.Errorf("%d nodes have the ids %v", 1+many, ids)
		}
		e.Until("three voters", func() bool { return len(embedkit.Roles(e.Node(1))[embed.Voter]) == 3 })
		w.End(t, e, places...)
	})
}
