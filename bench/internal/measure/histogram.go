package measure

import (
	"math"
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets whose width is at most a thirty-second of their contents.
// The zero Histogram is empty.
type Histogram struct {
	n       uint64
	buckets [(64 - fine) << fine]uint32
}

// fine is how many bits below a duration's highest bit choose its bucket.
const fine = 5

// Record counts a duration. It does not allocate.
func (h *Histogram) Record(d time.Duration) {
	h.n++
	h.buckets[bucket(uint64(max(d, 0)))]++
}

// Add adds the counts of another histogram.
func (h *Histogram) Add(other *Histogram) {
	h.n += other.n
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// Count returns how many durations were counted.
func (h *Histogram) Count() uint64 { return h.n }

// Quantile returns the duration that a share q of all durations does not exceed. It returns the
// middle of the bucket, and zero if nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank, seen := uint64(math.Ceil(q*float64(h.n))), uint64(0)
	for i, n := range h.buckets {
		if seen += uint64(n); n > 0 && seen >= rank {
			from, to := lowest(i), lowest(i+1)
			return time.Duration(from + (to-from)/2)
		}
	}
	return 0
}

// bucket returns the index of the bucket of v. Below 1<<fine each bucket is one wide. From there on
// each power of two has 1<<fine buckets.
func bucket(v uint64) int {
	shift := max(bits.Len64(v)-fine-1, 0)
	return shift<<fine + int(v>>shift)
}

// lowest returns the least value of a bucket.
func lowest(i int) uint64 {
	shift := max(i>>fine-1, 0)
	return uint64(i-shift<<fine) << shift
}
