package replication

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// descriptors counts the open files of this process. It leaves out sockets and the like, because
// the runtime may open and close them at any time.
func descriptors(t testing.TB) int {
	t.Helper()
	return len(slices.DeleteFunc(testkit.OpenFiles(t), func(name string) bool { return !strings.HasPrefix(name, "/") }))
}

func TestHost_StartsAndClosesLeakNothing(t *testing.T) {
	e := found(t, 1, 2)
	n := e.nodes[0]
	e.start(n) // once before counting: dragonboat keeps some things for the life of the process
	e.write(n, 1, "warm")
	e.stop(n)
	goroutines, open := runtime.NumGoroutine(), descriptors(t)
	rounds := 8
	if testkit.Night() {
		rounds = 30
	}
	for range rounds {
		e.start(n)
		e.write(n, 1, "x")
		e.barrier(n, 2)
		e.stop(n)
	}
	// Goroutines that are about to end may still run.
	eventually(t, "end of all goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
	if now := descriptors(t); now > open {
		t.Errorf("%d descriptors open, %d before", now, open)
	}
}
