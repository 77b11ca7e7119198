package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// shares counts what each member leads.
type shares struct {
	mu    sync.Mutex
	leads map[string]embed.MemberID
	token map[string]lock.Token
}

func (s *shares) fn(t *testing.T, id embed.MemberID) func(context.Context, string, lock.Token) error {
	return func(ctx context.Context, name string, token lock.Token) error {
		s.mu.Lock()
		if token.Compare(s.token[name]) <= 0 {
			t.Errorf("%s: token %v after %v", name, token, s.token[name])
		}
		s.leads[name], s.token[name] = id, token
		s.mu.Unlock()
		<-ctx.Done()
		return nil
	}
}

// even reports whether all names are led, by that many members, and none leads two more than
// another.
func (s *shares) even(names int, ids ...embed.MemberID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[embed.MemberID]int)
	for _, id := range s.leads {
		counts[id]++
	}
	least, most, sum := names, 0, 0
	for _, id := range ids {
		least, most, sum = min(least, counts[id]), max(most, counts[id]), sum+counts[id]
	}
	return sum == names && most-least < 2
}

func TestBalance(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		var names []string
		for i := range 8 {
			names = append(names, fmt.Sprint("job-", i))
		}
		s := &shares{leads: make(map[string]embed.MemberID), token: make(map[string]lock.Token)}
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		ended := make(map[embed.MemberID]chan error)
		begin := func(id embed.MemberID) {
			ended[id] = make(chan error, 1)
			go func() { ended[id] <- election.Balance(ctx, ens.Opener(id), "/jobs", names, nil, s.fn(t, id)) }()
		}
		begin(1)
		ens.Until("the first to lead all", func() bool { return s.even(8, 1) })
		begin(2)
		ens.Until("the second to have its share", func() bool { return s.even(8, 1, 2) })
		begin(3)
		ens.Until("the third to have its share", func() bool { return s.even(8, 1, 2, 3) })
		sessionsflag.Member(t, "a client outlives a member")
		ens.Stop(2)
		if err := <-ended[2]; !errors.Is(err, embed.ErrClosed) && !errors.Is(err, embed.ErrFailed) {
			t.Errorf("Balance of a node that was shut down: %v", err)
		}
		ens.Until("the others to share what it had", func() bool { return s.even(8, 1, 3) })
		cancel()
		for _, id := range []embed.MemberID{1, 3} {
			if err := <-ended[id]; !errors.Is(err, context.Canceled) {
				t.Errorf("Balance of %d: %v", id, err)
			}
		}
	})
}

func TestBalance_EndsWithAnErrorOfFn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		enough := errors.New("enough")
		err := election.Balance(bounded(t), ens.Opener(1), "/jobs", []string{"a", "b", "a"}, nil, func(ctx context.Context, name string, _ lock.Token) error {
			if name == "b" {
				return enough
			}
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, enough) {
			t.Error(err)
		}
		if err := election.Balance(bounded(t), ens.Opener(1), "/jobs", nil, nil, nil); !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("without names: %v", err)
		}
	})
}

// A led is one leadership of a name in a Balance.
type led struct {
	name string
	ctx  context.Context
}

// balances runs a Balance whose fn leads until it is told to end. It returns a channel with its
// leaderships.
func balances(t *testing.T, n embed.Opener, names []string) <-chan led {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	turns, over := make(chan led, 100), make(chan error, 1)
	go func() {
		over <- election.Balance(ctx, n, "/jobs", names, nil, func(ctx context.Context, name string, _ lock.Token) error {
			turns <- led{name, ctx}
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Balance returned %v", err)
		}
	})
	return turns
}

// Somebody stands for all names but answers no offer: a client that knows no transfers, or a dead
// process that has not expired. A live leader loses nothing to it, and it keeps nobody else from
// its share.
func TestBalance_GivesNothingToWhoAnswersNothing(t *testing.T) {
	names := []string{"a", "b", "c"}
	for who, c := range map[string]struct {
		stand func(t *testing.T, s *embed.Session, path string)
		dies  bool
	}{
		"a client": {stand: func(t *testing.T, s *embed.Session, path string) {
			_, err := s.Create(bounded(t), path+"/_c_00112233-4455-6677-8899-aabbccddeeff-latch-", []byte("curator"), embed.EphemeralSequential)
			must(t, err)
		}},
		"the dead": {dies: true, stand: func(t *testing.T, s *embed.Session, path string) {
			_, err := election.New(s, path).Enter(bounded(t), nil, election.Options{})
			must(t, err)
		}},
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := embedtest.New(t, 3, embedtest.Options{})
				ens.TransferLeadership(1)
				turns := balances(t, ens.Opener(1), names)
				var lead []led
				for range names {
					lead = append(lead, <-turns)
				}
				other := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
				for _, name := range names {
					c.stand(t, other, "/jobs/"+name)
				}
				if c.dies {
					ens.Kill(2)
				}
				s := ens.Session(1, embed.SessionOptions{})
				offered := func() bool {
					return slices.ContainsFunc(names, func(name string) bool {
						children, _, err := s.Children(bounded(t), "/jobs/"+name)
						must(t, err)
						return slices.ContainsFunc(children, func(child string) bool { return strings.HasPrefix(child, "transfer") })
					})
				}
				ens.Until("an offer", offered)
				ens.Until("the offer to be deleted", func() bool { return !offered() })
				for _, l := range lead {
					if err := l.ctx.Err(); err != nil {
						t.Errorf("%s: %v", l.name, context.Cause(l.ctx))
					}
				}
				third := balances(t, ens.Opener(3), names)
				ens.Until("another to have its share", func() bool { return len(third) > 0 })
			})
		})
	}
}

// One process has more names than another, as while a new list is rolled out. The transfers stop.
func TestBalance_OfMoreNamesTakesAndGivesNot(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 2, embedtest.Options{})
		former := balances(t, ens.Opener(1), []string{"a", "b", "c", "d"})
		for range 4 {
			<-former
		}
		latter := balances(t, ens.Opener(2), []string{"a", "b", "c", "d", "e", "f"})
		for range 4 { // two names that nobody else has, and two that it is given
			<-latter
		}
		var again led
		select {
		case again = <-former:
		case again = <-latter:
		case <-time.After(3 * time.Second): // each checks its share about three times in this time
			return
		}
		t.Errorf("%s is led again, and nobody came or went", again.name)
	})
}

// A leadership is transferred when fn has returned, not as soon as its ctx has ended. In
// kyverno#5180 one was released while its holder was still at work.
func TestBalance_HandsOverWhenFnHasReturned(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 2, embedtest.Options{})
		names := []string{"a", "b"}
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		begins, ends, second := make(chan string, 2), make(chan string, 2), make(chan (<-chan led), 1)
		over := make(chan error, 1)
		go func() {
			over <- election.Balance(ctx, ens.Opener(1), "/jobs", names, nil, func(inner context.Context, name string, _ lock.Token) error {
				begins <- name
				<-inner.Done()
				if ctx.Err() != nil {
					return nil
				}
				select {
				case l := <-<-second:
					t.Errorf("%s is led by another when its ctx has ended and fn has not returned", l.name)
					name = ""
				// Somebody would lead by then if nobody waited for fn.
				case <-time.After(500 * time.Millisecond):
				}
				ends <- name
				return nil
			})
		}()
		for range names {
			<-begins
		}
		turns := balances(t, ens.Opener(2), names)
		second <- turns
		if name := <-ends; name != "" {
			if l := <-turns; l.name != name {
				t.Errorf("%s is handed on, and %s led", name, l.name)
			}
		}
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("Balance returned %v", err)
		}
	})
}

// One candidacy is lost: the others of the Balance lead on, and the lost one begins again.
func TestBalance_OneLostCandidacyEndsNoOther(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		names := []string{"a", "b", "c"}
		turns := balances(t, ens.Opener(1), names)
		lead := make(map[string]led)
		for range names {
			l := <-turns
			lead[l.name] = l
		}
		all, err := election.New(s, "/jobs/a").Candidates(bounded(t))
		must(t, err)
		must(t, s.Delete(bounded(t), all[0].Path, embed.AnyVersion))
		if again := <-turns; again.name != "a" {
			t.Errorf("%s begins anew, and a was lost", again.name)
		}
		for _, l := range lead {
			if over := l.ctx.Err() != nil; over != (l.name == "a") {
				t.Errorf("%s: has ended: %v, %v", l.name, over, context.Cause(l.ctx))
			}
		}
	})
}
