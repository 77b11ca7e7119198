//go:build unix

package measure

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// Each duration is in a bucket that contains it, next to the buckets of its neighbours.
func TestBucket(t *testing.T) {
	for i := range len(Histogram{}.buckets) - 1 {
		from, to := lowest(i), lowest(i+1)
		if bucket(from) != i || bucket(to-1) != i || to <= from {
			t.Fatalf("bucket %d is from %d to %d, which are in %d and %d", i, from, to, bucket(from), bucket(to-1))
		}
		if width := to - from; width > 1 && from/width < 1<<fine {
			t.Fatalf("bucket %d from %d is %d wide", i, from, width)
		}
	}
	if last := bucket(1<<63 - 1); last >= len(Histogram{}.buckets) {
		t.Errorf("the longest duration is in bucket %d", last)
	}
}

func TestQuantile(t *testing.T) {
	var h, other Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	var all []time.Duration
	for i := range 10_000 {
		d := time.Duration(rand.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		if i%2 == 0 {
			h.Record(d)
		} else {
			other.Record(d)
		}
	}
	h.Add(&other)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.99, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		if got := h.Quantile(q); float64(got) < 0.96*float64(want) || float64(got) > 1.04*float64(want) {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { h.Record(time.Second) }); n > 0 {
		t.Errorf("Record allocates %v times", n)
	}
}

func TestRun(t *testing.T) {
	slow := func() error { time.Sleep(10 * time.Millisecond); return nil }
	l, err := Run(200*time.Millisecond, slow, slow)
	if err != nil || l.Rate <= 0 || l.Rate > 200 || l.P50 < 10*time.Millisecond || l.P99 < l.P50 {
		t.Errorf("two callers of 10 ms: %+v, %v", l, err)
	}
	calls := 0
	if fast, err := Run(50*time.Millisecond, func() error { calls++; return nil }); err != nil || fast.Rate <= 0 || fast.Rate*0.05 > 1.01*float64(calls) {
		t.Errorf("a caller of nothing: %+v with %d calls, %v", fast, calls, err)
	}
	if l, err := Run(time.Nanosecond, func() error { return nil }); err != nil || l.Rate <= 0 {
		t.Errorf("a caller that gets to its core when the window is over: %+v, %v", l, err)
	}
	long := func() error { time.Sleep(100 * time.Millisecond); return nil }
	if l, err := Run(20*time.Millisecond, long); err != nil || l.Rate <= 0 || l.Rate > 15 || l.P50 < 90*time.Millisecond {
		t.Errorf("a call that takes longer than the window: %+v, %v", l, err)
	}
	want, began := errors.New("broken"), time.Now()
	if _, err := Run(time.Minute, slow, func() error { return want }); !errors.Is(err, want) || time.Since(began) > 30*time.Second {
		t.Errorf("a caller that fails: %v after %v", err, time.Since(began))
	}
}

func TestRounds(t *testing.T) {
	if got := Ratios([]float64{6, 9}, []float64{2, 3, 5}); !slices.Equal(got, []float64{3, 3}) {
		t.Errorf("ratios %v", got)
	}
	for want, rounds := range map[string][]float64{"0.0": nil, "2.0": {2}, "2.5 (1.0 to 4.0)": {4, 2, 1, 3}, "2.0 (1.0 to 9.0)": {9, 1, 2}} {
		if got := Spread(rounds, "%.1f"); got != want {
			t.Errorf("%v are %q, want %q", rounds, got, want)
		}
	}
}

func TestMachine(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := DiskUse(dir); n < 1<<20 || n > 1<<21 {
		t.Errorf("a file of 1 MiB takes %v", n)
	}
	for end := time.Now().Add(10 * time.Second); CPU() < 20*time.Millisecond && time.Now().Before(end); {
	}
	if CPU() < 10*time.Millisecond {
		t.Errorf("this process has used %v", CPU())
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("there is no Linux here")
	}
	if CPUOf(os.Getpid()) < 10*time.Millisecond || Resident(os.Getpid()) < 1<<20 {
		t.Errorf("this process has used %v, and %v bytes", CPUOf(os.Getpid()), Resident(os.Getpid()))
	}
	if n := Anonymous(os.Getpid()); n < 1<<20 || n > Resident(os.Getpid()) {
		t.Errorf("%v of %v bytes are anonymous", n, Resident(os.Getpid()))
	}
}
