package campaign

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A plan is what a nemesis will do in a round. It depends on the seed and on nothing that happens,
// so a cycle is the same if the cycles before it are left out.
type plan struct {
	round  int
	kinds  []fault
	loses  bool          // the ensemble loses its majority for good, again and again
	rest   time.Duration // the longest pause after a cycle
	rng    *rand.Rand
	bag    []fault // kinds that were not drawn since it was filled
	number int     // of the newest cycle
}

// A cycle is one fault or two at once, and what follows.
type cycle struct {
	round, number int
	strikes       []planned
	length        time.Duration
	rest          time.Duration // after the healing
	settle        bool          // then wait until all members are ready
	sweeper       int           // chooses the member that looks for what sessions left
}

// A planned fault is one that is still to come.
type planned struct {
	fault fault
	after time.Duration // since the one before
	seed  uint64
}

// twoAtOnce is how many of ten cycles have a second fault.
const twoAtOnce = 2

// lossEvery is how many cycles there are to each loss of the majority.
const lossEvery = 4

func (p *plan) next() cycle {
	p.number++
	c := cycle{round: p.round, number: p.number}
	loss := p.loses && (len(p.kinds) == 0 || p.number%lossEvery == 0)
	if len(p.kinds) == 0 && !loss { // only builds change
		c.length = moment
		return c
	}
	first := recovery
	if !loss {
		first = p.draw()
	}
	c.length = between(p.rng, first.shortest, first.longest)
	c.strikes = []planned{{fault: first, seed: p.rng.Uint64()}}
	if !loss && p.rng.IntN(10) < twoAtOnce {
		c.strikes = append(c.strikes, planned{p.draw(), between(p.rng, 0, c.length/2), p.rng.Uint64()})
	}
	c.rest, c.settle, c.sweeper = between(p.rng, 0, p.rest), p.rng.IntN(5) > 0, p.rng.Int()
	return c
}

// draw returns a random kind of fault. Each kind comes once before any kind comes again.
func (p *plan) draw() fault {
	if len(p.bag) == 0 {
		p.bag = slices.Clone(p.kinds)
		p.rng.Shuffle(len(p.bag), func(i, j int) { p.bag[i], p.bag[j] = p.bag[j], p.bag[i] })
	}
	f := p.bag[0]
	p.bag = p.bag[1:]
	return f
}

// String returns the round, the number and the faults.
func (c *cycle) String() string {
	var names []string
	for _, p := range c.strikes {
		names = append(names, p.fault.name)
	}
	return fmt.Sprintf("%d %d %s", c.round, c.number, strings.Join(names, " and "))
}
