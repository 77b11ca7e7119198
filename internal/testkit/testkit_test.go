package testkit

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// In a bubble the waits take no real time.
func TestWaitsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		Until(t, "half of Patience", func() bool { return time.Since(start) > Patience/2 })
		changed := make(chan struct{})
		var state atomic.Int64
		time.AfterFunc(time.Second, func() { state.Store(1); close(changed) })
		Reaches(t, func() (int64, <-chan struct{}) { return state.Load(), changed }, 1)
		ctx := Context(t)
		<-ctx.Done()
		WantErr(t, ctx.Err(), context.DeadlineExceeded)
	})
}

// A failing helper ends the test that called it, and names what it waited for.
func TestFailures(t *testing.T) {
	for name, fails := range map[string]func(testing.TB){
		"Must":    func(t testing.TB) { Must(t, errors.New("no")) },
		"Until":   func(t testing.TB) { Until(t, "nothing", func() bool { return false }) },
		"Reaches": func(t testing.TB) { Reaches(t, func() (int, <-chan struct{}) { return 0, nil }, 1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() { // Goexit is what FailNow does
				defer close(done)
				fails(r)
				t.Errorf("%s returned", name)
			}()
			<-done
		})
	}
}

func TestClosed(t *testing.T) {
	ch := make(chan int, 1)
	ch <- 1
	for i, want := range []bool{false, false, true} {
		if i == 2 {
			close(ch)
		}
		if got := Closed(ch); got != want {
			t.Errorf("call %d: %v", i, got)
		}
	}
}

// A recorder ends its goroutine where a test would fail.
type recorder struct{ testing.TB }

func (r *recorder) Fatal(...any)          { runtime.Goexit() }
func (r *recorder) Fatalf(string, ...any) { runtime.Goexit() }
