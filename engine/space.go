package engine

import (
	"sync/atomic"
	"time"
)

// A spaceLook asks the file system for its space, once at a time. A file system that hangs may not
// answer, so the question has a goroutine of its own, which ends with the answer.
type spaceLook struct{ now atomic.Pointer[spaceAnswer] }

// A spaceAnswer is what all wait for who ask at the same time.
type spaceAnswer struct {
	done  chan struct{}
	space *Space // nil if the file system cannot tell; set before done
}

// look returns what ask says, or nil if it fails or does not return in time.
func (l *spaceLook) look(until time.Time, ask func() (free, size uint64, err error)) *Space {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	a := l.begin(ask)
	select {
	case <-a.done:
		return a.space
	case <-timer.C:
		return nil
	}
}

// begin returns the answer that is under way. If there is none, it asks.
func (l *spaceLook) begin(ask func() (free, size uint64, err error)) *spaceAnswer {
	for {
		if a := l.now.Load(); a != nil {
			return a
		}
		a := &spaceAnswer{done: make(chan struct{})}
		if !l.now.CompareAndSwap(nil, a) {
			continue
		}
		go func() {
			if free, size, err := ask(); err == nil {
				a.space = &Space{free, size}
			}
			l.now.Store(nil)
			close(a.done)
		}()
		return a
	}
}
