package partition

import (
	"encoding/json"
	"slices"
)

// Assign computes the owners among members with weights, who know the given parts.
func Assign(weights map[string]int, parts func(id string) []string) map[string]string {
	var members []member
	sets := make(map[string]*set)
	for id, weight := range weights {
		raw, _ := json.Marshal(parts(id))
		if sets[string(raw)] == nil {
			sets[string(raw)] = newSet(string(raw), parts(id))
		}
		members = append(members, member{id, id, weight, sets[string(raw)]})
	}
	slices.Reverse(members)
	return assign(members)
}
