//go:build unix

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// rest is what an ensemble costs while nobody uses it.
type rest struct {
	CPU        float64 // cores
	Goroutines int
	Memory     float64 // resident bytes
	// calls per second that write to a socket or a file; like Memory, zero except on Linux
	Writes  float64
	Entries float64 // per second, in the logs of all shards
}

// measureRest measures an ensemble at rest.
func measureRest(e ensemble, window time.Duration) rest {
	time.Sleep(window / 2) // until the work that the start caused is over
	debug.FreeOSMemory()
	cpu, writes, entries := measure.CPU(), measure.ProcNumber("/proc/self/io", "syscw"), e.entries()
	time.Sleep(window)
	each := func(before, after uint64) float64 { return float64(after-before) / window.Seconds() }
	return rest{
		CPU:     (measure.CPU() - cpu).Seconds() / window.Seconds(),
		Writes:  each(writes, measure.ProcNumber("/proc/self/io", "syscw")),
		Entries: each(entries, e.entries()), Goroutines: runtime.NumGoroutine(),
		Memory: measure.Resident(os.Getpid()),
	}
}
