package outbox

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// Calls that are abandoned while they are parked leave the queue, and it goes on counting right.
func TestAbandonedCallsLeaveTheQueue(t *testing.T) {
	withOutbox(t, func(t *testing.T, r *rig) {
		s := NewOwner(1, false)
		var calls []*Call
		for i := range 4 * compactMin {
			op := tree.Op{Kind: tree.KindDelete, Path: fmt.Sprint("/", i)}
			c := NewCall(s, &command.Request{Kind: command.RequestTxn, Session: 1, Ops: []tree.Op{op}})
			if _, err := r.Submit(c); err != nil {
				t.Fatal(err)
			}
			calls = append(calls, c)
		}
		why := errors.New("abandoned by the test")
		for _, c := range calls {
			r.Abandon(c, why)
			if n := len(r.mu.queue.parked[s]); n != r.mu.queue.parkedLen {
				t.Fatalf("%d calls are parked, %d are counted", n, r.mu.queue.parkedLen)
			}
		}
		if n := r.mu.queue.parkedLen; n > 2*compactMin {
			t.Errorf("%d abandoned calls are kept", n)
		}
	})
}
