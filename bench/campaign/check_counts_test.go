package campaign

import (
	"strconv"
	"testing"
)

// added returns an add that returned a sum, or none if the sum is zero.
func added(from, to, sum int) op {
	o := op{Client: "c", Call: callAdd, Path: "/a/counts/0-counter", Got: strconv.Itoa(sum)}
	if sum == 0 {
		o.Outcome = unknown
	}
	return at(from, to, o)
}

func TestFindLostCounts(t *testing.T) {
	hold(t, findLostCounts, []badHistory{
		{"two adds have one sum", history1(added(0, 1, 1), added(0, 2, 1)), history1(added(0, 1, 1), added(0, 2, 2)), "the same sum"},
		{"a later add has a smaller sum", history1(added(0, 1, 2), added(2, 3, 1)), history1(added(0, 2, 2), added(1, 3, 1)), "returned before"},
		{"an add counted twice", history1(added(0, 1, 1), added(2, 3, 3)), history1(added(0, 1, 1), added(2, 3, 3), added(2, 4, 0)), "only 2"},
	})
}

func TestFindWrongSums(t *testing.T) {
	three := past{Ops: []op{added(0, 1, 1), added(2, 3, 2), added(4, 5, 0)}}
	for data, right := range map[string]bool{"": false, "1": false, "2": true, "3": true, "4": false, "x": false} {
		tree := []entry{{Path: "/a/counts"}, {Path: "/a/counts/0-counter", Data: data}}
		if found := findWrongSums(&three, tree); (len(found) == 0) != right {
			t.Errorf("a sum of %q: found %q", data, found)
		}
	}
}

func TestFindTwiceGiven(t *testing.T) {
	of := func(path, key string) deed { return deed{Kind: deedID, Path: path, Key: key} }
	hold(t, findTwiceGiven, []badHistory{
		{"an id is given twice", past{Deeds: []deed{of("/a/ids/0", "7"), of("/a/ids/0", "8"), of("/a/ids/0", "7")}}, past{Deeds: []deed{of("/a/ids/0", "7"), of("/a/ids/1", "7")}}, "twice"},
	})
}
