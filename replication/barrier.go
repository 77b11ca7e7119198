package replication

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/timers"
)

// barrier is the read barrier of a shard. All callers that wait share it.
//
// A ReadIndex can be lost like any message. A new leader ignores it until it has committed
// something of its term. So the loop sends a fresh one until one is answered. An answer serves the
// callers that were waiting before that ReadIndex was sent, and no later ones.
//
// Invariants:
//  1. A loop runs if next is not nil, and while somebody waits in a round that the loop has
//     collected.
//  2. A round is over when it is served or when the host ends.
type barrier struct {
	timers timers.Pool

	mu struct {
		rank.Mutex[rank.Barrier]
		next    *round // callers that came after the newest ReadIndex was sent; nil if there are none
		running bool
		ended   error // why there will be no more answers; nil before
	}
}

// A round is the callers that one answer serves.
type round struct {
	over    chan struct{} // closed when they are served or never will be
	err     error         // why they are not served; nil if they are
	waiting int           // callers that have not given up; guarded by the barrier's mu
}

const (
	// barrierTicks is how long the loop waits for the answer to the first ReadIndex. It is a few
	// round trips at any sane tick.
	barrierTicks = 4
	// barrierTicksMax limits the doubling of that wait. The wait grows because an answer also has
	// to wait until this node has applied up to it. Repeating faster than that would never end
	// under load.
	barrierTicksMax = 128
	// barrierYields is how often the loop yields so that served callers can ask again, while fewer
	// ask than were served.
	barrierYields = 8
)

// Barrier waits until this node has applied everything that was acknowledged anywhere before
// Barrier was called. It tries again after lost messages and changes of leader. It returns ctx's
// error when ctx ends, and ErrClosed or ErrFailed when the host does. If ctx has no deadline, limit
// is one.
func (h *Host) Barrier(ctx context.Context, id ShardID, limit time.Duration) error {
	s, err := h.running(id)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	began := time.Now()
	var r *round
	if err := h.call(func() (err error) { r, err = h.joinBarrier(s); return err }); err != nil {
		return err
	}
	var expired <-chan time.Time
	if _, ok := ctx.Deadline(); !ok {
		timer := s.barrier.timers.Get(limit)
		defer s.barrier.timers.Put(timer)
		expired = timer.C
	}
	select {
	case <-r.over: // the loop watches for the host's end: a larger select here took a tenth of a reader's time
		if r.err == nil {
			s.meters.Barriers.Observe(time.Since(began))
		}
		return r.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-expired:
		err = context.DeadlineExceeded
	}
	s.barrier.leave(r)
	return err
}

// joinBarrier adds a waiter and starts the loop if it does not run. The host is not closed, so
// loops may grow.
func (h *Host) joinBarrier(s *shard) (*round, error) {
	r, idle, err := s.barrier.join()
	if idle {
		h.loops.Go(func() { h.barrierLoop(s) })
	}
	return r, err
}

// join adds a waiter to the next round. It reports whether the caller has to start the loop.
func (b *barrier) join() (r *round, idle bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.ended != nil {
		return nil, false, b.mu.ended
	}
	if b.mu.next == nil {
		b.mu.next = &round{over: make(chan struct{})}
	}
	b.mu.next.waiting++
	idle = !b.mu.running
	b.mu.running = true
	return b.mu.next, idle, nil
}

// serve ends a round and returns how many callers it has served.
func (b *barrier) serve(r *round) int {
	b.mu.Lock()
	n := r.waiting
	b.mu.Unlock()
	close(r.over)
	return n
}

// gather lets served callers that ask again join the next round. Otherwise the next ReadIndex would
// be sent for a few of them. With 64 readers on three members this raised their reads by an eighth.
func (b *barrier) gather(served int) {
	joined := 0
	for idle := 0; idle < min(served, barrierYields); idle++ {
		runtime.Gosched()
		n := b.joined()
		if n >= served {
			return
		}
		if n > joined {
			joined, idle = n, 0
		}
	}
}

// joined returns how many callers wait in the next round.
func (b *barrier) joined() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.next == nil {
		return 0
	}
	return b.mu.next.waiting
}

// end ends the collected rounds and the next one with an error. All later callers get the error
// too.
func (b *barrier) end(unserved []*round, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.ended = err
	if b.mu.next != nil {
		unserved = append(unserved, b.mu.next)
		b.mu.next = nil
	}
	for _, r := range unserved {
		r.err = err
		close(r.over)
	}
}

func (b *barrier) leave(r *round) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.waiting--
}

// collect returns the rounds that the next ReadIndex will serve: those not served yet and the next
// one. It leaves out rounds whose callers have all given up. If no round is left, the loop ends.
func (b *barrier) collect(unserved []*round) []*round {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.next != nil {
		unserved = append(unserved, b.mu.next)
		b.mu.next = nil
	}
	unserved = slices.DeleteFunc(unserved, func(r *round) bool { return r.waiting == 0 })
	b.mu.running = len(unserved) > 0
	return unserved
}

// barrierLoop serves the waiters of a shard. It ends when there are none, or with the host.
func (h *Host) barrierLoop(s *shard) {
	ticks := barrierTicks
	var rounds []*round
	for {
		rounds = s.barrier.collect(rounds)
		if len(rounds) == 0 {
			return
		}
		answer := h.readIndex(s, time.Duration(ticks)*h.cfg.Tick)
		switch answer {
		case barrierServed:
			served := 0
			for _, r := range rounds {
				served += s.barrier.serve(r)
			}
			clear(rounds)
			rounds = rounds[:0]
			ticks = barrierTicks
			s.barrier.gather(served)
		case barrierLost:
			ticks = min(2*ticks, barrierTicksMax)
		case barrierNewLeader:
			ticks = barrierTicks
		case barrierClosed:
			s.barrier.end(rounds, ErrClosed)
			return
		case barrierFailed:
			s.barrier.end(rounds, ErrFailed)
			return
		}
	}
}

type barrierAnswer uint8

const (
	barrierServed    barrierAnswer = iota
	barrierLost                    // no answer in time
	barrierNewLeader               // the leader changed meanwhile
	barrierClosed                  // the host is closed
	barrierFailed                  // the host's disk has failed
)

// readIndex sends one ReadIndex and waits for the answer.
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
			return barrierClosed
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
			// Dropped or timed out: wait, or the loop would ask the same without pause.
			answered = nil
		case <-changed:
			return barrierNewLeader
		case <-timer.C:
			return barrierLost
		case <-h.done:
			return barrierClosed
		case <-h.cfg.Disk.Failed():
			return barrierFailed
		}
	}
}
