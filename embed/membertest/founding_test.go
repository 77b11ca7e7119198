package membertest

import (
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
