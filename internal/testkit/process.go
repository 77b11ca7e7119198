package testkit

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// Stacks returns the stacks of all goroutines.
func Stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// Heap returns how many bytes the live objects take, after a garbage collection.
func Heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// OpenFiles lists the files and sockets that this process has open, except those that the runtime
// opens for itself. It skips the test where the system does not list them.
func OpenFiles(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd here")
	}
	var open []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.HasPrefix(target, "/proc/") && !strings.HasPrefix(target, "anon_inode:") {
			open = append(open, target)
		}
	}
	return open
}
