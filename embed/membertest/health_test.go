package membertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// M88: whoever has no leader within reach says so, whatever part it has: Raft takes no leader away
// from a learner, nor from a voter that hears and is not heard. When the links are whole again, it
// serves.
func TestHealth_WithoutALeaderWithinReach(t *testing.T) {
	t.Parallel()
	outgoing := func(e *embedtest.Ensemble, place embed.MemberID) {
		for _, other := range e.Members() {
			if other != place {
				e.Faults(place).SetLink(other, embedtest.Link{Cut: true})
			}
		}
	}
	isolated := func(e *embedtest.Ensemble, place embed.MemberID) { e.Isolate(place) }
	for _, c := range []struct {
		what    string
		learner bool
		breaks  func(e *embedtest.Ensemble, place embed.MemberID)
	}{
		{"a learner that is cut off", true, isolated},
		{"a learner that reaches nobody", true, outgoing},
		{"a voter that is cut off", false, isolated},
		{"a voter that reaches nobody", false, outgoing},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			e := embedtest.New(t, 3, embedtest.Options{})
			e.TransferLeadership(1)
			place := embed.MemberID(2)
			if c.learner {
				place = e.Join()
			}
			e.Ready(place)
			c.breaks(e, place)
			<-time.After(time.Minute)
			n := e.Node(place)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if h := n.Health(); h.Ready || h.Waiting == "" {
				t.Errorf("%s: Health is %+v", c.what, h)
			}
			if err := n.Ready(ctx); err == nil {
				t.Errorf("%s: Ready", c.what)
			}
			for s := range n.Samples() {
				if s.Name == "vivarium_ready" && s.Value != 0 {
					t.Errorf("%s: %s is %v", c.what, s.Name, s.Value)
				}
			}
			if recent := fmt.Sprint(n.Recent(10)); !strings.Contains(recent, "quorum lost") {
				t.Errorf("%s: what happened last is %s", c.what, recent)
			}
			e.HealAll()
			e.Until("it to serve", func() bool { return n.Health().Ready })
		})
	}
}
