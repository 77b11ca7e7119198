package membertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// away moves member 3 to another address while it does not run, and has a place ready for a new
// member at the old one.
func away(e *embedtest.Ensemble) (newcomer embed.MemberID) {
	embedkit.Founded(e)
	e.TransferLeadership(1)
	was := e.Node(1).Members()[2].Address
	e.Stop(3)
	e.Readdress(3)
	newcomer = e.AddPlace()
	e.TakeAddress(newcomer, was)
	return newcomer
}

// stays checks that member 3 is a voter and remains one after a break of the network that is far
// shorter than DeadAfter.
func stays(t *testing.T, e *embedtest.Ensemble) {
	t.Helper()
	e.Ready(3)
	e.Isolate(3)
	<-time.After(3 * time.Second)
	e.HealAll()
	<-time.After(20 * time.Second)
	if m := e.Node(1).Members()[2]; m.Role != embed.Voter || m.Leaving != "" || e.Node(3).Err() != nil {
		t.Errorf("member 3 is %+v: %v", m, e.Node(3).Err())
	}
}

// M101: a new member comes to the address at which another one was that is well elsewhere. It is
// let in, whether that one is back or away, and neither passes for the other's replacement.
func TestNames_AFormerAddressIsNoName(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{true, false} {
		embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
			four := away(e)
			if back {
				e.Restart(3)
				e.Ready(3)
				<-time.After(5 * time.Second)
			}
			e.Start(four)
			e.Ready(four)
			if !back {
				e.Restart(3)
			}
			stays(t, e)
		})
	}
}

// M101: a founder is given the Name of a member that has joined since. It does not pass for one that
// the other has replaced.
func TestNames_AFounderTakesANameThatIsTaken(t *testing.T) {
	t.Parallel()
	named := false
	embedkit.Growing(t, 3, func(c *embed.Config) {
		if named {
			c.Name = "service"
		}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.TransferLeadership(1)
		named = true
		embedkit.Joined(e, 1)
		e.Stop(3)
		e.Restart(3)
		e.Ready(3)
		<-time.After(5 * time.Second)
		stays(t, e)
	})
}

// M101: members that joined without a Name are all given the same one, and started again together.
// None of them passes for one that another has replaced.
func TestNames_OneNameForAllLater(t *testing.T) {
	t.Parallel()
	named := false
	embedkit.Growing(t, 1, func(c *embed.Config) {
		if named {
			c.Name = "service"
		}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		embedkit.Joined(e, 3)
		embedkit.Voting(e, 1, 1, 2, 3)
		e.TransferLeadership(1)
		named = true
		for _, m := range []embed.MemberID{2, 3, 4} {
			e.Stop(m)
		}
		for _, m := range []embed.MemberID{2, 3, 4} {
			e.Restart(m)
		}
		<-time.After(5 * time.Second)
		stays(t, e)
	})
}

// M147: two join under one Name at once. The first is let in, and the other one is told so. The first
// is still there after a break.
func TestNames_TwoJoinUnderOneAtOnce(t *testing.T) {
	t.Parallel()
	named := false
	embedkit.Growing(t, 3, func(c *embed.Config) {
		if named {
			c.Name = "service"
		}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.TransferLeadership(1)
		named = true
		first, second := e.AddPlace(), e.AddPlace()
		e.Start(first)
		e.Start(second)
		<-time.After(5 * time.Second)
		if e.ID(first) == 0 {
			first, second = second, first
		}
		e.Isolate(first)
		<-time.After(500 * time.Millisecond)
		e.HealAll()
		<-time.After(comesWithin)
		e.Ready(first)
		if why := e.Node(second).Status().Joining; e.ID(second) != 0 || !strings.Contains(why, "Name \"service\"") {
			t.Errorf("the second one is member %d, and waits for %q", e.ID(second), why)
		}
	})
}

// M147: one is admitted under a Name and dies before it has begun. It keeps the name from another one
// for a while, and not for ever.
func TestNames_OneThatNeverCame(t *testing.T) {
	t.Parallel()
	named := false
	embedkit.Growing(t, 3, func(c *embed.Config) {
		if named {
			c.Name = "service"
		}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.TransferLeadership(1)
		named = true
		first := e.Join()
		e.Until("it is admitted", func() bool { return len(e.Node(1).Members()) == 4 })
		e.Kill(first)
		second := e.Join()
		e.Ready(second)
		e.Until("the first is out", func() bool {
			return !slices.ContainsFunc(e.Node(1).Members(), func(m embed.Member) bool { return m.ID == 4 && m.Leaving == "" })
		})
	})
}

// comesWithin is longer than a name is kept for a member that has not begun.
const comesWithin = 35 * time.Second

// M101: a founder that had no Name is given one of its own, and loses its directory. The new member
// under that Name takes its place at once.
func TestNames_AFounderIsNamedLater(t *testing.T) {
	t.Parallel()
	named := false
	embedkit.Growing(t, 3, func(c *embed.Config) {
		if named {
			c.Name = "pod-3"
		}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.TransferLeadership(1)
		named = true
		e.Stop(3)
		e.Restart(3)
		e.Until("the name", func() bool { return e.Node(1).Members()[2].Name == "pod-3" })
		e.Kill(3)
		embedkit.Joined(e, 1)
		embedkit.Voting(e, 1, 1, 2, 4)
	})
}
