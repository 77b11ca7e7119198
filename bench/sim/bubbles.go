//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/engine/clock"
)

// real reads a clock of real time, in a bubble too.
func real() time.Duration { return clock.System().Boot() }

// bubbles is a campaign.Ground whose rounds run in virtual time, each in a bubble. Members are
// nodes of this process.
type bubbles struct {
	t    *testing.T
	out  io.Writer
	seed uint64
	ask  time.Duration // Machine.Ask
	// scale is how much virtual time one unit of the campaign's time is.
	scale time.Duration

	// of weigh
	rounds     int // that are over
	bytes      uint64
	goroutines int

	failed atomic.Bool  // package embedtest could not do what it was asked to
	before atomic.Int64 // the campaign's time of all earlier rounds
	last   atomic.Int64 // what Now returned last
	open   atomic.Bool  // there is a bubble
	beats  atomic.Int64 // the campaign's seconds of this bubble
	round  atomic.Pointer[bubble]
}

// A bubble is one round.
type bubble struct {
	t     *testing.T
	begun time.Time
}

// asks is how often a holder asks at the usual pace.
const asks = 2 * time.Millisecond

func newBubbles(t *testing.T, s campaign.Settings, out io.Writer) *bubbles {
	return &bubbles{t: t, out: out, seed: s.Seed, ask: time.Duration(s.Pace) * asks, scale: time.Duration(s.Scale)}
}

// Now is the campaign's time that all rounds have taken so far. It runs only in a round.
//
// Much can happen at one moment of virtual time. So that the times keep its order, each is later
// than the one before, if only by a nanosecond. The looks at the clock in one moment are far fewer
// than the nanoseconds in campaign.Blur.
func (g *bubbles) Now() time.Duration {
	now := g.before.Load()
	if b := g.round.Load(); b != nil {
		now += int64(time.Since(b.begun) / g.scale)
	}
	for {
		last := g.last.Load()
		if next := max(now, last+1); g.last.CompareAndSwap(last, next) {
			return time.Duration(next)
		}
	}
}

// farewell is how long the goroutines of dead members have to notice that they are dead.
const farewell = 5 * time.Minute

const (
	// roundsFirst is how many rounds come before the growth of the process is measured. By then an
	// ensemble of each size has filled what its libraries keep for the whole process.
	roundsFirst = 4
	// collections is how many times garbage is collected before the process is weighed.
	collections = 5
	// growthMax is how many bytes more than then the process may use later.
	growthMax = 128 << 20
)

// weigh reports a violation if the process has grown since its first rounds. No round is under way,
// and no ensemble.
func (g *bubbles) weigh() {
	// One collection does not free what finalizers and the second generation of pools still hold:
	// at times half of a round's memory.
	for range collections {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	goroutines := runtime.NumGoroutine()
	fmt.Fprintf(g.out, "between rounds: %d MiB, %d goroutines\n", m.HeapAlloc>>20, goroutines)
	switch {
	case g.rounds == roundsFirst:
		g.bytes, g.goroutines = m.HeapAlloc, goroutines
	case g.rounds > roundsFirst && (m.HeapAlloc > g.bytes+growthMax || goroutines > g.goroutines):
		judge{g.t, g}.Errorf("growth: from %d MiB and %d goroutines after %d rounds", g.bytes>>20, g.goroutines, roundsFirst)
	}
	g.rounds++
}

func (g *bubbles) Round(play func()) {
	g.weigh()
	synctest.Test(g.t, func(t *testing.T) {
		b := &bubble{t: t, begun: time.Now()}
		g.beats.Store(0)
		g.open.Store(true)
		g.round.Store(b)
		beat := time.NewTicker(g.scale * time.Second)
		over := make(chan struct{})
		go func() {
			for {
				select {
				case <-beat.C:
					g.beats.Add(1)
				case <-over:
					return
				}
			}
		}()
		play()
		g.before.Add(int64(time.Since(b.begun) / g.scale))
		g.round.Store(nil)
		time.Sleep(g.scale * farewell) // a bubble's time ends with this goroutine
		g.open.Store(false)
		close(over)
		beat.Stop()
	})
}

// standstill is how long virtual time may stand before the process gives up.
const standstill = 2 * time.Minute

// watch prints the stacks and ends the process if virtual time stands still. Then some goroutine
// waits in a way that is not durable, while the one that could wake it waits for virtual time. Only
// real time shows that.
func (g *bubbles) watch(out io.Writer) {
	for last, moved := int64(-1), real(); ; time.Sleep(time.Second) {
		if now := g.beats.Load(); now != last || !g.open.Load() {
			last, moved = now, real()
		}
		if real()-moved > standstill {
			stacks := make([]byte, 64<<20)
			fmt.Fprintf(out, "%s\nsim: virtual time has stood still for %v of real time\n", stacks[:runtime.Stack(stacks, true)], standstill)
			os.Exit(exitStalled)
		}
	}
}

// compactEvery is how many processes start until all members cut their logs. Reading a long log at
// the start took an eighth of the campaign's time.
const compactEvery = 3

// keep is how many entries a log keeps for members that lag, few enough that some lag further.
const keep = 64

// A judge is a test whose failures are printed at once and do not end it.
type judge struct {
	testing.TB
	ground *bubbles
}

func (judge) Helper() {}

func (j judge) Errorf(format string, args ...any) {
	j.ground.failed.Store(true)
	fmt.Fprintf(j.ground.out, "%7.1fs  VIOLATION guest: %s\n", j.ground.Now().Seconds(), fmt.Sprintf(format, args...))
}

func (j judge) Fatalf(format string, args ...any) {
	j.Errorf(format, args...)
	runtime.Goexit()
}

// aside calls do in a goroutine of its own, which a judge may end.
func (g *bubbles) aside(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
}

// Found makes an ensemble whose members do not run yet.
func (g *bubbles) Found(_ string, size, spares, portion int) (campaign.Host, error) {
	h := &host{ground: g, founders: size, grows: spares > 0, configs: make(map[string]embed.Config), processes: make(map[embed.MemberID]*process)}
	h.ens = embedtest.New(judge{g.round.Load().t, g}, size, embedtest.Options{Stopped: true, Config: h.configure, Seed: g.seed + uint64(g.rounds), KeepEntries: keep, EndPortion: portion})
	for range spares {
		h.ens.AddPlace()
	}
	return h, nil
}

// A host is an ensemble of nodes in this process.
type host struct {
	ground   *bubbles
	ens      *embedtest.Ensemble
	founders int
	grows    bool // members come and go

	mu        sync.Mutex
	configs   map[string]embed.Config     // of the next start, by directory
	processes map[embed.MemberID]*process // the newest
	spawns    int
}

// configure replaces the configuration of a member that is about to start.
func (h *host) configure(c *embed.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	place := *c
	*c = h.configs[c.Dir]
	c.Join, c.Advertise = place.Join, place.Advertise
	if c.Members != nil {
		c.ID, c.Members = place.ID, place.Members
	}
}

func (h *host) Home(id embed.MemberID) campaign.Home {
	const set = "configure sets it"
	home := campaign.Home{Dir: h.ens.Dir(id), Door: "members-in-a-bubble-listen-on-no-port:0"}
	if int(id) <= h.founders {
		home.Members = map[embed.MemberID]string{id: set}
	}
	if h.grows {
		home.Join = []string{set}
	}
	return home
}

func (h *host) Readdress(id embed.MemberID) { h.ens.Readdress(id) }

func (h *host) Wipe(id embed.MemberID) error {
	h.ground.aside(func() { h.ens.Wipe(id) })
	return nil
}

func (h *host) Dial(ctx context.Context, id embed.MemberID) (net.Conn, error) {
	return h.ens.Dial(ctx, id)
}

func (h *host) Rename(id embed.MemberID, from, to string) error { return h.ens.Rename(id, from, to) }

func (h *host) Files(id embed.MemberID) (map[string]int64, error) { return h.ens.Files(id) }

func (h *host) Spawn(id embed.MemberID, log string) (campaign.Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	faults := h.ens.Faults(id)
	faults.SetDisk(embedtest.Disk{})
	faults.SetWallClock(0)
	faults.Freeze(false)
	p := &process{host: h, id: id, log: out, work: make(chan struct{}, 1), dead: make(chan struct{}), node: make(chan bool, 1)}
	p.node <- false
	p.mu.open = make(map[*question]bool)
	p.member = campaign.NewMember(campaign.Machine{
		Now: h.ground.Now, Faults: faults, Start: p.start, Close: p.close, Recover: p.recover, Log: out, Ask: h.ground.ask, Compact: h.compact,
	})
	h.mu.Lock()
	h.processes[id] = p
	h.spawns++
	cut := h.spawns%compactEvery == 0
	h.mu.Unlock()
	if cut {
		h.compact()
	}
	go p.serve()
	return p, nil
}

// compact asks all members for a snapshot. Those that are not running make none.
func (h *host) compact() {
	for _, id := range h.ens.Members() {
		_ = h.ens.Snapshot(id)
	}
}

// PowerCut ends members as a power cut of their machines would.
func (h *host) PowerCut(ids ...embed.MemberID) {
	var cut []*process
	for _, id := range ids {
		h.mu.Lock()
		p := h.processes[id]
		h.mu.Unlock()
		if p.die() {
			<-p.node
			cut = append(cut, p)
		} else {
			<-p.dead // it may be about to end
		}
	}
	h.ground.aside(func() { h.ens.PowerCut(ids...) })
	for _, p := range cut {
		p.bury()
	}
}

// A process is one run of a member in this process.
type process struct {
	host   *host
	id     embed.MemberID
	log    *os.File
	member *campaign.Member
	work   chan struct{} // has room for one: there may be something to serve; closed by Kill
	dead   chan struct{}

	// node has room for one. The goroutine that starts or ends the node receives whether it runs,
	// and sends it back. Closed when the process is over.
	node chan bool

	mu struct {
		sync.Mutex
		asked  []*question // not served yet
		open   map[*question]bool
		held   []func() // answers and notices while it is paused
		paused bool
		over   bool
	}
}

// A question is a request, and where to send the answer.
type question struct {
	q      campaign.Request
	answer chan campaign.Reply
	notice func(campaign.Reply)
}

func (p *process) start(cfg embed.Config) (*embed.Node, error) {
	if _, alive := <-p.node; !alive {
		return nil, errors.New("the process is over")
	}
	cfg.Logger = slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	p.host.mu.Lock()
	p.host.configs[cfg.Dir] = cfg
	p.host.mu.Unlock()
	n, err := p.host.ens.TryStart(p.id)
	p.node <- err == nil
	return n, err
}

// recover waits for nobody, so a process that is killed meanwhile recovers to the end.
func (p *process) recover(_ context.Context, _ campaign.Home, lost []embed.MemberID) error {
	if _, alive := <-p.node; !alive {
		return errors.New("the process is over")
	}
	err := p.host.ens.Recover(p.id, lost...)
	p.node <- false
	return err
}

// killNode ends the node as a crash would.
func (p *process) killNode() { p.host.ground.aside(func() { p.host.ens.Kill(p.id) }) }

// close ends the node, if it runs. Nothing that the node does from now on reaches anybody.
func (p *process) close(*embed.Node) error {
	runs, alive := <-p.node
	if runs {
		p.killNode()
	}
	if alive {
		p.node <- false
	}
	return nil
}

func (p *process) Send(q campaign.Request, notice func(campaign.Reply)) <-chan campaign.Reply {
	a := &question{q, make(chan campaign.Reply, 1), notice}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.over {
		close(a.answer)
		return a.answer
	}
	p.mu.asked = append(p.mu.asked, a)
	p.mu.open[a] = true
	p.wake()
	return a.answer
}

func (p *process) wake() {
	select {
	case p.work <- struct{}{}:
	default:
	}
}

// serve passes the requests to the member, one after the other, until the process is killed.
func (p *process) serve() {
	for range p.work {
		for a := p.next(); a != nil; a = p.next() {
			p.member.Serve(a.q, func(r campaign.Reply, notice bool) { p.say(a, r, notice) })
		}
	}
}

// next returns the next request to serve, if the process may serve one.
func (p *process) next() *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.paused || len(p.mu.asked) == 0 {
		return nil
	}
	a := p.mu.asked[0]
	p.mu.asked = p.mu.asked[1:]
	return a
}

// say passes an answer or a notice on. While the process is paused, nobody hears it.
func (p *process) say(a *question, r campaign.Reply, notice bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.paused {
		p.mu.held = append(p.mu.held, func() { p.passLocked(a, r, notice) })
		return
	}
	p.passLocked(a, r, notice)
}

func (p *process) passLocked(a *question, r campaign.Reply, notice bool) {
	switch {
	case !p.mu.open[a]:
	case !notice:
		delete(p.mu.open, a)
		a.answer <- r
	case a.notice != nil:
		a.notice(r)
	}
}

// Pause makes the member stand still towards the world.
func (p *process) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.over {
		p.mu.paused = true
		p.host.ens.Pause(p.id)
	}
}

func (p *process) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.over {
		p.resumeLocked()
	}
}

func (p *process) resumeLocked() {
	for _, pass := range p.mu.held {
		pass()
	}
	p.mu.held, p.mu.paused = nil, false
	p.host.ens.Resume(p.id)
	p.wake()
}

func (p *process) Kill() {
	if p.die() {
		go func() {
			if <-p.node { // after its start, if it is being started
				p.killNode()
			}
			p.bury()
		}()
	}
}

// die lets the process answer nobody any longer. It reports whether the process lived.
func (p *process) die() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.over {
		return false
	}
	p.mu.over = true
	for a := range p.mu.open {
		close(a.answer)
	}
	clear(p.mu.open)
	p.resumeLocked()
	close(p.work)
	return true
}

// bury ends what is left of a process whose node was killed.
func (p *process) bury() {
	p.member.End()
	close(p.node)
	_ = p.log.Close()
	close(p.dead)
}

func (p *process) Dead() <-chan struct{} { return p.dead }

func (p *process) DiedAlone() (string, bool) { return "killed", false }
