package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// lookPause is the time between looks at the members.
const lookPause = 50 * time.Millisecond

// An ensemble is the processes, as the parent sees them.
type ensemble struct {
	// Immutable after startEnsemble.
	dir    string
	common memberConfig
	grows  bool                      // it begins with one process, and others join and leave
	addrs  map[embed.MemberID]string // of the processes, by number
	fail   context.CancelCauseFunc   // called when a process ends that should not

	mu struct {
		sync.Mutex
		running [processesMax + 1]*process // by id; nil while it is not meant to run
	}
}

// startEnsemble starts all processes, or the first one of an ensemble that grows. If another
// program takes a port before the member binds it, startEnsemble tries again with other ports.
func startEnsemble(dir string, common memberConfig, grows bool, fail context.CancelCauseFunc) (*ensemble, error) {
	var err error
	for try := range startTries {
		e := &ensemble{dir: filepath.Join(dir, "try-"+strconv.Itoa(try)), common: common, grows: grows, fail: fail}
		if err = e.start(); err == nil {
			return e, nil
		}
		stopErrs := e.stop()
		if !errors.Is(err, errInUse) {
			return nil, errors.Join(err, errors.Join(stopErrs...))
		}
	}
	return nil, err
}

func (e *ensemble) start() (err error) {
	if err := os.Mkdir(e.dir, 0o755); err != nil {
		return err
	}
	n, first := processes, processes
	if e.grows {
		n, first = processesMax, 1
	}
	if e.addrs, err = freePorts(n); err != nil {
		return err
	}
	for id := 1; id <= first; id++ {
		if err := e.startOne(id); err != nil {
			return err
		}
	}
	return nil
}

func (e *ensemble) startOne(id int) error {
	p, err := startProcess(e.config(id))
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.mu.running[id] = p
	e.mu.Unlock()
	go e.guardLoop(p)
	return nil
}

// guardLoop ends the run if a process ends that should not. It ends with the process.
func (e *ensemble) guardLoop(p *process) {
	<-p.exited
	if e.process(p.id) == p {
		e.fail(fmt.Errorf("process %d ended by itself (%v): %s", p.id, p.exitErr, p.lastWords()))
	}
}

// restart starts a killed process again, on its old port. Another program may have that port for a
// moment.
func (e *ensemble) restart(ctx context.Context, id int) error {
	for {
		err := e.startOne(id)
		if !errors.Is(err, errInUse) || ctx.Err() != nil {
			return err
		}
		pause(ctx, retryPause)
	}
}

func (e *ensemble) process(id int) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.running[id]
}

// processes returns the processes that run.
func (e *ensemble) processes() []*process {
	var out []*process
	for id := 1; id <= processesMax; id++ {
		if p := e.process(id); p != nil {
			out = append(out, p)
		}
	}
	return out
}

// kill ends a process with SIGKILL and returns when it sent the signal.
func (e *ensemble) kill(id int) time.Time {
	p := e.retire(id)
	at := time.Now()
	p.kill()
	return at
}

// retire marks a process as not meant to run, and returns it.
func (e *ensemble) retire(id int) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.mu.running[id]
	e.mu.running[id] = nil
	return p
}

// stop ends all processes. The errors name those that did not end in an orderly way.
func (e *ensemble) stop() []error {
	var running sync.WaitGroup
	errs := make([]error, processesMax+1)
	for id := 1; id <= processesMax; id++ {
		if p := e.retire(id); p != nil {
			running.Go(func() { errs[id] = p.stop() })
		}
	}
	running.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// statuses asks every running process. It leaves out a process that does not answer.
func (e *ensemble) statuses(ctx context.Context) map[int]status {
	var all struct {
		sync.Mutex
		sync.WaitGroup
	}
	out := make(map[int]status)
	for _, p := range e.processes() {
		all.Go(func() {
			if st, err := p.status(ctx); err == nil {
				all.Lock()
				out[p.id] = st
				all.Unlock()
			}
		})
	}
	all.Wait()
	return out
}

// leads returns the process that leads a shard, counted from 1, if the process says so itself and
// most processes that run agree. Otherwise it returns 0.
func (e *ensemble) leads(all map[int]status, shard int) (id int, term uint64) {
	for id, st := range all {
		if len(st.Shards) < shard || st.Member == 0 || st.Shards[shard-1].Leader != st.Member {
			continue // also a process that has yet to join
		}
		own := st.Shards[shard-1]
		agree := 0
		for _, other := range all {
			if len(other.Shards) < shard {
				continue
			}
			if theirs := other.Shards[shard-1]; theirs.Leader == own.Leader && theirs.Term == own.Term {
				agree++
			}
		}
		if agree > len(e.processes())/2 {
			return id, own.Term
		}
	}
	return 0, 0
}

// leaders returns the processes that lead the shards, as leads does.
func (e *ensemble) leaders(all map[int]status) []int {
	var ids []int
	for shard := 1; shard <= e.common.Shards; shard++ {
		id, _ := e.leads(all, shard)
		ids = append(ids, id)
	}
	return ids
}

// until asks all processes again and again until ok holds.
func (e *ensemble) until(ctx context.Context, ok func(map[int]status) bool) error {
	for {
		if ok(e.statuses(ctx)) {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause(ctx, lookPause)
	}
}
