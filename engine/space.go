package engine

import (
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/datadir"
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
func (l *spaceLook) look(until time.Time, ask func() (Space, error)) *Space {
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
func (l *spaceLook) begin(ask func() (Space, error)) *spaceAnswer {
	for {
		if a := l.now.Load(); a != nil {
			return a
		}
		a := &spaceAnswer{done: make(chan struct{})}
		if !l.now.CompareAndSwap(nil, a) {
			continue
		}
		go func() {
			if space, err := ask(); err == nil {
				a.space = &space
			}
			l.now.Store(nil)
			close(a.done)
		}()
		return a
	}
}

// Space returns what the node's disk has, or nil if it does not say so in time.
func (e *Engine) Space(patience time.Duration) *Space {
	return e.space.look(time.Now().Add(patience), e.askSpace)
}

// Version returns the version of the build.
func (e *Engine) Version() string { return e.cfg.Version }

// askSpace asks the file system. It waits for it.
func (e *Engine) askSpace() (s Space, err error) {
	if s.Free, s.Size, err = e.disk.Space(); err != nil {
		return s, err
	}
	if s.Log, err = e.disk.Usage(filepath.Join(e.cfg.Dir, "raft")); err != nil {
		return s, err
	}
	s.Image, err = e.disk.Usage(filepath.Join(e.cfg.Dir, datadir.ImagesName))
	return s, err
}
