//go:build unix

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// A report has the figures of all rounds.
type report struct {
	systems []*system
	out     io.Writer
	numbers map[cell][]float64
	errs    map[cell]error // the first of a line and system; without the figure
}

// A cell is a figure of a system.
type cell struct{ suite, line, figure, system string }

func newReport(all []*system, out io.Writer) *report {
	return &report{systems: all, out: out, numbers: make(map[cell][]float64), errs: make(map[cell]error)}
}

// add notes and prints the figures of a line, or why there are none. A line that failed once has no
// ratio.
func (r *report) add(l line, system string, round int, numbers []float64, err error) {
	fmt.Fprintf(r.out, "round %d: %s, %s, %s: %.0f\n", round, l.suite, l.name, system, numbers)
	at := cell{suite: l.suite, line: l.name, system: system}
	if err != nil || r.errs[at] != nil {
		if r.errs[at] == nil {
			r.errs[at] = err
		}
		return
	}
	for i, f := range figuresOf(l) {
		at.figure = f.name
		r.numbers[at] = append(r.numbers[at], numbers[i])
	}
}

// figuresOf returns the figures of the line with the same suite and name.
func figuresOf(l line) []figure {
	for _, one := range lines {
		if one.suite == l.suite && one.name == l.name {
			return one.figures
		}
	}
	return nil
}

// print prints the medians, and how many times as fast Vivarium was as each other system in the
// same round.
func (r *report) print() {
	w := tabwriter.NewWriter(r.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nsuite\tline\tfigure\tsystem\tmedian (least to most)\tVivarium is faster\t\n")
	for _, l := range lines {
		for _, f := range l.figures {
			for _, sys := range r.systems {
				at := cell{l.suite, l.name, f.name, sys.name}
				if numbers := r.numbers[at]; len(numbers) > 0 {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", l.suite, l.name, f.name, sys.name, f.spread(numbers), r.faster(at, f.rate))
				}
			}
		}
	}
	_ = w.Flush()
	for _, l := range lines {
		for _, sys := range r.systems {
			if err := r.errs[cell{suite: l.suite, line: l.name, system: sys.name}]; err != nil {
				fmt.Fprintf(r.out, "%s, %s, %s: FAILED: %s\n", l.suite, l.name, sys.name, strings.ReplaceAll(err.Error(), "\n", "\n    "))
			}
		}
	}
}

func (f figure) spread(numbers []float64) string {
	if f.rate {
		return measure.Spread(numbers, "%.0f")
	}
	return measure.Spread(numbers, "%.0f") + " ms"
}

// faster returns the ratio of each round, or nothing for Vivarium itself and after an error.
func (r *report) faster(at cell, rate bool) string {
	failed := at
	failed.figure = ""
	ours := at
	ours.system = "vivarium"
	if at.system == "vivarium" || r.errs[failed] != nil || len(r.numbers[ours]) == 0 {
		return ""
	}
	if rate {
		return measure.Spread(measure.Ratios(r.numbers[ours], r.numbers[at]), "%.1f")
	}
	return measure.Spread(measure.Ratios(r.numbers[at], r.numbers[ours]), "%.1f")
}
