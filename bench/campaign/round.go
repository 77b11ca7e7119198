package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	// roundMax is how long one ensemble is used. A new ensemble begins with an empty tree and
	// history.
	roundMax = 150 * time.Second
	// roundRest is how long the start and the last checks of a round take.
	roundRest = 5 * time.Second
	// checkEvery is how often the history so far is checked during a round.
	checkEvery = 10 * time.Second
)

// A campaign is one run of a program.
type campaign struct {
	Settings
	ground Ground
	dir    string
	report *report
	out    io.Writer
	ends   []weight // of the rounds so far
}

// pace returns how long something takes that takes d at the usual pace.
func (s *Settings) pace(d time.Duration) time.Duration { return time.Duration(max(s.Pace, 1)) * d }

// run runs rounds until the time is over or a violation is found.
func (c *campaign) run() {
	each := min(c.pace(roundMax), c.Length/2)
	for n := max(c.Round, 1); !c.report.failed(); n++ {
		left := c.Length - (c.ground.Now() - c.report.begun)
		if left < LengthMin/2 {
			return
		}
		length := min(each, left)
		if left < each+LengthMin/2 {
			length = left // a last round would be over as soon as it began
		}
		size := c.Members
		if size == 0 {
			size = 3 + n%2*2
		}
		dir := filepath.Join(c.dir, fmt.Sprintf("round-%02d", n))
		if err := c.round(n, size, length-roundRest, dir); err != nil {
			c.report.violate("harness", "round %d: %v", n, err)
			_ = c.report.keep(c.dir)
		}
		if c.Dir == "" && !c.report.failed() {
			_ = os.RemoveAll(dir)
		}
		if c.Round > 0 {
			return
		}
	}
}

// round uses one ensemble and checks what happened.
func (c *campaign) round(n, size int, length time.Duration, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var past *past
	var tree []entry
	err := errors.New("it ended early")
	c.ground.Round(func() { past, tree, err = c.play(n, size, length, dir) })
	if err != nil {
		return err
	}
	checkAll(past, tree, dir, c.report)
	defer c.report.showFaults(filepath.Join(dir, faultsFile))
	logs, _ := filepath.Glob(filepath.Join(dir, "member-*.log"))
	for _, name := range logs {
		checkLog(name, c.report)
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

// endPortion is less than what a member's sessions own together.
const endPortion = 3

// portion returns endPortion for half of the rounds where time is virtual, and zero, the usual
// portion, for the others. Sessions that expire together then end in several transactions, as
// thousands of them would.
func (c *campaign) portion(seed uint64) int {
	if !c.Virtual || rand.New(rand.NewPCG(seed, 2)).IntN(2) == 0 {
		return 0
	}
	return endPortion
}

// play runs one ensemble, and returns its history and its last tree.
func (c *campaign) play(n, size int, length time.Duration, dir string) (*past, []entry, error) {
	seed := c.Seed + uint64(n)
	portion := c.portion(seed)
	h := &history{now: c.ground.Now, portions: portion > 0}
	spares, voters := 0, size
	switch {
	case c.growsLater():
		spares, voters = newcomers, size+newcomers
	case c.grows(n):
		spares = 1
	}
	e, err := newEnsemble(c.ground, dir, size, spares, c.Shards, portion, h, c.report)
	if err != nil {
		return nil, nil, err
	}
	e.voters, e.next = voters, c.Upgrade != nil && c.Upgrade.Next
	defer e.end()
	c.chooseBuilds(e)
	for _, id := range e.here() {
		if err := e.start(id); err != nil {
			return nil, nil, err
		}
	}
	w := &workload{e: e, h: h, report: c.report, seed: seed, pace: c.pace, virtual: c.Virtual, areas: areasOf(c.Shards), only: c.Clients, remote: c.Remote, steady: c.steady()}
	nemesis, err := newNemesis(w, &c.Settings, n)
	if err != nil {
		return nil, nil, err
	}
	defer nemesis.log.Close()
	ready, cancel := limit(context.Background(), patience)
	defer cancel()
	if late := e.allReady(ready); len(late) > 0 {
		e.stacks()
		return nil, nil, fmt.Errorf("members %v of a new ensemble are not ready in %v", late, patience)
	}
	if err := w.plant(ready); err != nil {
		return nil, nil, err
	}
	kind := ""
	if spares > 0 {
		kind = " that come and go"
		if why := e.rest(ready); why != "" {
			return nil, nil, fmt.Errorf("the members of a new ensemble are not at rest in %v: %s", patience, why)
		}
	}
	ends := ""
	if portion > 0 {
		ends = fmt.Sprintf(", sessions end %d by %d", portion, portion)
	}
	c.report.say("round %d: %d members%s, shards: %d, %v%s", n, size, kind, c.Shards, length.Round(time.Second), ends)
	var weights []weight
	weigh := func() weight { return weight{n, size, h.now(), e.weigh()} }
	c.disturb(w, nemesis, length, func() { weights = append(weights, weigh()) })
	tree := c.inspect(w)
	if c.Virtual && !c.report.failed() {
		end := weigh()
		c.report.say("round %d at its end, the largest member: %v", n, end.sizes)
		c.judgeGrowth(weights, end)
	}
	return w.h.snapshot(), tree, nil
}

// disturb lets the workload and the nemesis run for a while, and checks the history as it grows.
// Where time is virtual it calls weigh instead, now and then.
func (c *campaign) disturb(w *workload, n *nemesis, length time.Duration, weigh func()) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.report.upon(cancel)
	defer c.report.upon(nil)
	working, stop := context.WithCancel(context.Background())
	defer stop()
	w.run(working)
	var checks sync.WaitGroup
	checks.Go(func() {
		for pause(ctx, c.pace(checkEvery)); ctx.Err() == nil; pause(ctx, c.pace(checkEvery)) {
			past := w.h.snapshot()
			if c.Virtual {
				weigh()
			} else {
				checkSoFar(past, w.e.dir, c.report)
			}
			c.progress(past)
		}
	})
	end := w.h.now() + length
	if c.Upgrade != nil && !c.Upgrade.Mixed {
		n.roll(ctx, c.Upgrade)
	}
	if c.growsLater() {
		n.grow(ctx, c.Upgrade)
		n.plan.kinds, n.plan.bag = c.kinds(), nil
	}
	rest, stopRest := limit(ctx, end-w.h.now())
	defer stopRest()
	n.run(rest)
	if c.Upgrade != nil && c.Upgrade.Mixed {
		n.replace(ctx, c.Upgrade)
	}
	cancel()
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
	goal := make([]uint64, c.Shards)
	for _, id := range e.here() {
		for i, at := range e.applied(id) {
			goal[i] = max(goal[i], at)
		}
	}
	for _, id := range e.here() {
		last, moved := e.applied(id), e.history.now()
		for at := last; !reached(at, goal); at = e.applied(id) {
			if !slices.Equal(at, last) {
				last, moved = at, e.history.now()
			}
			if e.history.now()-moved > patience {
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
	ctx, cancel := limit(context.Background(), patience)
	defer cancel()
	var walkers []*client
	for _, id := range w.e.here() {
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
	gather(walkers)
	for i, area := range w.areas {
		drain(walkers[i%len(walkers)], area)
	}
	c.expectMembers(w)
	if c.Virtual { // in real time it would take too long
		c.expectTables(w)
	}
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
	var first Reply
	for i, walker := range walkers {
		r := walker.call(Request{Call: callWalk, Full: i == 0}, nil)
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

// mayLive reports whether a session is not known to be over. A remote session does not end with its
// process's node, but with the process.
func (e *ensemble) mayLive(l *life) bool {
	r := e.run(l.Member)
	return l.Ended == never && (r.number == l.Run || l.Remote && r.first <= l.Run)
}

// strayEphemerals describes an ephemeral whose session is over. It also describes one that was left
// by a caller who has given up its locks and leaderships.
func strayEphemerals(tree []entry, w *workload) string {
	alive := make(map[embed.SessionID]bool)
	for _, l := range w.h.snapshot().Lives {
		if w.e.mayLive(&l) {
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
