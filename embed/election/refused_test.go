package election_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/refusals"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A candidate that the ensemble refuses is not tried again for ever, without a word: Run, Balance
// and a Latch end and say why.
func TestRun_ARefusedCandidate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		from := &refusals.Opener{From: ens.Opener(1), Judge: func(int, []refusals.Write) error {
			return embed.ErrQuotaExceeded
		}}
		lead := func(context.Context, lock.Token) error { t.Error("it leads"); return nil }
		if err := election.Run(bounded(t), from, path, nil, lead); !errors.Is(err, embed.ErrQuotaExceeded) {
			t.Errorf("Run: %v", err)
		}
		err := election.Balance(bounded(t), from, path, []string{"a", "b"}, nil,
			func(ctx context.Context, _ string, t lock.Token) error { return lead(ctx, t) })
		if !errors.Is(err, embed.ErrQuotaExceeded) {
			t.Errorf("Balance: %v", err)
		}
		l := election.NewLatch(from, path, nil, election.Options{})
		<-l.Done()
		if err := l.Err(); !errors.Is(err, embed.ErrQuotaExceeded) {
			t.Errorf("Latch: %v", err)
		}
		must(t, l.Close())
	})
}

// A candidate with an ACL of its own is shown by its path, and stops nobody.
func TestElection_AHiddenCandidate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		ctx := bounded(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		hide := func() string {
			name, _, err := other.CreateWith(ctx, path+"/_c_00000000-0000-4000-8000-000000000001-latch-", nil,
				embed.CreateOptions{Mode: embed.EphemeralSequential, Parents: true,
					ACL: []embed.ACL{{Perms: embed.PermWrite, Scheme: "world", ID: "anyone"}}})
			must(t, err)
			return name
		}
		e := election.New(s, path)
		first := hide()
		seen := make(chan election.Leader)
		go func() {
			defer close(seen)
			for l, err := range e.Observe(ctx) {
				if err != nil {
					t.Error(err)
					return
				}
				seen <- l
				if l.Value != nil {
					return
				}
			}
		}()
		if l := <-seen; l.Path != first || l.Owner != 0 {
			t.Errorf("Observe: %v", l)
		}
		if l, err := e.Leader(ctx); l.Path != first || err != nil {
			t.Errorf("Leader: %v, %v", l, err)
		}
		c, err := e.Enter(ctx, []byte("x"), election.Options{})
		must(t, err)
		second := hide()
		ahead, err := e.Enter(ctx, []byte("y"), election.Options{Priority: 5})
		must(t, err)
		all, err := e.Candidates(ctx)
		must(t, err)
		var paths []string
		for _, s := range all {
			paths = append(paths, s.Path)
		}
		if want := []string{first, c.Path(), second, ahead.Path()}; !slices.Equal(paths, want) {
			t.Errorf("Candidates: %v, want %v", paths, want)
		}
		select {
		case l := <-seen:
			t.Errorf("Observe: %v before the leader has gone", l)
		case <-time.After(time.Second):
		}
		must(t, other.Delete(ctx, first, embed.AnyVersion))
		if l := <-seen; string(l.Value) == "" || l.Owner != s.ID() {
			t.Errorf("Observe: %v", l)
		}
		for range seen {
		}
	})
}
