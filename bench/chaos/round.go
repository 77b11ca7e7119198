//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	campaignMin = 20 * time.Second
	// roundMax is how long one ensemble is used. A new ensemble begins with an empty tree and
	// history.
	roundMax = 150 * time.Second
	// roundRest is how long the start and the last checks of a round take.
	roundRest = 5 * time.Second
	// checkEvery is how often the history so far is checked during a round.
	checkEvery = 10 * time.Second
)

// A campaign is one run of this program.
type campaign struct {
	settings
	dir    string
	report *report
}

// run runs rounds until the time is over or a violation is found.
func (c *campaign) run() {
	each := min(roundMax, c.length/2)
	for n := 1; !c.report.failed(); n++ {
		left := c.length - time.Since(c.report.begun)
		if left < campaignMin/2 {
			return
		}
		length := min(each, left)
		if left < each+campaignMin/2 {
			length = left // a last round would be over as soon as it began
		}
		size := c.members
		if size == 0 {
			size = 3 + n%2*2
		}
		dir := filepath.Join(c.dir, fmt.Sprintf("round-%02d", n))
		if err := c.round(n, size, length-roundRest, dir); err != nil {
			c.report.violate("harness", "round %d: %v", n, err)
			_ = c.report.keep(c.dir)
		}
		if c.settings.dir == "" && !c.report.failed() {
			_ = os.RemoveAll(dir)
		}
	}
}

// round runs one ensemble.
func (c *campaign) round(n, size int, length time.Duration, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	h := &history{}
	e, err := newEnsemble(dir, size, c.shards, h, c.report)
	if err != nil {
		return err
	}
	defer e.end()
	for _, id := range e.ids {
		if err := e.start(id); err != nil {
			return err
		}
	}
	seed := c.seed + uint64(n)
	w := &workload{e: e, h: h, report: c.report, seed: seed, areas: areasOf(c.shards)}
	nemesis, err := newNemesis(w, c.kinds(), seed)
	if err != nil {
		return err
	}
	defer nemesis.log.Close()
	ready, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if late := e.allReady(ready); len(late) > 0 {
		e.stacks()
		return fmt.Errorf("members %v of a new ensemble are not ready in %v", late, patience)
	}
	if err := w.plant(ready); err != nil {
		return err
	}
	c.report.say("round %d: %d members, shards: %d, %v", n, size, c.shards, length.Round(time.Second))
	c.disturb(w, nemesis, length)
	tree := c.inspect(w)
	e.end()
	past := w.h.snapshot()
	checkAll(past, tree, dir, c.report)
	for _, id := range e.ids {
		checkLog(e.logFile(id), c.report)
	}
	c.progress(past)
	if !c.report.failed() {
		return nil
	}
	if err := c.report.keep(c.dir); err != nil {
		return err
	}
	return past.save(dir)
}

// disturb lets the workload and the nemesis run for a while, and checks the history as it grows.
func (c *campaign) disturb(w *workload, n *nemesis, length time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	working, stop := context.WithCancel(context.Background())
	defer stop()
	w.run(working)
	var checks sync.WaitGroup
	checks.Go(func() {
		for pause(ctx, checkEvery); ctx.Err() == nil; pause(ctx, checkEvery) {
			past := w.h.snapshot()
			checkSoFar(past, w.e.dir, c.report)
			c.progress(past)
		}
	})
	checks.Go(func() {
		select {
		case <-c.report.found():
			cancel()
		case <-ctx.Done():
		}
	})
	n.run(ctx)
	checks.Wait()
	stop()
	n.finish()
	w.end()
}

func (c *campaign) progress(p *past) {
	c.report.say("%d operations in this round; so far %d faults, %d operations", len(p.Ops), c.report.total(sectionFaults), c.report.total(sectionOps))
}

// catchUp waits until every member has applied what any member has. On a busy machine a member may
// take longer than patience over what it missed, but it must make progress.
func (c *campaign) catchUp(e *ensemble) bool {
	goal := make([]uint64, c.shards)
	for _, id := range e.ids {
		for i, at := range e.applied(id) {
			goal[i] = max(goal[i], at)
		}
	}
	for _, id := range e.ids {
		last, moved := e.applied(id), now()
		for at := last; !reached(at, goal); at = e.applied(id) {
			if !slices.Equal(at, last) {
				last, moved = at, now()
			}
			if now()-moved > patience {
				e.stacks()
				c.report.violate("available", "member %d has applied %v, others %v, and it has made no progress for %v", id, at, goal, patience)
				return false
			}
			pause(context.Background(), 5*tick)
		}
	}
	return true
}

// reached reports whether a member answered and has caught up with the goal.
func reached(at, goal []uint64) bool {
	for i, g := range goal {
		if at == nil || at[i] < g {
			return false
		}
	}
	return true
}

// inspect compares the members while nothing is broken and nobody writes, and returns the tree.
func (c *campaign) inspect(w *workload) []entry {
	if !c.catchUp(w.e) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var walkers []*client
	for _, id := range w.e.ids {
		walker := w.newClient(id, "walker")
		for tries := 1; !walker.open(ctx); tries++ {
			if ctx.Err() != nil {
				w.e.stacks()
				c.report.violate("available", "member %d opens no session %v after everything was healed, asked %d times: %s", id, patience, tries, walker.why)
				return nil
			}
			pause(ctx, tick)
		}
		walkers = append(walkers, walker)
	}
	acquireEverything(walkers)
	for {
		tree, why := c.compare(w, walkers)
		if why == "" {
			c.report.count(sectionChecks, "digests of all members equal", 1)
			return tree
		}
		if c.report.failed() {
			return nil // the violations found are enough
		}
		if pause(ctx, 10*tick); ctx.Err() != nil {
			c.report.violate("single image", "%v after everything was healed: %s", patience, why)
			return nil
		}
	}
}

// compare walks the tree of every member. why describes what is wrong at the end.
func (c *campaign) compare(w *workload, walkers []*client) (tree []entry, why string) {
	var first reply
	for i, walker := range walkers {
		r := walker.call(request{Call: callWalk, Full: i == 0}, nil)
		switch {
		case r.Outcome != applied:
			return nil, r.Error
		case i == 0:
			first = r
		case !slices.Equal(r.Zxids, first.Zxids):
			return nil, "members are at different zxids"
		}
		for k := range r.Digests {
			if r.Digests[k] != first.Digests[k] {
				c.report.violate("single image", "at zxid %d of shard %d member %d has a different tree than member %d: digest %s, not %s", r.Zxids[k], k+1, walker.member, walkers[0].member, r.Digests[k], first.Digests[k])
				return nil, "trees differ"
			}
		}
	}
	return first.Tree, strayEphemerals(first.Tree, w)
}

// strayEphemerals describes an ephemeral whose session is over. It also describes one that was left
// by a caller who has given up its locks and leaderships.
func strayEphemerals(tree []entry, w *workload) string {
	alive := make(map[embed.SessionID]bool)
	for _, l := range w.h.snapshot().Lives {
		if r := w.e.run(l.Member); l.Ended == never && r.number == l.Run {
			alive[l.ID] = true
		}
	}
	for _, z := range tree {
		switch owner := z.Stat.EphemeralOwner; {
		case owner == 0:
		case !alive[owner]:
			return fmt.Sprintf("%s is left over from session %x, which is over", z.Path, owner)
		case !strings.HasPrefix(inArea(z.Path), markersPath):
			return fmt.Sprintf("%s is left over from session %x, which is alive and has given up everything", z.Path, owner)
		}
	}
	return ""
}
