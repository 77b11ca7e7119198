//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
)

// shards are the lines' numbers of shards, by On.
var shards = map[string]int{onShard: 1, "2 shards": 2, "4 shards": 4, "8 shards": 8}

// onShard is the On with which the lines of more shards are compared.
const onShard = "1 shard"

// shardLines has a line at rest and lines with writers for each number of shards.
func shardLines() []line {
	return lines([]string{onShard, "2 shards", "4 shards", "8 shards"}, 0, 1, 64, 1024)
}

// A sharded ensemble has all its members in this process. They lead the shards in turn.
type sharded interface {
	// writer returns the write of writer i. The writers are spread over the shards, and each is on
	// the member that leads its shard.
	writer(i int) (op, error)
}

// measureShards measures an ensemble with so many shards as the line says. The ensemble is in a
// process of its own, which serves the next lines too if they want as many shards. An
// ensemble at rest is new.
func measureShards(w *worker, l line) (f figures, err error) {
	if w.e != nil { // this is that process
		return w.writeToShards(l)
	}
	n := shards[l.On]
	if w.processes == nil || w.shards != n || l.Clients == 0 {
		w.endProcesses()
		s := w.setup
		s.Inside = true
		if s.Place, err = newPlace(filepath.Join(w.Place.Dir, w.path()), members); err != nil {
			return f, err
		}
		s.Place.Shards, w.shards = n, n
		p, err := spawn(context.Background(), s)
		if err != nil {
			return f, err
		}
		w.processes = []*process{p}
	}
	p := w.processes[0]
	if f, err = p.measure(l); l.Clients > 0 || err != nil {
		return f, err
	}
	return p.rest(w.Window)
}

// rest measures a process while nobody uses its members.
func (p *process) rest(window time.Duration) (f figures, err error) {
	time.Sleep(window / 2) // until the work that the start caused is over
	before, err := p.ask(request{Do: doCost, Collected: true}, patience)
	if err != nil {
		return f, err
	}
	began := time.Now()
	time.Sleep(window)
	after, err := p.ask(request{Do: doCost}, patience)
	took, a, b := time.Since(began).Seconds(), after.Cost, before.Cost
	return figures{Values: map[string]float64{"cores": (a.CPU - b.CPU).Seconds() / took, "goroutines": float64(a.Goroutines),
		"resident_mb": a.Resident / 1e6, "writing_calls_per_s": float64(a.Writes-b.Writes) / took,
		"entries_per_s": float64(a.Entries-b.Entries) / took}}, err
}

// writeToShards measures writers on all shards. Without writers it only prepares one, so that an
// ensemble at rest has what it has otherwise: sessions, and leaders on all members.
func (w *worker) writeToShards(l line) (f figures, err error) {
	e, ok := w.e.(sharded)
	if !ok {
		return f, errMissing
	}
	ops := make([]op, max(l.Clients, 1))
	for i := range ops {
		if ops[i], err = e.writer(i); err != nil {
			return f, err
		}
	}
	if l.Clients == 0 {
		return f, nil
	}
	load, err := measure.Run(w.Window, ops...)
	return figures{Rate: load.Rate, P50: load.P50, P99: load.P99, Values: map[string]float64{"cores": load.CPU}}, err
}

// writer returns the write of writer i, on a znode of its own.
func (v *vivarium) writer(i int) (op, error) {
	if v.parents == nil {
		if err := v.plant(); err != nil {
			return nil, err
		}
	}
	shard := i % len(v.parents)
	s := vivariumSession{v.sessions[shard%len(v.sessions)]}
	v.written++
	return s.set(fmt.Sprintf("%s/w%d", v.parents[shard], v.written))
}

// plant spreads the leaderships, opens sessions, and creates a znode below the root on each shard.
func (v *vivarium) plant() error {
	if err := v.spread(); err != nil {
		return err
	}
	for _, n := range v.nodes {
		s, err := n.NewSession(context.Background(), embed.SessionOptions{})
		if err != nil {
			return err
		}
		v.sessions = append(v.sessions, s)
	}
	parents := make([]string, len(v.status()))
	for i, found := 0, 0; found < len(parents); i++ {
		name := fmt.Sprintf("/app%d", i)
		parent := &parents[engine.ShardOf(name, len(parents))-1]
		if *parent != "" {
			continue
		}
		if _, err := v.sessions[0].Create(context.Background(), name, nil, embed.Persistent); err != nil {
			return err
		}
		*parent = name
		found++
	}
	v.parents = parents
	return nil
}

// spread transfers the leaderships now, instead of waiting until the members balance them.
func (v *vivarium) spread() error {
	return measure.Until("the leaderships to be spread", func() bool {
		all := true
		for _, n := range v.nodes {
			for i, s := range n.Status().Shards {
				if want := v.nodes[i%len(v.nodes)].Status().Member; s.Leader != want {
					all = false
					// the next attempt follows if this one fails
					_ = n.TransferLeadership(s.Shard, want)
				}
			}
		}
		return all
	})
}
