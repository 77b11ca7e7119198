package meter

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets is how many buckets with an upper bound a Histogram has. The first one ends at a
// microsecond, and each further one at twice the bound of the one before it. The last one ends at
// 2.1 seconds.
const Buckets = 22

// Bound returns the largest duration that belongs to a bucket.
func Bound(i int) time.Duration { return time.Microsecond << i }

// A Histogram counts durations by their size. Its methods may be called by any number of
// goroutines.
type Histogram struct {
	counts [Buckets + 1]atomic.Uint64 // the last has what is longer than all bounds
	sum    atomic.Int64               // nanoseconds
	slow   atomic.Pointer[slow]       // nil: nobody wants to know
}

// slow is what OnSlow has registered.
type slow struct {
	limit time.Duration
	tell  func(took time.Duration)
}

// OnSlow registers fn to be called with each duration from limit on. Observe calls it when it has
// counted the duration, so fn must not block.
func (h *Histogram) OnSlow(limit time.Duration, fn func(took time.Duration)) {
	h.slow.Store(&slow{limit, fn})
}

// Observe adds a duration. A negative one counts as zero: it comes from a clock that was set back.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(d)].Add(1)
	h.sum.Add(int64(d))
	if s := h.slow.Load(); s != nil && d >= s.limit {
		s.tell(d)
	}
}

// bucket returns the first bucket whose bound a duration does not exceed.
func bucket(d time.Duration) int {
	whole := uint64(max(d-1, 0)) / uint64(time.Microsecond)
	return min(bits.Len64(whole), Buckets)
}

// A Reading is what a Histogram has counted.
type Reading struct {
	Counts [Buckets + 1]uint64 // by bucket, not cumulative; the last has what exceeds all bounds
	Sum    time.Duration
}

// Read returns what was counted so far.
func (h *Histogram) Read() (r Reading) {
	r.Sum = time.Duration(h.sum.Load())
	for i := range h.counts {
		r.Counts[i] = h.counts[i].Load()
	}
	return r
}

// Count returns how many durations there are.
func (r Reading) Count() (n uint64) {
	for _, k := range r.Counts {
		n += k
	}
	return n
}

// Less returns what was counted since an older reading of the same histogram.
func (r Reading) Less(old Reading) Reading {
	r.Sum -= old.Sum
	for i := range r.Counts {
		r.Counts[i] -= old.Counts[i]
	}
	return r
}

// Quantile returns about the duration that a share of all durations do not exceed, or zero if there
// are none. It takes the durations of a bucket as evenly spread. Of those beyond the last bound, it
// knows no more than that.
func (r Reading) Quantile(share float64) time.Duration {
	n := r.Count()
	if n == 0 {
		return 0
	}
	left := share * float64(n)
	for i, k := range r.Counts[:Buckets] {
		if k > 0 && left <= float64(k) {
			low := time.Duration(0)
			if i > 0 {
				low = Bound(i - 1)
			}
			return low + time.Duration(float64(Bound(i)-low)*left/float64(k))
		}
		left -= float64(k)
	}
	return Bound(Buckets - 1)
}
