package timers

import (
	"sync"
	"time"
)

// A Pool is ready to be used, by any number of goroutines.
type Pool struct{ stopped sync.Pool }

// Get returns a timer that fires after d.
func (p *Pool) Get(d time.Duration) *time.Timer {
	if t, ok := p.stopped.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// Put gives a timer back, which nobody uses any more.
func (p *Pool) Put(t *time.Timer) {
	if t.Stop() { // one that has fired may have something in its channel
		p.stopped.Put(t)
	}
}
