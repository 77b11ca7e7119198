package membertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine/offline"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// ofAge waits until an ensemble has its lineage, and each member has it on its disk.
func ofAge(e *embedtest.Ensemble) {
	embedkit.Founded(e)
	<-time.After(2 * time.Second)
}

// killAll ends all members as crashes would.
func killAll(e *embedtest.Ensemble) {
	for _, place := range e.Members() {
		e.Kill(place)
	}
}

// zxids returns the newest zxids of a node, by shard.
func zxids(n *embed.Node) (list []embed.Zxid) {
	for _, s := range n.Status().Shards {
		list = append(list, s.Zxid)
	}
	return list
}

// M28, M29: two of three voters are lost, and one goes on alone, with all that it has. Zxids, and
// with them the ids of sessions and fencing tokens, begin anew above all that the lost ones may
// have given, and so do the ids of members. The lost ones come back, are told, and join as new
// members.
func TestRecover(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ctx := bounded(t)
		ofAge(e)
		embedkit.Joined(e, 1)
		s := e.Session(1, embed.SessionOptions{})
		for i := range 20 {
			_, err := s.Create(ctx, fmt.Sprintf("/n-%d", i), nil, embed.Persistent)
			must(t, err)
		}
		embedkit.Synced(t, e.Node(3))
		killAll(e)
		must(t, e.Recover(3, 1, 2))
		n := e.Start(3)
		for i, z := range zxids(n) {
			if z < 1<<32 {
				t.Errorf("shard %d goes on at zxid %#x", i+1, z)
			}
		}
		e.Ready(3)
		embedkit.Voting(e, 3, 3)
		s = e.Session(3, embed.SessionOptions{})
		if s.ID() < 1<<32 {
			t.Errorf("session %#x may have been there before", s.ID())
		}
		for i := range 20 {
			if _, found, err := s.Exists(ctx, fmt.Sprintf("/n-%d", i)); err != nil || !found {
				t.Errorf("/n-%d is lost: %v", i, err)
			}
		}
		for _, m := range n.Members() {
			if m.ID != 3 && (m.Leaving != "lost" || m.Role != embed.Out) {
				t.Errorf("member %d is %+v", m.ID, m)
			}
		}

		for _, place := range []embed.MemberID{1, 2, 4} {
			old := e.Start(place)
			<-old.Done()
			if err := old.Err(); !errors.Is(err, embed.ErrSuperseded) || !strings.Contains(err.Error(), "lineage") {
				t.Errorf("member %d is told %v", place, err)
			}
			e.Kill(place)
		}
		var places []embed.MemberID
		for _, place := range []embed.MemberID{1, 2} {
			e.Restart(place)
			if id := e.ID(place); id < 1004 {
				t.Errorf("member %d has come back as %d", place, id)
			}
			places = append(places, place)
		}
		embedkit.Voting(e, 3, 3, e.ID(1), e.ID(2))
		for _, place := range places {
			_, err := e.Session(place, embed.SessionOptions{}).Create(ctx, fmt.Sprintf("/of-%d", place), nil, embed.Persistent)
			must(t, err)
			if _, found, err := e.Session(place, embed.SessionOptions{}).Exists(ctx, "/n-19"); err != nil || !found {
				t.Errorf("member in place %d lacks what was there before: %v", place, err)
			}
		}
	})
}

// M28, M30: both survivors of an ensemble are recovered, each on its own. They are two ensembles
// from then on, and neither lets the other's members in or makes them fail.
func TestRecover_OfTwoSurvivors(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ofAge(e)
		killAll(e)
		must(t, e.Recover(1, 2, 3))
		must(t, e.Recover(2, 1, 3))
		for _, place := range []embed.MemberID{1, 2} {
			e.Restart(place)
			embedkit.Voting(e, place, place)
			_, err := e.Session(place, embed.SessionOptions{}).Create(bounded(t), "/alone", nil, embed.Persistent)
			must(t, err)
		}
		e.Start(3)
		<-e.Node(3).Done()
		if err := e.Node(3).Err(); !errors.Is(err, embed.ErrSuperseded) {
			t.Errorf("member 3 is told %v", err)
		}
		e.Kill(3)
		e.Start(3)
		e.Until("the third to see two ensembles", func() bool {
			return strings.Contains(e.Node(3).Status().Joining, "the seeds are members of different ensembles")
		})
		for _, place := range []embed.MemberID{1, 2} {
			if err := e.Node(place).Err(); err != nil {
				t.Errorf("member %d has failed: %v", place, err)
			}
		}
	})
}

// M28: the others were not dead, but cut off, and go on. As soon as they meet the survivor, they
// stop and say why. What they acknowledged meanwhile is lost.
func TestRecover_WhileTheOthersGoOn(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ofAge(e)
		e.Kill(1)
		e.Isolate(1)
		must(t, e.Recover(1, 2, 3)) // they do not answer
		e.Restart(1)
		_, err := e.Session(2, embed.SessionOptions{}).Create(bounded(t), "/lost", nil, embed.Persistent)
		must(t, err)
		e.HealAll()
		for _, place := range []embed.MemberID{2, 3} {
			<-e.Node(place).Done()
			if err := e.Node(place).Err(); !errors.Is(err, embed.ErrSuperseded) {
				t.Errorf("member %d is told %v", place, err)
			}
			e.Kill(place)
			e.Restart(place)
		}
		if _, found, err := e.Session(1, embed.SessionOptions{}).Exists(bounded(t), "/lost"); found || err != nil {
			t.Errorf("what nobody could know is there: %v", err)
		}
		embedkit.Voting(e, 1, 1, 1004, 1005)
		must(t, e.Node(1).Err())
	})
}

// M28: an ensemble that still has a leader is not recovered, nor one of which a voter still runs.
// The refusal changes nothing.
func TestRecover_RefusesWhatIsNotLost(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ofAge(e)
		e.Kill(1)
		refused := func(words string) {
			t.Helper()
			before, err := e.Files(1)
			must(t, err)
			if err := e.Recover(1, 2, 3); !errors.Is(err, offline.ErrRecover) || !strings.Contains(err.Error(), words) {
				t.Errorf("not refused with %q: %v", words, err)
			}
			if after, err := e.Files(1); err != nil || !maps.Equal(before, after) {
				t.Errorf("the directory has %v, before %v (%v)", after, before, err)
			}
		}
		refused("answers and knows a leader")
		e.Kill(3)
		e.Until("no leader", func() bool { return e.Node(2).Status().Shards[0].Leader == 0 })
		refused("member 2 at member-2.test:1 still runs: stop it first")
		e.Kill(2)
		must(t, e.Recover(1, 2, 3))
		e.Restart(1)
		e.Start(2)
		<-e.Node(2).Done()
		e.Kill(2)
		if err := e.Recover(2, 1, 3); err == nil || !strings.Contains(err.Error(), "goes on without its member 2") {
			t.Errorf("a member that was left behind is recovered beside the first: %v", err)
		}
	})
}

// A learner goes on alone, although it never voted. Recovered again after it has grown, it goes on
// once more.
func TestRecover_OfALearnerAndAgain(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 1, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ofAge(e)
		learner := embedkit.Joined(e, 1)[0]
		_, err := e.Session(learner, embed.SessionOptions{}).Create(bounded(t), "/kept", nil, embed.Persistent)
		must(t, err)
		must(t, e.Snapshot(learner))
		killAll(e)
		e.Wipe(1)
		must(t, e.Recover(learner, 1))
		e.Restart(learner)
		embedkit.Voting(e, learner, 2)
		e.Restart(1) // the lost disk is another one now, so it joins
		embedkit.Joined(e, 1)
		embedkit.Voting(e, learner, 2, 1003, 1004)
		before := zxids(e.Node(1))
		killAll(e)
		must(t, e.Recover(1, 2, 1004))
		e.Restart(1)
		for i, z := range zxids(e.Node(1)) {
			if z < before[i]+1_000_000 {
				t.Errorf("shard %d was at zxid %#x, and goes on at %#x", i+1, before[i], z)
			}
		}
		if _, found, err := e.Session(1, embed.SessionOptions{}).Exists(bounded(t), "/kept"); !found || err != nil {
			t.Errorf("it is gone: %v", err)
		}
		for _, place := range []embed.MemberID{learner, 3} { // of the second lineage
			e.Start(place)
			<-e.Node(place).Done()
			if err := e.Node(place).Err(); !errors.Is(err, embed.ErrSuperseded) {
				t.Errorf("member %d is told %v", place, err)
			}
		}
	})
}

// nowhere is a network on which nobody is.
type nowhere struct {
	unknown error // of all names
}

var errNowhere = errors.New("nobody is there")

func (nowhere) Listen() (net.Listener, error) { return nil, errNowhere }
func (nowhere) Dial(context.Context, transport.Target) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: errNowhere}
}

func (n nowhere) Resolve(_ context.Context, at string) ([]transport.Target, error) {
	return []transport.Target{{Address: at}}, n.unknown
}

// M76: the others are asked at the addresses in the directory. Otherwise a healthy ensemble could be
// ended.
func TestRecover_AsksWhetherTheOthersRun(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
		embedkit.WithLineage(t, e)
		e.Kill(1)
		err := e.Recover(1, 2, 3)
		if !errors.Is(err, offline.ErrRecover) || !strings.Contains(err.Error(), "the ensemble is not lost") {
			t.Errorf("with their addresses: %v", err)
		}
	})
}

// M76: an address that cannot be looked up is not asked at. Only a name that nobody has says something.
func TestRecover_AddressesThatTellNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
		ofAge(e)
		killAll(e)
		none, broken := &net.DNSError{IsNotFound: true}, &net.DNSError{IsTimeout: true}
		for _, c := range []struct {
			unknown error
			join    []string
			gone    []embed.MemberID
			want    error
		}{
			{none, nil, nil, errNowhere},
			{broken, nil, nil, offline.ErrRecover},
			{broken, nil, []embed.MemberID{2}, offline.ErrRecover},
			{broken, nil, []embed.MemberID{3, 2}, errNowhere},
			{none, []string{"mistyped.test:1"}, nil, offline.ErrRecover},
		} {
			_, err := offline.Recover(t.Context(), offline.RecoverOptions{Dir: e.Dir(1), Stopped: []embed.MemberID{2, 3}, Join: c.join, Gone: c.gone,
				Network: nowhere{c.unknown}, Fault: func(disk.Op, string) error { return errNowhere }})
			if !errors.Is(err, c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}

// M30: the command dies at any of its writes. Then the recovery has not begun, or it is done, or
// the member does not start before somebody has run the command again. It goes on with the same ids
// only.
func TestRecover_Interrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
		ofAge(e)
		killAll(e)
		source := t.TempDir()
		must(t, os.CopyFS(source, os.DirFS(e.Dir(1))))
		run := func(at int, stopped ...embed.MemberID) error {
			calls := 0
			_, err := offline.Recover(t.Context(), offline.RecoverOptions{Dir: e.Dir(1), Stopped: stopped, Network: nowhere{}, Fault: func(disk.Op, string) error {
				if calls++; calls == at {
					return errNowhere
				}
				return nil
			}})
			return err
		}
		interrupted := 0
		step := 7 // some of the calls; by night all
		if testkit.Night() {
			step = 1
		}
		for at := 1; ; at += step {
			must(t, os.RemoveAll(e.Dir(1)))
			must(t, os.CopyFS(e.Dir(1), os.DirFS(source)))
			if err := run(at, 2, 3); err == nil {
				t.Logf("less than %d calls", at)
				break
			}
			r, err := offline.Look(e.Dir(1))
			must(t, err)
			if !r.Recovering {
				continue
			}
			interrupted++
			if _, err := e.TryStart(1); err == nil || !strings.Contains(err.Error(), "run vivarium recover -accept-data-loss -i-have-stopped 2,3 again") {
				t.Fatalf("call %d: it starts: %v", at, err)
			}
			if err := run(0, 2); !errors.Is(err, offline.ErrRecover) {
				t.Fatalf("call %d: with other ids: %v", at, err)
			}
			if err := run(0, 3, 2); err != nil {
				t.Fatalf("call %d: it does not go on: %v", at, err)
			}
			if r, err := offline.Look(e.Dir(1)); err != nil || !r.Recovered {
				t.Fatalf("call %d: %+v, %v", at, r, err)
			}
		}
		if interrupted == 0 {
			t.Error("no call interrupts it")
		}
		e.Restart(1)
		embedkit.Voting(e, 1, 1)
	})
}

// M30: the first start after a recovery dies at any time. The next one completes it: zxids do not
// go back, and the lineage is the one that was begun.
func TestRecover_TheFirstStartDies(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ofAge(e)
		killAll(e)
		must(t, e.Recover(1, 2, 3))
		var last embed.Zxid
		for range 3 {
			n := e.Start(1)
			if z := n.Status().Shards[0].Zxid; z < 1<<32 || z < last {
				t.Errorf("zxid %#x after %#x", z, last)
			} else {
				last = z
			}
			e.Kill(1)
		}
		e.Restart(1)
		if z := e.Node(1).Status().Shards[0].Zxid; z>>32 != last>>32 {
			t.Errorf("zxid %#x: it was recovered more than once", z)
		}
	})
}

// M29: two survivors of one ensemble are recovered, one after the other, and the second has never
// heard of the first. Its zxids are larger.
func TestRecover_TwoSurvivorsGiveOtherTokens(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		ofAge(e)
		killAll(e)
		token := func(at embed.MemberID, others ...embed.MemberID) embed.Zxid {
			must(t, e.Recover(at, others...))
			e.Restart(at)
			embedkit.Voting(e, at, at)
			_, err := e.Session(at, embed.SessionOptions{}).Create(bounded(t), "/lock", nil, embed.Ephemeral)
			must(t, err)
			stat, _, err := e.Session(at, embed.SessionOptions{}).Exists(bounded(t), "/lock")
			must(t, err)
			return stat.Czxid
		}
		first := token(1, 2, 3)
		e.Kill(1)
		second := token(2, 1, 3)
		if second <= first {
			t.Errorf("tokens %#x, then %#x", first, second)
		}
	})
}

// M29: nobody takes over a place in a queue that is from before a recovery. The tokens of such a
// place count from then, and the lost majority has granted later ones.
func TestRecover_PlacesOfThePast(t *testing.T) {
	t.Parallel()
	ours := lock.Options{Delay: time.Minute, Identity: "ours"}
	for name, c := range map[string]struct {
		// before leaves contenders in the queue and returns what ends them.
		before func(ctx context.Context, s *embed.Session) (end func() error, err error)
		after  func(ctx context.Context, s *embed.Session) (lock.Token, error)
	}{
		"in front of a lower priority": {
			func(ctx context.Context, s *embed.Session) (func() error, error) {
				e := election.New(s, "/lock")
				if _, err := e.Enter(ctx, nil, election.Options{}); err != nil {
					return nil, err
				}
				_, err := e.Enter(ctx, nil, election.Options{})
				return s.Close, err
			},
			func(ctx context.Context, s *embed.Session) (lock.Token, error) {
				c, err := election.New(s, "/lock").Enter(ctx, nil, election.Options{Priority: 1})
				if err != nil {
					return lock.Token{}, err
				}
				l, err := c.Wait(ctx)
				if err != nil {
					return lock.Token{}, err
				}
				return l.Token(), nil
			},
		},
		"of the same identity": {
			func(ctx context.Context, s *embed.Session) (func() error, error) {
				h, err := lock.NewMutex(s, "/lock").With(ours).Lock(ctx)
				if err != nil {
					return nil, err
				}
				return h.Release, nil
			},
			func(ctx context.Context, s *embed.Session) (lock.Token, error) {
				<-time.After(40 * time.Second) // the session is over by now, and the delay is not
				h, err := lock.NewMutex(s, "/lock").With(ours).Lock(ctx)
				if err != nil {
					return lock.Token{}, err
				}
				return h.Token(), nil
			},
		},
	} {
		embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
			ofAge(e)
			end, err := c.before(bounded(t), e.Session(1, embed.SessionOptions{}))
			must(t, err)
			embedkit.Synced(t, e.Node(3))
			e.Kill(3)
			must(t, end())
			h, err := lock.NewMutex(e.Session(2, embed.SessionOptions{}), "/lock").Lock(bounded(t))
			must(t, err)
			e.Kill(1)
			e.Kill(2)
			must(t, e.Recover(3, 1, 2))
			e.Start(3)
			e.Ready(3)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			token, err := c.after(ctx, e.Session(3, embed.SessionOptions{}))
			if err != nil || token.Compare(h.Token()) <= 0 {
				t.Errorf("a place %s: token %v after the lost members have granted %v: %v", name, token, h.Token(), err)
			}
		})
	}
}

// M30: a recovery was interrupted, and the others turn out to live. The command says what is left
// to do.
func TestRecover_InterruptedAndTheOthersLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Dir: t.TempDir()})
		ofAge(e)
		e.Kill(1)
		source := t.TempDir()
		must(t, os.CopyFS(source, os.DirFS(e.Dir(1))))
		for at := 1; ; at++ {
			must(t, os.RemoveAll(e.Dir(1)))
			must(t, os.CopyFS(e.Dir(1), os.DirFS(source)))
			calls := 0
			_, _ = offline.Recover(t.Context(), offline.RecoverOptions{Dir: e.Dir(1), Stopped: []embed.MemberID{2, 3}, Network: nowhere{}, Fault: func(disk.Op, string) error {
				if calls++; calls == at {
					return errNowhere
				}
				return nil
			}})
			if r, err := offline.Look(e.Dir(1)); err != nil {
				t.Fatal(err)
			} else if r.Recovering {
				break
			}
		}
		<-time.After(time.Second)
		err := e.Recover(1, 2, 3)
		_, errStart := e.TryStart(1)
		for _, err := range []error{err, errStart} {
			if err == nil || !strings.Contains(err.Error(), "keep") || !strings.Contains(err.Error(), "aside") {
				t.Errorf("it does not say what is left to do: %v", err)
			}
		}
	})
}

// M28: the survivor is a learner that the others do not have among their seeds. They hear of it all
// the same, and join it.
func TestRecover_OthersFindTheSurvivor(t *testing.T) {
	t.Parallel()
	seeds := func(c *embed.Config) { c.Join = []string{"member-1.test:1", "member-2.test:1", "member-3.test:1"} }
	embedkit.Growing(t, 3, seeds, func(t *testing.T, e *embedtest.Ensemble) {
		ofAge(e)
		embedkit.Joined(e, 1)
		embedkit.Synced(t, e.Node(4))
		killAll(e)
		must(t, e.Recover(4, 1, 2, 3))
		e.Restart(4)
		embedkit.Voting(e, 4, 4)
		for _, m := range []embed.MemberID{1, 2, 3} {
			e.Start(m)
		}
		for _, m := range []embed.MemberID{1, 2, 3} {
			<-e.Node(m).Done()
			if err := e.Node(m).Err(); !errors.Is(err, embed.ErrSuperseded) {
				t.Errorf("member %d: %v", m, err)
			}
			e.Kill(m)
			e.Start(m)
		}
		<-time.After(time.Minute)
		for _, m := range []embed.MemberID{1, 2, 3} { // none of them founds again
			if st := e.Node(m).Status(); st.Member > 0 && st.Member < 1000 {
				t.Errorf("place %d is member %d: %q", m, st.Member, st.Joining)
			}
		}
	})
}

// M73: a recovery of the directory that has less is interrupted. What it has written there makes it no
// better: the looks go on saying who has most.
func TestRecover_LookAfterAnInterruption(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Dir: dir})
		ofAge(e)
		e.Kill(1)
		writes(t, e, 2, "/acknowledged")
		e.Kill(2)
		e.Kill(3)
		two, err := offline.Look(e.Dir(2))
		must(t, err)
		cut := errors.New("power cut")
		for n := 0; ; n += 8 { // an attempt costs what the last one has left behind, so the next one needs more
			one, err := offline.Look(e.Dir(1))
			must(t, err)
			if more, ok := one.Compare(&two); !ok || more >= 0 {
				t.Fatalf("interrupted at call %d: term %d, last %d, and member 2 has term %d, last %d: Compare says %d, %v",
					n, one.Shards[0].Term, one.Shards[0].Last, two.Shards[0].Term, two.Shards[0].Last, more, ok)
			}
			calls := 0
			_, err = offline.Recover(t.Context(), offline.RecoverOptions{Dir: e.Dir(1), Stopped: []embed.MemberID{2, 3}, Network: nowhere{}, Fault: func(disk.Op, string) error {
				if calls++; calls > n {
					return cut
				}
				return nil
			}})
			if !errors.Is(err, cut) { // it was done, or is done by now
				break
			}
		}
	})
}

// M73, M95: an interrupted recovery has written that all entries are committed. What the command
// calls certain is what the log knew before, and a backup has nothing else.
func TestRecover_WhatIsCertainAfterAnInterruption(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.Bubble(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Dir: dir})
		ofAge(e)
		e.TransferLeadership(1)
		s := e.Session(1, embed.SessionOptions{})
		e.Isolate(1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.Create(ctx, "/unknown", nil, embed.Persistent)
		if err == nil {
			t.Error("a write without a quorum was acknowledged")
		}
		killAll(e)
		e.HealAll()
		look := func() []offline.ShardRemains {
			r, err := offline.Look(e.Dir(1))
			must(t, err)
			if !r.Recovered && inBackup(t, e.Dir(1), "/unknown") {
				t.Fatalf("half recovered: %v, and the backup has what is not certain", r.Recovering)
			}
			return r.Shards
		}
		before := look()
		if before[0].Certain >= before[0].Newest && len(before) == 1 {
			t.Fatalf("nothing is uncertain: %+v", before)
		}
		for n := 1; err != nil; n++ {
			calls := 0
			_, err = offline.Recover(t.Context(), offline.RecoverOptions{Dir: e.Dir(1), Stopped: []embed.MemberID{2, 3}, Network: nowhere{}, Fault: func(disk.Op, string) error {
				if calls++; calls > 8*n { // an attempt costs what the last one has left behind
					return errNowhere
				}
				return nil
			}})
			for i, now := range look() {
				if now.Certain != before[i].Certain || now.Newest != before[i].Newest || now.Committed > before[i].Committed {
					t.Fatalf("after attempt %d: %+v, before %+v", n, now, before[i])
				}
			}
		}
	})
}

// inBackup reports whether a backup of a stopped member's directory has a znode.
func inBackup(t *testing.T, dir, path string) (found bool) {
	t.Helper()
	var file bytes.Buffer
	_, err := offline.BackupDir(dir, &file)
	must(t, err)
	r, err := backup.NewReader(&file)
	must(t, err)
	for z, err := range r.Znodes() {
		must(t, err)
		found = found || z.Path == path
	}
	return found
}
