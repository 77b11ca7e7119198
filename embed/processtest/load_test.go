//go:build unix

package processtest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A load is writers of every kind on every member of an ensemble.
type load struct {
	e       *ensemble
	ctx     context.Context
	end     context.CancelFunc
	loops   sync.WaitGroup
	drivers []*driver
}

// A driver lets one writer write through one member, in its current run and session.
type driver struct {
	name    string
	member  embed.MemberID
	writer  writer
	timeout time.Duration   // of its sessions
	counts  [4]atomic.Int64 // of each outcome, in the order of outcomes
	allow   atomic.Int64    // how many writes it may still issue
	newest  atomic.Int64    // when the newest acknowledged write was issued, Unix time in ns
}

var outcomes = []outcome{applied, refused, notApplied, unknown}

func (d *driver) acked() int64 { return d.counts[0].Load() }

// ephemeralsPath is where every session leaves an ephemeral.
const ephemeralsPath = "/ephemerals"

const (
	// loadTimeout is the timeout of the writers' sessions. No test waits for one of them to expire.
	loadTimeout = outlasting
	// lockerTimeout is the timeout of the lockers' sessions. It is almost the minimum, so that a
	// longer pause costs them their locks. A locker whose session got no lock at all doubles it.
	lockerTimeout = 1500 * time.Millisecond
)

// allowance is how many writes each writer may issue until it is refreshed. It keeps the trees
// small when some part of a round takes long, so that the time of a test depends on its rounds.
const (
	allowance      = 50
	crowdAllowance = 4
)

// refresh lets the writers go on.
func (l *load) refresh() {
	for _, d := range l.drivers {
		n := int64(allowance)
		if w, ok := d.writer.(*setter); ok && w.crowd > 0 {
			n = crowdAllowance
		}
		d.allow.Store(n)
	}
}

// startLoad prepares the tree of a running ensemble and starts the writers.
func startLoad(t *testing.T, e *ensemble) *load {
	t.Helper()
	l := &load{e: e}
	l.ctx, l.end = context.WithCancel(context.Background())
	setup := e.session(e.ids[0], "setup", outlasting)
	create := func(path, data string) {
		setup.must(t, request{Call: callCreate, Session: "setup", Path: path, Data: data})
	}
	for _, path := range []string{namesPath, bankPath, tidyPath, burstsPath, ephemeralsPath, "/values"} {
		create(path, "")
	}
	create(bankPath+"/a", "0")
	create(bankPath+"/b", "0")
	for _, id := range e.ids {
		name := func(kind string) string { return fmt.Sprintf("%s%d", kind, id) }
		create("/values/"+name("setter"), "")
		create("/values/"+name("crowd"), "")
		for _, d := range []*driver{
			{name: name("namer"), writer: &namer{counter: counter{name: name("namer")}, done: make(ledger), names: make(map[string]string)}},
			{name: name("setter"), writer: &setter{counter: counter{name: name("setter")}, path: "/values/" + name("setter")}},
			{name: name("crowd"), writer: &setter{counter: counter{name: name("crowd")}, path: "/values/" + name("crowd"), crowd: crowdLen}},
			{name: name("teller"), writer: &teller{counter: counter{name: name("teller")}, done: make(ledger)}},
			{name: name("tidier"), writer: &tidier{counter: counter{name: name("tidier")}, created: make(ledger), deleted: make(ledger)}},
			{name: name("submitter"), writer: &submitter{counter: counter{name: name("submitter")}, bursts: make(map[string][]outcome)}},
			{name: name("locker"), writer: &locker{name: name("locker")}},
		} {
			d.member = id
			d.timeout = loadTimeout
			if _, ok := d.writer.(*locker); ok {
				d.timeout = lockerTimeout
			}
			l.drivers = append(l.drivers, d)
		}
	}
	setup.must(t, request{Call: callClose, Session: "setup"})
	for _, d := range l.drivers {
		l.loops.Go(func() { l.drive(d) })
	}
	t.Cleanup(l.end) // afterwards the processes are killed, and then every loop ends
	return l
}

// stop waits until every issued write has an outcome.
func (l *load) stop() {
	l.end()
	l.loops.Wait()
}

func (l *load) drive(d *driver) {
	for n := 1; l.ctx.Err() == nil; n++ {
		r := l.serving(d.member)
		if r == nil {
			return
		}
		session := fmt.Sprintf("%s-%d", d.name, n)
		if _, err := r.call(request{Call: callOpen, Session: session, Timeout: d.timeout}); err != nil {
			continue
		}
		_, _ = r.call(request{Call: callCreate, Session: session, Path: ephemeralsPath + "/" + session, Mode: int(embed.Ephemeral)})
		if d.writer.begin(l.e.t, r, session) != nil {
			continue
		}
		before := d.acked()
		for l.permit(d, r) {
			issued := time.Now()
			o := d.writer.step(l.e.t, r, session)
			i := slices.Index(outcomes, o)
			if i < 0 {
				l.e.t.Errorf("%s: %s", d.name, o)
				return
			}
			d.counts[i].Add(1)
			if o == applied {
				d.newest.Store(issued.UnixNano())
			} else if o != refused {
				break
			}
		}
		if d.acked() == before { // a busy machine may be slower than a locker's session lasts
			d.timeout = min(2*d.timeout, loadTimeout)
		} else if _, ok := d.writer.(*locker); ok {
			d.timeout = lockerTimeout
		}
	}
}

// permit waits until a writer may issue its next write. It returns false at the end of the load or
// of the run.
func (l *load) permit(d *driver, r *run) bool {
	for l.ctx.Err() == nil {
		if d.allow.Add(-1) >= 0 {
			return true
		}
		select {
		case <-r.Dead():
			return false
		case <-time.After(2 * time.Millisecond):
		}
	}
	return false
}

// serving waits until a member's newest run is ready and returns it. At the end of the load it
// returns nil.
func (l *load) serving(id embed.MemberID) *run {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		r := l.e.run(id)
		select {
		case <-l.ctx.Done():
			return nil
		case <-r.ready:
			select {
			case <-r.Dead():
			default:
				return r
			}
		case <-r.Dead():
		}
		<-tick.C // it is dead: wait until another is started
	}
}

// flow waits until every writer has a new acknowledgement. Then the ensemble works through each
// member.
func (l *load) flow() {
	l.e.t.Helper()
	l.refresh()
	before := make([]int64, len(l.drivers))
	for i, d := range l.drivers {
		before[i] = d.acked()
	}
	for i, d := range l.drivers {
		l.e.until("an acknowledged write of "+d.name, func() bool { return d.acked() > before[i] })
	}
	l.refresh()
}

// newest returns when the newest acknowledged write through the given members was issued.
func (l *load) newest(ids ...embed.MemberID) time.Time {
	var at int64
	for _, d := range l.drivers {
		if slices.Contains(ids, d.member) {
			at = max(at, d.newest.Load())
		}
	}
	return time.Unix(0, at)
}

func (l *load) report(t *testing.T) {
	sums := make(map[outcome]int64)
	for _, d := range l.drivers {
		for i := range outcomes {
			sums[outcomes[i]] += d.counts[i].Load()
		}
	}
	t.Logf("writes: %d applied, %d refused, %d not applied, %d unknown", sums[applied], sums[refused], sums[notApplied], sums[unknown])
}

// verify compares what exists with what every writer was told. Nothing may be in flight, and no
// session open.
func (l *load) verify(t *testing.T, tree []entry) {
	left := newRemains(tree)
	for _, d := range l.drivers {
		d.writer.verify(t, left)
	}
	verifyNames(t, left)
	verifyBank(t, left)
	var sections []section
	for _, d := range l.drivers {
		if w, ok := d.writer.(*locker); ok {
			sections = append(sections, w.sections...)
		}
	}
	t.Logf("%d sections under the lock", verifySections(t, sections))
	if paths := left.children[ephemeralsPath]; len(paths) > 0 {
		t.Errorf("ephemerals of ended sessions are left: %v", paths)
	}
	for path, z := range left.znodes {
		if z.Stat.EphemeralOwner != 0 {
			t.Errorf("%s belongs to the ended session %d", path, z.Stat.EphemeralOwner)
		}
	}
}

// sameTrees reads the tree of every member, checks that all are equal in every field, and returns
// one.
func (e *ensemble) sameTrees() []entry {
	e.t.Helper()
	var first []entry
	for _, id := range e.ids {
		r := e.session(id, "walk", outlasting)
		tree := r.must(e.t, request{Call: callWalk, Session: "walk"}).Tree
		e.t.Logf("member %d: %d znodes, digest %.16s", id, len(tree), digest(tree))
		if first == nil {
			first = tree
			continue
		}
		compare(e.t, fmt.Sprintf("member %d", e.ids[0]), first, fmt.Sprintf("member %d", id), tree)
	}
	return first
}

func digest(tree []entry) string {
	h := sha256.New()
	if err := json.NewEncoder(h).Encode(tree); err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// compare reports the first differences between two trees.
func compare(t *testing.T, aName string, a []entry, bName string, b []entry) {
	t.Helper()
	if digest(a) == digest(b) {
		return
	}
	other := newRemains(b).znodes
	reported := 0
	report := func(format string, args ...any) {
		if reported++; reported <= 10 {
			t.Errorf(format, args...)
		}
	}
	for _, z := range a {
		y, ok := other[z.Path]
		delete(other, z.Path)
		if !ok {
			report("%s is in the tree of %s, not of %s", z.Path, aName, bName)
		} else if z != y {
			report("%s:\n%s: %+v\n%s: %+v", z.Path, aName, z, bName, y)
		}
	}
	for path := range other {
		report("%s is in the tree of %s, not of %s", path, bName, aName)
	}
	t.Errorf("the trees of %s and %s differ at %d znodes", aName, bName, reported)
}
