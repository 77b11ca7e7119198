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
	n    int           // the limit of aPermit, the number of paths of aMulti
	keep time.Duration // of aMutex: how long the lock stays in its process while others want it
}

// The values of lockKind.what.
const (
	aMutex  = "mutex"
	aRead   = "read"
	aWrite  = "write"
	aPermit = "permit"
	aMulti  = "multi"
)

var mutex = lockKind{what: aMutex}

// An acquire acquires a lock. Not every system can cancel it.
type acquire = func(context.Context) (hold, error)

// A hold is an acquired lock.
type hold interface{ Release() error }

// locked returns an op that acquires and releases a lock.
func locked(lock acquire, err error) (op, error) {
	ctx := context.Background()
	return func() error {
		h, err := lock(ctx)
		if err != nil {
			return err
		}
		return h.Release()
	}, err
}

// What distinguishes the lines of suites lock and handoff. Callers are spread over all members,
// unless the line's lock is kept by the process of one.
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

// lockLines places the lines that are compared with each other side by side. Many callers leave
// work behind, and the line after them would pay for it.
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

// measureLock measures callers that share the sessions of their members. Each caller acquires a
// lock of its own.
func measureLock(w *worker, l line) (figures, error) {
	return calls(func(s session, path string) (op, error) { return locked(s.lock(lockKinds[l.On], path)) })(w, l)
}

// measureHandoff measures callers that want the same lock.
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

// mixed returns the op of caller i, which reads nine times and writes once.
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

// measureKept measures goroutines of one process that acquire a lock which the process keeps.
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

// foreignLocals is how many goroutines keep a lock busy that a caller elsewhere wants.
const foreignLocals = 4

// heldFor is the shortest time for which each of them holds the lock. Goroutines that did nothing
// but acquire and release would also keep the processors busy, and the contender would wait for
// those.
const heldFor = 100 * time.Microsecond

// foreign maps a line to the longest time for which a process keeps a lock that a caller elsewhere
// wants.
var foreign = map[string]time.Duration{"foreign, kept 1 ms": time.Millisecond, "foreign, kept 10 ms": 10 * time.Millisecond, "foreign, kept 100 ms": 100 * time.Millisecond}

// measureForeign measures how long a caller on another member waits for a lock that goroutines on
// the leader's member keep busy. It also measures a lock that nobody wants: one commit.
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
	var busyLock, free, held times // only the lock's holder writes them, so one goroutine at a time
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
		// While the free lock is acquired, the busy one goes back to those who keep it.
		if err = free.acquire(other.lock(mutex, path+"-free")); err == nil {
			err = busyLock.acquire(other.lock(mutex, path))
		}
	}
	turns, failed := end()
	f = busyLock.figures()
	f.Values = map[string]float64{"most_ms": millis(busyLock.most), "local_turns_per_wait": float64(turns) / float64(busyLock.Count())}
	for name, t := range map[string]*times{"commit": &free, "hold": &held} {
		f.Values[name+"_p50_ms"], f.Values[name+"_p99_ms"], f.Values[name+"_most_ms"] = millis(t.Quantile(0.5)), millis(t.Quantile(0.99)), millis(t.most)
	}
	return f, errors.Join(err, failed)
}

// busy starts n callers that call an op until end is called. end returns how often they did.
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

// times records how long repeated runs of one thing took. The zero value is empty.
type times struct {
	measure.Histogram
	sum, most time.Duration
}

func (t *times) record(d time.Duration) {
	t.Record(d)
	t.sum, t.most = t.sum+d, max(t.most, d)
}

// acquire acquires and releases a lock and records how long the acquisition took.
func (t *times) acquire(lock acquire, err error) error {
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

// A crowd is many callers that wait for one lock, behind its holder.
type crowd struct {
	head, wait lockKind
	together   bool // the waiters are let in at once
}

var crowds = map[string]crowd{
	"waiters":              {head: mutex, wait: mutex},
	"waiters for a permit": {head: lockKind{what: aPermit, n: 1}, wait: lockKind{what: aPermit, n: 1}},
	"waiting readers":      {head: lockKind{what: aWrite}, wait: lockKind{what: aRead}, together: true},
}

// A queuer is a session that can count the contenders for a lock.
type queuer interface {
	queued(kind lockKind, path string) (int, error)
}

// handovers is how many releases of a crowd's lock are measured. It is small, so that the crowd
// stays a crowd.
const handovers = 50

// measureCrowd measures what goroutines on a follower's member cost while they wait for one lock,
// and what it costs to pass the lock on to the next.
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
	holds := make(chan acquired, 1)
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
			holds <- acquired{h, err}
		}()
	}
	err = measure.Until("all to wait", func() bool {
		queued, err := looks.queued(c.wait, path)
		return err != nil || queued >= n
	})
	if err != nil {
		return f, err
	}
	time.Sleep(w.Window / 4) // until every waiter knows its predecessor
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

// acquired is the result of acquiring a lock.
type acquired struct {
	hold
	err error
}

// handOver lets the holder release the lock, then the next of n, and so on. It returns how many
// acquired the lock.
func (c crowd) handOver(n int, first hold, holds <-chan acquired) (f figures, got int, err error) {
	var took times
	var before, after runtime.MemStats
	got = min(handovers, n)
	if c.together {
		got = n
	}
	runtime.ReadMemStats(&before)
	cpu, h := measure.CPU(), acquired{hold: first}
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
