//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// memberNumbers are the lines' numbers of members, by On.
var memberNumbers = map[string]int{"3 members": 3, "50 members": 50}

// pacedRate is how many znodes are set per second.
const pacedRate = 1000

// measureMembers measures the leader of an ensemble that grew. The founder leads in a process of
// its own, and all others are in a second one.
func measureMembers(w *worker, l line) (f figures, err error) {
	if w.e != nil { // this is the founder's process
		return w.writePaced(l)
	}
	defer w.endProcesses()
	s := w.setup
	s.Inside = true
	if s.Place, err = newPlace(filepath.Join(w.Place.Dir, w.path()), memberNumbers[l.On]); err != nil {
		return f, err
	}
	s.Place.Grow = true
	all := s.Place.Here
	for _, here := range [][]int{all[:1], all[1:]} {
		s.Place.Here = here
		p, err := spawn(context.Background(), s)
		if err != nil {
			return f, err
		}
		w.processes = append(w.processes, p)
	}
	if err := w.processes[1].broken; err != nil {
		return f, err
	}
	time.Sleep(5 * w.Window) // until those that may vote do
	rest, err := w.processes[0].rest(5 * w.Window)
	if err != nil {
		return f, err
	}
	if f, err = w.processes[0].measure(l); err == nil {
		f.Values["cores_at_rest"] = rest.Values["cores"]
	}
	return f, err
}

// writePaced sets znodes at a rate, from the member of this process, which leads. The callers share
// the rate. Each sets a znode of its own.
func (w *worker) writePaced(l line) (f figures, err error) {
	if leader, err := w.e.leader(); err != nil || leader != 0 {
		return f, errors.Join(err, fmt.Errorf("member %d leads, and not the founder: measure again", leader))
	}
	ops, err := w.prepare(line{On: onLeader, Clients: l.Clients}, func(member, i int) (op, error) {
		s, err := w.session(member, i)
		if err != nil {
			return nil, err
		}
		return s.set(w.path())
	})
	if err != nil {
		return f, err
	}
	var all sync.WaitGroup
	seen, errs := make([]measure.Histogram, len(ops)), make([]error, len(ops))
	pause := time.Duration(len(ops)) * time.Second / pacedRate
	cpu, began := measure.CPU(), time.Now()
	for i, set := range ops {
		all.Go(func() {
			next := began.Add(pause * time.Duration(i) / time.Duration(len(ops)))
			for ; errs[i] == nil && next.Before(began.Add(5*w.Window)); next = next.Add(pause) {
				time.Sleep(time.Until(next))
				asked := time.Now()
				errs[i] = set()
				seen[i].Record(time.Since(asked))
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	var h measure.Histogram
	for i := range seen {
		h.Add(&seen[i])
	}
	return figures{Rate: float64(h.Count()) / took, P50: h.Quantile(0.5), P99: h.Quantile(0.99),
		Values: map[string]float64{"cores": (measure.CPU() - cpu).Seconds() / took}}, errors.Join(errs...)
}

// A teacher is an ensemble that a new member can join.
type teacher interface {
	// learn starts a new member with an empty directory. It returns how long that took until the
	// member served, and takes it out again.
	learn(dir string) (time.Duration, error)
}

// onLearner is the On of the only line of suite learner.
const onLearner = "joins"

// measureLearner measures a new member of a full ensemble.
func measureLearner(w *worker, l line) (figures, error) {
	e, ok := w.e.(teacher)
	if !ok {
		return figures{}, errMissing
	}
	if err := w.fillOnce(w.scaled(l.Clients)); err != nil {
		return figures{}, err
	}
	took, err := e.learn(filepath.Join(w.Place.Dir, w.path()))
	return once(took), err
}

// fillOnce creates znodes, unless it has done so.
func (w *worker) fillOnce(znodes int) error {
	if w.filled {
		return nil
	}
	w.filled = true
	n, err := w.fill(znodes, min(512, znodes), patience)
	if err == nil && n < znodes {
		err = fmt.Errorf("only %d of %d znodes after %v", n, znodes, patience)
	}
	return err
}
