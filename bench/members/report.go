//go:build unix

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

func printCrowds(out io.Writer, s settings, figures map[int][]crowdFigures) {
	fmt.Fprintf(out, "\nthe leader's process; median (least to most) of %d rounds\n", s.rounds)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "members\tcores at rest\tcores under load\twrites/s\tp50 of a write\tp99\t\n")
	for _, n := range s.members {
		of := func(f func(crowdFigures) float64, format string) string {
			var all []float64
			for _, one := range figures[n] {
				all = append(all, f(one))
			}
			return measure.Spread(all, format)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s ms\t%s ms\t\n", n,
			of(func(f crowdFigures) float64 { return f.rest.CPU }, "%.3f"),
			of(func(f crowdFigures) float64 { return f.load.CPU }, "%.3f"),
			of(func(f crowdFigures) float64 { return f.load.Rate }, "%.0f"),
			of(func(f crowdFigures) float64 { return ms(f.load.P50) }, "%.2f"),
			of(func(f crowdFigures) float64 { return ms(f.load.P99) }, "%.2f"))
	}
	_ = w.Flush()
}

func printLearners(out io.Writer, s settings, took map[string][]float64) {
	fmt.Fprintf(out, "\na learner of %d znodes; median (least to most) of %d rounds\n", s.znodes, s.rounds)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "system\tseconds until it serves\tto %s\t\n", s.systems[0])
	for _, name := range s.systems {
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", name, measure.Spread(took[name], "%.2f"),
			measure.Spread(measure.Ratios(took[name], took[s.systems[0]]), "%.2f"))
	}
	_ = w.Flush()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
