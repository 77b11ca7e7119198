//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// workerVariable is the environment variable that makes this program a worker.
const workerVariable = "VIVARIUM_BENCH_WORKER"

// A setup is what a worker works on.
type setup struct {
	System string
	Suite  string
	Window time.Duration
	Place  place
	Inside bool // the worker has members although the suite's are apart: it is one of these
}

// The requests to a worker. The parent starts one worker for a suite and sends it doMeasure. A
// suite whose members need processes of their own starts a worker for each member, and sends the
// other requests.
const (
	doStart   = "start"
	doMeasure = "measure"
	doLeader  = "leader"
	doWrite   = "write"
	doCost    = "cost"
)

type request struct {
	Do    string
	Setup setup // of doStart
	Line  line  // of doMeasure
	// Collected, of doCost, asks for the cost after a garbage collection.
	Collected bool
}

type answer struct {
	Error   string
	Missing bool
	Figures figures // of doMeasure
	Leader  int     // of doLeader
	Cost    cost    // of doCost
}

// A cost is what the members in a process have cost so far.
type cost struct {
	CPU        time.Duration
	Resident   float64 // in bytes
	Anonymous  float64 // the part of Resident that maps no file
	Disk       float64 // in bytes
	Goroutines int
	// bytes in use by objects and by goroutines' stacks, of members that are part of the process
	Heap    float64
	Stacks  float64
	Entries uint64 // in the logs of all shards
	Writes  uint64 // calls of this process that write to a socket or a file
}

// A process is a worker as its parent sees it. Only kill may be called concurrently with other
// methods.
type process struct {
	p      *child.Process[request, answer]
	ctx    context.Context // ends the waiting for answers
	log    string
	broken error // the worker died or hung
}

// spawn starts a worker, which starts its members.
func spawn(ctx context.Context, s setup) (*process, error) {
	p := &process{ctx: ctx, log: filepath.Join(s.Place.Dir, fmt.Sprintf("log%d", s.Place.Here[0]))}
	var err error
	if p.p, err = child.Spawn[request, answer](workerVariable, p.log); err != nil {
		return nil, err
	}
	if _, err := p.ask(request{Do: doStart, Setup: s}, patience); err != nil {
		p.broken = fmt.Errorf("start: %w", err)
	}
	return p, nil
}

// patience is how long a worker may take for something that takes seconds.
const patience = 3 * time.Minute

// ask waits for an answer. After a worker has died or hung it answers nothing more. The error then
// contains its last words.
func (p *process) ask(q request, limit time.Duration) (answer, error) {
	if p.broken != nil {
		return answer{}, p.broken
	}
	select {
	case a, ok := <-p.p.Send(q, nil):
		switch {
		case !ok:
			<-p.p.Dead()
			how, _ := p.p.DiedAlone()
			p.broken = fmt.Errorf("%s: %s", how, p.lastWords())
			return answer{}, p.broken
		case a.Missing:
			return a, errMissing
		case a.Error != "":
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-p.ctx.Done():
		p.p.Kill()
		p.broken = context.Cause(p.ctx)
		return answer{}, p.broken
	case <-time.After(limit):
		p.p.Kill()
		p.broken = fmt.Errorf("no answer in %v: %s", limit, p.lastWords())
		return answer{}, p.broken
	}
}

// measure requests the measurement of a line.
func (p *process) measure(l line) (figures, error) {
	a, err := p.ask(request{Do: doMeasure, Line: l}, 2*patience)
	return a.Figures, err
}

// kill ends the worker and the processes that it started, and waits for the end.
func (p *process) kill() {
	p.p.Kill()
	<-p.p.Dead()
}

// lastWords returns the end of the process's output.
func (p *process) lastWords() string {
	text, _ := os.ReadFile(p.log) // an unreadable log adds nothing
	text = bytes.TrimSpace(text)
	// After a panic, Go prints all goroutines.
	if i := bytes.Index(text, []byte("\n\ngoroutine ")); i >= 0 {
		text = text[:i]
	}
	return strings.Join(strings.Fields(string(text[max(0, len(text)-400):])), " ")
}

// work is the life of a worker.
func work() {
	w := &worker{}
	child.Serve(func(q request, say func(answer, bool)) {
		a, err := w.do(q)
		switch {
		case errors.Is(err, errMissing):
			a.Missing = true
		case err != nil:
			a.Error = err.Error()
		}
		say(a, false)
	})
	w.close()
}

// A worker has some or all members of an ensemble in its process.
type worker struct {
	setup
	suite     suite
	system    system
	e         ensemble // nil if the suite starts the ensembles that it needs
	callers   map[callersKey][]op
	write     op                 // of writeSoon
	processes []*process         // of suites with members in processes of their own
	clients   []session          // of suites gateway and client
	shards    int                // of suite shards: how many processes[0] has
	filled    bool               // the ensemble has the znodes that a suite needs
	played    map[line][]float64 // figures of recipes that were not asked for yet
	warm      map[string]bool    // recipes that were played once

	mu     sync.Mutex
	shared map[[2]int]session // by member and number; guarded by mu
	made   int                // the number of paths so far; guarded by mu
}

// A callersKey is what prepared callers depend on.
type callersKey struct {
	line   line
	leader int
}

func (w *worker) do(q request) (a answer, err error) {
	switch q.Do {
	case doStart:
		return a, w.start(q.Setup)
	case doMeasure:
		a.Figures, err = w.suite.measure(w, q.Line)
	case doLeader:
		a.Leader, err = w.e.leader()
	case doWrite:
		err = w.writeSoon()
	case doCost:
		a.Cost, err = w.cost(q.Collected)
	}
	return a, err
}

func (w *worker) start(s setup) (err error) {
	w.setup, w.system = s, systems[s.System]
	w.shared, w.callers = make(map[[2]int]session), make(map[callersKey][]op)
	w.played, w.warm = make(map[line][]float64), make(map[string]bool)
	w.suite, _ = suiteOf(s.Suite)
	if w.suite.apart && !s.Inside {
		return nil
	}
	w.e, err = w.system.start(s.Place)
	return err
}

func (w *worker) close() {
	w.endProcesses()
	if w.e != nil {
		w.e.close()
	}
}

// path returns a path that was never used.
func (w *worker) path() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	return fmt.Sprintf("/%s%d", w.Suite, w.made)
}

// session returns the session that caller i shares with others on its member.
func (w *worker) session(member, i int) (session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]int{member, i % w.system.sessions}
	s, ok := w.shared[key]
	if !ok {
		var err error
		if s, err = w.e.open(member); err != nil {
			return nil, err
		}
		w.shared[key] = s
	}
	return s, nil
}

// member returns the member of caller i, given the leader.
func (l line) member(leader, i int) int {
	switch l.On {
	case onLeader:
		return leader
	case onFollower:
		return (leader + 1) % members
	}
	return (leader + i) % members
}

// scaled returns how many of n pieces a measurement makes: all of them, unless the window is so
// short that it is only a trial.
func (w *worker) scaled(n int) int {
	if w.Window >= time.Second {
		return n
	}
	return max(1, int(float64(n)*w.Window.Seconds()))
}

// resident returns the memory of the members here.
func (w *worker) resident() (sum float64) {
	for _, pid := range w.e.pids() {
		sum += measure.Resident(pid)
	}
	return sum
}

func (w *worker) cost(collected bool) (c cost, err error) {
	if collected {
		debug.FreeOSMemory()
	}
	c = cost{Resident: w.resident(), Goroutines: runtime.NumGoroutine()}
	for _, pid := range w.e.pids() {
		c.Anonymous += measure.Anonymous(pid)
		if pid == os.Getpid() {
			c.CPU += measure.CPU() // finer
			continue
		}
		c.CPU += measure.CPUOf(pid)
		c.Goroutines = 0 // this process's goroutines are not the member's
	}
	if c.Goroutines > 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.Heap, c.Stacks = float64(m.HeapAlloc), float64(m.StackInuse)
	}
	for _, i := range w.Place.Here {
		c.Disk += measure.DiskUse(w.Place.dir(i))
	}
	c.Writes = measure.ProcNumber("/proc/self/io", "syscw")
	c.Entries, err = w.e.entries()
	return c, err
}
