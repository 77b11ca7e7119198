package campaign

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
	now   func() time.Duration // Ground.Now
	begun time.Duration

	mu struct {
		sync.Mutex
		counts     map[string]map[string]int // by section of the report and kind
		violations []string
		upon       func()                     // called at the first violation; nil means nothing is
		stood      map[string][]time.Duration // how long no write was acknowledged, by kind of change
	}
}

func newReport(out io.Writer, now func() time.Duration) *report {
	r := &report{out: out, now: now, begun: now()}
	r.mu.counts, r.mu.stood = make(map[string]map[string]int), make(map[string][]time.Duration)
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

// stood records how long no write was acknowledged on some shard during a change of the members.
func (r *report) stood(change string, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.stood[change] = append(r.mu.stood[change], d)
}

// printStoodLocked writes how long writes stood still during changes of the members.
func (r *report) printStoodLocked() {
	var all []time.Duration
	line := func(change string, list []time.Duration) {
		slices.Sort(list)
		fmt.Fprintf(r.out, "  %-12s %3d  p50 %4d ms, worst %4d ms\n", change, len(list), list[len(list)/2].Milliseconds(), list[len(list)-1].Milliseconds())
	}
	for _, change := range slices.Sorted(maps.Keys(r.mu.stood)) {
		if all == nil {
			fmt.Fprintln(r.out, "the longest time without an acknowledged write in a change of the members, and nothing else broken:")
		}
		all = append(all, r.mu.stood[change]...)
		line(change, r.mu.stood[change])
	}
	if all != nil {
		line("all", all)
	}
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
	fmt.Fprintf(r.out, "%7.1fs  %s\n", (r.now() - r.begun).Seconds(), fmt.Sprintf(format, args...))
}

// violate records a violation of a promise.
func (r *report) violate(promise, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := promise + ": " + fmt.Sprintf(format, args...)
	if len(r.mu.violations) >= violationsMax || slices.Contains(r.mu.violations, text) {
		return
	}
	if len(r.mu.violations) == 0 && r.mu.upon != nil {
		r.mu.upon()
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

// upon replaces the function that is called at the first violation. It is called at once if there
// is a violation already.
func (r *report) upon(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.upon = do
	if do != nil && len(r.mu.violations) > 0 {
		do()
	}
}

func (r *report) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.violations) > 0
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
	r.printStoodLocked()
	fmt.Fprintf(r.out, "violations: %d\n", len(r.mu.violations))
}

// showFaults writes the faults of a round, in their order, if there was a violation.
func (r *report) showFaults(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text, err := os.ReadFile(name); err == nil && len(r.mu.violations) > 0 {
		fmt.Fprintf(r.out, "\nthe faults of this round, each as it ended:\n%s", text)
	}
}

// faultsFile is the name of the file with the faults of a round.
const faultsFile = "faults.txt"

// keep writes the violations beside the evidence.
func (r *report) keep(dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(strings.Join(r.mu.violations, "\n")+"\n"), 0o644)
}
