package membertest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// M130: founders have left, and the ensemble lives on without them. One of them comes back on its
// directory, and two with empty ones. It was in an ensemble, so they found none with it.
func TestFounding_NotWithAFormerMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		only := false
		e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if only && c.ID != 0 {
				c.Join = nil // the members that are left are not in Members
			}
		}})
		embedkit.Founded(e)
		embedkit.Joined(e, 3)
		for m := embed.MemberID(1); m <= 3; m++ {
			must(t, e.Node(m).Leave(bounded(t)))
			e.Kill(m)
		}
		embedkit.Voting(e, 4, 4, 5, 6)
		only = true
		e.Start(3)
		e.Wipe(1)
		e.Wipe(2)
		e.Start(1)
		e.Start(2)
		<-time.After(time.Minute)
		for m := embed.MemberID(1); m <= 3; m++ {
			if id := e.ID(m); id != 0 {
				t.Errorf("place %d has founded another ensemble, as member %d", m, id)
			}
		}
	})
}

// M132: a founder is given a Name at the moment in which somebody joins under it. One of them has it.
func TestNames_TwoTakeOneAtOnce(t *testing.T) {
	t.Parallel()
	for after := time.Duration(0); after < 1500*time.Millisecond; after += 100 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			named := false
			e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
				if named {
					c.Name = "service"
				}
			}})
			embedkit.Founded(e)
			e.TransferLeadership(1)
			e.Stop(3)
			named = true
			for _, m := range []embed.MemberID{1, 2} {
				e.Faults(m).SetLink(3, embedtest.Link{Delay: 400 * time.Millisecond})
			}
			e.Start(3)
			<-time.After(after)
			e.Join()
			<-time.After(3 * time.Second)
			e.HealAll()
			<-time.After(10 * time.Second)
			have := 0
			for _, m := range e.Node(1).Members() {
				if m.Name == "service" && m.Role != embed.Out {
					have++
				}
			}
			if have != 1 {
				t.Errorf("after %v: %d members have the name", after, have)
			}
		})
	}
}

// M148: the founders have left the ensemble, and come back on empty directories. Join names the members
// that there are now, which are cut off: the founders wait, say for whom, and join once they answer.
func TestFounding_WaitsForAllInJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{})
		embedkit.Founded(e)
		embedkit.Joined(e, 3)
		for m := embed.MemberID(1); m <= 3; m++ {
			must(t, e.Node(m).Leave(bounded(t)))
			e.Kill(m)
			e.Wipe(m)
		}
		embedkit.Voting(e, 4, 4, 5, 6)
		for m := embed.MemberID(1); m <= 3; m++ {
			for _, other := range []embed.MemberID{4, 5, 6} {
				e.Cut(m, other)
			}
			e.Start(m)
		}
		<-time.After(time.Minute)
		for m := embed.MemberID(1); m <= 3; m++ {
			if why := e.Node(m).Status().Joining; e.ID(m) != 0 || !strings.Contains(why, "in Join do not answer: member-4.test:1") {
				t.Errorf("place %d has founded another ensemble, as member %d; it waits for %q", m, e.ID(m), why)
			}
		}
		e.HealAll()
		for m := embed.MemberID(1); m <= 3; m++ {
			e.Ready(m)
			if id := e.ID(m); id < 7 {
				t.Errorf("place %d is member %d", m, id)
			}
		}
	})
}

// M149: two processes are founder 1. Founder 2 meets one of them, founder 3 the other one, at the same
// moment: nobody founds. Once the second one is away, and founder 3 looks where the first one is, they
// found one ensemble.
func TestFounding_EachMeetsAnotherOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const twin = 4
		elsewhere := true
		e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			if c.Advertise == "member-4.test:1" {
				c.ID, c.Members = 1, map[embed.MemberID]string{2: "member-2.test:1", 3: "member-3.test:1"}
			}
			if c.Join = nil; c.ID != 2 && elsewhere && c.Advertise != "member-1.test:1" {
				c.Members[1] = "member-4.test:1"
			}
		}})
		e.AddPlace()
		for _, m := range e.Places() {
			for _, other := range e.Places() {
				e.Faults(m).SetLink(other, embedtest.Link{Delay: 50 * time.Millisecond})
			}
		}
		for _, m := range e.Places() {
			e.Start(m)
		}
		<-time.After(10 * time.Second)
		for _, m := range e.Places() {
			n := e.Node(m)
			if id := e.ID(m); id != 0 {
				t.Errorf("place %d has founded, as member %d: %v", m, id, n.Err())
			}
		}
		t.Log(e.Node(2).Status().Joining)
		e.Kill(twin)
		e.Stop(3)
		elsewhere = false
		e.Start(3)
		for m := embed.MemberID(1); m <= 3; m++ {
			e.Ready(m)
		}
	})
}
