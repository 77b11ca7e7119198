//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// onIdle marks the lines that measure idle sessions, clients or watches.
const onIdle = "idle"

// width is how many callers prepare a measurement, or clean up after it, at a time.
const width = 256

// measureCreate measures callers that create sequential ephemerals below one znode. Their sessions
// end with the measurement, and the ephemerals with them.
func measureCreate(w *worker, l line) (figures, error) {
	leader, err := w.e.leader()
	if err != nil {
		return figures{}, err
	}
	s, err := w.session(leader, 0)
	if err != nil {
		return figures{}, err
	}
	parent := w.path()
	if err := s.make(parent, nil); err != nil {
		return figures{}, err
	}
	own := make(map[[2]int]session)
	defer func() {
		for _, s := range own {
			_ = s.close() // otherwise they end with their timeout
		}
	}()
	ops := make([]op, l.Clients)
	for i := range ops {
		key := [2]int{l.member(leader, i), i % w.system.sessions}
		if own[key] == nil {
			if own[key], err = w.e.open(key[0]); err != nil {
				return figures{}, err
			}
		}
		if ops[i], err = own[key].create(parent); err != nil {
			return figures{}, err
		}
	}
	return w.run(ops, nil)
}

// measureSession measures callers that open and close sessions.
func measureSession(w *worker, l line) (figures, error) {
	if l.On == onIdle {
		return measureIdleSessions(w, l)
	}
	ops, err := w.prepare(l, func(member, _ int) (op, error) {
		return func() error {
			s, err := w.e.open(member)
			if err != nil {
				return err
			}
			return s.close()
		}, nil
	})
	return w.run(ops, err)
}

// measureIdleSessions measures what many idle sessions on a follower's member cost. They end with
// the worker: etcd would take minutes to close so many.
func measureIdleSessions(w *worker, l line) (f figures, err error) {
	leader, err := w.e.leader()
	if err != nil {
		return f, err
	}
	sessions := make([]session, min(w.scaled(l.Clients), w.system.sessionsMax))
	if len(sessions) == 0 {
		return f, errMissing
	}
	before, err := w.entriesPerSecond()
	if err != nil {
		return f, err
	}
	bytes := w.growth()
	began := time.Now()
	err = inParallel(len(sessions), width, func(i int) (err error) {
		sessions[i], err = w.e.open((leader + 1) % members)
		return err
	})
	if err != nil {
		return f, err
	}
	took := time.Since(began)
	each := bytes() / float64(len(sessions))
	entries, err := w.entriesPerSecond()
	runtime.KeepAlive(sessions)
	if err != nil {
		return f, err
	}
	return figures{Values: map[string]float64{"sessions": float64(len(sessions)), "opened_per_s": float64(len(sessions)) / took.Seconds(),
		"bytes_each": each, "entries_per_s": entries, "entries_per_s_without": before}}, nil
}

// entriesPerSecond returns how fast the log grows by itself.
func (w *worker) entriesPerSecond() (float64, error) {
	before, err := w.e.entries()
	if err != nil {
		return 0, err
	}
	time.Sleep(2 * w.Window)
	after, err := w.e.entries()
	return float64(after-before) / (2 * w.Window).Seconds(), err
}

// growth returns a function that returns by how many resident bytes the members here have grown
// since.
func (w *worker) growth() func() float64 {
	debug.FreeOSMemory()
	before := w.resident()
	return func() float64 {
		debug.FreeOSMemory()
		return w.resident() - before
	}
}

// measureWatch arms watches on one znode, changes it again and again, and measures the time until
// the last watch has its event.
func measureWatch(w *worker, l line) (figures, error) {
	leader, err := w.e.leader()
	if err != nil {
		return figures{}, err
	}
	writer, err := w.session(leader, 0)
	if err != nil {
		return figures{}, err
	}
	path := w.path()
	change, err := writer.set(path)
	if err != nil {
		return figures{}, err
	}
	readers := make([]session, members)
	for i := range readers {
		if readers[i], err = w.e.open(i); err != nil {
			return figures{}, err
		}
		defer readers[i].close() // its watches end
		if err := measure.Until("the znode to be everywhere", func() bool { return seen(readers[i], path) }); err != nil {
			return figures{}, err
		}
	}
	if l.On == onIdle {
		return w.idleWatches(readers[leader], path, min(w.scaled(l.Clients), w.system.watchesMax))
	}
	watches, began := make([]watch, w.scaled(l.Clients)), time.Now()
	err = inParallel(len(watches), min(width, len(watches)), func(i int) (err error) {
		watches[i], err = readers[l.member(leader, i)].watch(path)
		return err
	})
	if err != nil {
		return figures{}, err
	}
	f := figures{Values: map[string]float64{"arm_us_each": float64(time.Since(began).Microseconds()) / float64(len(watches))}}
	var took measure.Histogram
	var sum time.Duration
	for end := time.Now().Add(w.Window); took.Count() == 0 || time.Now().Before(end); {
		d, err := tell(change, watches)
		if err != nil {
			return figures{}, err
		}
		took.Record(d)
		sum += d
	}
	f.Values["watches"], f.Values["changes"] = float64(len(watches)), float64(took.Count())
	f.Rate, f.P50, f.P99 = float64(took.Count())*float64(len(watches))/sum.Seconds(), took.Quantile(0.5), took.Quantile(0.99)
	return f, nil
}

// tell makes a change and returns the time until all watches have their event. Then it arms them
// again.
func tell(change op, watches []watch) (time.Duration, error) {
	began := time.Now()
	if err := change(); err != nil {
		return 0, err
	}
	for _, one := range watches {
		if err := one.told(); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	return took, inParallel(len(watches), min(width, len(watches)), func(i int) error {
		if again := watches[i].again; again != nil {
			return again()
		}
		return nil
	})
}

// seen reports whether a session can read a znode.
func seen(s session, path string) bool {
	get, err := s.get(path)
	return err == nil && get() == nil
}

// idleWatches measures what n watches of one session cost, in memory and for writes of other
// znodes.
func (w *worker) idleWatches(s session, path string, n int) (figures, error) {
	if n == 0 {
		return figures{}, errMissing
	}
	write, err := s.set(w.path())
	if err != nil {
		return figures{}, err
	}
	without, err := w.run([]op{write}, nil)
	if err != nil {
		return figures{}, err
	}
	bytes := w.growth()
	held, err := s.arm(path, n)
	if err != nil {
		return figures{}, err
	}
	each := bytes() / float64(n)
	with, err := w.run([]op{write}, nil)
	runtime.KeepAlive(held)
	return figures{Values: map[string]float64{"watches": float64(n), "bytes_each": each,
		"write_p50_us": float64(with.P50) / 1e3, "write_p50_us_without": float64(without.P50) / 1e3}}, err
}

// znodeBytes is how much data a znode of the load suite has. siblings is how many znodes are below
// one parent.
const (
	znodeBytes = 100
	siblings   = 1000
)

// measureLoad fills an ensemble and restarts it.
func measureLoad(w *worker, l line) (f figures, err error) {
	where, err := newPlace(filepath.Join(w.Place.Dir, w.path()), members)
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(where.Dir)
	if w.e, err = w.system.start(where); err != nil {
		return f, err
	}
	defer func() {
		w.e.close()
		w.e, w.shared = nil, make(map[[2]int]session)
	}()
	bytes, began := w.growth(), time.Now()
	n, err := w.fill(w.scaled(1_000_000), l.Clients, fillTime)
	if err != nil {
		return f, err
	}
	took := time.Since(began)
	perZnode := 1 / float64(members*n)
	f = figures{Rate: float64(n) / took.Seconds(), Values: map[string]float64{"znodes": float64(n), "seconds": took.Seconds(),
		"resident_bytes_each": bytes() * perZnode}}
	for _, s := range w.shared {
		_ = s.close()
	}
	w.e.close()
	began = time.Now()
	if w.e, err = w.system.start(where); err != nil {
		return f, err
	}
	f.Values["restart_ms"] = float64(time.Since(began).Milliseconds())
	f.Values["disk_bytes_each"] = measure.DiskUse(where.Dir) * perZnode
	f.Values["resident_bytes_each_restarted"] = bytes() * perZnode
	return f, nil
}

// fillTime limits how long suite load fills an ensemble.
const fillTime = 2 * time.Minute

// fill creates n znodes with the given number of callers on all members, or as many znodes as it can
// within a limit. It returns how many it created.
func (w *worker) fill(n, callers int, limit time.Duration) (filled int, err error) {
	leader, err := w.e.leader()
	if err != nil {
		return 0, err
	}
	by := make([]session, callers)
	for i := range by {
		if by[i], err = w.session((leader+i)%members, i); err != nil {
			return 0, err
		}
	}
	parents := (n + siblings - 1) / siblings
	err = inParallel(parents, min(callers, parents), func(i int) error { return by[0].make(fmt.Sprintf("/p%d", i), nil) })
	if err != nil {
		return 0, err
	}
	data, late := make([]byte, znodeBytes), time.Now().Add(limit)
	var made atomic.Int64
	err = inParallel(n, callers, func(i int) error {
		if time.Now().After(late) {
			return nil
		}
		made.Add(1)
		return by[i%callers].make(fmt.Sprintf("/p%d/z%d", i%parents, i), data)
	})
	return int(made.Load()), err
}
