//go:build linux

package main

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// A lockKind is a kind of lock.
type lockKind struct {
	what string
	n    int           // the limit of aPermit, the paths of aMulti
	keep time.Duration // of aMutex: it stays with its process for so long when others want it
}

// What lockKinds are.
const (
	aMutex  = "mutex"
	aRead   = "read"
	aWrite  = "write"
	aPermit = "permit"
	aMulti  = "multi"
)

var mutex = lockKind{what: aMutex}

// A take waits for a lock; not all systems' can be cancelled.
type take = func(context.Context) (hold, error)

// A hold is a lock that is taken.
type hold interface{ Release() error }

// locked returns the op that takes a lock and gives it up.
func locked(lock take, err error) (op, error) {
	ctx := context.Background()
	return func() error {
		h, err := lock(ctx)
		if err != nil {
			return err
		}
		return h.Release()
	}, err
}

// What tells the lines of suites lock and handoff apart. Callers are spread over all members, if a kept lock does not bind them to one.
const (
	onMutex    = "mutex"
	onKept     = "kept"
	onRead     = "read"
	onWrite    = "write"
	onMixed    = "9 read, 1 writes"
	onPermit1  = "permit of 1"
	onPermit16 = "permit of 16"
	onPermit64 = "permit of 64"
	onMulti2   = "2 paths"
	onMulti8   = "8 paths"
)

var lockKinds = map[string]lockKind{
	onMutex:    mutex,
	onKept:     {what: aMutex, keep: time.Hour},
	onRead:     {what: aRead},
	onWrite:    {what: aWrite},
	onPermit1:  {what: aPermit, n: 1},
	onPermit16: {what: aPermit, n: 16},
	onPermit64: {what: aPermit, n: 64},
	onMulti2:   {what: aMulti, n: 2},
	onMulti8:   {what: aMulti, n: 8},
}

// lockLines has next to one another what is compared: what many callers leave to be done would cost whoever comes after them.
func lockLines() []line {
	kinds := []string{onMutex, onRead, onWrite, onPermit1, onMulti2, onMulti8}
	all := lines(append(kinds, onKept), 1)
	all = append(all, lines(kinds, 64)...)
	return append(all, lines([]string{onMutex}, 256)...)
}

func handoffLines() []line {
	all := lines([]string{onMutex, onKept}, 8)
	all = append(all, lines([]string{onMutex, onWrite, onRead, onMixed, onPermit1, onPermit16, onPermit64}, 64)...)
	for _, on := range slices.Sorted(maps.Keys(foreign)) {
		all = append(all, line{on, foreignLocals, true})
	}
	for _, on := range slices.Sorted(maps.Keys(crowds)) {
		for _, n := range []int{100, 1000, 10_000} {
			all = append(all, line{on, n, true})
		}
	}
	return all
}

// measureLock has callers that share the sessions of their members take a lock of their own each.
func measureLock(w *worker, l line) (figures, error) {
	return calls(func(s session, path string) (op, error) { return locked(s.lock(lockKinds[l.On], path)) })(w, l)
}

// measureHandoff has callers want the same lock.
func measureHandoff(w *worker, l line) (figures, error) {
	if _, ok := foreign[l.On]; ok {
		return measureForeign(w, l)
	}
	if _, ok := crowds[l.On]; ok {
		return measureCrowd(w, l)
	}
	path := w.path()
	if l.On == onKept {
		return measureKept(w, l, path)
	}
	ops, err := w.prepare(l, func(member, i int) (op, error) {
		s, err := w.e.open(member)
		if err != nil {
			return nil, err
		}
		if l.On == onMixed {
			return mixed(s, path, i)
		}
		return locked(s.lock(lockKinds[l.On], path))
	})
	return w.run(ops, err)
}

// mixed is the op of caller i who reads nine times and writes once.
func mixed(s session, path string, i int) (op, error) {
	read, err := locked(s.lock(lockKinds[onRead], path))
	if err != nil {
		return nil, err
	}
	write, err := locked(s.lock(lockKinds[onWrite], path))
	return func() error {
		if i++; i%10 == 0 {
			return write()
		}
		return read()
	}, err
}

// measureKept has goroutines of one process take a lock that it keeps.
func measureKept(w *worker, l line, path string) (figures, error) {
	leader, err := w.e.leader()
	if err != nil {
		return figures{}, err
	}
	s, err := w.session(leader, 0)
	if err != nil {
		return figures{}, err
	}
	lock, err := locked(s.lock(lockKinds[l.On], path))
	ops := make([]op, l.Clients)
	for i := range ops {
		ops[i] = lock
	}
	return w.run(ops, err)
}

// foreignLocals is how many goroutines keep a lock busy that somebody else wants.
const foreignLocals = 4

// heldFor is how long each of them holds it at least. One that did nothing else than take locks would keep the processors busy, too, and what
// its contender waited for would be those.
const heldFor = 100 * time.Microsecond

// foreign are the lines of somebody who wants a lock that others keep, for how long at most.
var foreign = map[string]time.Duration{"foreign, kept 1 ms": time.Millisecond, "foreign, kept 10 ms": 10 * time.Millisecond, "foreign, kept 100 ms": 100 * time.Millisecond}

// measureForeign says how long somebody on another member waits for a lock that goroutines of the leader's keep busy, and for one that
// nobody wants: one commit.
func measureForeign(w *worker, l line) (f figures, err error) {
	leader, err := w.e.leader()
	if err != nil {
		return f, err
	}
	own, err := w.session(leader, 0)
	if err != nil {
		return f, err
	}
	other, err := w.session((leader+1)%members, 0)
	if err != nil {
		return f, err
	}
	path := w.path()
	local, err := own.lock(lockKind{what: aMutex, keep: foreign[l.On]}, path)
	if err != nil {
		return f, err
	}
	var taken, free, held times // held by who has the lock, and so for one at a time
	end := busy(l.Clients, func() error {
		h, err := local(context.Background())
		if err != nil {
			return err
		}
		began := time.Now()
		time.Sleep(heldFor)
		held.record(time.Since(began))
		return h.Release()
	})
	for n := w.scaled(200); n > 0 && err == nil; n-- {
		// While the free one is taken, the busy one goes back to those who keep it.
		if err = free.take(other.lock(mutex, path+"-free")); err == nil {
			err = taken.take(other.lock(mutex, path))
		}
	}
	turns, failed := end()
	f = taken.figures()
	f.Values = map[string]float64{"most_ms": millis(taken.most), "local_turns_per_wait": float64(turns) / float64(taken.Count())}
	for name, t := range map[string]*times{"commit": &free, "hold": &held} {
		f.Values[name+"_p50_ms"], f.Values[name+"_p99_ms"], f.Values[name+"_most_ms"] = millis(t.Quantile(0.5)), millis(t.Quantile(0.99)), millis(t.most)
	}
	return f, errors.Join(err, failed)
}

// busy has n callers call an op until end is called, which says how often they did.
func busy(n int, call op) (end func() (calls int64, err error)) {
	var g errgroup.Group
	var stop atomic.Bool
	var calls atomic.Int64
	for range n {
		g.Go(func() error {
			for !stop.Load() {
				if err := call(); err != nil {
					return err
				}
				calls.Add(1)
			}
			return nil
		})
	}
	return func() (int64, error) {
		stop.Store(true)
		err := g.Wait()
		return calls.Load(), err
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// times are how long the same thing took again and again. The zero value is of none.
type times struct {
	measure.Histogram
	sum, most time.Duration
}

func (t *times) record(d time.Duration) {
	t.Record(d)
	t.sum, t.most = t.sum+d, max(t.most, d)
}

// take takes a lock and gives it up.
func (t *times) take(lock take, err error) error {
	if err != nil {
		return err
	}
	began := time.Now()
	h, err := lock(context.Background())
	if err != nil {
		return err
	}
	t.record(time.Since(began))
	return h.Release()
}

func (t *times) figures() figures {
	return figures{Rate: float64(t.Count()) / t.sum.Seconds(), P50: t.Quantile(0.5), P99: t.Quantile(0.99)}
}

// A crowd is many who wait for one lock, behind one who has it.
type crowd struct {
	head, wait lockKind
	together   bool // they are let in at once
}

var crowds = map[string]crowd{
	"waiters":              {head: mutex, wait: mutex},
	"waiters for a permit": {head: lockKind{what: aPermit, n: 1}, wait: lockKind{what: aPermit, n: 1}},
	"waiting readers":      {head: lockKind{what: aWrite}, wait: lockKind{what: aRead}, together: true},
}

// queuer is a session that can say how many wait for a lock or have it.
type queuer interface {
	queued(kind lockKind, path string) (int, error)
}

// handovers is how many hand-overs of a crowd are measured: so few that it stays a crowd.
const handovers = 50

// measureCrowd says what goroutines of a member that follows cost while they wait for one lock, and what it costs to hand it to the next.
func measureCrowd(w *worker, l line) (f figures, err error) {
	leader, err := w.e.leader()
	if err != nil {
		return f, err
	}
	s, err := w.e.open((leader + 1) % members)
	if err != nil {
		return f, err
	}
	defer s.close()
	looks, ok := s.(queuer)
	if !ok {
		return f, errMissing
	}
	c, path := crowds[l.On], w.path()
	head, err := s.lock(c.head, path)
	if err != nil {
		return f, err
	}
	wait, err := s.lock(c.wait, path)
	if err != nil {
		return f, err
	}
	holds := make(chan taken, 1)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	first, err := head(ctx)
	if err != nil {
		return f, err
	}
	before, err := w.cost(true)
	if err != nil {
		return f, err
	}
	n := w.scaled(l.Clients)
	for range n {
		go func() {
			h, err := wait(ctx)
			holds <- taken{h, err}
		}()
	}
	err = measure.Until("all to wait", func() bool {
		queued, err := looks.queued(c.wait, path)
		return err != nil || queued >= n
	})
	if err != nil {
		return f, err
	}
	time.Sleep(w.Window / 4) // until all have found out for whom
	waiting, err := w.cost(true)
	if err != nil {
		return f, err
	}
	each := func(before, after float64) float64 { return (after - before) / float64(n) }
	f, got, err := c.handOver(n, first, holds)
	if err != nil {
		return f, err
	}
	f.Values["heap_bytes_each"], f.Values["stack_bytes_each"] = each(before.Heap, waiting.Heap), each(before.Stacks, waiting.Stacks)
	leave()
	for range n - got {
		<-holds
	}
	return f, nil
}

// taken is what came of taking a lock.
type taken struct {
	hold
	err error
}

// handOver has the one who holds a lock give it up, and the next of n, and so on, and returns how many got it.
func (c crowd) handOver(n int, first hold, holds <-chan taken) (f figures, got int, err error) {
	var took times
	var before, after runtime.MemStats
	got = min(handovers, n)
	if c.together {
		got = n
	}
	runtime.ReadMemStats(&before)
	cpu, h := measure.CPU(), taken{hold: first}
	for i := range got {
		began := time.Now()
		if i == 0 || !c.together {
			if err := h.Release(); err != nil {
				return f, got, err
			}
		}
		if h = <-holds; h.err != nil {
			return f, got, h.err
		}
		took.record(time.Since(began))
	}
	cpu = measure.CPU() - cpu
	runtime.ReadMemStats(&after)
	f = took.figures()
	f.Values = map[string]float64{"waiters": float64(n), "cpu_us_each": float64(cpu.Microseconds()) / float64(got),
		"allocs_each": float64(after.Mallocs-before.Mallocs) / float64(got), "alloc_bytes_each": float64(after.TotalAlloc-before.TotalAlloc) / float64(got)}
	return f, got, nil
}
