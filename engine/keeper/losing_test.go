package keeper

import (
	"testing"

	"github.com/vivarium-go/vivarium/engine/outbox"
)

// M160: a session loses very many claims at once. Most losses look at no other one, and what is
// remembered of those that are over stays in bounds.
func TestNoteLoss_LooksAtFewOthers(t *testing.T) {
	k, s := new(Keeper), new(Session)
	k.mu.losing = map[*Session][]*outbox.Call{s: make([]*outbox.Call, 1000, 2000)}
	under, over := &outbox.Call{Done: make(chan struct{})}, &outbox.Call{Done: make(chan struct{})}
	close(over.Done)
	for range 1000 {
		k.noteLossLocked(s, under) // which panics if it looks at the others: they are nil
	}
	k.mu.losing[s] = nil
	for range 100 {
		k.noteLossLocked(s, under)
	}
	for range 100_000 {
		k.noteLossLocked(s, over)
		if n := len(k.mu.losing[s]); n > 1000 {
			t.Fatalf("%d losses are remembered, and 100 are under way", n)
		}
	}
	left := 0
	for _, c := range k.mu.losing[s] {
		if c == under {
			left++
		}
	}
	if left != 100 {
		t.Errorf("%d losses are remembered of the 100 that are under way", left)
	}
}
