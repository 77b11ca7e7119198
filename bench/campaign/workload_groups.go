package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// groupIDs are the ids of the members of a group, of which two clients may want the same.
var groupIDs = []string{"a", "b", "c"}

// rollOutMax limits the wait until all have applied a value.
const rollOutMax = 5 * time.Second

// groupStep announces a member, follows a rollout, or rolls a value out.
func groupStep(_ context.Context, c *client) {
	area := c.area()
	q := Request{Data: c.next(), Timeout: c.recipeTimeout(), Length: between(c.rng, 500*time.Millisecond, 10*time.Second)}
	switch c.rng.IntN(3) {
	case 0:
		q.Call, q.Path, q.Within = callRollOut, area+rolloutPath, rollOutMax
		c.do(q)
		return
	case 1:
		q.Call, q.Path, q.Within = callFollow, area+rolloutPath, q.Length
	default:
		q.Call, q.Path, q.Within = callJoin, area+groupPath, observeMax
		q.Count = c.rng.IntN(len(groupIDs))
		if c.rng.IntN(3) == 0 {
			q.TTL = between(c.rng, 100*time.Millisecond, time.Second).Truncate(time.Millisecond) // Linger
		}
	}
	c.hold(q)
}

// recipeTimeout returns the timeout of the sessions that a recipe opens.
func (c *client) recipeTimeout() time.Duration {
	return []time.Duration{sessionTimeoutMin, sessionTimeoutMin, sessionTimeoutShort, sessionTimeoutLong}[c.rng.IntN(4)]
}

const (
	// serviceName is the name of each area's only service.
	serviceName = "all"
	// rosterTotal is what the members of a group share.
	rosterTotal = 60.0
	// rosterSettle is group.Options.Settle.
	rosterSettle = 200 * time.Millisecond
)

// serviceStep registers an instance, or follows who is in a group or a service.
func serviceStep(_ context.Context, c *client) {
	area, length := c.area(), between(c.rng, 500*time.Millisecond, 10*time.Second)
	q := Request{Path: area + servicePath, Data: c.next(), Timeout: c.recipeTimeout()}
	switch c.rng.IntN(4) {
	case 0:
		q.Call, q.Path, q.Length = callRoster, area+groupPath, length
		if c.rng.IntN(3) == 0 {
			q.TTL = rosterSettle
		}
	case 1:
		q.Call, q.Path, q.Length = callRoster, area+servicePath+"/"+serviceName, length
	default:
		q.Call, q.Within, q.Count = callRegister, length, c.rng.IntN(len(groupIDs))
	}
	r := c.call(q, func(r Reply) { c.w.report.count(sectionChecks, r.Data, 1) })
	if r.Wrong != "" {
		c.w.report.violate("roster", "member %d: %s", c.member, r.Wrong)
	}
}

// viewStep opens a view of the registers and follows its changes, as a watch's.
func viewStep(_ context.Context, c *client) {
	q := Request{Call: callView, Path: c.area() + registersPath, Mode: int(embed.WatchRecursive), Length: between(c.rng, 50*time.Millisecond, 2*time.Second)}
	if c.rng.IntN(8) == 0 {
		q.Length *= 5
	}
	c.watch(q)
}

const (
	// enterers is how many must be in a double barrier.
	enterers = 2
	// meetPatience limits the wait for others.
	meetPatience = 3 * time.Second
)

// A meetClient enters each double barrier once.
type meetClient struct{ last string }

// countdownNames are the names of each countdown.
var countdownNames = []string{"a", "b"}

// step enters a double barrier, shuts, opens or passes a gate, or uses a countdown.
func (k *meetClient) step(_ context.Context, c *client) {
	path := c.ofEpoch(c.area() + meetPath)
	q := Request{Path: path + "-gate", Within: meetPatience}
	switch n := c.rng.IntN(16); {
	case n < 4 && k.last != path:
		k.last = path
		q.Call, q.Path, q.Within = callEnter, path+"-double", 2*meetPatience
	case n < 7:
		q.Call = callGate
	case n < 9:
		q.Call = callShut
	case n < 10:
		q.Call = callUnlock
	case n < 13:
		q.Call, q.Path, q.Data = callDone, c.fresh(c.area()+countdownsPath), countdownNames[c.rng.IntN(len(countdownNames))]
		q.Within = c.within()
	default:
		q.Call, q.Path, q.Within = callWait, c.fresh(c.area()+countdownsPath), 2*meetPatience
	}
	c.do(q)
}

// gather lets each member announce itself in every way, and find exactly the others. Nothing is
// broken, and nobody else announces anything.
func gather(callers []*client) {
	area := callers[0].area()
	answers := make(chan string, len(callers))
	for i, c := range callers {
		q := Request{Call: callGather, Path: area + groupPath, Data: fmt.Sprintf("here-%d", i), Count: len(callers), Within: 2 * settleMax}
		go func() {
			r := c.call(q, nil)
			if r.Outcome != applied {
				r.Error = fmt.Sprintf("member %d: %s", c.member, r.Error)
			}
			answers <- r.Error
		}()
	}
	for range callers {
		if why := <-answers; why != "" {
			callers[0].w.report.violate("found", "after everything was healed not all find one another in %s: %s", area, why)
			continue
		}
		callers[0].w.report.count(sectionChecks, "members found by all in the end", 1)
	}
}
