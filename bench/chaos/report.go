//go:build unix

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// violationsMax limits how many violations are printed and kept. One broken promise tends to show
// in many places.
const violationsMax = 40

// A report counts what was done and collects the violations. Its methods may be called
// concurrently.
type report struct {
	out   io.Writer
	begun time.Time

	mu struct {
		sync.Mutex
		counts     map[string]map[string]int // by section of the report and kind
		violations []string
		found      chan struct{} // closed at the first violation
	}
}

func newReport(out io.Writer) *report {
	r := &report{out: out, begun: time.Now()}
	r.mu.counts = make(map[string]map[string]int)
	r.mu.found = make(chan struct{})
	return r
}

// The sections of the report.
const (
	sectionOps    = "operations"
	sectionFaults = "faults"
	sectionSeen   = "seen on the way"
	sectionChecks = "checked"
)

func (r *report) count(section, kind string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.counts[section] == nil {
		r.mu.counts[section] = make(map[string]int)
	}
	r.mu.counts[section][kind] += n
}

func (r *report) total(section string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.mu.counts[section] {
		n += c
	}
	return n
}

// say prints a line with the time since the beginning.
func (r *report) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(format, args...)
}

func (r *report) sayLocked(format string, args ...any) {
	fmt.Fprintf(r.out, "%7.1fs  %s\n", time.Since(r.begun).Seconds(), fmt.Sprintf(format, args...))
}

// violate records a violation of a promise.
func (r *report) violate(promise, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := promise + ": " + fmt.Sprintf(format, args...)
	if len(r.mu.violations) >= violationsMax || slices.Contains(r.mu.violations, text) {
		return
	}
	if len(r.mu.violations) == 0 {
		close(r.mu.found)
	}
	r.mu.violations = append(r.mu.violations, text)
	r.sayLocked("VIOLATION %s%s", text, load())
}

// load returns how busy the machine is, where the system says so. Members that get no processor
// answer nobody and elect nobody.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	last, _, _ := strings.Cut(string(text), " ")
	if last == "" {
		return ""
	}
	return fmt.Sprintf(" (the load is %s)", last)
}

// found returns a channel that is closed at the first violation.
func (r *report) found() <-chan struct{} { return r.mu.found }

func (r *report) failed() bool {
	select {
	case <-r.mu.found:
		return true
	default:
		return false
	}
}

// print writes the report.
func (r *report) print() {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.out)
	for _, section := range []string{sectionOps, sectionFaults, sectionSeen, sectionChecks} {
		total := 0
		for _, n := range r.mu.counts[section] {
			total += n
		}
		fmt.Fprintf(r.out, "%s: %d\n", section, total)
		for _, kind := range slices.Sorted(maps.Keys(r.mu.counts[section])) {
			fmt.Fprintf(r.out, "  %8d  %s\n", r.mu.counts[section][kind], kind)
		}
	}
	fmt.Fprintf(r.out, "violations: %d\n", len(r.mu.violations))
}

// keep writes the violations beside the evidence.
func (r *report) keep(dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(strings.Join(r.mu.violations, "\n")+"\n"), 0o644)
}
