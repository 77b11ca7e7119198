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
