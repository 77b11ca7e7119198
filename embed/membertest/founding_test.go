package membertest

import (
	"fmt"
	"slices"
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

// M161: the founders have left, and come back on empty directories. Join names a node that was a member
// once, and answers: they found nothing beside the ensemble that is out of their sight, and say why.
func TestFounding_BesideAFormerMember(t *testing.T) {
	t.Parallel()
	for _, founders := range []embed.MemberID{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			former := founders + 1
			again := false
			e := embedtest.New(t, int(founders), embedtest.Options{Config: func(c *embed.Config) {
				if again && c.ID != 0 {
					c.Join = []string{fmt.Sprintf("member-%d.test:1", former)}
				}
			}})
			embedkit.Founded(e)
			embedkit.Joined(e, 4)
			embedkit.Voting(e, former+1, e.Places()[:3]...)
			for m := embed.MemberID(1); m <= former; m++ {
				must(t, e.Node(m).Leave(bounded(t)))
				e.Kill(m)
				if m < former {
					e.Wipe(m)
				}
			}
			writes(t, e, former+1, "/acknowledged")
			again = true
			for m := embed.MemberID(1); m <= former; m++ {
				for other := former + 1; other <= founders+4; other++ {
					e.Cut(m, other)
				}
			}
			for m := embed.MemberID(1); m <= former; m++ {
				e.Start(m)
			}
			<-time.After(time.Minute)
			for m := embed.MemberID(1); m <= former; m++ {
				why := e.Node(m).Status().Joining
				if e.ID(m) != 0 || m < former && !strings.Contains(why, fmt.Sprintf("the node at member-%d.test:1 was member %d", former, former)) {
					t.Errorf("of %d founders, place %d is member %d of another ensemble; it waits for %q", founders, m, e.ID(m), why)
				}
			}
			e.HealAll()
			for m := embed.MemberID(1); m <= former; m++ {
				e.Ready(m)
			}
		})
	}
}

// M162: a founder of another ensemble, or of another list of founders, is nobody for those who found. It
// neither stands in their way nor passes for one of them.
func TestFounding_BesideOtherFounders(t *testing.T) {
	t.Parallel()
	at := func(m embed.MemberID) string { return fmt.Sprintf("member-%d.test:1", m) }
	for name, set := range map[string]func(c *embed.Config){
		"it waits for a founder of its own": func(c *embed.Config) {
			c.Ensemble, c.ID, c.Members = "another", 1, map[embed.MemberID]string{1: at(4), 2: "nobody.test:1"}
		},
		"it has other founders": func(c *embed.Config) {
			c.ID, c.Members = 4, map[embed.MemberID]string{1: at(1), 2: at(2), 3: at(3), 4: at(4), 5: "nobody.test:1"}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
				c.Join = []string{at(4)}
				if c.Advertise == at(4) {
					set(c)
				}
			}})
			e.AddPlace()
			for _, m := range []embed.MemberID{4, 1, 2, 3} {
				e.Start(m)
			}
			<-time.After(time.Minute)
			for m := embed.MemberID(1); m <= 3; m++ {
				if e.ID(m) != m {
					t.Errorf("%s: place %d has not founded: %s", name, m, e.Node(m).Status().Joining)
				}
			}
		})
	}
}

// M162: the founders of two ensembles have one Join. Both found theirs.
func TestFounding_TwoEnsemblesAtOneName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			c.Join = nil
			for m := range 5 {
				c.Join = append(c.Join, fmt.Sprintf("member-%d.test:1", m+1))
			}
			if c.Advertise == c.Join[3] || c.Advertise == c.Join[4] {
				c.Ensemble, c.Members = "another", map[embed.MemberID]string{1: c.Join[3], 2: c.Join[4]}
				c.ID = embed.MemberID(1 + slices.Index(c.Join[3:], c.Advertise))
			}
		}})
		e.AddPlace()
		e.AddPlace()
		for _, m := range e.Places() {
			e.Start(m)
		}
		<-time.After(time.Minute)
		for _, m := range e.Places() {
			if e.ID(m) == 0 {
				t.Errorf("place %d has not founded: %s", m, e.Node(m).Status().Joining)
			}
		}
	})
}

// M163: a founder's directory is lost before anybody has founded. The others may wait, and say who is to
// be restarted; then they found.
func TestFounding_ADirectoryLostBefore(t *testing.T) {
	t.Parallel()
	for after := 100 * time.Millisecond; after < 320*time.Millisecond; after += 20 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			e := embedtest.New(t, 3, embedtest.Options{Stopped: true})
			for _, m := range e.Places() {
				for _, other := range e.Places() {
					e.Faults(m).SetLink(other, embedtest.Link{Delay: 50 * time.Millisecond})
				}
			}
			for _, m := range e.Places() {
				e.Start(m)
			}
			<-time.After(after)
			if e.ID(1)+e.ID(2)+e.ID(3) != 0 || e.TryKill(3) != nil {
				return
			}
			e.Wipe(3)
			e.Start(3)
			<-time.After(time.Minute)
			if e.ID(1)+e.ID(2)+e.ID(3) == 0 {
				if why := e.Node(3).Status().Joining; !strings.Contains(why, "has met member 3 with the directory") || strings.Contains(why, "two nodes") {
					t.Errorf("lost after %v: founder 3 waits for %q", after, why)
				}
				for m := embed.MemberID(1); m <= 2; m++ {
					e.Stop(m)
				}
				for m := embed.MemberID(1); m <= 2; m++ {
					e.Start(m)
				}
			}
			for m := embed.MemberID(1); m <= 2; m++ {
				e.Ready(m)
			}
		})
	}
}

// The exception to OneEnsemble: founders that have all lost their directories, and are told of nobody
// else, found a second ensemble. The two never mix.
func TestFounding_OfAllWhoAreLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if c.ID != 0 {
				c.Join = nil
			}
		}})
		embedkit.Founded(e)
		embedkit.Joined(e, 3)
		for m := embed.MemberID(1); m <= 3; m++ {
			must(t, e.Node(m).Leave(bounded(t)))
			e.Kill(m)
			e.Wipe(m)
		}
		embedkit.Voting(e, 4, 4, 5, 6)
		writes(t, e, 4, "/first")
		for m := embed.MemberID(1); m <= 3; m++ {
			e.Start(m)
		}
		for m := embed.MemberID(1); m <= 3; m++ {
			e.Ready(m)
		}
		writes(t, e, 1, "/second")
		<-time.After(time.Minute)
		for m, paths := range map[embed.MemberID][]string{1: {"/second", "/first"}, 4: {"/first", "/second"}} {
			s := e.Session(m, embed.SessionOptions{})
			for i, path := range paths {
				if _, found, err := s.Exists(t.Context(), path); err != nil || found != (i == 0) {
					t.Errorf("at place %d %s is there: %v, %v", m, path, found, err)
				}
			}
		}
	})
}
