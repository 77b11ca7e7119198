package membertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// The time of an administrative call is up, or its node is closed, when it has proposed something.
// That may be recorded later, so no caller is told that it was not.
func TestOutcome_OfALevel(t *testing.T) {
	t.Parallel()
	withFleets(t, func(f *fleet, t *testing.T) {
		n := f.Node(1)
		f.TransferLeadership(1)
		f.Kill(3)
		f.Isolate(1)
		for _, ends := range []func(cancel func()){func(cancel func()) { cancel() }, func(func()) { _ = n.Close() }} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			raised := make(chan error, 1)
			go func() { raised <- n.RaiseLevel(ctx, 3) }()
			<-time.After(20 * time.Millisecond)
			ends(cancel)
			if err := <-raised; !errors.Is(err, embed.ErrUnknownOutcome) {
				t.Errorf("RaiseLevel: %v", err)
			}
			cancel()
		}
	}, 3)
}

func TestOutcome_OfARemoval(t *testing.T) {
	t.Parallel()
	for what, ends := range map[string]func(n *embed.Node, cancel func()){
		"cancel": func(_ *embed.Node, cancel func()) { cancel() },
		"close":  func(n *embed.Node, _ func()) { _ = n.Close() },
	} {
		embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			e.TransferLeadership(1)
			<-time.After(20 * time.Second)
			n := e.Node(2)
			e.Isolate(1) // the leader of 2 has the question or not
			ctx, cancel := context.WithCancel(bounded(t))
			defer cancel()
			removed := make(chan error, 1)
			go func() { removed <- n.RemoveMember(ctx, 3) }()
			<-time.After(20 * time.Millisecond)
			ends(n, cancel)
			if err := <-removed; !errors.Is(err, embed.ErrUnknownOutcome) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}
