package membertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/session"
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

// M80: a change is asked on the member that leads the home shard, and the answers of the others are
// lost while it waits for the record. The others have the record, so nobody is told that there is none.
func TestOutcome_OfAChangeAtTheLeader(t *testing.T) {
	t.Parallel()
	remove := func(ctx context.Context, n *embed.Node) error { return n.RemoveMember(ctx, 3) }
	reconfig := func(ctx context.Context, n *embed.Node) error {
		return embedkit.EngineOf(n).Petitioner.Reconfig(ctx, engine.Reconfig{Remove: []engine.MemberID{3}})
	}
	for what, ask := range map[string]func(ctx context.Context, n *embed.Node) error{"RemoveMember": remove, "Reconfig": reconfig} {
		for how, ends := range map[string]func(n *embed.Node){
			"closes": func(n *embed.Node) { _ = n.Close() },
			"fails":  func(n *embed.Node) { embedkit.EngineOf(n).Kill() },
			"waits":  func(*embed.Node) {},
		} {
			recorded := 0
			for wait := 40 * time.Millisecond; wait <= 100*time.Millisecond; wait += 10 * time.Millisecond {
				is, err := changeAtLeader(t, wait, ask, ends)
				if is {
					recorded++
				}
				if is && err != nil && !errors.Is(err, embed.ErrUnknownOutcome) {
					t.Errorf("the leader %s after %v; %s: %v", how, wait, what, err)
				}
			}
			if recorded == 0 {
				t.Errorf("the leader %s: %s was never recorded", how, what)
			}
		}
	}
}

// changeAtLeader asks the leader for a change, cuts the links to it a while later, and ends it. It
// returns whether the others have recorded that member 3 is to be out, and what the caller was told.
func changeAtLeader(t *testing.T, wait time.Duration, ask func(ctx context.Context, n *embed.Node) error, ends func(n *embed.Node)) (recorded bool, err error) {
	slow := func(c *embed.Config) { c.Tick, c.RequestTimeout = 50*time.Millisecond, 10*time.Second }
	embedkit.Growing(t, 3, slow, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		e.TransferLeadership(1)
		for _, m := range e.Members() {
			for _, other := range e.Members() {
				if m != other {
					e.Faults(m).SetLink(other, embedtest.Link{Delay: 20 * time.Millisecond})
				}
			}
		}
		<-time.After(10 * time.Second) // the leader knows who answers
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		told := make(chan error, 1)
		go func() { told <- ask(ctx, e.Node(1)) }()
		<-time.After(wait)
		for _, other := range []embed.MemberID{2, 3} {
			e.Faults(other).SetLink(1, embedtest.Link{Cut: true})
		}
		<-time.After(30 * time.Millisecond)
		ends(e.Node(1))
		err = <-told
		<-time.After(30 * time.Second)
		recorded = isToBeOut(e.Node(2), 3)
	})
	return recorded, err
}

func isToBeOut(n *embed.Node, m session.MemberID) bool {
	return slices.ContainsFunc(embedkit.EngineOf(n).Members(), func(rec engine.Member) bool {
		return rec.ID == m && rec.Wish == session.Out
	})
}

// M81: the node of a member that leaves is closed, or fails, once the wish is recorded. Leave does not
// say that nothing was applied, nor that the member is out.
func TestOutcome_OfALeave(t *testing.T) {
	t.Parallel()
	for how, ends := range map[string]func(n *embed.Node){
		"closed": func(n *embed.Node) { _ = n.Close() },
		"failed": func(n *embed.Node) { embedkit.EngineOf(n).Kill() },
	} {
		embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			e.TransferLeadership(1)
			<-time.After(20 * time.Second)
			n := e.Node(3)
			left := make(chan error, 1)
			go func() { left <- n.Leave(bounded(t)) }()
			e.Until("the wish to be recorded", func() bool { return isToBeOut(n, 3) })
			ends(n)
			err := <-left
			if errors.Is(err, embed.ErrClosed) || errors.Is(err, embed.ErrFailed) {
				t.Errorf("%s: %v", how, err)
			}
			if failed := n.Err(); err == nil && failed != nil {
				t.Errorf("Leave says that the member is out, and it has failed before: %v", failed)
			}
		})
	}
}
