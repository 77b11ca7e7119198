package meter

import (
	"sync/atomic"
	"time"
)

// A Work knows whether some kind of work runs or has ended lately. Its methods may be called by any
// number of goroutines. The zero value never ran.
type Work struct {
	running atomic.Int64
	ended   atomic.Pointer[time.Time] // nil: never
}

// Begin records that the work begins. Each Begin has its End.
func (w *Work) Begin() { w.running.Add(1) }

// End records that the work has ended.
func (w *Work) End() {
	now := time.Now()
	w.ended.Store(&now) // first, so that at any time one of the two shows it
	w.running.Add(-1)
}

// RanWithin reports whether the work runs, or has ended within the last d.
func (w *Work) RanWithin(d time.Duration) bool {
	ended := w.ended.Load()
	return w.running.Load() > 0 || ended != nil && time.Since(*ended) <= d
}
