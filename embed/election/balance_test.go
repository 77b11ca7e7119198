package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// shares counts who leads what.
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

// even reports whether all names are led, by as many as are given, and none by two more than another.
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
		go func() { ended[id] <- election.Balance(ctx, ens.Node(id), "/jobs", names, nil, s.fn(t, id)) }()
	}
	begin(1)
	ens.Until("the first to lead all", func() bool { return s.even(8, 1) })
	begin(2)
	ens.Until("the second to have its share", func() bool { return s.even(8, 1, 2) })
	begin(3)
	ens.Until("the third to have its share", func() bool { return s.even(8, 1, 2, 3) })
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
}

func TestBalance_EndsWithAnErrorOfFn(t *testing.T) {
	ens := one(t)
	enough := errors.New("enough")
	err := election.Balance(bounded(t), ens.Node(1), "/jobs", []string{"a", "b", "a"}, nil, func(ctx context.Context, name string, _ lock.Token) error {
		if name == "b" {
			return enough
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	if err := election.Balance(bounded(t), ens.Node(1), "/jobs", nil, nil, nil); err == nil {
		t.Error("without names")
	}
}
