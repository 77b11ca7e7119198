package timers

import (
	"sync"
	"time"
)

// A Pool holds stopped timers. Its zero value is ready to use, by any number of goroutines.
type Pool struct{ stopped sync.Pool }

// Get returns a timer that fires after d.
func (p *Pool) Get(d time.Duration) *time.Timer {
	if t, ok := p.stopped.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// Put returns a timer to the pool. Nobody may use it afterwards.
func (p *Pool) Put(t *time.Timer) {
	if t.Stop() { // a timer that has fired may have something in its channel
		p.stopped.Put(t)
	}
}
