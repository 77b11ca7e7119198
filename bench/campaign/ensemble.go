package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// patience limits every wait for a member that nothing keeps from answering. It is far longer than
// a slow machine needs, so a wait that reaches it has found a call that hangs. With a load of 27 on
// two cores, two learners took 75 s to become voters of four shards.
const patience = 3 * time.Minute

// An ensemble is the members of one round, each in a process. It knows them by their places, as its
// Host does. Its methods may be called concurrently.
type ensemble struct {
	// Immutable after newEnsemble.
	dir      string
	report   *report
	history  *history
	host     Host
	ids      []embed.MemberID // all places
	founders int
	voters   int // of members that come and go, so many vote at rest
	shards   int
	next     bool // as in Upgrade

	mu struct {
		sync.Mutex
		runs    map[embed.MemberID]*run
		links   map[[2]embed.MemberID]link // from, to
		ended   bool
		stopped map[embed.MemberID]bool   // by Process.Pause
		broken  map[embed.MemberID]bool   // its disk fails
		taken   map[embed.MemberID]string // a directory that was moved away
		builds  map[embed.MemberID]build  // of the next start
		away    map[embed.MemberID]bool   // nobody runs there, and nobody is to be started
		evicted map[embed.MemberID]eviction
		left    map[embed.MemberID]bool // it was asked to leave, and nobody knows whether it has left
		// after a forced recovery nobody is a founder any more
		recovered bool
		fixed     bool // no member comes or goes yet
	}

	changing sync.Mutex // held by the change of the members that is under way
}

// A run is one life of a member's node. It begins with the start of a process, or with the start of
// another node in the process.
type run struct {
	Process
	member  embed.MemberID
	number  int           // counts the member's runs
	first   int           // the number of the process's first run
	orderly atomic.Bool   // it was asked to shut down, or is removed
	ready   chan struct{} // closed when the node is ready
}

// newEnsemble returns members that do not run yet. Spares are places for members that come and go.
func newEnsemble(g Ground, dir string, size, spares, shards, portion int, h *history, rep *report) (*ensemble, error) {
	e := &ensemble{dir: dir, founders: size, voters: size, shards: shards, report: rep, history: h}
	e.mu.runs = make(map[embed.MemberID]*run)
	e.mu.links = make(map[[2]embed.MemberID]link)
	e.mu.stopped = make(map[embed.MemberID]bool)
	e.mu.broken = make(map[embed.MemberID]bool)
	e.mu.taken = make(map[embed.MemberID]string)
	e.mu.builds = make(map[embed.MemberID]build)
	e.mu.away = make(map[embed.MemberID]bool)
	e.mu.evicted = make(map[embed.MemberID]eviction)
	e.mu.left = make(map[embed.MemberID]bool)
	for i := range size + spares {
		e.ids = append(e.ids, embed.MemberID(i+1))
		e.mu.away[embed.MemberID(i+1)] = i >= size
	}
	var err error
	e.host, err = g.Found(dir, size, spares, portion)
	return e, err
}

// logFile returns the name of a member's log.
func logFile(dir string, id embed.MemberID) string {
	return filepath.Join(dir, fmt.Sprintf("member-%d.log", id))
}

// start starts a member's process and its node, and waits for neither. The error is the error of
// starting the process.
func (e *ensemble) start(id embed.MemberID) error {
	b := e.build(id)
	p, err := e.spawn(id, b)
	if err != nil {
		return err
	}
	e.mu.Lock()
	r := e.newRunLocked(id, p)
	e.mu.Unlock()
	q := e.newStart(id) // after the run, which is told of all later changes of the links
	q.Run, q.HoldLevel, q.Next = r.number, b.hold, e.next && !b.old
	p.Send(Request{Call: callExpired}, func(r Reply) { add(e.history, expiries, expiry{r.Session, r.At}) })
	go func() {
		<-p.Dead()
		if how, alone := p.DiedAlone(); alone {
			e.report.violate("guest", "member %d, run %d: the process ended by itself: %s", id, r.number, how)
		}
	}()
	go func() {
		answer, ok := <-p.Send(Request{Call: callStart, Start: q}, nil)
		switch {
		case !ok:
		case answer.Error == "":
			e.awaitReady(r)
		case !e.isBroken(id): // otherwise the next mend starts it
			e.report.violate("guest", "member %d does not start: %s", id, answer.Error)
		}
	}()
	return nil
}

// newStart returns what a member's process starts with. The present links are among it.
func (e *ensemble) newStart(id embed.MemberID) *start {
	q := &start{Home: e.home(id), ID: id, Shards: e.shards, Voters: e.voters, Links: make(map[embed.MemberID]link)}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, to := range append([]embed.MemberID{gateways}, e.ids...) {
		if l, ok := e.mu.links[[2]embed.MemberID{id, to}]; ok {
			q.Links[to] = l
		}
	}
	return q
}

// home returns what a member's process has to know to start.
func (e *ensemble) home(id embed.MemberID) Home {
	h := e.host.Home(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.recovered {
		h.Members = nil
	}
	return h
}

func (e *ensemble) newRunLocked(id embed.MemberID, p Process) *run {
	r := &run{Process: p, member: id, number: 1, first: 1, ready: make(chan struct{})}
	if last := e.mu.runs[id]; last != nil {
		r.number, r.first = last.number+1, last.number+1
		if last.Process == p {
			r.first = last.first
		}
	}
	e.mu.runs[id] = r
	return r
}

// awaitReady asks a run until it is ready or over.
func (e *ensemble) awaitReady(r *run) {
	for e.run(r.member) == r && !e.over() {
		a, ok := <-r.Send(Request{Call: callReady, Within: patience}, nil)
		switch {
		case !ok:
			return
		case a.Error == "":
			close(r.ready)
			return
		}
		pause(context.Background(), tick)
	}
}

// run returns the newest run in a place. It is nil before the first run.
func (e *ensemble) run(id embed.MemberID) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.runs[id]
}

// running returns the newest run of a member once it is ready. It returns nil when ctx ends.
func (e *ensemble) running(ctx context.Context, id embed.MemberID) *run {
	for {
		if r := e.run(id); r != nil {
			select {
			case <-r.ready:
				if !r.gone() {
					return r
				}
			default:
			}
		}
		if pause(ctx, tick); ctx.Err() != nil {
			return nil
		}
	}
}

// gone reports whether the process has ended.
func (r *run) gone() bool {
	select {
	case <-r.Dead():
		return true
	default:
		return false
	}
}

// allReady waits until all members are ready, and returns the members that are late.
func (e *ensemble) allReady(ctx context.Context) (late []embed.MemberID) {
	for _, id := range e.here() {
		if e.running(ctx, id) == nil {
			late = append(late, id)
		}
	}
	return late
}

// call sends a member a request and waits for the answer.
func (e *ensemble) call(ctx context.Context, id embed.MemberID, q Request) (Reply, error) {
	r := e.run(id)
	select {
	case a, ok := <-r.Send(q, nil):
		switch {
		case !ok:
			return Reply{Outcome: unknown}, errDied
		case a.Error != "":
			return a, fmt.Errorf("member %d: %s: %s", id, q.Call, a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return Reply{Outcome: unknown}, fmt.Errorf("member %d: %s: %w", id, q.Call, ctx.Err())
	}
}

// leader returns the place of the member that a majority follows on a shard in one term, or zero.
func (e *ensemble) leader(shard int) embed.MemberID {
	type vote struct {
		leader embed.MemberID
		term   uint64
	}
	count := make(map[vote]int)
	here := e.here()
	all := e.statuses(here)
	for _, s := range all {
		if len(s.Shards) < shard {
			continue // it has yet to join
		}
		on := s.Shards[shard-1]
		v := vote{on.Leader, on.Term}
		if count[v]++; v.leader != 0 && count[v] > len(here)/2 {
			return placeOfMember(all, v.leader)
		}
	}
	return 0
}

// statuses asks the members in some places for their status. Those that do not answer are missing.
func (e *ensemble) statuses(places []embed.MemberID) map[embed.MemberID]embed.Status {
	ctx, cancel := limit(context.Background(), 10*tick)
	defer cancel()
	type answer struct {
		Reply
		place embed.MemberID
		err   error
	}
	answers := make(chan answer, len(places))
	for _, id := range places {
		go func() {
			a, err := e.call(ctx, id, Request{Call: callStatus})
			answers <- answer{a, id, err}
		}()
	}
	all := make(map[embed.MemberID]embed.Status)
	for range places {
		if a := <-answers; a.err == nil {
			all[a.place] = a.Status
		}
	}
	return all
}

// placeOfMember returns the place of the member with an id, or zero.
func placeOfMember(all map[embed.MemberID]embed.Status, id embed.MemberID) embed.MemberID {
	for place, s := range all {
		if s.Member == id {
			return place
		}
	}
	return 0
}

// idOf returns the id of the member in a place. It is zero if that has yet to join, or does not
// answer.
func (e *ensemble) idOf(place embed.MemberID) embed.MemberID {
	return e.statuses([]embed.MemberID{place})[place].Member
}

// applied returns the index up to which a member has applied the log of each shard. It returns nil
// if the member does not answer.
func (e *ensemble) applied(id embed.MemberID) (at []uint64) {
	ctx, cancel := limit(context.Background(), settleMax)
	defer cancel()
	a, err := e.call(ctx, id, Request{Call: callStatus})
	if err != nil || len(a.Status.Shards) < e.shards {
		return nil
	}
	for _, s := range a.Status.Shards {
		at = append(at, s.Applied)
	}
	return at
}

// kill ends a member's process. start begins another.
func (e *ensemble) kill(id embed.MemberID) {
	r := e.run(id)
	r.Kill()
	<-r.Dead()
}

// cutPower ends members as a power cut of their machines would. start starts them again.
func (e *ensemble) cutPower(ids ...embed.MemberID) { e.host.(PowerCutter).PowerCut(ids...) }

// stop stops a member's process without ending it. resume lets it go on.
func (e *ensemble) stop(id embed.MemberID) {
	e.mu.Lock()
	e.mu.stopped[id] = true
	e.mu.Unlock()
	e.run(id).Pause()
}

func (e *ensemble) resume(id embed.MemberID) {
	e.run(id).Resume()
	e.mu.Lock()
	e.mu.stopped[id] = false
	e.mu.Unlock()
}

// gateways stands for those that the clients in a member's process are connected to, where a link
// names the other end.
const gateways embed.MemberID = 0

// setLink breaks or mends the connection from one member to another, or to the gateways.
func (e *ensemble) setLink(from, to embed.MemberID, l link) {
	e.mu.Lock()
	key := [2]embed.MemberID{from, to}
	old := e.mu.links[key]
	e.mu.links[key] = l
	r := e.mu.runs[from]
	e.mu.Unlock()
	if old != l && r != nil {
		r.Send(Request{Call: callLink, To: to, Link: l}, nil)
	}
}

// heal ends every fault: stopped processes go on, links and disks work, and dead members start
// again.
func (e *ensemble) heal() {
	e.bringDirs()
	for _, id := range e.ids {
		e.mu.Lock()
		stopped := e.mu.stopped[id]
		e.mu.Unlock()
		if stopped {
			e.resume(id)
		}
	}
	e.healLinks()
	for _, id := range e.here() {
		if e.run(id).gone() {
			if err := e.start(id); err != nil {
				e.report.violate("harness", "member %d: %v", id, err)
			}
		}
	}
}

func (e *ensemble) healLinks() {
	for _, from := range e.ids {
		e.setLink(from, gateways, link{})
		for _, to := range e.ids {
			e.setLink(from, to, link{})
		}
	}
}

// breakDisk makes a member's disk slow or faulty.
func (e *ensemble) breakDisk(id embed.MemberID, d diskFault) {
	e.mu.Lock()
	e.mu.broken[id] = e.mu.broken[id] || d.Errno != 0
	e.mu.Unlock()
	e.run(id).Send(Request{Call: callDisk, Disk: d}, nil)
}

// takenAway is appended to the name of a directory that was moved away.
const takenAway = ".taken"

// takeDir moves a part of a member's directory, or all of it, away.
func (e *ensemble) takeDir(id embed.MemberID, part string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	dir := filepath.Join(e.host.Home(id).Dir, part)
	if e.mu.taken[id] != "" {
		return fmt.Errorf("%s is already moved away", e.mu.taken[id])
	}
	if err := e.host.Rename(id, dir, dir+takenAway); err != nil {
		return err
	}
	e.mu.broken[id], e.mu.taken[id] = true, dir
	return nil
}

// bringDirs moves all directories back.
func (e *ensemble) bringDirs() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, dir := range e.mu.taken {
		if err := e.host.Rename(id, dir+takenAway, dir); err != nil {
			e.report.violate("guest", "member %d recreated what was moved away: %v", id, err)
		}
	}
	clear(e.mu.taken)
}

func (e *ensemble) isBroken(id embed.MemberID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.broken[id]
}

// mendTime is how long a node may take to fail because of an error that its disk returned before.
const mendTime = 5 * tick

// mend mends a member's disk. If the node has failed, mend starts a new node in the same process
// and returns why the old one failed. A node that fails without a broken disk is a violation.
func (e *ensemble) mend(ctx context.Context, id embed.MemberID) (failed string) {
	r := e.run(id)
	q := Request{Call: callMend, Run: r.number + 1}
	if e.isBroken(id) {
		q.Length = mendTime
	}
	a, err := e.call(ctx, id, q)
	if strings.Contains(a.Error, notStarted) {
		return "" // it may still fail, because of what its disk did before
	}
	e.mu.Lock()
	broken := e.mu.broken[id] || e.mu.left[id] && strings.Contains(a.Failed, outText)
	e.mu.broken[id] = false
	e.mu.Unlock()
	switch {
	case err == errDied:
		return "" // the next process has another disk
	case err != nil:
		e.report.violate("guest", "after its disk was mended: %v", err)
		return ""
	case a.Failed == "":
		return ""
	case !broken:
		e.report.violate("guest", "member %d failed: %s", id, a.Failed)
	}
	e.mu.Lock()
	next := e.newRunLocked(id, r.Process)
	e.mu.Unlock()
	go e.awaitReady(next)
	return a.Failed
}

// stacks makes every member that still answers write its goroutines to its log.
func (e *ensemble) stacks() {
	ctx, cancel := limit(context.Background(), settleMax)
	defer cancel()
	var all sync.WaitGroup
	for _, id := range e.here() {
		all.Go(func() { _, _ = e.call(ctx, id, Request{Call: callStacks}) })
	}
	all.Wait()
}

func (e *ensemble) over() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.ended
}

// end kills all processes.
func (e *ensemble) end() {
	e.mu.Lock()
	e.mu.ended = true
	e.mu.Unlock()
	for _, id := range e.ids {
		if r := e.run(id); r != nil {
			r.Kill()
			<-r.Dead()
		}
	}
}

// others returns the members that are not away, except the given ones.
func (e *ensemble) others(not ...embed.MemberID) []embed.MemberID {
	return slices.DeleteFunc(e.here(), func(id embed.MemberID) bool { return slices.Contains(not, id) })
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(stretch(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// between returns a random duration.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(rng.Int64N(int64(high-low)))
}
