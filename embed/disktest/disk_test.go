package disktest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/storage/disk"
)

var (
	everyCall = flag.Bool("every", false, "let every single call fail in the tests that let some fail")
	diskSeed  = flag.Uint64("diskseed", 0, "the random choices of the tests of failing disks; zero means those of VIVARIUM_SEED with -every, and the same as always without it")
)

// skipIfShort skips a test that takes a minute with the race detector.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long")
	}
}

// seeded returns a source of random choices.
func seeded(t *testing.T) *rand.Rand {
	seed := *diskSeed
	if seed == 0 && *everyCall {
		seed = testkit.Seed(t)
	}
	return rand.New(rand.NewPCG(seed, 1))
}

// A trap counts down the calls of a disk and fails the call at which it reaches zero.
type trap struct {
	from   moment             // counting begins with this call; nil means the first
	counts func(disk.Op) bool // which calls count; nil means all that change something
	fails  func(disk.Op) bool // which calls can fail once the trap is at zero; nil as for counts
	err    error
	disk   files.System

	mu    sync.Mutex
	left  int
	hit   string         // the call that failed: its kind and what it was for
	calls map[string]int // how often each kind of work began before that
}

func (tr *trap) ask(op disk.Op, name string) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.from != nil && tr.from(tr, op, name) {
		tr.from = nil
	}
	concerns := func(calls func(disk.Op) bool) bool { return calls == nil && !op.Reads() || calls != nil && calls(op) }
	if tr.from == nil && concerns(tr.counts) {
		tr.left--
	}
	if tr.left > 0 || !concerns(tr.fails) {
		tr.note(op, name)
		return nil
	}
	tr.hit = fmt.Sprintf("%s of %s", op, purpose(name))
	return tr.err
}

// note records the calls that tell what a node is doing.
func (tr *trap) note(op disk.Op, name string) {
	base := filepath.Base(name)
	switch {
	case op == disk.OpCreate && purpose(name) == "raft log" && strings.HasSuffix(base, ".log"):
		tr.calls["log"]++ // the first is the start's
	case op == disk.OpMkdir && strings.HasSuffix(base, ".generating"):
		tr.calls["snapshot"]++
	case op == disk.OpMkdir && strings.HasPrefix(base, "image-"):
		tr.calls["image"]++ // the first is the start's too
	}
}

// A moment is a call that tells what a node is about to do.
type moment func(tr *trap, op disk.Op, name string) bool

// logNearlyFull reports that a file of the log, which may grow to 64 MiB, is about to reach its
// end. Counting from the file's beginning, its end would be too far: the log is written in blocks
// of 32 KiB.
func logNearlyFull(tr *trap, op disk.Op, name string) bool {
	if purpose(name) != "raft log" || op != disk.OpWrite {
		return false
	}
	info, err := tr.disk.Stat(name)
	return err == nil && info.Size() >= 56<<20
}

// logFull reports that the log goes on to its next file.
func logFull(tr *trap, op disk.Op, name string) bool {
	return op == disk.OpCreate && strings.HasSuffix(name, ".idxtmp") && tr.calls["log"] > 0
}

func takesSnapshot(_ *trap, op disk.Op, name string) bool {
	return op == disk.OpMkdir && strings.HasSuffix(name, ".generating")
}

func snapshotReceived(_ *trap, op disk.Op, name string) bool {
	return op == disk.OpMkdir && strings.HasSuffix(name, ".receiving")
}

// begin makes the trap count from now on, if it does not yet.
func (tr *trap) begin() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.from = nil
}

// reads reports whether the calls that fail are also some that only read.
func (tr *trap) reads() bool { return tr.fails != nil && tr.fails(disk.OpOpen) }

// sprung reports whether a call has failed.
func (tr *trap) sprung() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.hit != ""
}

// begun returns how often a kind of work began.
func (tr *trap) begun(what string) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.calls[what]
}

// purpose returns what a file of a node's directory is for.
func purpose(name string) string {
	for _, p := range []struct{ part, is string }{
		{"/tandb", "raft log"}, {"/snapshot-part-", "raft snapshot"}, {"/raft", "raft directory"}, {"/image", "image"}, {"/identity", "identity"},
	} {
		if strings.Contains(name, p.part) {
			return p.is
		}
	}
	return "directory"
}

// needsSpace reports whether a full disk refuses a call.
func needsSpace(op disk.Op) bool {
	switch op {
	case disk.OpCreate, disk.OpWrite, disk.OpMkdir, disk.OpLink:
		return true
	}
	return false
}

// never returns a trap that never springs.
func never() *trap { return &trap{left: 1 << 62, calls: make(map[string]int)} }

func syncs(op disk.Op) bool { return op == disk.OpSync || op == disk.OpSyncDir }

// needsDescriptor reports whether a call needs a file descriptor.
func needsDescriptor(op disk.Op) bool {
	switch op {
	case disk.OpCreate, disk.OpAppend, disk.OpLock, disk.OpOpen, disk.OpList:
		return true
	}
	return false
}

var traps = map[string]func(at int) *trap{
	"an I/O error": func(at int) *trap { return &trap{left: at, err: syscall.EIO} },
	"a full disk":  func(at int) *trap { return &trap{left: at, err: syscall.ENOSPC, fails: needsSpace} },
	"a failing read": func(at int) *trap {
		return &trap{left: at, err: syscall.EIO, counts: disk.Op.Reads, fails: disk.Op.Reads}
	},
	"no descriptors": func(at int) *trap {
		return &trap{left: at, err: syscall.EMFILE, counts: needsDescriptor, fails: needsDescriptor}
	},
	"a failing fsync": func(at int) *trap { return &trap{left: at, err: syscall.EIO, counts: syncs, fails: syncs} },
}

// failures is the range of calls of one member's disk that fail, counted from the beginning of a
// start.
const failures = 2000

// The n-th call on one member's directory fails, for every n up to 2,000 with -every, which takes
// long, and otherwise for some. The call changes something or only reads. It happens during a
// start, under load, while the member lags behind the others' logs, in a snapshot, or when the log
// goes on to its next file.
//
// Nothing panics or hangs. The member is Failed and says why. Others get what it held, and it
// knows. The others go on, and the member starts again on what its directory has. No acknowledged
// write is lost anywhere.
func TestDisk_EveryFailure(t *testing.T) {
	for name, set := range traps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sweeping(t, set(1).reads(), func(w *sweep) {
				// No run fills a log; the next test does that.
				runs, heavy, at := 3, 4, w.rng.IntN(failures)
				if *everyCall {
					// Filling a log takes a hundred times as long.
					runs, heavy, at = failures, 40, 0
				}
				for i := range runs {
					at = (at + 1237) % failures // visits all of them, each far from the last
					tr, how := set(at+1), ordinary
					switch {
					case i%heavy == heavy-1:
						tr.from, how = logNearlyFull, filling
					case i%heavy == 1:
						how = outrun
					}
					w.run(tr, how, fmt.Sprint("call ", at+1))
					if w.t.Failed() && !*everyCall {
						break
					}
					if w.runs%100 == 0 {
						w.t.Log(w)
					}
				}
			})
		})
	}
}

// The same for the calls of rare work, counted from the work's beginning.
func TestDisk_FailureInTheMiddle(t *testing.T) {
	for name, of := range map[string]struct {
		from  moment
		how   life
		calls int // about as many as there are
	}{
		"of going on to the next log file": {logFull, filling, 16},
		"of taking a snapshot":             {takesSnapshot, ordinary, 40},
		"of installing a snapshot":         {snapshotReceived, outrun, 80},
	} {
		for _, reads := range []bool{false, true} {
			var kinds []string
			for _, kind := range slices.Sorted(maps.Keys(traps)) {
				if traps[kind](1).reads() == reads {
					kinds = append(kinds, kind)
				}
			}
			t.Run(fmt.Sprintf("%s/reads=%v", name, reads), func(t *testing.T) {
				if of.how == filling && reads {
					testkit.ByNight(t, "it writes a whole log, and a failing read there differs little from a failing write")
				}
				t.Parallel()
				sweeping(t, reads, func(w *sweep) {
					runs := 1
					if *everyCall {
						runs = len(kinds) * of.calls
					}
					for _, n := range w.rng.Perm(len(kinds) * of.calls)[:runs] {
						kind, at := kinds[n%len(kinds)], n/len(kinds)+1
						tr := traps[kind](at)
						tr.from = of.from
						w.run(tr, of.how, fmt.Sprintf("%s at call %d", kind, at))
					}
				})
			})
		}
	}
}

// sweeping runs a test in virtual time by day. If reads fail, it is in real time: dragonboat may
// then wait for a stop while it holds a lock, and virtual time would stand still.
func sweeping(t *testing.T, reads bool, test func(w *sweep)) {
	// Close waits in vain for a goroutine that cannot go on without reading the log.
	p := patience{lack: embedkit.ShortPatience, close: time.Second}
	sweep := func(t *testing.T) {
		w := newSweep(t, p)
		defer w.end()
		test(w)
	}
	if reads {
		sweep(t)
		return
	}
	p.close = 10 * time.Second
	if !testkit.Night() {
		p.lack = -1 // Pebble would wait for room while it holds a lock
	}
	testkit.Bubble(t, sweep)
}

// patience is how long the victim waits for what it lacks, and how long each half of its Close waits
// for what hangs.
type patience struct{ lack, close time.Duration }

// A life is how the victim spends its time.
type life uint8

const (
	ordinary life = iota // it does all that the ensemble does
	filling              // it mostly writes its log
	outrun               // it has missed more than the others' logs hold
)

// A sweep is an ensemble under load with a member that fails again and again.
type sweep struct {
	t     *testing.T
	rng   *rand.Rand
	ens   *embedtest.Ensemble
	books *ledger
	disk  *system              // the victim's
	trap  atomic.Pointer[trap] // at the victim's disk
	stop  chan struct{}
	load  sync.WaitGroup // of the members that do not fail
	large atomic.Bool    // some of it writes much at a time
	began time.Time
	lags  bool // the victim lags, since it was outrun
	// unready is how often in a row the victim was not ready. More of its log is torn each time,
	// and tan mends a torn log by writing the file anew.
	unready int

	// What happened.
	runs, started, ready, granted, rolled, snapshots, installs, checks, stuck int

	hits map[string]int
}

// victim is the member whose disk fails.
const victim = embed.MemberID(2)

// keptEntries is how many entries a log keeps for a member that lags. More would take longer to
// outrun.
const keptEntries = 100

func newSweep(t *testing.T, p patience) *sweep {
	t.Helper()
	skipIfShort(t)
	w := &sweep{t: t, rng: seeded(t), books: newLedger(), stop: make(chan struct{}), began: time.Now(), hits: make(map[string]int)}
	w.trap.Store(never())
	shared, dir := newDisk(t)
	w.disk = newSystem(shared)
	w.ens = embedtest.New(t, 3, embedtest.Options{
		Dir: dir, KeepEntries: keptEntries,
		Config: func(c *embed.Config) {
			c.Tick, c.MaxDataSize = 2*embedtest.DefaultTick, largest
			c.RequestTimeout = hung // a busy machine may stall
			c.Inside = &inside.Seams{Files: shared, Close: testkit.Patience}
			if c.ID == victim {
				fault := func(op disk.Op, name string) error { return w.trap.Load().ask(op, name) }
				c.Inside = &inside.Seams{Files: w.disk, Fault: fault, Unread: fault, Lack: p.lack, Close: p.close}
			}
		},
	})
	ctx := bounded(t)
	s := w.ens.Session(1, lasting)
	for _, path := range []string{"/w", "/gone", "/ballast"} {
		_, err := s.Create(ctx, path, nil, embed.Persistent)
		must(t, err)
	}
	for i := range 3 { // so that a snapshot has several pieces
		path := fmt.Sprintf("/ballast/%d-%d", i, 1<<20)
		_, err := s.Create(ctx, path, dataOf(path), embed.Persistent)
		must(t, err)
	}
	for _, id := range []embed.MemberID{1, 3} {
		n := w.ens.Node(id)
		w.load.Go(func() { w.books.writeUntil(w.stop, n, fmt.Sprint("small-", id), small(w.t)) })
		w.load.Go(func() { w.books.writeUntil(w.stop, n, fmt.Sprint("large-", id), w.size) })
	}
	w.ens.Kill(victim)
	return w
}

// end checks all members once more and logs the summary.
func (w *sweep) end() {
	if !w.t.Failed() {
		w.revive()
		for _, id := range []embed.MemberID{1, 3} {
			w.check(w.ens.Node(id))
		}
	}
	close(w.stop)
	w.load.Wait()
	w.t.Log(w)
}

// String returns the summary.
func (w *sweep) String() string {
	text := fmt.Sprintf("%d runs in %v: %d starts succeeded, %d members became ready, %d locks went to others, %d snapshots, %d roll-overs of the log, %d installs, %d checks, %d left a goroutine, %d writes\n",
		w.runs, time.Since(w.began).Round(time.Second), w.started, w.ready, w.granted, w.snapshots, w.rolled, w.installs, w.checks, w.stuck, w.books.writes.Load())
	for _, hit := range slices.Sorted(maps.Keys(w.hits)) {
		text += fmt.Sprintf("%6d %s\n", w.hits[hit], hit)
	}
	return text
}

// size returns a small or a large size.
func (w *sweep) size() int {
	if w.large.Load() {
		return largest >> testkit.Rand(w.t).IntN(3)
	}
	return small(w.t)()
}

const largest = 4 << 20

// small returns what chooses small sizes.
func small(t *testing.T) func() int {
	rng := testkit.Rand(t)
	return func() int { return rng.IntN(2 << 10) }
}

// run starts the victim on a disk with a trap, and lets it run until the trap springs.
func (w *sweep) run(tr *trap, how life, what string) {
	w.t.Helper()
	what = fmt.Sprintf("run %d, %s", w.runs, what)
	tr.calls = make(map[string]int)
	tr.disk = w.disk
	if w.unready == 2 {
		w.revive()
	}
	if how == outrun && !w.lags {
		w.outrun()
	}
	w.trap.Store(tr)
	phase := "in its start: "
	n, err := w.start()
	if err != nil {
		if !errors.Is(err, tr.err) {
			w.t.Errorf("%s: start: %v", what, err)
		}
	} else {
		w.started++
		ready := w.ready
		w.live(n, tr, how, what)
		if phase = "before it was ready: "; w.ready > ready {
			phase = "under load: "
		}
	}
	w.unready++
	w.runs++
	w.hits[phase+tr.hit]++
	w.rolled += max(0, tr.begun("log")-1)
	w.snapshots += tr.begun("snapshot")
	if installs := tr.begun("image") - 1; installs > 0 {
		w.installs += installs
		w.lags = false
	}
	if left := w.disk.left(); len(left) > 0 && w.stuck == 0 {
		w.t.Errorf("%s: still open: %q", what, left)
	}
}

// start starts the victim. What the last Close has left behind may still lock its directory.
func (w *sweep) start() (n *embed.Node, err error) {
	w.until("the directory to be free", func() bool {
		n, err = w.ens.TryStart(victim)
		return w.stuck == 0 || !errors.Is(err, replication.ErrLocked)
	})
	return n, err
}

// revive starts the victim on a working disk, and stops it again.
func (w *sweep) revive() {
	w.trap.Store(never())
	n, err := w.start()
	must(w.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		w.t.Fatalf("it does not become ready again: %v\n%+v\n%s", err, n.Status(), allStacks())
	}
	w.check(n)
	w.ens.Kill(victim)
	w.lags, w.unready = false, 0
}

// outrun makes the others write more than their logs keep, while the victim is away.
func (w *sweep) outrun() {
	goal := w.books.writes.Load() + 2*keptEntries
	w.until("writes while the victim is away", func() bool { return w.books.writes.Load() > goal })
	w.lags = true
	for _, id := range []embed.MemberID{1, 3} {
		must(w.t, w.ens.Snapshot(id))
	}
}

// live lets the victim work until it fails.
func (w *sweep) live(n *embed.Node, tr *trap, how life, what string) {
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	defer cancel()
	var load sync.WaitGroup
	load.Go(func() { w.askForSnapshots(n) })
	if w.runs%3 == 1 {
		_ = w.ens.Node(1).TransferLeadership(1, victim) // it may fail before
	}
	var hold *lock.Hold
	var next <-chan *lock.Hold
	if err := n.Ready(ctx); err == nil {
		w.ready++
		w.lags, w.unready = false, -1
		w.check(n)
		if how == outrun {
			tr.begin() // if it was sent entries after all
		}
		if how == filling {
			w.large.Store(true)
		} else {
			load.Go(func() { w.books.writeUntil(w.stop, n, fmt.Sprint("victim-", w.runs), small(w.t)) })
		}
		if s, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Second}); err == nil {
			_, _ = s.Create(ctx, fmt.Sprintf("/gone/%d", w.runs), nil, embed.Ephemeral)
			if w.runs%7 == 2 {
				if hold, err = lock.NewMutex(s, "/lock").Lock(ctx); err == nil {
					next = w.contend(ctx)
				}
			}
		}
	}
	select {
	case <-n.Done():
	case <-ctx.Done():
		tr.mu.Lock()
		defer tr.mu.Unlock()
		w.t.Fatalf("%s: the member has not failed, %d calls are left\n%s", what, tr.left, allStacks())
	}
	w.large.Store(false)
	if !errors.Is(n.Err(), tr.err) {
		w.t.Errorf("%s: Err is %v", what, n.Err())
	}
	if hold != nil && hold.Err() == nil {
		w.t.Errorf("%s: a hold outlives its node", what)
	}
	load.Wait()
	closed := make(chan error, 1)
	go func() { closed <- w.ens.TryKill(victim) }()
	select {
	case err := <-closed:
		switch {
		case gaveUp(err) && tr.reads():
			w.stuck++ // a goroutine of dragonboat cannot go on without reading its log
		case err != nil:
			w.t.Errorf("%s: close: %v\n%s", what, err, allStacks())
		}
	case <-ctx.Done():
		w.t.Fatalf("%s: Close does not end\n%s", what, allStacks())
	}
	if next != nil {
		if h := <-next; h == nil {
			w.t.Errorf("%s: nobody was granted the lock of the member that failed", what)
		} else {
			w.granted++
			must(w.t, h.Release())
		}
	}
	w.goOn(what)
}

// gaveUp reports whether Close has left something behind after its time.
func gaveUp(err error) bool {
	return errors.Is(err, replication.ErrStillRunning) || err != nil && strings.Contains(err.Error(), "could not be closed in time")
}

// allStacks returns the stacks of all goroutines.
func allStacks() []byte {
	stacks := make([]byte, 1<<22)
	return stacks[:runtime.Stack(stacks, true)]
}

// goOn checks that the other members go on.
func (w *sweep) goOn(what string) {
	before := w.books.writes.Load()
	w.until(what+": the others to go on", func() bool { return w.books.writes.Load() > before+2 })
}

// lasting are the options of a session that outlasts the stalls of a busy machine.
var lasting = embed.SessionOptions{Timeout: time.Minute}

// hung is how long something may take before it counts as hung, even on a slow machine.
const hung = 5 * time.Minute

func (w *sweep) until(what string, cond func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(hung); !cond(); <-tick.C {
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// contend makes a session of another member wait for the victim's lock.
func (w *sweep) contend(ctx context.Context) <-chan *lock.Hold {
	granted := make(chan *lock.Hold, 1)
	s := w.ens.Session(3, lasting)
	go func() {
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		if err != nil {
			w.t.Error(err)
		}
		granted <- hold
	}()
	return granted
}

// askForSnapshots asks for snapshots as long as the victim runs.
func (w *sweep) askForSnapshots(n *embed.Node) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = w.ens.Snapshot(victim)
		case <-n.Done():
			return
		}
	}
}

// check compares what a member shows with the acknowledged writes, unless the member fails
// meanwhile.
func (w *sweep) check(n *embed.Node) {
	w.t.Helper()
	w.books.pause()
	defer w.books.resume()
	ctx, cancel := context.WithTimeout(context.Background(), hung)
	defer cancel()
	s, err := n.NewSession(ctx, lasting)
	if err == nil {
		defer s.Close()
		err = w.books.told().check(ctx, w.t, s)
	}
	if err != nil {
		if n.Status().Member != victim || !w.trap.Load().sprung() {
			w.t.Errorf("member %d: %v", n.Status().Member, err)
		}
		return
	}
	w.checks++
	// The new start of a node has removed what sessions of an earlier start owned.
	if names, _, err := s.Children(ctx, "/gone"); err == nil && len(names) > 0 {
		w.t.Errorf("ephemerals of sessions that are over: %v", names)
	}
	w.books.tidy(ctx, w.t, w.ens.Node(1))
}
