//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// measureStart founds an ensemble and measures the time until all its members serve.
func measureStart(w *worker, l line) (figures, error) {
	where, err := newPlace(filepath.Join(w.Place.Dir, w.path()), l.Clients)
	if err != nil {
		return figures{}, err
	}
	began := time.Now()
	e, err := w.system.start(where)
	if err != nil {
		return figures{}, err
	}
	took := time.Since(began)
	e.close()
	return once(took), nil
}

// once returns the figures of something that happened once.
func once(took time.Duration) figures { return figures{Rate: 1 / took.Seconds(), P50: took, P99: took} }

// spawnMembers starts the members in processes of their own.
func (w *worker) spawnMembers() error {
	w.processes = make([]*process, members)
	return inParallel(members, members, w.spawnMember)
}

func (w *worker) spawnMember(i int) (err error) {
	s := w.setup
	s.Inside, s.Place.Here = true, []int{i}
	if w.processes[i], err = spawn(context.Background(), s); err != nil {
		return err
	}
	return w.processes[i].broken
}

// endProcesses ends the members in processes of their own.
func (w *worker) endProcesses() {
	for _, p := range w.processes {
		if p != nil {
			p.kill()
		}
	}
	w.processes = nil
}

// measureIdle measures what the most costly member costs while nobody uses the ensemble.
func measureIdle(w *worker, _ line) (f figures, err error) {
	defer w.endProcesses()
	if err := w.spawnMembers(); err != nil {
		return f, err
	}
	time.Sleep(2 * w.Window) // until the work that the start caused is over
	before := make([]cost, members)
	for i, p := range w.processes {
		a, err := p.ask(request{Do: doCost}, patience)
		if err != nil {
			return f, err
		}
		before[i] = a.Cost
	}
	began := time.Now()
	time.Sleep(15 * w.Window)
	f.Values = make(map[string]float64)
	for i, p := range w.processes {
		a, err := p.ask(request{Do: doCost}, patience)
		if err != nil {
			return f, err
		}
		c := a.Cost
		most := func(name string, value float64) { f.Values[name] = max(f.Values[name], value) }
		most("cpu_percent", 100*(c.CPU-before[i].CPU).Seconds()/time.Since(began).Seconds())
		most("resident_mb", c.Resident/1e6)
		most("anonymous_mb", c.Anonymous/1e6)
		most("disk_mb", c.Disk/1e6)
		if c.Goroutines > 0 {
			most("goroutines", float64(c.Goroutines))
		}
	}
	return f, nil
}

// measureFailover kills the leader's process again and again. It measures the time until a write on
// another member is acknowledged.
func measureFailover(w *worker, _ line) (figures, error) {
	defer w.endProcesses()
	if err := w.spawnMembers(); err != nil {
		return figures{}, err
	}
	var took measure.Histogram
	var sum, worst time.Duration
	for range w.scaled(20) {
		d, err := w.failOver()
		if err != nil {
			return figures{}, fmt.Errorf("run %d: %w", took.Count()+1, err)
		}
		took.Record(d)
		sum, worst = sum+d, max(worst, d)
	}
	return figures{Rate: float64(took.Count()) / sum.Seconds(), P50: took.Quantile(0.5), P99: took.Quantile(0.99),
		Values: map[string]float64{"runs": float64(took.Count()), "worst_ms": float64(worst.Milliseconds())}}, nil
}

// failOver kills the leader once, and leaves all members running.
func (w *worker) failOver() (took time.Duration, err error) {
	for _, p := range w.processes { // all members are well, and have what a write needs
		if _, err := p.ask(request{Do: doWrite}, patience); err != nil {
			return 0, err
		}
	}
	time.Sleep(w.Window / 4) // until the member that came back is at rest
	a, err := w.processes[0].ask(request{Do: doLeader}, patience)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	w.processes[a.Leader].p.Kill()
	type written struct {
		after time.Duration
		err   error
	}
	writes := make(chan written, members)
	for i, p := range w.processes {
		if i != a.Leader {
			go func() {
				_, err := p.ask(request{Do: doWrite}, patience)
				writes <- written{time.Since(began), err}
			}()
		}
	}
	first, second := <-writes, <-writes
	w.processes[a.Leader].kill()
	if err := errors.Join(first.err, second.err); err != nil {
		return 0, err
	}
	return first.after, w.spawnMember(a.Leader)
}

// attemptEvery is how often writeSoon tries again. It does not wait for earlier attempts, so the
// first attempt that can succeed does.
const attemptEvery = 10 * time.Millisecond

// writeSoon returns when a write through this process's member is acknowledged.
func (w *worker) writeSoon() error {
	if w.write == nil {
		s, err := w.session(w.Place.Here[0], 0)
		if err != nil {
			return err
		}
		if w.write, err = s.set(fmt.Sprintf("/process%d", os.Getpid())); err != nil {
			return err
		}
	}
	write, acknowledged := w.write, make(chan struct{}, 1)
	for late := time.Now().Add(time.Minute); time.Now().Before(late); {
		go func() {
			if write() == nil {
				select {
				case acknowledged <- struct{}{}:
				default:
				}
			}
		}()
		select {
		case <-acknowledged:
			return nil
		case <-time.After(attemptEvery):
		}
	}
	return errors.New("no write succeeded within a minute")
}
