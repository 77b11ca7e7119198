package campaign

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A plan depends on its seed alone, and has every kind of fault.
func TestPlan(t *testing.T) {
	plans := func(seed uint64) *plan {
		return &plan{round: 1, kinds: faultKinds, rest: time.Second, rng: rand.New(rand.NewPCG(seed, 0))}
	}
	one, same, other := plans(1), plans(1), plans(2)
	seen, differ := make(map[string]bool), false
	for range 2 * len(faultKinds) {
		c, d, e := one.next(), same.next(), other.next()
		if c.String() != d.String() || c.length != d.length || c.strikes[0].seed != d.strikes[0].seed {
			t.Errorf("one seed has planned %v and %v", &c, &d)
		}
		differ = differ || c.String() != e.String()
		for _, p := range c.strikes {
			seen[p.fault.name] = true
		}
	}
	if len(seen) != len(faultKinds) || !differ {
		t.Errorf("%d kinds of faults of %d; another seed plans something else: %v", len(seen), len(faultKinds), differ)
	}
}

// In rounds that lose their majority, every lossEvery-th cycle is a loss, and nothing else happens
// in it. If no other fault is chosen, each cycle is one.
func TestPlan_Losses(t *testing.T) {
	for _, kinds := range [][]fault{faultKinds, nil} {
		p := &plan{round: 1, kinds: kinds, loses: true, rest: time.Second, rng: rand.New(rand.NewPCG(1, 0))}
		for range 3 * lossEvery {
			c := p.next()
			loss := c.strikes[0].fault.recovers()
			if loss != (kinds == nil || c.number%lossEvery == 0) || loss && len(c.strikes) > 1 {
				t.Errorf("of %d kinds cycle %v", len(kinds), &c)
			}
		}
	}
}
