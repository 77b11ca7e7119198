package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const rootPath = "/"

// The parents of what the workload writes, in each area.
const (
	registersPath = "/registers"
	numbersPath   = "/numbers"
	paidPath      = "/paid"
	markersPath   = "/live"
	bulkPath      = "/bulk"
	stillPath     = "/still" // nobody ever touches it
)

// A workload is all clients that use the ensemble of one round.
type workload struct {
	e       *ensemble
	h       *history
	report  *report
	seed    uint64
	pace    func(time.Duration) time.Duration // Settings.pace
	virtual bool                              // Settings.Virtual
	areas   []string                          // one on each shard
	only    []string                          // Settings.Clients
	steady  bool                              // Settings.steady
	remote  bool                              // Settings.Remote
	epoch   atomic.Int64                      // of the registers
	age     atomic.Int64                      // grows with each forced recovery, which may lose what was counted
	focus   atomic.Int64                      // the kind of lock that every second holder acquires
	clients sync.WaitGroup
	started atomic.Int64

	halt, resume func() // end the clients, and start them again; set by run
}

// plant creates what the clients need. Nothing is broken yet.
func (w *workload) plant(ctx context.Context) error {
	c := w.newClient(w.e.ids[0], "planter")
	if !c.enter(ctx) {
		return fmt.Errorf("no session on a fresh ensemble")
	}
	defer c.close()
	for _, area := range w.areas {
		for _, path := range w.parents(area) {
			if r := c.call(Request{Call: callCreate, Path: path, Data: "0"}, nil); r.Outcome != applied {
				return fmt.Errorf("create %s: %s", path, r.Error)
			}
		}
	}
	return nil
}

// parents returns the znodes that the clients need in an area, in the order of their creation.
func (w *workload) parents(area string) []string {
	paths := []string{area}
	for _, path := range []string{registersPath, numbersPath, paidPath, markersPath, bulkPath, stillPath, bankPath, mortalsPath} {
		paths = append(paths, area+path)
	}
	for _, path := range slices.Concat(mutexPaths, keyPaths, []string{keptPath, doPath, askedPath, rwPath, permitsPath, electionPath}) {
		paths = append(paths, guardedBy(area+path))
	}
	for _, id := range w.e.ids {
		paths = append(paths, stormOf(area, id))
	}
	for i := range accounts {
		paths = append(paths, account(area, i))
	}
	paths = append(paths, area+deedsPath)
	for _, path := range []string{workersPath, namesPath, queuePath, jobsPath, partsPath} {
		paths = append(paths, guardedBy(area+path))
	}
	return paths
}

// run starts the clients. They end after ctx or halt, each after its present call. end waits for
// them.
func (w *workload) run(parent context.Context) {
	ctx, halt := context.WithCancel(parent)
	w.halt, w.resume = halt, func() { w.run(parent) }
	writers := 4
	if len(w.e.ids) > 3 {
		writers = 3 // the machine is the same
	}
	for _, id := range w.e.ids {
		for range writers {
			w.start(ctx, id, "register", 5*time.Millisecond, 40*time.Millisecond, (&registerClient{}).step)
		}
		w.start(ctx, id, "number", 20*time.Millisecond, 100*time.Millisecond, numberStep)
		w.start(ctx, id, "pay", 30*time.Millisecond, 120*time.Millisecond, payStep)
		w.start(ctx, id, "lock", time.Millisecond, 20*time.Millisecond, lockStep)
		w.start(ctx, id, "lock", time.Millisecond, 20*time.Millisecond, lockStep)
		w.start(ctx, id, "election", time.Millisecond, 50*time.Millisecond, electionStep)
		w.start(ctx, id, "balance", time.Millisecond, 50*time.Millisecond, balanceStep)
		w.start(ctx, id, "revoke", 50*time.Millisecond, time.Second, revokeStep)
		w.start(ctx, id, "break", 500*time.Millisecond, 4*time.Second, breakStep)
		w.start(ctx, id, "resize", 2*time.Second, 8*time.Second, resizeStep)
		w.start(ctx, id, "observer", 0, 10*time.Millisecond, observeStep)
		w.start(ctx, id, "watch", 0, 10*time.Millisecond, watchStep)
		w.start(ctx, id, "watch", 0, 10*time.Millisecond, watchStep)
		w.start(ctx, id, "storm", 2*time.Second, 5*time.Second, stormStep)
		w.start(ctx, id, "install", 0, 10*time.Millisecond, installStep)
		w.start(ctx, id, "sentinel", 0, 10*time.Millisecond, sentinelStep)
		w.start(ctx, id, "mortal", 200*time.Millisecond, time.Second, (&mortalClient{}).step)
		w.start(ctx, id, "peek", 10*time.Millisecond, 60*time.Millisecond, peekStep)
		w.startRecipes(ctx, id)
	}
	if slices.Contains(w.only, turnClient) {
		for n := range turnClients {
			w.start(ctx, w.e.ids[n%len(w.e.ids)], turnClient, 0, 0, turnStep)
		}
	}
	w.receive(ctx)
	if w.steady {
		w.travel(ctx)
	}
	w.focus.Store(int64(w.seed % uint64(len(lockKinds))))
	w.clients.Go(func() {
		for ctx.Err() == nil {
			pause(ctx, w.pace(focusLen))
			w.focus.Add(1)
		}
	})
	w.clients.Go(func() {
		for ctx.Err() == nil {
			pause(ctx, epochLen)
			w.epoch.Add(1)
		}
	})
}

// end waits until all clients have ended. Nothing is broken any more, or all members are dead.
func (w *workload) end() {
	for _, id := range w.e.here() {
		w.e.run(id).Send(Request{Call: callRest}, nil)
	}
	done := make(chan struct{})
	go func() {
		w.clients.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-after(2 * patience):
		w.report.violate("hang", "%v after everything was healed a client still waits for an answer", 2*patience)
		w.e.stacks()
	}
}

// A client issues one call after the other through a session on one member. When the session ends,
// the client opens another.
type client struct {
	w      *workload
	name   string
	member embed.MemberID
	rng    *rand.Rand
	ids    int
	// patient sessions have a long timeout. Their watches live to see the install of a snapshot,
	// and a busy machine does not end them.
	patient bool
	// Remote sessions are opened by a client of the gateways.
	remote bool
	// A leaver's sessions exist to end soon, with something in every area.
	leaver bool

	run      *run
	session  string
	timeout  time.Duration // of the session
	sessions int
	life     int // its place in the history
	alive    bool
	why      string // why it has no session
}

func (w *workload) newClient(id embed.MemberID, kind string) *client {
	number := w.started.Add(1)
	name := fmt.Sprintf("%d-%s-%d", id, kind, number)
	return &client{w: w, name: name, member: id, patient: kind == "sentinel" || kind == "install" || kind == "walker", leaver: kind == "leaver", rng: rand.New(rand.NewPCG(w.seed, uint64(number)))}
}

// area returns the area of a client's next call. Every second time it is the area where all clients
// meet in this epoch.
func (c *client) area() string {
	areas := c.w.areas
	if c.rng.IntN(2) == 0 {
		return areas[int(c.w.epoch.Load())%len(areas)]
	}
	return areas[c.rng.IntN(len(areas))]
}

// localKinds are the clients whose sessions are never remote. They watch what a member does with its
// own watches, which do not end when a connection breaks.
var localKinds = map[string]bool{"install": true, "sentinel": true}

// start runs a client that calls step again and again, with a random pause between low and high.
func (w *workload) start(ctx context.Context, id embed.MemberID, kind string, low, high time.Duration, step func(context.Context, *client)) {
	if !chosen(kind, w.only) {
		return
	}
	c := w.newClient(id, kind)
	c.remote = w.remote && !localKinds[kind] && c.rng.IntN(3) == 0
	w.clients.Go(func() {
		for ctx.Err() == nil {
			if !c.open(ctx) {
				pause(ctx, 5*tick)
				continue
			}
			for n := 20 + c.rng.IntN(2000); n > 0 && c.alive && ctx.Err() == nil; n-- {
				step(ctx, c)
				pause(ctx, between(c.rng, w.pace(low), w.pace(high)))
			}
			if ctx.Err() == nil {
				c.close()
			}
		}
	})
}

const (
	sessionTimeoutShort   = 3 * time.Second
	sessionTimeoutLong    = 10 * time.Second // outlives most faults
	sessionTimeoutPatient = 30 * time.Second // outlives all faults
)

// open opens a session with markers: in the area of the home shard, and in some others.
func (c *client) open(ctx context.Context) bool {
	if !c.enter(ctx) {
		return false
	}
	marked := c.mark(c.w.areas[0])
	for _, area := range c.w.areas[1:] {
		if marked && (c.leaver || c.rng.IntN(2) == 0) {
			c.mark(area)
		}
	}
	return c.alive
}

// mark creates a marker in an area.
func (c *client) mark(area string) bool {
	marker := area + markersPath + "/" + c.session
	r := c.call(Request{Call: callCreate, Path: marker, Data: marker, Mode: int(embed.Ephemeral)}, nil)
	edit(c.w.h, lives, c.life, func(l *life) {
		switch r.Outcome {
		case applied:
			l.Markers = append(l.Markers, marker)
		case unknown:
			l.Perhaps++
		}
	})
	return r.Outcome == applied
}

// enter opens a session. Most sessions have the least timeout.
func (c *client) enter(ctx context.Context) bool {
	if c.run = c.w.e.running(ctx, c.member); c.run == nil {
		c.why = "the member is not ready"
		return false
	}
	timeout := []time.Duration{time.Millisecond, time.Millisecond, sessionTimeoutShort, sessionTimeoutLong}[c.rng.IntN(4)]
	switch {
	case c.patient:
		timeout = sessionTimeoutPatient
	case c.leaver:
		timeout = sessionTimeoutMin
	}
	c.timeout = max(timeout, sessionTimeoutMin)
	c.sessions++
	c.session = fmt.Sprintf("%s.%d", c.name, c.sessions)
	c.alive = true
	r := c.call(Request{Call: callOpen, Run: c.run.number, Timeout: timeout, Remote: c.remote}, nil)
	if r.Outcome != applied {
		c.alive, c.why = false, r.Error
		return false
	}
	l := life{Name: c.session, ID: r.Session, Member: c.member, Run: c.run.number, Timeout: c.timeout, Remote: c.remote, Opened: c.w.h.now(), Ended: never}
	c.life = add(c.w.h, lives, l)
	if r.End != "" {
		c.ended(r.End)
	}
	return c.alive
}

func (c *client) close() {
	if c.alive {
		if r := c.call(Request{Call: callClose}, nil); r.Outcome == applied {
			edit(c.w.h, lives, c.life, func(l *life) { l.Closed = c.w.h.now() })
		}
		c.ended("closed")
	}
}

func (c *client) ended(why string) {
	if c.alive {
		c.alive, c.why = false, why
		edit(c.w.h, lives, c.life, func(l *life) { l.Ended, l.Why = c.w.h.now(), why })
		what := "session ended: "
		if c.remote {
			what = "remote session ended: "
		}
		c.w.report.count(sectionSeen, what+why, 1)
		if c.w.steady && c.timeout >= sessionTimeoutLong && why != "closed" && why != errDied.Error() && !c.run.orderly.Load() {
			c.w.report.violate("upgrade", "%s of member %d, whose process went on, has ended: %s", c.session, c.member, why)
		}
	}
}

// call sends a request to the member and waits for the answer, however long the process may be
// stopped.
func (c *client) call(q Request, notice func(Reply)) Reply {
	q.Session = c.session
	select {
	case r, ok := <-c.run.Send(q, notice):
		if !ok {
			r = Reply{Outcome: unknown, Error: errDied.Error(), End: errDied.Error()}
		}
		c.w.report.count(sectionOps, fmt.Sprintf("%s: %s", q.Call, r.Outcome), 1)
		if !r.Outcome.documented() && !strings.Contains(r.Error, "no session") {
			c.w.report.violate("outcome", "%s %s on member %d: %s", q.Call, q.Path, c.member, r.Error)
		}
		if r.End != "" && q.Call != callOpen { // End is of the next session
			c.ended(r.End)
		}
		return r
	case <-after(patience + q.Length + q.Within):
		c.w.report.violate("hang", "member %d has not answered %s %s for %v", c.member, q.Call, q.Path, patience)
		c.w.e.stacks()
		c.ended("hangs")
		return Reply{Outcome: unknown}
	}
}

// do is a call that the history records.
func (c *client) do(q Request) Reply {
	at := c.w.h.begin(op{Client: c.name, Session: c.session, Member: c.member, Run: c.run.number, Call: q.Call, Path: q.Path, Data: q.Data, Version: q.Version, TTL: q.TTL})
	r := c.call(q, nil)
	c.w.h.end(at, r)
	return r
}

// next returns an id that no other write has.
func (c *client) next() string {
	c.ids++
	return fmt.Sprintf("%s#%d", c.name, c.ids)
}

// within returns the limit of a call: usually the node's own, sometimes so short that the caller
// often learns nothing.
func (c *client) within() time.Duration {
	if c.rng.IntN(5) > 0 {
		return 0
	}
	return between(c.rng, time.Millisecond, 300*time.Millisecond)
}
