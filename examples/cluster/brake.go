package main

import (
	"context"
	"sync"

	"github.com/vivarium-go/vivarium/embed/lock"
)

// A brake stops one worker at the worst moment: the worker holds a lock and has booked its order,
// but has not recorded it.
type brake struct {
	mu struct {
		sync.Mutex
		stopped chan held     // set while a caller waits for a worker to stop; capacity 1
		release chan struct{} // closed to let the worker go on
	}
}

// held is what a stopped worker holds.
type held struct {
	Order order      `json:"order"`
	Token lock.Token `json:"token"`
}

// If a stop was requested, pass stops the worker here until release, or until the hold is lost.
func (b *brake) pass(h held, hold *lock.Hold) {
	if hold.Err() != nil {
		return
	}
	b.mu.Lock()
	stopped, release := b.mu.stopped, b.mu.release
	b.mu.stopped = nil
	b.mu.Unlock()
	if stopped == nil {
		return
	}
	stopped <- h
	select {
	case <-release:
	case <-hold.Done():
	}
}

// stop waits until a worker has stopped and returns what it holds.
func (b *brake) stop(ctx context.Context) (held, error) {
	b.release()
	stopped := make(chan held, 1)
	b.mu.Lock()
	b.mu.stopped, b.mu.release = stopped, make(chan struct{})
	b.mu.Unlock()
	select {
	case h := <-stopped:
		return h, nil
	case <-ctx.Done():
		b.release()
		return held{}, ctx.Err()
	}
}

// release lets a stopped worker go on, and stops nobody else.
func (b *brake) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.release != nil {
		close(b.mu.release)
	}
	b.mu.stopped, b.mu.release = nil, nil
}
