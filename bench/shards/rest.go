//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// rest is what an ensemble costs that nobody uses.
type rest struct {
	CPU        float64 // cores
	Goroutines int
	Memory     float64 // resident bytes
	Writes     float64 // calls a second that write to a socket or a file; where there is no Linux zero, as Memory
	Entries    float64 // a second in the logs of all shards
}

// measureRest measures an ensemble at rest.
func measureRest(e ensemble, window time.Duration) rest {
	time.Sleep(window / 2) // what the start began ends
	debug.FreeOSMemory()
	cpu, writes, entries := cpuTime(), procNumber("/proc/self/io", "syscw"), e.entries()
	time.Sleep(window)
	each := func(before, after uint64) float64 { return float64(after-before) / window.Seconds() }
	return rest{
		CPU:     (cpuTime() - cpu).Seconds() / window.Seconds(),
		Writes:  each(writes, procNumber("/proc/self/io", "syscw")),
		Entries: each(entries, e.entries()), Goroutines: runtime.NumGoroutine(),
		Memory: 1024 * float64(procNumber("/proc/self/status", "VmRSS")),
	}
}

// procNumber returns the number of a line of one of Linux's files, zero if there is none.
func procNumber(file, name string) (n uint64) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			_, _ = fmt.Sscan(string(rest), &n) // a line of another form counts nothing
		}
	}
	return n
}
