package peers

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/replication/transport"
)

// A node fails at most once, and says why.
type node struct {
	Node
	failed error
}

func (n *node) Fail(cause error) { n.failed = cause }

// A peer may refuse a node while Start opens it. The node fails only afterwards. Else Start would
// return the refusal or not, as chance has it.
func TestRefused_WaitsForStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, opened := new(node), make(chan struct{})
		d := &Doorkeeper{Node: n, Opened: opened}
		go d.Refused(t.Context(), 1, &transport.Refusal{Kind: transport.ErrForgot, Text: "no"})
		synctest.Wait()
		if n.failed != nil {
			t.Errorf("failed during Start: %v", n.failed)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		d.Refused(over, 1, &transport.Refusal{Kind: transport.ErrForgot, Text: "no"}) // Start fails otherwise: it returns
		close(opened)
		synctest.Wait()
		if n.failed == nil {
			t.Error("not failed after Start")
		}
	})
}
