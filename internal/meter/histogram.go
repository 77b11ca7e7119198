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
}

// Observe adds a duration. A negative one counts as zero: it comes from a clock that was set back.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(d)].Add(1)
	h.sum.Add(int64(d))
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
