package replication

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
)

// barrier is the read barrier of a shard, shared by its waiting callers.
//
// A ReadIndex can be lost like any message, and a new leader ignores it until it has committed something of its
// term. So the loop repeats it, with a fresh one each time, until one is answered. An answer serves the callers
// that were waiting before that ReadIndex was sent, and nobody who came later.
//
// Invariants:
//  1. a loop runs if and only if waiting is not empty;
//  2. a waiter leaves waiting when it is served or when it gives up, and is closed only when served.
type barrier struct {
	mu struct {
		sync.Mutex
		waiting map[chan struct{}]struct{}
		running bool
	}
}

const (
	// barrierTicks is how long the first ReadIndex is waited for: a few round trips at any sane tick.
	barrierTicks = 4
	// barrierTicksMax caps the doubling of that wait. It grows because an answer also has to wait for this
	// node to apply up to it: repeating faster than that would never end under load.
	barrierTicksMax = 128
)

// Barrier waits until this node has applied everything that was acknowledged anywhere before Barrier was
// called. It repeats itself over lost messages and changes of leader until ctx ends, with ctx's error, or the
// host does: ErrClosed, ErrFailed.
func (h *Host) Barrier(ctx context.Context, id ShardID) error {
	s, err := h.running(id)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	served := make(chan struct{})
	if err := h.call(func() error { h.joinBarrier(s, served); return nil }); err != nil {
		return err
	}
	select {
	case <-served:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-h.done:
		err = ErrClosed
	case <-h.cfg.Disk.Failed():
		err = ErrFailed
	}
	s.barrier.leave(served)
	return err
}

// joinBarrier adds a waiter and starts the loop if it does not run. The host is not closed, so loops may grow.
func (h *Host) joinBarrier(s *shard, served chan struct{}) {
	b := &s.barrier
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.waiting == nil {
		b.mu.waiting = make(map[chan struct{}]struct{})
	}
	b.mu.waiting[served] = struct{}{}
	if !b.mu.running {
		b.mu.running = true
		h.loops.Go(func() { h.barrierLoop(s) })
	}
}

func (b *barrier) leave(served chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.waiting, served)
}

// batch returns those waiting now. With none it ends the loop.
func (b *barrier) batch() []chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := make([]chan struct{}, 0, len(b.mu.waiting))
	for w := range b.mu.waiting {
		batch = append(batch, w)
	}
	b.mu.running = len(batch) > 0
	return batch
}

// serve ends the wait of those of batch that still wait.
func (b *barrier) serve(batch []chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range batch {
		if _, ok := b.mu.waiting[w]; ok {
			delete(b.mu.waiting, w)
			close(w)
		}
	}
}

// barrierLoop serves the waiters of a shard. It ends when there are none, or with the host.
func (h *Host) barrierLoop(s *shard) {
	ticks := barrierTicks
	for {
		batch := s.barrier.batch()
		if len(batch) == 0 {
			return
		}
		answer := h.readIndex(s, time.Duration(ticks)*h.cfg.Tick)
		switch answer {
		case barrierServed:
			s.barrier.serve(batch)
			ticks = barrierTicks
		case barrierLost:
			ticks = min(2*ticks, barrierTicksMax)
		case barrierNewLeader:
			ticks = barrierTicks
		case barrierEnded:
			return
		}
	}
}

type barrierAnswer uint8

const (
	barrierServed    barrierAnswer = iota
	barrierLost                    // no answer in time
	barrierNewLeader               // the leader changed meanwhile
	barrierEnded                   // the host has ended
)

// readIndex asks once and waits for the answer.
func (h *Host) readIndex(s *shard, wait time.Duration) barrierAnswer {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	leader, changed := s.leadership()
	var rs *dragonboat.RequestState
	var answered <-chan dragonboat.RequestResult
	if leader.Member != 0 {
		err := h.call(func() (err error) {
			rs, err = h.nh.ReadIndex(uint64(s.id), max(wait, 2*h.cfg.Tick))
			return translate(err)
		})
		if errors.Is(err, ErrClosed) {
			return barrierEnded
		}
		if err == nil {
			answered = rs.AppliedC()
		}
	}
	for {
		select {
		case r := <-answered:
			if r.Completed() {
				return barrierServed
			}
			// Dropped or timed out: a little patience, or the same would be asked in a tight loop.
			answered = nil
		case <-changed:
			return barrierNewLeader
		case <-timer.C:
			return barrierLost
		case <-h.done:
			return barrierEnded
		case <-h.cfg.Disk.Failed():
			return barrierEnded
		}
	}
}
