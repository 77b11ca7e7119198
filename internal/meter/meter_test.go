package meter

import (
	"math"
	"sync"
	"testing"
	"time"
)

func TestBucket_Bounds(t *testing.T) {
	for d, want := range map[time.Duration]int{
		-time.Hour: 0, -1: 0, 0: 0, 1: 0, time.Microsecond: 0,
		time.Microsecond + 1: 1, 2 * time.Microsecond: 1,
		2*time.Microsecond + 1: 2, 4 * time.Microsecond: 2,
		time.Millisecond: 10, Bound(10): 10, Bound(10) + 1: 11,
		Bound(Buckets - 1): Buckets - 1, Bound(Buckets-1) + 1: Buckets,
		time.Hour: Buckets, math.MaxInt64: Buckets,
	} {
		if got := bucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	if last := Bound(Buckets - 1); last != 2097152*time.Microsecond {
		t.Errorf("the last bound is %v", last)
	}
}

// Each duration is in the bucket that its bounds say, whatever the duration is.
func TestBucket_Every(t *testing.T) {
	for d := time.Duration(1); d > 0 && d < 1<<62; d += d/3 + 1 {
		i := bucket(d)
		if i < Buckets && d > Bound(i) || i > 0 && d <= Bound(i-1) {
			t.Fatalf("%v is in bucket %d", d, i)
		}
	}
}

func TestHistogram_Read(t *testing.T) {
	var h Histogram
	if h.Read() != (Reading{}) {
		t.Error("a new histogram has counted something")
	}
	h.Observe(time.Microsecond)
	h.Observe(3 * time.Microsecond)
	h.Observe(time.Minute)
	h.Observe(-time.Minute)
	want := Reading{Sum: time.Minute + 4*time.Microsecond}
	want.Counts[0], want.Counts[2], want.Counts[Buckets] = 2, 1, 1
	if got := h.Read(); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// No addition is lost or counted twice, whoever else adds and reads at the same time.
func TestMeter_Together(t *testing.T) {
	const goroutines, each = 8, 2000
	var h Histogram
	var c Counter
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range each {
				h.Observe(time.Duration(g*each+i) * time.Microsecond)
				c.Inc()
				c.Add(2)
				if i%500 == 0 {
					h.Read()
				}
			}
		})
	}
	all.Wait()
	const n = goroutines * each
	var seen uint64
	got := h.Read()
	for _, k := range got.Counts {
		seen += k
	}
	if want := time.Duration(n*(n-1)/2) * time.Microsecond; seen != n || got.Sum != want {
		t.Errorf("%d observations of %v, want %d of %v", seen, got.Sum, n, want)
	}
	if c.Read() != 3*n {
		t.Errorf("counted to %d, want %d", c.Read(), 3*n)
	}
}

func TestGauge(t *testing.T) {
	var g Gauge
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				g.Inc()
				g.Inc()
				g.Dec()
			}
		})
	}
	all.Wait()
	if n := g.Read(); n != 8000 {
		t.Errorf("the gauge is at %d, want 8000", n)
	}
}

func TestMeter_AllocatesNothing(t *testing.T) {
	var h Histogram
	var c Counter
	if n := testing.AllocsPerRun(100, func() { h.Observe(time.Millisecond); c.Inc(); h.Read() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCounter(b *testing.B) {
	var c Counter
	for b.Loop() {
		c.Inc()
	}
}

func BenchmarkHistogram(b *testing.B) {
	var h Histogram
	for b.Loop() {
		h.Observe(37 * time.Microsecond)
	}
}

// BenchmarkHistogram_Timed adds the two readings of the clock, which cost most.
func BenchmarkHistogram_Timed(b *testing.B) {
	var h Histogram
	for b.Loop() {
		start := time.Now()
		h.Observe(time.Since(start))
	}
}

func BenchmarkHistogram_Parallel(b *testing.B) {
	var h Histogram
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			h.Observe(37 * time.Microsecond)
		}
	})
}
