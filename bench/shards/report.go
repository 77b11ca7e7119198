//go:build unix

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// A kind identifies the blocks of all rounds that are compared with each other.
type kind struct {
	system string
	shards int
}

// A report collects the results by round, and prints them.
type report struct {
	settings
	results map[kind][]result
}

func (r *report) add(b block, res result) {
	k := kind{b.System, b.Shards}
	r.results[k] = append(r.results[k], res)
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\nmedian (least to most) of %d rounds; ratios are of the runs of one round\n", r.rounds)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	for i, n := range r.writers {
		fmt.Fprintf(w, "\n%d writers\n", n)
		fmt.Fprintf(w, "shards\tsystem\twrites/s\tto %d shard\tto %s\tp50\tp99\tcores\t\n", r.shards[0], r.systems[0])
		for _, shards := range r.shards {
			for _, system := range r.systems {
				of := func(f func(measure.Load) float64) []float64 {
					return r.each(kind{system, shards}, func(res result) float64 { return f(res.Load[i]) })
				}
				rate := func(res result) float64 { return res.Load[i].Rate }
				rates := r.each(kind{system, shards}, rate)
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", shards, system, measure.Spread(rates, "%.0f"),
					measure.Spread(measure.Ratios(rates, r.each(kind{system, r.shards[0]}, rate)), "%.2f"),
					measure.Spread(measure.Ratios(rates, r.each(kind{r.systems[0], shards}, rate)), "%.2f"),
					measure.Spread(of(func(l measure.Load) float64 { return ms(l.P50) }), "%.2f")+" ms",
					measure.Spread(of(func(l measure.Load) float64 { return ms(l.P99) }), "%.2f")+" ms",
					measure.Spread(of(func(l measure.Load) float64 { return l.CPU }), "%.2f"))
			}
		}
	}
	fmt.Fprintf(w, "\nat rest\nshards\tsystem\tcores\tgoroutines\tMiB\twriting calls/s\tlog entries/s\t\n")
	for _, shards := range r.shards {
		for _, system := range r.systems {
			of := func(f func(rest) float64, format string) string {
				return measure.Spread(r.each(kind{system, shards}, func(res result) float64 { return f(res.Rest) }), format)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", shards, system,
				of(func(v rest) float64 { return v.CPU }, "%.3f"), of(func(v rest) float64 { return float64(v.Goroutines) }, "%.0f"),
				of(func(v rest) float64 { return v.Memory / (1 << 20) }, "%.0f"), of(func(v rest) float64 { return v.Writes }, "%.0f"),
				of(func(v rest) float64 { return v.Entries }, "%.1f"))
		}
	}
	_ = w.Flush()
}

// each returns a number of each round.
func (r *report) each(k kind, f func(result) float64) (all []float64) {
	for _, res := range r.results[k] {
		all = append(all, f(res))
	}
	return all
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
