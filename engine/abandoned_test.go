package engine

import (
	"context"
	"testing"

	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// B4.4: the ctx of Submit bounds how long a transaction may wait to be accepted. It does not end
// the outcome: a caller that gives up learns its contender's name from the outcome, and can delete
// it.
func TestSubmitsCtxBoundsAdmissionOnly(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		ctx, cancel := context.WithCancel(t.Context())
		sent := s.Submit(ctx, []tree.Op{create("/sent")})
		first := n.wantRequests("create /sent")
		queued := s.Submit(ctx, []tree.Op{create("/queued")})
		cancel()
		if err := outcome(s.Submit(ctx, []tree.Op{create("/late")})); err != context.Canceled {
			t.Fatalf("accepted after the ctx ended: %v", err)
		}
		n.apply(first...)
		n.apply(n.wantRequests("create /queued")...)
		for _, p := range []keeper.Pending{sent, queued} {
			if err := outcome(p); err != nil {
				t.Fatalf("outcome %v of an applied request", err)
			}
		}
	})
}

func TestAbandonedWhileItsBatchIsRefused(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.log.Refuse(enginetest.ErrRefused)
		n.log.OnNextPropose(func() {
			n.log.OnNextPropose(nil)
			n.outbox.AbandonSent(outbox.ErrUnknownOutcome, s.Owner)
		})
		p := s.Submit(t.Context(), []tree.Op{create("/a")})
		if err := outcome(p); err != outbox.ErrUnknownOutcome {
			t.Fatal(err)
		}
		s.Submit(t.Context(), []tree.Op{create("/b")})
		n.log.Refuse(nil)
		enginetest.Pass(outbox.PollInterval)
		n.wantRequests("create /b")
	})
}

func TestSessionCloseAbandonsWhatItCannotLearn(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		p := s.Submit(t.Context(), []tree.Op{create("/a")})
		n.log.Drain() // and it is lost
		n.lead(0)
		if err := s.Close(); err == nil {
			t.Error("Close without a quorum returns no error")
		}
		if !testkit.Closed(p.Done()) {
			t.Fatal("the request has no outcome")
		}
		if err := outcome(p); err != outbox.ErrUnknownOutcome {
			t.Error(err)
		}
	})
}
