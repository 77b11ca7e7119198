package measure

import (
	"fmt"
	"slices"
	"strings"
)

// Choose reads an option, names separated by commas, and returns them in the order of all.
func Choose(option, list string, all []string) (chosen []string, err error) {
	wanted := strings.Split(list, ",")
	for _, one := range wanted {
		if !slices.Contains(all, one) {
			return nil, fmt.Errorf("%s names %q; choose from %s", option, one, strings.Join(all, ", "))
		}
	}
	for _, one := range all {
		if slices.Contains(wanted, one) {
			chosen = append(chosen, one)
		}
	}
	return chosen, nil
}
