package measure

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Load is what a number of callers measured.
type Load struct {
	Rate     float64       // calls per second of all callers together
	P50, P99 time.Duration // of a call
	CPU      float64       // cores that this process used meanwhile
}

// Warmup is how long callers call before anything counts. A shorter window has a shorter warm-up.
const Warmup = 300 * time.Millisecond

// Run calls each op in a loop for about a window, each from a caller of its own. The first call
// that fails ends the run.
func Run(window time.Duration, ops ...func() error) (Load, error) {
	var (
		wg      sync.WaitGroup
		failed  atomic.Bool
		callers = make([]caller, len(ops))
		begin   = time.Now().Add(min(Warmup, window))
		end     = begin.Add(window)
	)
	for i, op := range ops {
		wg.Go(func() {
			if callers[i].err = callers[i].run(op, begin, end, &failed); callers[i].err != nil {
				failed.Store(true)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	await := func(t time.Time) {
		select {
		case <-time.After(time.Until(t)):
		case <-ended: // a call failed
		}
	}
	await(begin)
	cpu := CPU()
	await(end)
	cpu = CPU() - cpu
	<-ended
	return collect(callers, begin, window, cpu)
}

func collect(callers []caller, begin time.Time, window, cpu time.Duration) (Load, error) {
	var (
		l      = Load{CPU: cpu.Seconds() / window.Seconds()}
		inTime Histogram
		late   Histogram
		last   = begin
		calls  int
		errs   []error
	)
	for i := range callers {
		c := &callers[i]
		calls += c.calls
		inTime.Add(&c.seen)
		if c.late > 0 {
			late.Record(c.late)
			last = later(last, c.end)
		}
		if c.err != nil {
			errs = append(errs, c.err)
		}
	}
	switch {
	case len(errs) > 0:
		return l, fmt.Errorf("%d of %d callers failed: %w", len(errs), len(callers), errs[0])
	case calls > 0:
		l.Rate, l.P50, l.P99 = float64(calls)/window.Seconds(), inTime.Quantile(0.5), inTime.Quantile(0.99)
	case late.Count() > 0: // a call takes longer than the window
		l.Rate, l.P50, l.P99 = float64(late.Count())/last.Sub(begin).Seconds(), late.Quantile(0.5), late.Quantile(0.99)
	}
	return l, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A caller is one of the callers of Run.
type caller struct {
	seen  Histogram
	calls int           // calls that ended in the window
	late  time.Duration // duration of the call that ended after the window
	end   time.Time     // when that call ended
	err   error
}

// Reading the clock may take as long as a fast call. So the clock is read about every clockEvery,
// or every mostStride calls, and only the call after that is timed.
const (
	clockEvery = 10 * time.Microsecond
	mostStride = 64
)

// run calls op until the end, or until a caller failed. It calls op at least once, because a caller
// that got no core all the while would otherwise have done nothing.
func (c *caller) run(op func() error, begin, end time.Time, failed *atomic.Bool) error {
	stride, fastest := 0, clockEvery
	for !failed.Load() {
		now := time.Now()
		if !now.Before(end) && c.calls > 0 {
			break
		}
		if stride == 0 && !now.Before(begin) {
			stride = int(min(clockEvery/max(fastest, 1), mostStride))
		}
		if err := op(); err != nil {
			return err
		}
		after := time.Now()
		took := after.Sub(now)
		if after.After(end) {
			c.late, c.end = took, after
			break
		}
		if after.Before(begin) {
			fastest = min(fastest, took)
			continue
		}
		c.seen.Record(took)
		for range stride - 1 {
			if err := op(); err != nil {
				return err
			}
		}
		c.calls += max(stride, 1)
	}
	return nil
}
