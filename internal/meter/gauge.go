package meter

import "sync/atomic"

// A Gauge goes up and down from zero. Its methods may be called by any number of goroutines.
type Gauge struct{ n atomic.Int64 }

// Inc adds one.
func (g *Gauge) Inc() { g.n.Add(1) }

// Dec takes one away.
func (g *Gauge) Dec() { g.n.Add(-1) }

// Read returns the present value.
func (g *Gauge) Read() int64 { return g.n.Load() }
