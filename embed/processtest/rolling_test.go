//go:build unix

package processtest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

// Members with ephemeral directories are replaced one by one by others while clients write, as in a
// rolling update of a Deployment. Nothing acknowledged is lost. It replaces three members once.
// With -rounds it replaces five, that many times, and says for how long nobody could write:
//
//	go test ./embed/processtest -run TestRollingReplacement -v -timeout 0 -rounds 10
func TestRollingReplacement(t *testing.T) {
	if *roundsFlag == 0 {
		t.Parallel()
	}
	size, rounds := 3, 1
	if *roundsFlag > 0 {
		size, rounds = 5, *roundsFlag
	}
	f := newFleet(t, size, nil)
	w := startWriters(f, false)
	var gaps []time.Duration
	for n := range rounds {
		began := time.Now()
		f.replaceAll()
		gap, writes := w.round()
		gaps = append(gaps, gap)
		t.Logf("round %d: %d members replaced in %.1f s, %d writes, at most %v between two",
			n+1, size, time.Since(began).Seconds(), writes, gap.Round(time.Millisecond))
	}
	w.end()
	slices.Sort(gaps)
	t.Logf("the longest gap of a round: median %v, worst %v",
		gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
}

// A fleet is the replicas of a service: processes whose directories end with them.
type fleet struct {
	t     *testing.T
	dir   string
	size  int
	addrs []string      // twice as many as there are replicas: the old and the new ones use them in turn
	made  int           // replicas so far
	certs *certificates // nil: plain text

	mu   sync.Mutex
	runs []*process // the replicas that serve, the oldest first
}

// newFleet founds an ensemble and waits until all replicas are ready.
func newFleet(t *testing.T, size int, certs *certificates) *fleet {
	t.Helper()
	addrs, err := child.FreeAddrs(2 * size)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, dir: workDir(t), size: size, addrs: addrs, certs: certs}
	founders := make(map[embed.MemberID]string)
	for i := range size {
		founders[embed.MemberID(i+1)] = addrs[i]
	}
	var starting []*process
	for _, id := range slices.Sorted(maps.Keys(founders)) {
		c := f.next()
		c.ID, c.Members, c.Join = id, founders, addrs[:size] // nobody is at the others yet
		starting = append(starting, f.start(c))
	}
	if certs != nil {
		certs.serve(f, starting)
	}
	for _, p := range starting {
		f.serves(p)
	}
	f.until("all founders to be known by name", func() bool {
		if certs != nil && time.Now().After(certs.ends) {
			certs.renew(starting, certs.short)
		}
		members := f.members()
		return len(members) == size && !slices.ContainsFunc(members, func(m embed.Member) bool { return m.Name == "" || m.Role != embed.Voter })
	})
	return f
}

// next returns the config of the next replica. Its address was that of a replica that is gone.
func (f *fleet) next() *config {
	n := f.made
	f.made++
	c := &config{Dir: filepath.Join(f.dir, fmt.Sprintf("replica-%d", n)), Shards: shardsflag.N, Tick: quickTick,
		Join: f.addrs, Advertise: f.addrs[n%len(f.addrs)], Name: fmt.Sprintf("replica-%d", n), Ephemeral: true, Voters: f.size}
	if f.certs != nil {
		f.certs.issue(n, f.certs.short)
		c.TLS = f.certs.files(n)
	}
	return c
}

func (f *fleet) start(c *config) *process {
	f.t.Helper()
	p := spawn(f.t, c.Dir+".log")
	for {
		_, err := p.callWithin(request{Call: callStart, Config: c})
		if err == nil {
			return p
		}
		if !hasExpired(err) {
			f.t.Fatal(err)
		}
		f.certs.issue(f.made-1, f.certs.short)
	}
}

// serves waits until a replica is ready. From then on clients use it.
func (f *fleet) serves(p *process) {
	f.t.Helper()
	p.must(f.t, request{Call: callReady, Within: patience})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs = append(f.runs, p)
}

// all returns the replicas that serve.
func (f *fleet) all() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.runs)
}

// members returns the members as the newest replica knows them.
func (f *fleet) members() []embed.Member {
	runs := f.all()
	return runs[len(runs)-1].must(f.t, request{Call: callStatus}).Members
}

// replaceAll replaces the replicas one by one: a new one is ready before the oldest is shut down.
// Nobody waits until the new one votes; the old one sees to that. Then all new ones must vote.
func (f *fleet) replaceAll() {
	f.t.Helper()
	for range f.size {
		f.serves(f.start(f.next()))
		old := f.all()[0]
		f.mu.Lock()
		f.runs = f.runs[1:]
		f.mu.Unlock()
		old.must(f.t, request{Call: callShutdown, Within: patience})
		old.Kill()
		<-old.Dead()
	}
	f.until("the new replicas to be the only members, and to vote", func() bool {
		members := f.members()
		return len(members) == f.size && !slices.ContainsFunc(members, func(m embed.Member) bool { return m.Role != embed.Voter })
	})
}

func (f *fleet) until(what string, cond func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !cond(); <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("waited %v for %s; members: %+v", patience, what, f.members())
		}
	}
}

// writers create znodes through all replicas, and know what must be there.
type writers struct {
	f     *fleet
	stay  bool
	stop  chan struct{}
	ended sync.WaitGroup

	mu       sync.Mutex
	outcomes map[string]outcome // by the znode's name
	at       time.Time          // of the newest acknowledged write
	gap      time.Duration      // the longest between two in this round
	writes   int                // in this round
}

const (
	writersN         = 6
	writerPause      = 20 * time.Millisecond // of each writer; or the gaps look longer than they are
	writerPauseByDay = 100 * time.Millisecond
)

// startWriters starts writers that use one replica after the other, or stay with theirs.
func startWriters(f *fleet, stay bool) *writers {
	w := &writers{f: f, stay: stay, stop: make(chan struct{}), outcomes: make(map[string]outcome), at: time.Now()}
	for i := range writersN {
		w.ended.Go(func() { w.loop(i) })
	}
	f.t.Cleanup(w.halt)
	return w
}

func (w *writers) loop(i int) {
	every := writerPause
	if !testkit.Night() && *roundsFlag == 0 {
		every = writerPauseByDay
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		runs := w.f.all()
		p := runs[(n+i)%len(runs)]
		if w.stay {
			p = runs[i%len(runs)]
		}
		session := fmt.Sprintf("writer-%d", i)
		name := fmt.Sprintf("w%d-%d", i, n)
		r, _ := p.call(request{Call: callCreate, Session: session, Path: "/" + name})
		if r.Outcome != applied && (strings.Contains(r.Error, "no session") || r.Outcome == notApplied) {
			p.call(request{Call: callOpen, Session: session, Timeout: outlasting})
		}
		w.note(name, r)
	}
}

func (w *writers) note(name string, r reply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(r.Error, "no session") {
		r.Outcome = notApplied
	}
	w.outcomes[name] = r.Outcome
	if r.Outcome != applied {
		return
	}
	now := time.Now()
	w.gap = max(w.gap, now.Sub(w.at))
	w.at = now
	w.writes++
}

// round returns the longest time between two acknowledged writes, and their number, since it was
// called last.
func (w *writers) round() (gap time.Duration, writes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gap, writes = w.gap, w.writes
	w.gap, w.writes = 0, 0
	return gap, writes
}

func (w *writers) halt() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.ended.Wait()
}

// end stops the writers, and compares what each replica has with what they were told.
func (w *writers) end() {
	t := w.f.t
	t.Helper()
	w.halt()
	count := make(map[outcome]int)
	for _, o := range w.outcomes {
		count[o]++
	}
	t.Logf("outcomes: %v", count)
	for _, p := range w.f.all() {
		p.must(t, request{Call: callOpen, Session: "end", Timeout: outlasting})
		p.must(t, request{Call: callSync, Session: "end", Path: "/"})
		there := make(map[string]bool)
		for _, name := range p.must(t, request{Call: callChildren, Session: "end", Path: "/"}).Names {
			there[name] = true
		}
		for name, o := range w.outcomes {
			switch {
			case o == applied && !there[name]:
				t.Errorf("process %d lacks %s, which was acknowledged", p.Pid(), name)
			case o == notApplied && there[name]:
				t.Errorf("process %d has %s, which was reported as not applied", p.Pid(), name)
			case o != applied && o != notApplied && o != unknown:
				t.Errorf("%s: %s", name, o)
			}
		}
	}
}
