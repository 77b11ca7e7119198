package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A call is parked when its session ends. The application has derived many contexts from the
// session's context, so it takes a while to end them.
func TestParkedCallIsToldWhyASessionOfManyContextsEnded(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		for range 300_000 {
			_, cancel := context.WithCancel(s.Context())
			defer cancel()
		}
		n.lead(0)
		p := s.Submit(t.Context(), []tree.Op{ephemeral(n.on(2, 0))})
		synctest.Wait()
		go s.Close()
		synctest.Wait()
		if err := outcome(p); err != session.ErrClosed {
			t.Errorf("the outcome is %v", err)
		}
	})
}

// Calls that wait until the shard knows their session leave room for calls of sessions that the
// shard knows.
func TestParkedCallsLeaveRoom(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		known, stranger := n.open(testTimeout), n.open(testTimeout)
		n.own(known, n.on(2, 0))
		path := n.on(2, 1)
		for range outbox.QueueMax {
			stranger.Submit(t.Context(), []tree.Op{create(path)}) // nothing is applied on the home shard
		}
		synctest.Wait()
		p := known.Submit(t.Context(), []tree.Op{create(path)})
		synctest.Wait()
		if err := outcome(p); errors.Is(err, outbox.ErrUnavailable) {
			t.Errorf("a session that the shard knows got %v", err)
		}
	})
}

// A session ends when a shard has just learned of it. The shard finds the session's calls before
// the session's context has ended. The calls must get the end as their outcome, not a success.
func TestEndOfASessionThatIsJustKnownIsNoSuccess(t *testing.T) {
	withShards(t, 2, func(t *testing.T, n *node) {
		s, path := n.open(testTimeout), n.on(2, 0)
		p := s.Submit(t.Context(), []tree.Op{create(path)})
		synctest.Wait()
		n.apply(n.log.Drain()...)
		introduce := n.log.Drain()
		if len(introduce) != 1 {
			t.Fatalf("%d proposals are on their way", len(introduce))
		}
		end := session.ErrExpired // as endLocked does, without its last line
		s.Owner.End(end)
		n.apply(introduce...)
		if err := outcome(p); err != end || n.exists(path) {
			t.Errorf("the outcome is %v", err)
		}
	})
}
