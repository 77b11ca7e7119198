package gateway

import (
	"sync"
	"sync/atomic"
	"testing"
)

// One at a time has the turn, whatever is there before it is asked for is looked at, and when it is over nobody has it.
func TestTurn(t *testing.T) {
	const askers, each = 8, 20_000
	var of turn
	var made, seen atomic.Int64
	var having atomic.Int32
	look := func() {
		for again := true; again; again, _ = of.giveUp() {
			if having.Add(1) != 1 {
				t.Error("two have the turn")
			}
			seen.Store(made.Load())
			having.Add(-1)
		}
	}
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for range each {
				made.Add(1)
				if of.take() {
					look()
				}
			}
		})
	}
	all.Wait()
	if seen.Load() != askers*each {
		t.Errorf("looked at %d of %d", seen.Load(), askers*each)
	}
	if !of.take() || of.take() {
		t.Error("the turn is not free, or two have it")
	}
	if !of.end() {
		t.Error("it is over, and nobody had it")
	}
	if again, over := of.giveUp(); again || !over || of.take() {
		t.Error("it goes on when it is over")
	}
}
