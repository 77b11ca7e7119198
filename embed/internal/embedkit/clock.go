package embedkit

import (
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// A Watchmaker sets the clocks of a node.
type Watchmaker struct {
	mu         sync.Mutex
	boot, wall time.Duration // ahead of package time's
}

// Clock returns the clock that it sets. In a bubble of testing/synctest it runs in virtual time.
func (w *Watchmaker) Clock() clock.Clock {
	began := time.Now()
	return clock.Clock{
		Boot: func() time.Duration {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Since(began) + w.boot
		},
		Wall: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Now().Add(w.wall)
		},
	}
}

// Jump moves the clock as a hypervisor's pause does, or somebody with the date command.
func (w *Watchmaker) Jump(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wall += by
}

// Sleep moves the clocks as suspend to RAM does.
func (w *Watchmaker) Sleep(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boot += d
	w.wall += d
}

// A Gate stands before the fsyncs of the log. While it is shut, each fsync waits until it may pass.
type Gate struct {
	mu      sync.Mutex
	changed sync.Cond
	shut    bool
	waiting int
	passes  int
}

// NewGate returns a gate that is open.
func NewGate() *Gate {
	g := &Gate{}
	g.changed.L = &g.mu
	return g
}

// Ask is the fault of a node's disk, see inside.Seams.
func (g *Gate) Ask(op disk.Op, name string) error {
	if op != disk.OpSync || !strings.Contains(name, "/raft/") {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting++
	g.changed.Broadcast()
	for g.shut && g.passes == 0 {
		g.changed.Wait()
	}
	g.waiting--
	g.passes = max(g.passes-1, 0)
	return nil
}

// Set shuts or opens the gate.
func (g *Gate) Set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.passes = shut, 0
	g.changed.Broadcast()
}

// Await waits until a sync is at the gate.
func (g *Gate) Await() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.waiting == 0 {
		g.changed.Wait()
	}
}

// Pass lets one sync through.
func (g *Gate) Pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passes++
	g.changed.Broadcast()
}
