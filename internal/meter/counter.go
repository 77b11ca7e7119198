package meter

import "sync/atomic"

// A Counter counts upwards from zero. Its methods may be called by any number of goroutines.
type Counter struct{ n atomic.Uint64 }

// Add adds n.
func (c *Counter) Add(n uint64) { c.n.Add(n) }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Read returns the count.
func (c *Counter) Read() uint64 { return c.n.Load() }
