package campaign

import (
	"context"
	"time"
)

const (
	// tickMin to tickMax is the time between the ticks of a job.
	tickMin, tickMax = 500 * time.Millisecond, 5 * time.Second
	// taskLength is how long most tasks take.
	taskLength = 30 * time.Millisecond
	// retryMax is the longest time until a task may be claimed again.
	retryMax = 500 * time.Millisecond
	// taskPatience limits the wait for a task.
	taskPatience = 2 * time.Second
)

// jobNames are the names of the jobs: of one that is run at most once, and of one that is run at
// least once, at each tick.
var jobNames = []string{"most", "least"}

// taskStep puts a task into a queue, or claims one. It claims more often than it puts, so that
// queues stay short.
func taskStep(_ context.Context, c *client) {
	path := c.area() + queuePath
	if c.rng.IntN(5) < 2 {
		c.do(Request{Call: callPut, Path: path, Data: c.next(), Within: c.within()})
		return
	}
	q := Request{Call: callWork, Timeout: c.recipeTimeout(), Path: path, Data: c.next(), Within: taskPatience, Length: between(c.rng, 0, taskLength)}
	if c.rng.IntN(20) == 0 {
		q.Length = c.length()
	}
	q.Hold.Do = c.rng.IntN(3) == 0
	if c.rng.IntN(6) == 0 {
		q.TTL = between(c.rng, time.Millisecond, retryMax)
	}
	c.hold(q)
}

// jobStep runs the jobs of an area for a while, or does something once.
func jobStep(_ context.Context, c *client) {
	if c.rng.IntN(3) == 0 {
		q := Request{Call: callOnce, Timeout: c.recipeTimeout(), Path: c.ofEpoch(c.area() + oncePath), Data: c.next(), Within: lockPatience, Length: c.length()}
		at := c.w.h.begin(op{Client: c.name, Session: c.session, Member: c.member, Run: c.run.number, Call: q.Call, Path: q.Path, Data: q.Data})
		c.w.h.end(at, c.hold(q))
		return
	}
	c.hold(Request{Call: callJobs, Timeout: c.recipeTimeout(), TTL: c.w.tickEvery(), Path: c.area() + jobsPath, Data: c.next(), Within: between(c.rng, observeMin, observeMax), Length: between(c.rng, 0, 2*tickMin)})
}

// tickEvery returns the time between the ticks of a job.
func (w *workload) tickEvery() time.Duration { return min(w.pace(tickMin), tickMax) }

// partStep owns parts of a set for a while.
func partStep(_ context.Context, c *client) {
	c.hold(Request{Call: callParts, Timeout: c.recipeTimeout(), Path: c.area() + partsPath, Data: c.next(), Within: between(c.rng, observeMin, observeMax), Length: between(c.rng, 500*time.Millisecond, 8*time.Second)})
}

// drain lets somebody finish all tasks that are left in an area, while nobody else puts or claims.
func drain(c *client, area string) {
	q := Request{Call: callDrain, Path: area + queuePath, Data: c.next(), Within: 2 * settleMax}
	r := c.call(q, func(r Reply) {
		if r.Deed != nil {
			add(c.w.h, deeds, *r.Deed)
		}
	})
	if r.Outcome != applied {
		c.w.report.violate("starved", "after everything was healed member %d cannot finish the tasks of %s: %s", c.member, q.Path, r.Error)
	}
}
