package measure

import (
	"math"
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets whose width is a thirty-second of what is in them. The zero Histogram is empty.
type Histogram struct {
	n       uint64
	buckets [(64 - fine) << fine]uint32
}

// fine is how many bits below a duration's highest one choose its bucket.
const fine = 5

// Record counts a duration. It does not allocate.
func (h *Histogram) Record(d time.Duration) {
	h.n++
	h.buckets[bucket(uint64(max(d, 0)))]++
}

// Add counts all that another has counted.
func (h *Histogram) Add(other *Histogram) {
	h.n += other.n
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// Count is how many durations were counted.
func (h *Histogram) Count() uint64 { return h.n }

// Quantile is the duration that a share q of all does not exceed: the middle of its bucket, zero if nothing was counted.
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

// bucket is the index of the bucket of v. Below 1<<fine buckets are one wide; from there on each power of two has 1<<fine.
func bucket(v uint64) int {
	shift := max(bits.Len64(v)-fine-1, 0)
	return shift<<fine + int(v>>shift)
}

// lowest is the least that goes into a bucket.
func lowest(i int) uint64 {
	shift := max(i>>fine-1, 0)
	return uint64(i-shift<<fine) << shift
}
