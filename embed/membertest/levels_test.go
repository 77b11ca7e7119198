package membertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
)

// A fleet is an ensemble of a build to come, of which some members still have the build of today.
type fleet struct {
	*embedtest.Ensemble
	t *testing.T

	mu   sync.Mutex
	held map[embed.MemberID]bool // by the build of today
}

// withFleets runs fn in a bubble, with three members and with one shard and four. The held members
// have the build of today.
func withFleets(t *testing.T, fn func(f *fleet, t *testing.T), held ...embed.MemberID) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{t: t, held: make(map[embed.MemberID]bool)}
				for _, m := range held {
					f.held[m] = true
				}
				f.Ensemble = embedtest.New(t, 3, embedtest.Options{KeepEntries: 8, Config: func(c *embed.Config) {
					f.mu.Lock()
					defer f.mu.Unlock()
					c.Shards = shards
					c.Inside = &inside.Seams{Next: !f.held[c.ID]}
				}})
				for _, m := range f.Members() {
					f.Until("all members have registered", func() bool {
						s := f.Node(m).Status()
						return s.Level > 1 || f.held[m] || slices.Equal(s.HeldDown, held)
					})
				}
				fn(f, t)
			})
		})
	}
}

// restart starts a member anew, as the build of today or as the one to come.
func (f *fleet) restart(m embed.MemberID, old bool) {
	f.t.Helper()
	f.Kill(m)
	f.hold(m, old)
	f.Start(m)
}

func (f *fleet) hold(m embed.MemberID, old bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[m] = old
}

// wait waits until the given members are at a level on all shards.
func (f *fleet) wait(level int, members ...embed.MemberID) {
	f.t.Helper()
	for _, m := range members {
		f.Until(fmt.Sprintf("member %d is at level %d", m, level), func() bool { return f.Node(m).Status().Level == level })
	}
}

// stays fails the test if a member is not at level 1, held down by the given members.
func (f *fleet) stays(heldDown ...embed.MemberID) {
	f.t.Helper()
	for _, m := range f.Members() {
		if s := f.Node(m).Status(); s.Level != 1 || !f.held[m] && !slices.Equal(s.HeldDown, heldDown) {
			f.t.Fatalf("member %d is at level %d, held down by %d, want %d", m, s.Level, s.HeldDown, heldDown)
		}
	}
}

// looks is long enough for leaders to look several times whether the level may rise.
const looks = 10 * time.Second

// B5, M47: the level rises when the last member is upgraded, and not before.
func TestLevel_RisesWhenTheLastMemberIsUpgraded(t *testing.T) {
	t.Parallel()
	withFleets(t, func(f *fleet, t *testing.T) {
		<-time.After(looks)
		f.stays(1, 2, 3)
		f.restart(3, false)
		f.restart(1, false)
		f.TransferLeadership(1) // a new build leads
		<-time.After(looks)
		f.stays(2)
		f.restart(3, true) // it may go back until the level rises
		<-time.After(looks)
		f.stays(2, 3)
		f.restart(3, false)
		f.restart(2, false)
		begun := time.Now()
		f.wait(embedkit.Next, 1, 2, 3)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, m := range f.Members() {
			if s := f.Node(m).Status(); s.HeldDown != nil {
				t.Errorf("members %d keep it from a level that nobody knows", s.HeldDown)
			}
		}
	}, 1, 2, 3)
}

// A level never goes down. Who wants to hold it below is refused, and changes nothing.
func TestLevel_NeverGoesDown(t *testing.T) {
	t.Parallel()
	withFleets(t, func(f *fleet, t *testing.T) {
		f.wait(embedkit.Next, 1, 2, 3)
		f.Stop(2) // its image is of the newest level
		f.hold(2, true)
		_, err := f.TryStart(2)
		if !errors.Is(err, embed.ErrLevel) || !strings.Contains(err.Error(), fmt.Sprint("level ", embedkit.Next)) || !strings.Contains(err.Error(), "level 1") {
			t.Fatal(err)
		}
		f.hold(2, false)
		f.Start(2)
		f.wait(embedkit.Next, 2)
	})
}

// A founder that is gone for good keeps the level down until somebody leaves it behind. M47: it can
// come back, but not with the old build.
func TestLevel_RisesWithoutWhoIsLeftBehind(t *testing.T) {
	t.Parallel()
	withFleets(t, func(f *fleet, t *testing.T) {
		n := f.Node(1)
		if err := n.RaiseLevel(t.Context(), 3); err == nil || !strings.Contains(err.Error(), "member 3 is up") {
			t.Fatalf("a member that is up was left behind: %v", err)
		}
		f.Kill(3)
		if err := n.RaiseLevel(t.Context()); !errors.Is(err, embed.ErrLevel) || !strings.Contains(err.Error(), "because of member 3") {
			t.Fatal(err)
		}
		must(t, f.Node(1).RaiseLevel(t.Context(), 3))
		f.wait(embedkit.Next, 1, 2)
		if err := n.RaiseLevel(t.Context()); !errors.Is(err, embed.ErrLevel) {
			t.Fatalf("raised to a level that this build does not know: %v", err)
		}

		old, err := f.TryStart(3)
		if err == nil { // its directory is of level 1, so only the others can tell it
			ctx, cancel := context.WithTimeout(t.Context(), looks)
			defer cancel()
			err = old.Ready(ctx)
		}
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("level ", embedkit.Next)) {
			t.Fatalf("the old build is back: %v", err)
		}
		f.restart(3, false)
		f.wait(embedkit.Next, 3)
	}, 3)
}

// A member that was away while the level rose gets it with the state that it installs.
func TestLevel_ComesWithAnInstalledState(t *testing.T) {
	t.Parallel()
	withFleets(t, func(f *fleet, t *testing.T) {
		f.Kill(3)
		f.hold(3, false)
		must(t, f.Node(1).RaiseLevel(t.Context(), 3))
		s := f.Session(1, embed.SessionOptions{})
		for shard := range 8 {
			for i := range 40 {
				_, err := s.Create(t.Context(), fmt.Sprintf("/%d-%d", shard, i), nil, embed.Persistent)
				must(t, err)
			}
		}
		must(t, f.Snapshot(1))
		must(t, f.Snapshot(2))
		f.Start(3)
		f.wait(embedkit.Next, 3)
		if _, err := f.Session(3, embed.SessionOptions{}).Create(t.Context(), "/there", nil, embed.Persistent); err != nil {
			t.Fatal(err)
		}
	}, 3)
}

// A scheme can be added by a rolling restart. The members without it go on.
func TestSchemes_AreAddedByARollingRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		with := make(map[embed.MemberID]bool)
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			mu.Lock()
			defer mu.Unlock()
			if with[c.ID] {
				c.Schemes = map[string]embed.Scheme{"token": embedkit.Tokens{}}
			}
		}})
		acl := []embed.ACL{{Perms: embed.PermAll, Scheme: "token", ID: "*"}}
		use := func(m embed.MemberID) error {
			s := ens.Session(m, embed.SessionOptions{})
			_, _, err := s.CreateWith(t.Context(), "/used-", nil, embed.CreateOptions{Mode: embed.Sequential, ACL: acl})
			return err
		}
		for _, m := range ens.Members() {
			mu.Lock()
			with[m] = true
			mu.Unlock()
			ens.Kill(m)
			ens.Start(m)
			for _, other := range ens.Members() {
				if err := ens.Node(other).Err(); err != nil {
					t.Fatalf("member %d with the scheme ended member %d: %v", m, other, err)
				}
			}
			if err := use(m); m < 3 && !errors.Is(err, embed.ErrInvalidACL) || m == 3 && err != nil {
				t.Fatalf("the scheme on member %d: %v", m, err)
			}
		}
		// A member without a scheme in force is refused.
		mu.Lock()
		with[2] = false
		mu.Unlock()
		must(t, use(2))
		ens.Stop(2) // its image has the scheme in force
		if _, err := ens.TryStart(2); err == nil || !strings.Contains(err.Error(), `"token"`) {
			t.Fatal(err)
		}
	})
}

// M103: a founder that holds the level down is gone for good, and another member has its address by
// now. The level rises without it.
func TestLevel_AnotherOneIsWhereItWas(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, func(c *embed.Config) {
		c.Inside = &inside.Seams{Next: c.ID != 3}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		four := away(e)
		e.Start(four)
		e.Ready(four)
		must(t, e.Node(1).RaiseLevel(bounded(t), 3))
		if got := e.Node(1).Status().Level; got != embedkit.Next {
			t.Errorf("the level is %d", got)
		}
	})
}

// M107: a newcomer holds the level down on the first shard, and the leader of another shard has not
// reached it yet. No shard rises past it.
func TestLevel_OfANewcomerOnSomeShards(t *testing.T) {
	t.Parallel()
	held := true
	embedkit.Growing(t, 3, func(c *embed.Config) {
		c.Shards = 2
		c.Inside = &inside.Seams{Next: c.ID != 0 && (c.ID != 3 || !held)}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		<-time.After(time.Minute) // the leaderships are even
		four := e.AddPlace()
		shards := e.Node(1).Status().Shards
		e.Cut(shards[1].Leader, four)
		e.Start(four)
		e.Until("the newcomer on the first shard", func() bool { return slices.Contains(e.Node(1).Status().HeldDown, 4) })
		held = false
		e.Stop(3)
		e.Restart(3)
		<-time.After(time.Minute)
		e.HealAll()
		e.Ready(four)
		if err := e.Node(four).Err(); err != nil || e.Node(1).Status().Level != 1 {
			t.Errorf("the ensemble is at level %d, and the newcomer says %v", e.Node(1).Status().Level, err)
		}
	})
}
