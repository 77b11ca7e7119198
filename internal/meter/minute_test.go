package meter

import (
	"testing"
	"testing/synctest"
	"time"
)

// A Minute shows what was counted since the step of a minute ago, and forgets what came before.
func TestMinute(t *testing.T) {
	var h Histogram
	var m Minute
	for i := range 3 * Steps {
		h.Observe(time.Duration(i) * time.Second)
		m.Step(h.Read())
		h.Observe(time.Millisecond)
		want := min(2*i+2, 2*Steps-1) // one more than the step of a minute ago saw
		if got := m.Since(h.Read()).Count(); got != uint64(want) {
			t.Errorf("step %d: %d observations, want %d", i, got, want)
		}
	}
	for range Steps {
		m.Step(h.Read())
	}
	if left := m.Since(h.Read()); left != (Reading{}) {
		t.Errorf("after a minute without any: %v", left)
	}
}

func TestReading_Quantile(t *testing.T) {
	var h Histogram
	if q := h.Read().Quantile(0.99); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
	for range 98 {
		h.Observe(time.Millisecond) // of the bucket from 512 µs to 1024 µs
	}
	h.Observe(100 * time.Millisecond)
	h.Observe(time.Hour)
	r := h.Read()
	if q := r.Quantile(0.5); q < 512*time.Microsecond || q > 1024*time.Microsecond {
		t.Errorf("the median is %v", q)
	}
	if q := r.Quantile(0.99); q < Bound(16) || q > Bound(17) {
		t.Errorf("p99 is %v", q)
	}
	if q := r.Quantile(1); q != Bound(Buckets-1) {
		t.Errorf("the largest is %v", q)
	}
}

// OnSlow is told of what takes as long as the limit, and of nothing else.
func TestHistogram_OnSlow(t *testing.T) {
	var h Histogram
	h.Observe(time.Hour)
	var told []time.Duration
	h.OnSlow(time.Second, func(took time.Duration) { told = append(told, took) })
	for _, d := range []time.Duration{-time.Hour, 0, time.Second - 1, time.Second, time.Hour} {
		h.Observe(d)
	}
	if len(told) != 2 || told[0] != time.Second || told[1] != time.Hour {
		t.Errorf("told of %v", told)
	}
	if n := testing.AllocsPerRun(100, func() { h.Observe(time.Millisecond) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Work
		if w.RanWithin(time.Hour) {
			t.Error("it never ran")
		}
		w.Begin()
		w.Begin()
		w.End()
		<-time.After(time.Hour)
		if !w.RanWithin(0) {
			t.Error("one of two runs still")
		}
		w.End()
		<-time.After(time.Second)
		if w.RanWithin(time.Second-1) || !w.RanWithin(time.Second) {
			t.Error("it ended a second ago")
		}
	})
}
