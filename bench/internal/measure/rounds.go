package measure

import (
	"fmt"
	"slices"
)

// Ratios divides the numbers of each round.
func Ratios(a, b []float64) (all []float64) {
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]/b[i])
	}
	return all
}

// Spread prints the median of the rounds, and the least and the most if there are several.
func Spread(all []float64, format string) string {
	text := fmt.Sprintf(format, Median(all))
	if len(all) > 1 {
		text += fmt.Sprintf(" ("+format+" to "+format+")", slices.Min(all), slices.Max(all))
	}
	return text
}

// Median returns the median of numbers in any order, and zero if there are none.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
