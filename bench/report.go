//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// A report collects the measurements and prints them.
type report struct {
	settings
	out   io.Writer
	began time.Time
	rows  []*row
}

// A row holds what all rounds of a line found of one system. Rounds that failed do not count.
type row struct {
	suite  string
	line   line
	system string
	rounds []figures
	err    error // of the newest round that failed
}

func (r *report) row(suite string, l line, system string) *row {
	for _, one := range r.rows {
		if one.suite == suite && one.line == l && one.system == system {
			return one
		}
	}
	one := &row{suite: suite, line: l, system: system}
	r.rows = append(r.rows, one)
	return one
}

// add records a round's figures, or its error, and prints them.
func (r *report) add(suite string, l line, system string, round int, f figures, err error) {
	one := r.row(suite, l, system)
	text := (&row{rounds: []figures{f}}).brief()
	if err != nil {
		one.err, text = err, err.Error()
	} else {
		one.rounds = append(one.rounds, f)
	}
	if errors.Is(err, errMissing) {
		return
	}
	text = strings.Join(strings.Fields(text), " ")
	fmt.Fprintf(r.out, "%5.0fs  round %d: %-8s %-8s %7d  %-10s  %s\n", time.Since(r.began).Seconds(), round+1, suite, l.On, l.Clients, system, text)
}

func (one *row) each(f func(figures) float64) (all []float64) {
	for _, round := range one.rounds {
		all = append(all, f(round))
	}
	return all
}

func (one *row) rates() []float64 { return one.each(func(f figures) float64 { return f.Rate }) }

// micros returns the medians of the rounds' P50 and P99 in microseconds.
func (one *row) micros() (p50, p99 float64) {
	return measure.Median(one.each(func(f figures) float64 { return float64(f.P50) / 1e3 })),
		measure.Median(one.each(func(f figures) float64 { return float64(f.P99) / 1e3 }))
}

// values returns the medians of the other figures.
func (one *row) values() map[string]float64 {
	all := make(map[string]float64)
	for _, round := range one.rounds {
		for name := range round.Values {
			all[name] = measure.Median(one.each(func(f figures) float64 { return f.Values[name] }))
		}
	}
	return all
}

// brief returns a row in one line.
func (one *row) brief() string {
	var parts []string
	if rate := measure.Median(one.rates()); rate > 0 {
		parts = append(parts, number(rate)+"/s")
	}
	if p50, p99 := one.micros(); p50 > 0 {
		parts = append(parts, "p50 "+micros(p50), "p99 "+micros(p99))
	}
	return strings.Join(append(parts, one.others()), "  ")
}

// others returns the values as text.
func (one *row) others() string {
	values := one.values()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, name+" "+number(values[name]))
	}
	return strings.Join(parts, ", ")
}

// A ratio is the median of a system's rates over a peer's in the same rounds, with the least and
// the most. P99 is the median of the ratios of the p99, or zero.
type ratio struct {
	Suite   string  `json:"suite"`
	On      string  `json:"on,omitempty"`
	Clients int     `json:"clients"`
	Peer    string  `json:"peer"`
	Ratio   float64 `json:"ratio"`
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	P99     float64 `json:"p99,omitempty"`
	rounds  []float64
	p99     []float64
}

// ratio compares the first system that was chosen with a peer's row. ok is false if there is
// nothing to compare.
func (r *report) ratio(peer *row) (ratio, bool) {
	own := r.row(peer.suite, peer.line, r.systems[0])
	if own == peer {
		return ratio{}, false
	}
	return compared(own, peer, peer.system)
}

// compared returns the ratio of a row's rates to another's. peer names the other row.
func compared(own, other *row, peer string) (ratio, bool) {
	rounds := measure.Ratios(own.rates(), other.rates())
	if own.err != nil || other.err != nil || len(rounds) == 0 || measure.Median(other.rates()) == 0 {
		return ratio{}, false
	}
	than := ratio{Suite: own.suite, On: own.line.On, Clients: own.line.Clients, Peer: peer,
		Ratio: measure.Median(rounds), Least: slices.Min(rounds), Most: slices.Max(rounds), rounds: rounds}
	p99 := func(f figures) float64 { return float64(f.P99) }
	if all := other.each(p99); slices.Min(all) > 0 {
		than.p99 = measure.Ratios(own.each(p99), all)
		than.P99 = measure.Median(than.p99)
	}
	return than, true
}

// beside compares a row with the line that the suite names for comparison. ok is false if there is
// none.
func (r *report) beside(one *row) (ratio, bool) {
	s, ok := suiteOf(one.suite)
	if !ok || s.beside == "" || s.beside == one.line.On {
		return ratio{}, false
	}
	for _, base := range r.rows {
		if base.suite == one.suite && base.system == one.system && base.line.On == s.beside && base.line.Clients == one.line.Clients {
			return compared(one, base, base.system+" "+base.line.On)
		}
	}
	return ratio{}, false
}

// print prints a table of each suite.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\nmedians of the rounds (least to most); a ratio is %s's ops/s over the system's in the same round\n", r.systems[0])
	for _, suite := range r.suites {
		fmt.Fprintf(out, "\n%s\n", suite)
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "on\tclients\tsystem\tops/s\tp50\tp99\tratio\t\n")
		var others []string
		for _, one := range slices.Clone(r.rows) {
			if one.suite != suite {
				continue
			}
			if rates := one.rates(); measure.Median(rates) > 0 {
				format, than := "%.0f", ""
				if slices.Min(rates) < 100 {
					format = "%.3g"
				}
				if ratio, ok := r.ratio(one); ok {
					than = measure.Spread(ratio.rounds, "%.2f")
				}
				p50, p99 := one.micros()
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", one.line.On, one.line.Clients, one.system, measure.Spread(rates, format), micros(p50), micros(p99), than)
			}
			if than, ok := r.beside(one); ok {
				others = append(others, than.text())
			}
			if text := one.others(); text != "" {
				others = append(others, fmt.Sprintf("  %s %d %s: %s", one.line.On, one.line.Clients, one.system, text))
			}
			if one.err != nil && !errors.Is(one.err, errMissing) {
				others = append(others, fmt.Sprintf("  %s %d %s: FAILED: %v", one.line.On, one.line.Clients, one.system, one.err))
			}
		}
		_ = w.Flush()
		if len(others) > 0 {
			fmt.Fprintln(out, strings.Join(others, "\n"))
		}
	}
}

// text returns a ratio to a line of the same system.
func (t ratio) text() string {
	text := fmt.Sprintf("  %s %d: %s times %s", t.On, t.Clients, measure.Spread(t.rounds, "%.2f"), t.Peer)
	if t.p99 != nil {
		text += fmt.Sprintf(", with %s times its p99", measure.Spread(t.p99, "%.2f"))
	}
	return text
}

// number prints large numbers without decimals.
func number(f float64) string {
	if f >= 1000 || f == float64(int(f)) {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.3g", f)
}

// micros prints microseconds.
func micros(f float64) string {
	switch {
	case f == 0:
		return "-"
	case f < 1e3:
		return fmt.Sprintf("%.3g µs", f)
	case f < 1e6:
		return fmt.Sprintf("%.3g ms", f/1e3)
	}
	return fmt.Sprintf("%.3g s", f/1e6)
}

// A result is a row as JSON.
type result struct {
	Suite   string             `json:"suite"`
	On      string             `json:"on,omitempty"`
	System  string             `json:"system"`
	Clients int                `json:"clients"`
	Rate    float64            `json:"ops_per_s"`
	Least   float64            `json:"ops_per_s_least"`
	Most    float64            `json:"ops_per_s_most"`
	P50     float64            `json:"p50_us"`
	P99     float64            `json:"p99_us"`
	Rounds  int                `json:"rounds"`
	Values  map[string]float64 `json:"values,omitempty"`
	Error   string             `json:"error,omitempty"`
}

// save writes the tables, and the figures and the ratios as JSON, to files that are named for the
// time.
func (r *report) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	name := filepath.Join(dir, r.began.UTC().Format("2006-01-02T1504"))
	var text bytes.Buffer
	commit, _ := exec.Command("git", "describe", "--always", "--dirty").Output() // elsewhere there is none
	fmt.Fprintf(&text, "%s\ncommit %s, %s, %d CPUs, %d rounds of %v\n", strings.Join(os.Args[1:], " "),
		bytes.TrimSpace(commit), runtime.Version(), runtime.NumCPU(), r.settings.rounds, r.window)
	r.print(&text)
	if err := os.WriteFile(name+".txt", text.Bytes(), 0o644); err != nil {
		return err
	}
	return r.writeJSON(name + ".json")
}

// writeJSON leaves out what a system does not have.
func (r *report) writeJSON(file string) error {
	var all struct {
		Results []result `json:"results"`
		Ratios  []ratio  `json:"ratios"`
	}
	all.Results, all.Ratios = []result{}, []ratio{}
	for _, one := range slices.Clone(r.rows) {
		if errors.Is(one.err, errMissing) {
			continue
		}
		res := result{Suite: one.suite, On: one.line.On, System: one.system, Clients: one.line.Clients, Rounds: len(one.rounds), Values: one.values()}
		if rates := one.rates(); len(rates) > 0 {
			res.Rate, res.Least, res.Most = measure.Median(rates), slices.Min(rates), slices.Max(rates)
			res.P50, res.P99 = one.micros()
		}
		if one.err != nil {
			res.Error = one.err.Error()
		}
		all.Results = append(all.Results, res)
		for _, compare := range []func(*row) (ratio, bool){r.ratio, r.beside} {
			if than, ok := compare(one); ok {
				all.Ratios = append(all.Ratios, than)
			}
		}
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
