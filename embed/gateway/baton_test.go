package gateway

import (
	"sync"
	"sync/atomic"
	"testing"
)

// One goroutine at a time holds the baton. Whatever existed before a goroutine asked for the baton
// is seen by a holder. After the baton is retired, nobody gets it.
func TestBaton(t *testing.T) {
	const askers, each = 8, 20_000
	var b baton
	var made, seen atomic.Int64
	var holders atomic.Int32
	look := func() {
		for again := true; again; again, _ = b.putDown() {
			if holders.Add(1) != 1 {
				t.Error("two hold the baton")
			}
			seen.Store(made.Load())
			holders.Add(-1)
		}
	}
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for range each {
				made.Add(1)
				if b.pickUp() {
					look()
				}
			}
		})
	}
	all.Wait()
	if seen.Load() != askers*each {
		t.Errorf("the holders saw %d of %d", seen.Load(), askers*each)
	}
	if !b.pickUp() || b.pickUp() {
		t.Error("the baton is not free, or two hold it")
	}
	b.retire()
	if again, retiring := b.putDown(); again || !retiring || b.retired() || b.pickUp() {
		t.Error("putDown does not make the last holder retire the baton")
	}
	b.retireHeld()
	if !b.retired() || b.pickUp() {
		t.Error("somebody gets a retired baton")
	}
}

// The package doc draws every transition of the baton that happens.
func TestBatonStates(t *testing.T) {
	for _, test := range []struct {
		from                     uint32
		pickedUp, down, retiring uint32 // the states after pickUp, putDown and retire
	}{
		{batonFree, batonHeld, batonFree, batonRetired},
		{batonHeld, batonWanted, batonFree, batonRetiring},
		{batonWanted, batonWanted, batonHeld, batonRetiring},
		{batonRetiring, batonRetiring, batonRetiring, batonRetiring},
		{batonRetired, batonRetired, batonRetired, batonRetired},
	} {
		for name, step := range map[string]struct {
			do   func(b *baton)
			want uint32
		}{
			"pickUp":  {func(b *baton) { b.pickUp() }, test.pickedUp},
			"putDown": {func(b *baton) { b.putDown() }, test.down},
			"retire":  {(*baton).retire, test.retiring},
		} {
			var b baton
			b.state.Store(test.from)
			step.do(&b)
			if got := b.state.Load(); got != step.want {
				t.Errorf("%s in state %d leads to state %d, want %d", name, test.from, got, step.want)
			}
		}
	}
}
