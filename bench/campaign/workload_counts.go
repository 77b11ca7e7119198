package campaign

import (
	"context"
	"fmt"
	"time"
)

// idsAtOnce is how many ids a client takes, and blockOfIDs how many a sequence fetches at a time.
const idsAtOnce, blockOfIDs = 12, 5

// addMax limits an add. It is so short that a fault often leaves the outcome unknown: then nobody may
// add again.
const addMax = 200 * time.Millisecond

// thinkMax is the longest time between the read of a value and its Swap.
const thinkMax = 100 * time.Millisecond

// countStep adds one to a counter or to a value, swaps a value, or takes ids.
func countStep(_ context.Context, c *client) {
	path := c.aged(c.area() + countsPath)
	switch n := c.rng.IntN(40); {
	case n == 0:
		c.hold(Request{Call: callIDs, Path: c.aged(c.area() + idsPath), Count: 1 + c.rng.IntN(idsAtOnce), Within: lockPatience})
	case n < 10:
		c.do(Request{Call: callSwap, Path: c.fresh(c.area() + swapsPath), Data: c.next(), Within: c.within(), Length: between(c.rng, 0, thinkMax)})
	case n < 20:
		c.do(Request{Call: callUpdate, Path: path + "-value", Data: c.next(), Within: c.within()})
	default:
		c.do(Request{Call: callAdd, Path: c.fresh(c.area()+countsPath) + "-counter", Data: c.next(), Within: between(c.rng, time.Millisecond, addMax)})
	}
}

const (
	// workers is the number of worker numbers in each area: one less than those that want one.
	workers = 2
	// workerSkew is how many milliseconds a worker's clock may be off.
	workerSkew = 1000
	// reservedMin to reservedMax is how long a name is reserved.
	reservedMin, reservedMax = 300 * time.Millisecond, 3 * time.Second
)

// workerStep takes a worker number or reserves a name, and uses it.
func workerStep(_ context.Context, c *client) {
	area := c.area()
	q := Request{Call: callWorker, Path: area + workersPath, Data: c.next(), Within: lockPatience, Length: c.length()}
	q.Hold.Kind, q.Count = kindWorker, c.rng.IntN(2*workerSkew)-workerSkew
	switch c.rng.IntN(3) {
	case 0:
		q.Call, q.Path, q.Hold.Kind = callReserve, area+namesPath, kindName
		q.TTL = between(c.rng, reservedMin, reservedMax).Truncate(time.Millisecond)
		q.Count = c.rng.IntN(3) // of renewals
	case 1:
		q.Hold.Delay = between(c.rng, 100*time.Millisecond, time.Second).Truncate(time.Millisecond)
	}
	c.hold(q)
}

// workerName returns the name of a worker number below its directory.
func workerName(n int) string { return fmt.Sprintf("held/%d", n) }
