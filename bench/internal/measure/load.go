package measure

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Load is what a number of callers saw.
type Load struct {
	Rate     float64       // calls a second of all together
	P50, P99 time.Duration // of a call
	CPU      float64       // cores that this process used meanwhile
}

// Warmup is how long callers call before anything counts, or as long as the window if that is less.
const Warmup = 300 * time.Millisecond

// Run has each of the ops called by a caller of its own, one call after the other, for about a window. The first call that
// fails ends it.
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

// A caller is one of those that Run has calling.
type caller struct {
	seen  Histogram
	calls int           // that ended in the window
	late  time.Duration // what the one took that ended after it
	end   time.Time     // of that one
	err   error
}

// Reading the clock may take as long as a fast call. So only one of so many calls is timed that the clock is read every
// clockEvery, or every mostStride calls.
const (
	clockEvery = 10 * time.Microsecond
	mostStride = 64
)

// run calls op until the end, or until anybody failed; once at least, or who was kept from its core all the while would have done
// nothing.
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
