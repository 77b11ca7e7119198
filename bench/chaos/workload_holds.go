//go:build unix

package main

import (
	"context"
	"time"
)

const (
	// lockPatience bounds the wait for a lock.
	lockPatience = 10 * time.Second
	// observation lasts this long, then the next may be of another area.
	observeMin, observeMax = 5 * time.Second, 40 * time.Second

	electionPath = "/election"
)

var lockPaths = []string{"/locks/a", "/locks/b"}

// length is how long a hold is used: mostly for a moment, sometimes so long that a fault is likely to meet it.
func (c *client) length() time.Duration {
	if c.rng.IntN(20) > 0 {
		return between(c.rng, 2*time.Millisecond, 40*time.Millisecond)
	}
	return between(c.rng, 500*time.Millisecond, 4*time.Second)
}

// lockStep takes a lock, uses what it protects, and releases it.
func lockStep(_ context.Context, c *client) {
	c.hold(request{Call: callSection, Path: c.area() + lockPaths[c.rng.IntN(len(lockPaths))], Data: c.next(), Within: lockPatience, Length: c.length()})
}

// electionStep campaigns, leads and resigns.
func electionStep(_ context.Context, c *client) {
	c.hold(request{Call: callLead, Path: c.area() + electionPath, Data: c.next(), Within: lockPatience, Length: 2 * c.length()})
}

// hold has a hold taken and notes what its holder tells of it.
func (c *client) hold(q request) {
	at := -1
	note := func(r reply) {
		if at < 0 {
			at = add(c.w.h, grants, grant{Path: q.Path, Member: c.member, Run: c.run.number, Token: r.Token, From: r.At, Until: r.Until})
			return
		}
		edit(c.w.h, grants, at, func(g *grant) { g.Until = max(g.Until, r.Until) })
	}
	r := c.call(q, note)
	if r.Outcome != applied || at < 0 {
		return
	}
	if r.Wrong != "" {
		c.w.report.violate("told first", "member %d, %s: %s", c.member, q.Path, r.Wrong)
	}
	edit(c.w.h, grants, at, func(g *grant) { g.Until, g.Lost, g.Guarded = r.Until, r.Data, r.Guarded })
	if r.Data != "" {
		c.w.report.count(sectionSeen, "hold lost: "+r.Data, 1)
	}
}

// observeStep follows an election for a while.
func observeStep(_ context.Context, c *client) {
	path := c.area() + electionPath
	at := add(c.w.h, observers, observation{Path: path})
	c.call(request{Call: callObserve, Path: path, Within: between(c.rng, observeMin, observeMax)}, func(r reply) {
		edit(c.w.h, observers, at, func(o *observation) { o.Seen = append(o.Seen, sighting{r.Token, r.Data}) })
	})
}
