package group_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// get returns the data of a znode as a text, or why there is none.
func get(t *testing.T, s *embed.Session, path string) string {
	t.Helper()
	if _, err := s.Sync(t.Context(), path); err != nil {
		return err.Error()
	}
	data, _, err := s.Get(t.Context(), path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Whatever is lost, the znode is there again, once, with the newest data: the session of a member
// that is cut off, the znode itself, its parent, a quorum. With several shards, the end of the lost
// session may reach the shard of the znode late.
//
// In CURATOR-97 the znode was not created again because the watch was lost too. In CURATOR-154 and
// CURATOR-241 it had old data after a reconnect. In CURATOR-190 its name grew each time. In
// dubbo#5135, zkconfig-resources#26 and KAFKA-7165 the new session met the old session's znode and
// gave up. In CURATOR-498 and pulsar#913 it took that znode for its own and lost it seconds later.
// The broker of fluss#1004 waited for a minute.
func TestAnnounce_ThroughEveryLoss(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, ens *embedtest.Ensemble,
		other *embed.Session){
		"its member is cut off until its session has expired": func(t *testing.T, ens *embedtest.Ensemble,
			other *embed.Session) {
			ens.Isolate(3)
			<-time.After(30 * time.Second)
			ens.HealAll()
		},
		"its member is cut off and gives its session up itself": func(t *testing.T,
			ens *embedtest.Ensemble, other *embed.Session) {
			ens.Isolate(3)
			<-time.After(11 * time.Second)
			ens.HealAll()
		},
		"there is no quorum for a while": func(t *testing.T, ens *embedtest.Ensemble,
			other *embed.Session) {
			for _, id := range ens.Members() {
				ens.Isolate(id)
			}
			<-time.After(40 * time.Second)
			ens.HealAll()
		},
		"its member stands still": func(t *testing.T, ens *embedtest.Ensemble, other *embed.Session) {
			ens.Pause(3)
			<-time.After(30 * time.Second)
			ens.Resume(3)
		},
		"somebody deletes it": func(t *testing.T, ens *embedtest.Ensemble, other *embed.Session) {
			must(t, other.Delete(t.Context(), dir+"/a", embed.AnyVersion))
			<-time.After(5 * time.Second)
		},
		"somebody deletes its parent too": func(t *testing.T, ens *embedtest.Ensemble,
			other *embed.Session) {
			_, err := other.Multi(t.Context(), embed.OpDelete(dir+"/a", embed.AnyVersion),
				embed.OpDelete(dir, embed.AnyVersion))
			must(t, err)
			<-time.After(5 * time.Second)
		},
	} {
		for _, o := range []group.Options{{}, {Linger: time.Minute}} {
			for _, shards := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s, linger %v, %d shards", name, o.Linger, shards), func(t *testing.T) {
					bubble(t, 3, shards, func(t *testing.T, ens *embedtest.Ensemble) {
						a := join(t, ens.Opener(3), dir, "a", []byte("old"), o)
						defer a.Close()
						present(t, a)
						must(t, a.Set(within(t, minutes), []byte("new")))
						other := ens.Session(1, embed.SessionOptions{})
						if got := get(t, other, a.Path()); got != "new" {
							t.Fatalf("it has %q", got)
						}
						lose(t, ens, other)
						<-time.After(25 * time.Second) // the end of a session and more
						present(t, a)
						other = ens.Session(1, embed.SessionOptions{})
						if got := get(t, other, a.Path()); got != "new" ||
							fmt.Sprint(children(t, other, dir)) != "[a]" {
							t.Errorf("it has %q, among %v; its status is %+v", got, children(t, other, dir), a.Status())
						}
						must(t, a.Set(within(t, minutes), []byte("newer")))
						if got := get(t, other, a.Path()); got != "newer" {
							t.Errorf("it has %q", got)
						}
						must(t, a.Close())
						wantErr(t, a.Err(), embed.ErrReleased)
						if got := get(t, other, a.Path()); !strings.Contains(got, embed.ErrNoNode.Error()) {
							t.Errorf("it has %q after Close", got)
						}
					})
				})
			}
		}
	}
}

// Present compares the clock: a member that is cut off does not take itself for present when others
// may already see that it has gone. Curator's GroupMember lists itself whatever the ensemble shows,
// and kazoo's Party joins once and believes for ever that it is in.
func TestStatus_ComparesTheClock(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		a := join(t, ens.Opener(3), dir, "a", nil, group.Options{})
		defer a.Close()
		was := present(t, a)
		g := watch(t, ens.Session(1, embed.SessionOptions{}), group.Options{})
		members(t, g, "a")
		ens.Isolate(3)
		for {
			<-time.After(10 * time.Millisecond)
			now := a.Status()
			if len(g.Members()) == 0 {
				if now.Present || now.Czxid != 0 || now.Err == nil {
					t.Errorf("it has gone, and its status is %+v", now)
				}
				break
			}
		}
		ens.HealAll()
		if now := present(t, a); now.Czxid <= was.Czxid {
			t.Errorf("it is %+v, and was %+v", now, was)
		}
	})
}

// A session that is only Suspended keeps its znode: after a lack of a quorum nobody has left.
func TestAnnounce_StaysWhileThereIsNoQuorum(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		a := join(t, ens.Opener(3), dir, "a", nil, group.Options{})
		defer a.Close()
		was := present(t, a)
		for _, id := range ens.Members() {
			ens.Isolate(id)
		}
		now := status(t, a, "it to be suspended", func(s group.Status) bool { return !s.Present })
		wantErr(t, now.Err, embed.ErrSuspended)
		ens.HealAll()
		if now := present(t, a); now != was {
			t.Errorf("it is %+v, and was %+v", now, was)
		}
	})
}

// Of two announcements of one path one is there, and the other ends with ErrTaken. Nobody flaps:
// Curator's service discovery deletes whatever is there, so two instances with one id fight for
// ever, and its PersistentNode shares the znode without knowing.
func TestAnnounce_TwoWithOneID(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		first := join(t, ens.Opener(1), dir, "a", []byte("first"), group.Options{Linger: time.Minute})
		defer first.Close()
		was := present(t, first)
		g := watch(t, ens.Session(2, embed.SessionOptions{}), group.Options{})
		members(t, g, "a=first") // member 2's replica may lag behind
		c := follow(t, g)
		c.want(t, "[a=first] joined a=first")
		for _, id := range ens.Members() {
			second := join(t, ens.Opener(id), dir, "a", []byte("second"), group.Options{Linger: time.Minute})
			begun := time.Now()
			wantErr(t, status(t, second, "a reason", func(s group.Status) bool { return s.Err != nil }).Err,
				group.ErrTaken)
			wantErr(t, done(t, second), group.ErrTaken)
			wantErr(t, second.Set(t.Context(), nil), group.ErrTaken)
			must(t, second.Close())
			wantErr(t, second.Err(), group.ErrTaken)
			if d := time.Since(begun); d > 25*time.Second {
				t.Errorf("it took %v", d)
			}
		}
		if now := first.Status(); now != was {
			t.Errorf("%+v, and was %+v", now, was)
		}
		c.none(t, time.Minute)
	})
}

// The znode that is in the way has gone when the patience with it is over. This node is cut off at
// that moment, and still shows it. So it asks the ensemble before it says ErrTaken.
func TestAnnounce_WhatWasInTheWayHasGoneUnseen(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		const timeout = time.Minute
		ens.TransferLeadership(1)
		s := ens.Session(1, embed.SessionOptions{})
		how := embed.CreateOptions{Mode: embed.Ephemeral, Parents: true}
		_, _, err := s.CreateWith(t.Context(), dir+"/a", nil, how)
		must(t, err)
		from := embed.OpenerWith(ens.Opener(3), embed.SessionOptions{Timeout: timeout})
		a := join(t, from, dir, "a", nil, group.Options{})
		status(t, a, "it to be taken", func(s group.Status) bool {
			return errors.Is(s.Err, group.ErrTaken)
		})
		<-time.After(2*timeout - 5*time.Second)
		ens.Isolate(3)
		must(t, s.Delete(t.Context(), dir+"/a", embed.AnyVersion))
		<-time.After(10 * time.Second)
		ens.HealAll()
		present(t, a)
	})
}

// The process that had the znode has died, and another one announces it elsewhere, or on the same
// member. That is no reason for ErrTaken. On the same member nobody waits for the session's
// timeout.
func TestAnnounce_InTheStepsOfADeadProcess(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			bubble(t, 3, shards, func(t *testing.T, ens *embedtest.Ensemble) {
				g := watch(t, ens.Session(1, embed.SessionOptions{}), group.Options{})
				for i, on := range []embed.MemberID{3, 2} {
					dead := join(t, ens.Opener(3), dir, "a", fmt.Appendf(nil, "dead %d", i), group.Options{})
					present(t, dead)
					ens.Kill(3)
					wantErr(t, done(t, dead), embed.ErrFailed)
					if on == 3 {
						ens.Restart(3)
						ens.Ready(3)
					}
					begun := time.Now()
					a := join(t, ens.Opener(on), dir, "a", []byte("alive"), group.Options{})
					present(t, a)
					members(t, g, "a=alive")
					if d := time.Since(begun); on == 3 && d > 5*time.Second || d > 20*time.Second {
						t.Errorf("it took %v on member %d", d, on)
					}
					must(t, a.Close())
					members(t, g, "")
				}
			})
		})
	}
}

// With Linger a process that restarts quickly has never left. Leave and join at each restart were
// too much for pravega#201.
func TestAnnounce_AQuickRestartIsNoLeave(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		o := group.Options{Linger: 30 * time.Second}
		present(t, join(t, ens.Opener(3), dir, "a", []byte("1"), o))
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Sync(t.Context(), dir) // it may be behind member 3
		must(t, err)
		c := follow(t, watch(t, s, group.Options{}))
		c.want(t, "[a=1] joined a=1")
		ens.Kill(3)
		ens.Restart(3)
		ens.Ready(3)
		lost := c.want(t, "[a=1] changed a=1")
		if lost.Members[0].Session != 0 {
			t.Errorf("%+v", lost.Members[0])
		}
		a := join(t, ens.Opener(3), dir, "a", []byte("2"), o)
		now := c.want(t, "[a=2] again a=2")
		if m := now.Members[0]; m.Session == 0 || m.Czxid <= lost.Members[0].Czxid {
			t.Errorf("%+v, and was %+v", m, lost.Members[0])
		}
		present(t, a)
		must(t, a.Close())
		c.want(t, "[] left a=2")
		present(t, join(t, ens.Opener(3), dir, "a", []byte("3"), o))
		c.want(t, "[a=3] joined a=3")
		ens.Kill(3)
		begun := time.Now()
		c.want(t, "[a=3] changed a=3")
		c.want(t, "[] left a=3")
		if d := time.Since(begun); d < o.Linger || d > o.Linger+time.Minute {
			t.Errorf("it lingered until %v after the kill", d)
		}
	})
}

// M121: a persistent znode of somebody else is at the path. An announcement deleted it if it lingers.
func TestAnnounce_NeverReplacesWhatIsThereToStay(t *testing.T) {
	for _, linger := range []time.Duration{0, time.Minute} {
		bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
			s := ens.Session(1, embed.SessionOptions{})
			_, err := s.Put(t.Context(), "/svc/a", []byte("theirs"))
			must(t, err)
			a := group.Announce(ens.Node(1), "/svc/a", []byte("mine"), group.Options{Linger: linger})
			<-time.After(10 * time.Minute)
			wantErr(t, a.Err(), group.ErrTaken)
			must(t, a.Close())
			<-time.After(time.Hour)
			if data, _, err := s.Get(t.Context(), "/svc/a"); string(data) != "theirs" {
				t.Errorf("linger %v: it has %q: %v", linger, data, err)
			}
		})
	}
}

// An announcement may begin before there is a quorum, and data may be set meanwhile. In CURATOR-53
// the znode was never created if there was no server at the start.
func TestAnnounce_BegunBeforeThereIsAQuorum(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		ens.Isolate(3)
		a := join(t, ens.Opener(3), dir, "a", []byte("1"), group.Options{})
		defer a.Close()
		<-time.After(time.Minute)
		wantErr(t, a.Set(within(t, time.Second), []byte("2")), context.DeadlineExceeded)
		wantErr(t, a.Set(within(t, time.Second), []byte("3")), context.DeadlineExceeded)
		if now := a.Status(); now.Present {
			t.Errorf("%+v", now)
		}
		ens.HealAll()
		present(t, a)
		s := ens.Session(1, embed.SessionOptions{})
		if got := get(t, s, a.Path()); got != "3" {
			t.Errorf("it has %q", got)
		}
	})
}

// Data that the ensemble refuses is the error of its Set, and what was announced before stays, also
// across the loss of the session.
func TestSet_Refused(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		a := join(t, ens.Opener(3), dir, "a", []byte("good"), group.Options{})
		defer a.Close()
		present(t, a)
		large := make([]byte, 8<<20)
		wantErr(t, a.Set(within(t, minutes), large), embed.ErrTooLarge)
		s := ens.Session(1, embed.SessionOptions{})
		if got := get(t, s, a.Path()); got != "good" || !a.Status().Present {
			t.Errorf("it has %q, %+v", got, a.Status())
		}
		ens.Isolate(3)
		status(t, a, "its loss", func(s group.Status) bool { return !s.Present })
		<-time.After(30 * time.Second)
		wantErr(t, a.Set(within(t, time.Second), large), context.DeadlineExceeded)
		ens.HealAll()
		present(t, a)
		if got := get(t, s, a.Path()); got != "good" {
			t.Errorf("it has %q", got)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, a.Set(ended, []byte("never")), context.Canceled)
		must(t, s.Delete(t.Context(), a.Path(), embed.AnyVersion))
		status(t, a, "its loss", func(s group.Status) bool { return !s.Present })
		present(t, a)
		if got := get(t, s, a.Path()); got != "good" {
			t.Errorf("it has %q", got)
		}
	})
}

// Many set at once, while somebody deletes the znode again and again. In the end it has the data of
// one that was set after all others had returned.
func TestSet_ManyAtOnce(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		a := join(t, ens.Opener(3), dir, "a", nil, group.Options{})
		defer a.Close()
		s := ens.Session(1, embed.SessionOptions{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 20 {
					if err := a.Set(within(t, minutes), fmt.Appendf(nil, "%d.%d", i, j)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 10 {
			<-time.After(20 * time.Millisecond)
			if err := s.Delete(t.Context(), a.Path(), embed.AnyVersion); err != nil &&
				!errors.Is(err, embed.ErrNoNode) {
				t.Error(err)
			}
		}
		wg.Wait()
		must(t, a.Set(within(t, minutes), []byte("last")))
		if got := get(t, s, a.Path()); got != "last" {
			t.Errorf("it has %q", got)
		}
	})
}

// Close at any time leaves nothing, and ends every call. In curator@e5afda58 a znode stayed if it
// was closed before its creation was answered.
func TestClose_AtAnyTimeLeavesNothing(t *testing.T) {
	bubble(t, 3, 2, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		for i := range 60 {
			a := join(t, ens.Opener(embed.MemberID(i%3+1)), dir, "a", nil,
				group.Options{Linger: time.Duration(i%2) * time.Minute})
			over := make(chan error, 2)
			go func() { over <- a.Set(t.Context(), []byte("x")) }()
			go func() {
				for _, err := range a.Changes(t.Context()) {
					if err != nil {
						over <- err
					}
				}
			}()
			<-time.After(time.Duration(i) * 2 * time.Millisecond)
			if i%10 == 9 {
				ens.Isolate(embed.MemberID(i%3 + 1)) // the create may be on its way
				go func() {
					<-time.After(3 * time.Second)
					ens.HealAll()
				}()
			}
			must(t, a.Close())
			must(t, a.Close())
			wantErr(t, a.Err(), embed.ErrReleased)
			for range 2 {
				select {
				case err := <-over:
					if err != nil && !errors.Is(err, embed.ErrReleased) {
						t.Error(err)
					}
				case <-time.After(minutes):
					t.Fatal("a call goes on")
				}
			}
			<-time.After(5 * time.Second)
			_, err := s.Sync(t.Context(), dir)
			must(t, err)
			if names := children(t, s, dir); len(names) > 0 {
				t.Fatalf("round %d left %v", i, names)
			}
		}
	})
}

// The same in real time, in which Close meets every step. Of the parents nothing stays either: none
// is created that has no child, because the ensemble would not remove it.
func TestClose_AtAnyStepLeavesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			c.ContainerCheckInterval = 100 * time.Millisecond
		}})
		s, rng := ens.Session(1, embed.SessionOptions{}), testkit.Rand(t)
		for i := range 300 {
			dir := fmt.Sprint("/round-", i, dir)
			o := group.Options{Linger: time.Duration(i%2) * time.Minute}
			a := group.Join(ens.Opener(embed.MemberID(i%3+1)), dir, "a", nil, o)
			if i%3 == 0 {
				go a.Set(t.Context(), []byte("x"))
			}
			for range rng.IntN(3000) {
				runtime.Gosched()
			}
			must(t, a.Close())
			wantErr(t, a.Err(), embed.ErrReleased)
			_, err := s.Sync(t.Context(), dir)
			must(t, err)
			if names := children(t, s, dir); len(names) > 0 {
				t.Fatalf("round %d left %v", i, names)
			}
		}
		ens.Until("all parents to be removed", func() bool {
			names := children(t, s, "/")
			return !slices.ContainsFunc(names, func(name string) bool {
				return strings.HasPrefix(name, "round-")
			})
		})
	})
}

// What cannot succeed ends the announcement, and says why. In CURATOR-228 an ACL that refused the
// create was silent.
func TestAnnounce_Refused(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		n, s := ens.Node(1), ens.Session(1, embed.SessionOptions{})
		readOnly := []embed.ACL{{Perms: embed.PermRead, Scheme: "world", ID: "anyone"}}
		_, _, err := s.CreateWith(t.Context(), "/shut", nil, embed.CreateOptions{ACL: readOnly})
		must(t, err)
		_, err = s.Create(t.Context(), "/ephemeral", nil, embed.Ephemeral)
		must(t, err)
		_, err = s.Create(t.Context(), "/plain", nil, embed.Persistent)
		must(t, err)
		for name, c := range map[string]struct {
			a    *group.Announcement
			want error
		}{
			"a parent that is shut": {join(t, n, "/shut", "a", nil, group.Options{}), embed.ErrNoAuth},
			"an ephemeral parent": {join(t, n, "/ephemeral", "a", nil, group.Options{}),
				embed.ErrNoChildrenForEphemerals},
			"a znode of no session": {group.Announce(n, "/plain", nil, group.Options{}),
				group.ErrTaken},
			"one with children": {group.Announce(n, "/zookeeper", nil,
				group.Options{Linger: time.Second}), group.ErrTaken},
			"too much data": {join(t, n, dir, "b", make([]byte, 8<<20), group.Options{}),
				embed.ErrTooLarge},
			"no path": {group.Announce(n, "", nil, group.Options{}),
				embed.ErrInvalidPath},
			"a path that is none": {group.Announce(n, "a", nil, group.Options{}),
				embed.ErrInvalidPath},
			"a slash at the end": {group.Announce(n, "/a/", nil, group.Options{}),
				embed.ErrInvalidPath},
			"the root": {group.Announce(n, "/", nil, group.Options{}),
				embed.ErrInvalidArgument},
			"a layout": {group.Announce(n, "/x", nil, group.Options{Layout: group.Party}),
				embed.ErrInvalidArgument},
			"no directory": {join(t, n, "", "a", nil, group.Options{}), embed.ErrInvalidPath},
			"no id": {join(t, n, dir, "", nil, group.Options{}),
				embed.ErrInvalidArgument},
			"an id with a slash": {join(t, n, dir, "a/b", nil, group.Options{}),
				embed.ErrInvalidArgument},
			"an id that is no name": {join(t, n, dir, "..", nil, group.Options{}),
				embed.ErrInvalidPath},
			"data of kazoo's": {join(t, n, dir, "a", []byte("x"),
				group.Options{Layout: group.ShallowParty}), embed.ErrInvalidArgument},
			"an unknown layout": {join(t, n, dir, "a", nil, group.Options{Layout: 3}),
				embed.ErrInvalidArgument},
			"a linger below zero": {join(t, n, dir, "a", nil, group.Options{Linger: -1}),
				embed.ErrInvalidTTL},
			"a linger of a microsecond": {join(t, n, dir, "a", nil,
				group.Options{Linger: time.Microsecond}), embed.ErrInvalidArgument},
			"a linger of a hundred year": {join(t, n, dir, "a", nil,
				group.Options{Linger: 100 * 365 * 24 * time.Hour}), embed.ErrInvalidTTL},
			"a wrong password": {join(t,
				embed.OpenerWith(n, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "none"}}}),
				dir, "a", nil, group.Options{}), embed.ErrAuthFailed},
		} {
			if err := done(t, c.a); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if s := c.a.Status(); s.Present || s.Err == nil {
				t.Errorf("%s: %+v", name, s)
			}
			if err := c.a.Set(t.Context(), nil); !errors.Is(err, c.want) {
				t.Errorf("%s: Set: %v, want %v", name, err, c.want)
			}
			must(t, c.a.Close())
		}
		a := join(t, n, dir, "party", nil, group.Options{Layout: group.Party})
		defer a.Close()
		present(t, a)
		wantErr(t, a.Set(t.Context(), []byte("x")), embed.ErrInvalidArgument)
		var zero group.Announcement
		<-zero.Done()
		wantErr(t, zero.Err(), embed.ErrReleased)
		wantErr(t, zero.Status().Err, embed.ErrReleased)
		wantErr(t, zero.Set(t.Context(), nil), embed.ErrReleased)
		for _, err := range zero.Changes(t.Context()) {
			wantErr(t, err, embed.ErrReleased)
		}
		must(t, zero.Close())
		for _, err := range a.Changes(within(t, time.Second)) {
			if err != nil {
				wantErr(t, err, context.DeadlineExceeded)
			}
		}
		ens.Stop(1)
		wantErr(t, done(t, a), embed.ErrClosed)
		wantErr(t, done(t, join(t, n, dir, "late", nil, group.Options{})), embed.ErrClosed)
	})
}
