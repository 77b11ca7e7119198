package campaign

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// lockPatience limits the wait for a lock.
	lockPatience = 10 * time.Second
	// An observation lasts this long. The next may be of another area.
	observeMin, observeMax = 5 * time.Second, 40 * time.Second
	// For focusLen every second lock has one kind, so that many holders meet there.
	focusLen = 2 * time.Second

	keptPath     = "/locks/kept"
	rwPath       = "/locks/rw"
	permitsPath  = "/locks/permits"
	electionPath = "/election"
	doPath       = "/locks/do"
	// its holder gives it up when somebody asks for it, and not before
	askedPath  = "/locks/asked"
	sharedPath = "/shared" // of elections of a Balance

	// permitsLimit is the number of permits, and permitsMost the most permits of one holder.
	permitsLimit, permitsMost = 3, 2
	// the number of different priorities of candidates
	priorities = 3
)

// A turn client takes turns for a few mutexes and does nothing else, always at the same pace. The
// clients are the known load by which the speed of virtual time is measured. They run only if
// Settings.Clients names them.
const (
	turnClient  = "turn"
	turnClients = 9
	// turnPauseMin to turnPauseMax after each hold: together about 70 Holds a second.
	turnPauseMin, turnPauseMax = 60 * time.Millisecond, 120 * time.Millisecond
)

// sharedNames are the names of the elections below sharedPath.
var sharedNames = []string{"a", "b", "c"}

// mutexPaths are the paths of mutexes, and of multis, which acquire two of them.
var mutexPaths = []string{"/locks/a", "/locks/b", "/locks/c"}

// lockKinds are the kinds that a holder chooses from. A write lock stands for a read lock too.
var lockKinds = []holdKind{kindMutex, kindKept, kindMulti, kindWrite, kindPermit, kindKey}

// keyPaths are the paths of keys. Nobody creates them beforehand, and they go when nobody uses them.
var keyPaths = []string{"/keys/a", "/keys/b"}

// length returns how long a hold is used: usually briefly, sometimes so long that a fault is likely
// to meet it.
func (c *client) length() time.Duration {
	if c.rng.IntN(20) > 0 {
		return between(c.rng, 2*time.Millisecond, 40*time.Millisecond)
	}
	return between(c.rng, 500*time.Millisecond, 4*time.Second)
}

// lockStep acquires a lock, uses what it protects, and releases it.
func lockStep(_ context.Context, c *client) {
	q := Request{Call: callSection, Data: c.next(), Within: lockPatience, Length: c.length()}
	q.Hold.Kind = lockKinds[c.rng.IntN(len(lockKinds))]
	if c.rng.IntN(2) == 0 {
		q.Hold.Kind = lockKinds[int(c.w.focus.Load())%len(lockKinds)]
	}
	q.Hold.Try = c.rng.IntN(8) == 0
	area := c.area()
	if c.rng.IntN(32) == 0 {
		q.Path, q.Length, q.Hold = area+askedPath, 2*deafMax, asked{Kind: kindMutex, Heed: true}
		c.hold(q)
		return
	}
	first := c.rng.IntN(len(mutexPaths))
	switch q.Hold.Kind {
	case kindMutex:
		q.Path = area + mutexPaths[first]
		if c.rng.IntN(6) == 0 {
			q.Path, q.Hold.Do = area+doPath, c.rng.IntN(2) == 0
		}
	case kindKey:
		q.Path = area + keyPaths[c.rng.IntN(len(keyPaths))]
	case kindMulti:
		q.Path = area + mutexPaths[first]
		q.Hold.Also = area + mutexPaths[(first+1+c.rng.IntN(len(mutexPaths)-1))%len(mutexPaths)]
	case kindKept:
		q.Path = area + keptPath
		q.Length /= 10 // many holders take turns
	case kindWrite:
		q.Path = area + rwPath
		q.Hold.Convert = c.rng.IntN(4) == 0
		if c.rng.IntN(3) > 0 {
			q.Hold.Kind = kindRead
		}
	case kindPermit:
		q.Path = area + permitsPath
		q.Hold.Permits = 1 + c.rng.IntN(permitsMost)
		q.Length *= 4 // so that some are held when others are requested
	}
	if q.Hold.Kind != kindKept && !q.Hold.Do && c.rng.IntN(4) == 0 {
		q.Hold.Delay = between(c.rng, 100*time.Millisecond, 2*time.Second).Truncate(time.Millisecond)
		if k := q.Hold.Kind; k == kindMutex || k == kindRead || k == kindWrite {
			q.Hold.Identity = []string{"", "x", "y"}[c.rng.IntN(3)]
		}
	}
	c.hold(q)
}

// electionStep campaigns, leads and makes room.
func electionStep(_ context.Context, c *client) {
	q := Request{Call: callLead, Path: c.area() + electionPath, Data: c.next(), Within: lockPatience, Length: 2 * c.length(), Hold: asked{Kind: kindLeader}}
	switch c.rng.IntN(8) {
	case 0, 1:
		q.Hold.Then = thenTransfer
	case 2:
		q.Hold.Then = thenRequeue
	case 3, 4:
		q.Hold.Kind = kindLatch
	case 5:
		q.Hold.Withdraw = between(c.rng, time.Millisecond, 500*time.Millisecond)
	}
	if c.rng.IntN(4) > 0 {
		// usually, so that several candidates wait in one gap of the queue
		q.Hold.Priority = c.rng.IntN(priorities)
	}
	c.hold(q)
}

// balanceStep shares elections with the other members for a while.
func balanceStep(_ context.Context, c *client) {
	c.hold(Request{Call: callBalance, Path: c.area() + sharedPath, Data: c.next(), Within: between(c.rng, observeMin, observeMax), Length: between(c.rng, time.Second, 10*time.Second)})
}

// revokeStep asks for a lock.
func revokeStep(_ context.Context, c *client) {
	path := askedPath
	if c.rng.IntN(2) == 0 {
		path = []string{keptPath, rwPath, mutexPaths[0]}[c.rng.IntN(3)]
	}
	c.do(Request{Call: callRevoke, Path: c.area() + path})
}

// turnStep acquires a mutex and releases it at once.
func turnStep(ctx context.Context, c *client) {
	q := Request{Call: callSection, Data: c.next(), Within: lockPatience, Path: c.area() + mutexPaths[c.rng.IntN(len(mutexPaths))]}
	q.Hold.Kind, q.Hold.Bare = kindMutex, true
	c.hold(q)
	pause(ctx, between(c.rng, turnPauseMin, turnPauseMax))
}

// resizeStep sets the number of permits, or lets the holders agree on permitsLimit again.
func resizeStep(_ context.Context, c *client) {
	c.do(Request{Call: callResize, Path: c.area() + permitsPath, Data: strconv.Itoa(c.rng.IntN(permitsLimit))})
}

// breakStep deletes the znode of a holder, as an operator does to break a lock. The session behind
// it lives on. What it has sent already must fail. Of these locks no lost hold has a delay, which a
// break would cut short.
func breakStep(_ context.Context, c *client) {
	path := c.area() + []string{keptPath, electionPath}[c.rng.IntN(2)]
	r := c.call(Request{Call: callList, Path: path}, nil)
	if r.Outcome != applied || len(r.Names) == 0 {
		return
	}
	first := path + "/" + slices.MinFunc(r.Names, func(a, b string) int { return strings.Compare(sequence(a), sequence(b)) })
	if r = c.call(Request{Call: callGet, Path: first}, nil); r.Outcome != applied {
		return
	}
	add(c.w.h, breaks, breakage{Path: path, Czxid: r.Stat.Czxid, At: c.w.h.now()})
	c.call(Request{Call: callBreak, Path: first, Czxid: r.Stat.Czxid}, nil) // the place may be another's by now
}

// sequence returns the digits at the end of a sequential znode's name.
func sequence(name string) string { return name[max(0, len(name)-10):] }

// hold requests a hold and records what its holders report.
func (c *client) hold(q Request) Reply {
	paths := q.paths()
	places := make(map[int]int) // the place of the first grant of each holding
	r := c.call(q, func(r Reply) {
		switch h := r.Hold; {
		case r.Wrong != "":
			c.w.report.violate("told first", "member %d, %s: %s", c.member, q.Path, r.Wrong)
		case r.Deed != nil:
			add(c.w.h, deeds, *r.Deed)
		case h == nil:
			c.w.report.count(sectionSeen, r.Data, 1)
		default:
			c.noteHold(paths, places, h)
		}
	})
	// An orderly end of the node gives up the holds of its own sessions only. Those of clients in the
	// process die with it.
	if r.Error == errDied.Error() && (c.remote || !c.run.orderly.Load()) {
		for _, first := range places {
			for i := range paths {
				edit(c.w.h, grants, first+i, func(g *grant) { g.Died = g.Lost == "" && !g.Given })
			}
		}
	}
	switch r.Outcome {
	// a recipe's calls in the tree do not concern its callers
	case noNode, nodeExists, badVersion, ended:
		c.w.report.violate("outcome", "%s %s of %s on member %d: %s", q.Call, q.Hold.Kind, q.Path, c.member, r.Error)
	}
	return r
}

// noteHold records a holder's report on one hold, for each of its paths.
func (c *client) noteHold(paths []string, places map[int]int, h *holding) {
	first, known := places[h.Number]
	if h.Name != "" {
		paths = []string{paths[0] + "/" + h.Name}
	}
	if !known {
		places[h.Number] = addAll(c.w.h, paths, grant{Member: c.member, Run: c.run.number, holding: *h})
		return
	}
	for i := range paths {
		edit(c.w.h, grants, first+i, func(g *grant) {
			if i == 0 && g.Lost == "" && h.Lost != "" {
				c.w.report.count(sectionSeen, "hold lost: "+h.Lost, 1)
			}
			g.holding = *h
		})
	}
}

// addAll appends a grant of several paths and returns the place of the first.
func addAll(h *history, paths []string, g grant) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, path := range paths {
		g.Path = path
		h.mu.Grants = append(h.mu.Grants, g)
	}
	return len(h.mu.Grants) - len(paths)
}

// observeStep follows an election for a while.
func observeStep(_ context.Context, c *client) {
	path := c.area() + electionPath
	if c.rng.IntN(3) == 0 {
		path = c.area() + sharedPath + "/" + sharedNames[c.rng.IntN(len(sharedNames))]
	}
	at := add(c.w.h, observers, observation{Path: path})
	c.call(Request{Call: callObserve, Path: path, Within: between(c.rng, observeMin, observeMax)}, func(r Reply) {
		edit(c.w.h, observers, at, func(o *observation) { o.Seen = append(o.Seen, sighting{r.Token, r.Data}) })
	})
}

// everything returns requests for each lock and the election of an area, by the kind that excludes
// all others.
func everything(area string) (all []Request) {
	want := func(k holdKind, path string) *Request {
		all = append(all, Request{Call: callAcquire, Path: area + path, Within: 2 * settleMax, Hold: asked{Kind: k}})
		return &all[len(all)-1]
	}
	for _, path := range mutexPaths {
		want(kindMutex, path)
	}
	for _, path := range keyPaths {
		want(kindKey, path)
	}
	want(kindMulti, mutexPaths[0]).Hold.Also = area + mutexPaths[1]
	want(kindMutex, keptPath)
	want(kindMutex, doPath)
	want(kindMutex, askedPath)
	want(kindRead, rwPath)
	want(kindWrite, rwPath)
	want(kindPermit, permitsPath).Hold.Permits = permitsLimit
	want(kindLeader, electionPath)
	for _, name := range sharedNames {
		want(kindLeader, sharedPath+"/"+name)
	}
	return all
}

// acquireEverything acquires each lock once and leads each election, while nothing is broken and
// nobody holds anything. So no holder that is gone, and no process that keeps a lock, is in the way
// for ever. The callers are on different members.
func acquireEverything(callers []*client) {
	var longest time.Duration
	defer func() {
		callers[0].w.report.say("all locks and elections were acquired, each within %v", longest.Round(time.Millisecond))
	}()
	for i, area := range callers[0].w.areas {
		for n, q := range everything(area) {
			c := callers[(i+n)%len(callers)]
			begun := c.w.h.now()
			if r := c.call(q, nil); r.Outcome != applied {
				c.w.report.violate("starved", "%v after everything was healed member %d cannot have the %s %v: %s", c.w.h.now()-begun, c.member, q.Hold.Kind, q.paths(), r.Error)
				continue
			}
			longest = max(longest, c.w.h.now()-begun)
			c.w.report.count(sectionChecks, fmt.Sprintf("%s acquired in the end", q.Hold.Kind), 1)
		}
	}
}
