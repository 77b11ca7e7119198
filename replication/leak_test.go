package replication

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// descriptors counts the open files of this process; sockets and the like, which other tests' runtime may
// open and close at any time, are not counted.
func descriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd here")
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "/proc/") {
			n++
		}
	}
	return n
}

// eventually waits for a condition that nothing announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			stacks := make([]byte, 1<<20)
			t.Fatalf("no %s within %v\n%s", what, patience, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestHost_StartsAndClosesLeakNothing(t *testing.T) {
	e := found(t, 1, 2)
	n := e.nodes[0]
	e.start(n) // once before counting: dragonboat keeps some things for the life of the process
	e.write(n, 1, "warm")
	e.stop(n)
	goroutines, open := runtime.NumGoroutine(), descriptors(t)
	for range 30 {
		e.start(n)
		e.write(n, 1, "x")
		e.barrier(n, 2)
		e.stop(n)
	}
	// Goroutines that were told to end may still be on their way.
	eventually(t, "end of all goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
	if now := descriptors(t); now > open {
		t.Errorf("%d descriptors open, %d before", now, open)
	}
}
