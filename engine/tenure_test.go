package engine

import (
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// guarded is a transaction that a tenure guards, before it is submitted. Its goroutine may be
// stopped there.
type guarded struct {
	session *Session
	ops     []tree.Op
	with    *keeper.With
}

func (n *node) guards(s *Session, tenure *keeper.Tenure, path string) guarded {
	n.t.Helper()
	with := &keeper.With{}
	ops, err := with.Guard(s.Session, tenure)
	if err != nil {
		n.t.Fatal(err)
	}
	return guarded{s, append(ops, tree.Op{Kind: tree.KindCreate, Path: path}), with}
}

func (n *node) submit(g guarded) keeper.Pending {
	return g.session.SubmitWith(n.t.Context(), g.ops, g.with)
}

func (n *node) tenure(c *keeper.Claim) *keeper.Tenure {
	n.t.Helper()
	tenure, err := c.Hold(true)
	if err != nil {
		n.t.Fatal(err)
	}
	return tenure
}

// E5.3: a tenure's guard is checked again when the transaction is queued. The next tenure has the
// same znode, so the guard in the transaction cannot tell them apart. A transaction that was queued
// in time is applied before anything of the next tenure.
func TestGuardOfAnEarlierTenureIsRefusedWhenQueued(t *testing.T) {
	for name, queuedInTime := range map[string]bool{"queued in time": true, "queued late": false} {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				c := n.claim(s, "/q")
				first := n.tenure(c)
				issued := n.guards(s, first, "/first")
				var p keeper.Pending
				if queuedInTime {
					p = n.submit(issued)
				}
				first.End()
				second := n.guards(s, n.tenure(c), "/second")
				if !queuedInTime {
					p = n.submit(issued)
				}
				q := n.submit(second)
				n.commit()
				if _, err := q.Result(); err != nil {
					t.Errorf("a write of the present tenure: %v", err)
				}
				_, err := p.Result()
				switch {
				case queuedInTime && (err != nil || n.czxid("/first") > n.czxid("/second")):
					t.Errorf("a write that was queued in time: %v", err)
				case !queuedInTime && (!errors.Is(err, tree.ErrNotHeld) || n.exists("/first")):
					t.Errorf("a write of the former tenure was applied in the next one: %v", err)
				}
			})
		})
	}
}

func (n *node) czxid(path string) tree.Zxid {
	stat, _ := n.tree().Exists(path)
	return stat.Czxid
}

// E5.2: a further tenure is a grant like the first. It compares the clock. A claim that was lost
// meanwhile is never held again.
func TestTenureIsRefusedPastTheDeadline(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.claim(s, "/q")
		n.tenure(c).End()
		n.tenure(c).End() // as often as needed
		n.fake.Pause(testTimeout)
		if tenure, err := c.Hold(true); tenure != nil || !errors.Is(err, keeper.ErrSuspended) {
			t.Errorf("a tenure began after the deadline: %v", err)
		}
		n.outbox.Beat()
		n.commit()
		n.wantState(s, session.Connected)
		if tenure, err := c.Hold(true); tenure != nil || !errors.Is(err, keeper.ErrSuspended) {
			t.Errorf("a tenure of a lost claim: %v", err)
		}
	})
}
