package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

func TestLatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		latches := make(map[embed.MemberID]*election.Latch)
		for id := embed.MemberID(1); id <= 3; id++ {
			latches[id] = election.NewLatch(ens.Opener(id), path, fmt.Append(nil, id), election.Options{})
		}
		var token lock.Token
		next := func() (leader embed.MemberID) {
			ens.Until("one to lead", func() bool {
				for id, l := range latches {
					if now, ok := l.Leadership(); ok && now.Token().Compare(token) > 0 {
						leader, token = id, now.Token()
					}
				}
				return leader != 0
			})
			n := 0
			for _, l := range latches {
				if l.IsLeader() {
					n++
				}
			}
			if n > 1 {
				t.Errorf("%d lead", n)
			}
			return leader
		}
		first := next()
		must(t, latches[first].Close())
		if latches[first].IsLeader() || !errors.Is(latches[first].Err(), embed.ErrReleased) {
			t.Errorf("closed: it leads: %v, %v", latches[first].IsLeader(), latches[first].Err())
		}
		must(t, latches[first].Close())
		delete(latches, first)

		// After it resigns, a Latch stands again.
		second := next()
		s := ens.Session(second, embed.SessionOptions{})
		ens.Until("the other to stand", func() bool { return len(candidates(t, s)) == 2 })
		leads, _ := latches[second].Leadership()
		must(t, leads.Resign())
		third := next()
		if third == second {
			t.Error("the one that resigned was elected before the one that waited")
		}
		if sessionsflag.Open != nil { // a client outlives a member
			for _, l := range latches {
				must(t, l.Close())
			}
			return
		}
		// The leader's node ends: so does its Latch, and the other one leads.
		ens.Stop(third)
		<-latches[third].Done()
		if err := latches[third].Err(); !errors.Is(err, embed.ErrClosed) && !errors.Is(err, embed.ErrFailed) {
			t.Errorf("the Latch of a node that was shut down: %v", err)
		}
		delete(latches, third)
		if last := next(); last != second {
			t.Errorf("%d leads, not %d", last, second)
		}
		must(t, latches[second].Close())
	})
}

func TestLatch_Changes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		holds, err := election.New(s, path).Campaign(bounded(t), nil)
		must(t, err)
		l := election.NewLatch(ens.Opener(1), path, nil, election.Options{})
		defer l.Close()
		var seen []bool
		// The next leader, so that the end of a leadership is seen: the Latch gets no other before
		// this one resigns.
		var other <-chan outcome
		for now := range l.Changes(bounded(t)) {
			seen = append(seen, now != nil)
			switch len(seen) {
			case 1:
				must(t, holds.Resign())
			case 2, 4:
				other = stands(t, ens, s, "")
				must(t, now.Resign())
			case 3:
				must(t, (<-other).leadership.Resign())
			case 5:
				must(t, l.Close())
				must(t, (<-other).leadership.Resign())
			}
		}
		for i, leads := range seen {
			if leads != (i%2 == 1) {
				t.Fatalf("Changes yielded %v", seen)
			}
		}
		if len(seen) < 5 {
			t.Errorf("Changes yielded %v", seen)
		}
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		second := election.NewLatch(ens.Opener(1), path, nil, election.Options{})
		defer second.Close()
		for now := range second.Changes(ctx) {
			if now != nil {
				cancel()
			}
		}
		if !second.IsLeader() {
			t.Error("the end of a loop ended the leadership")
		}
	})
}

// No attempt can succeed: the Latch tells why and does not spin.
func TestLatch_EndsWhenNoAttemptCanSucceed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		for name, l := range map[string]*election.Latch{
			"path":     election.NewLatch(ens.Opener(1), "no/path", nil, election.Options{}),
			"priority": election.NewLatch(ens.Opener(1), path, nil, election.Options{Priority: -1}),
			"size":     election.NewLatch(ens.Opener(1), path, make([]byte, 2<<20), election.Options{}),
		} {
			<-l.Done()
			if l.Err() == nil || errors.Is(l.Err(), embed.ErrReleased) || name == "priority" && !errors.Is(l.Err(), embed.ErrInvalidArgument) {
				t.Errorf("%s: %v", name, l.Err())
			}
		}
	})
}

// A Latch that NewLatch has not made has ended.
func TestLatch_Zero(t *testing.T) {
	var l election.Latch
	if l.IsLeader() || !errors.Is(l.Err(), embed.ErrReleased) {
		t.Errorf("it leads: %v, %v", l.IsLeader(), l.Err())
	}
	n := 0
	for now := range l.Changes(context.Background()) {
		if n++; now != nil {
			t.Error("it leads")
		}
	}
	if n != 1 {
		t.Errorf("%d changes", n)
	}
	<-l.Done()
	must(t, l.Close())
}

// A runner in the background resigns when its leadership is over. But a place that is being
// transferred is for the named candidate.
func TestLatch_TransfersToWhoIsNamed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		latches := make(map[string]*election.Latch)
		for i := range 3 {
			name := fmt.Sprint("latch ", i)
			latches[name] = election.NewLatch(ens.Opener(1), path, []byte(name), election.Options{})
			defer latches[name].Close()
		}
		all := func() (list []election.Standing) {
			ens.Until("all to stand", func() bool {
				var err error
				list, err = election.New(s, path).Candidates(bounded(t))
				must(t, err)
				return len(list) == len(latches)
			})
			return list
		}
		for range 3 {
			list := all()
			first, last := latches[string(list[0].Value)], list[2]
			ens.Until("the first to lead", first.IsLeader)
			leads, _ := first.Leadership()
			must(t, leads.Transfer(bounded(t), last.Path))
			if now := all()[0]; string(now.Value) != string(last.Value) {
				t.Fatalf("transferred to %s, and %s leads", last.Value, now.Value)
			}
		}
	})
}

// A Latch or a Run is closed while its leadership is being transferred to a candidate that has
// answered and does not accept. It no longer waits for the candidate.
func TestLatch_CloseDuringATransfer(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		l := election.NewLatch(ens.Opener(1), path, nil, election.Options{})
		ens.Until("it to lead", l.IsLeader)
		named, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
		must(t, err)
		leads, _ := l.Leadership()
		said := make(chan error, 1)
		go func() { said <- leads.Transfer(bounded(t), named.Path()) }()
		offer := offerPath(named.Path())
		version := func(n int32) func() bool {
			return func() bool { stat, ok, _ := s.Exists(bounded(t), offer); return ok && stat.Version == n }
		}
		ens.Until("the offer", version(0))
		_, err = s.Set(bounded(t), offer, nil, 0)
		must(t, err)
		ens.Until("the place to be given", version(2))
		must(t, l.Close())
		if err := <-said; !errors.Is(err, embed.ErrUnknownOutcome) || !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("Transfer of a session that was closed, before the candidate was out of time: %v", err)
		}
		next, err := named.Wait(bounded(t))
		must(t, err)
		must(t, next.Err())
	})
}
