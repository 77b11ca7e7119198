package campaign

import (
	"strconv"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
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
		{"an add counted twice before a later one", history1(added(0, 1, 2), added(2, 3, 3)), history1(added(0, 2, 2), added(1, 3, 3), added(0, 4, 1)), "only 1"},
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

func TestFindForks(t *testing.T) {
	swapped := func(data, old string, mzxid embed.Zxid, o outcome) op {
		return at(0, 1, op{Client: "c", Call: callSwap, Path: "/a/swaps/0-1", Data: data, Got: old, Outcome: o, Stat: embed.Stat{Mzxid: mzxid}})
	}
	first, lost := swapped("x", "0 ", 5, applied), swapped("u", "", 0, unknown)
	hold(t, findForks, []badHistory{
		{"a value is replaced twice", history1(first, swapped("y", "5 x", 7, applied), swapped("z", "5 x", 9, applied)), history1(first, swapped("z", "7 y", 9, applied), swapped("y", "5 x", 7, applied)), "replaced"},
		{"two are the first", history1(first, swapped("y", "0 ", 7, applied)), history1(first, swapped("y", "0 ", 7, refused)), "replaced"},
		{"nobody wrote what was replaced", history1(first, swapped("y", "6 u", 7, applied)), history1(first, lost, swapped("y", "6 u", 7, applied)), "replaced"},
		{"one of unknown outcome came earlier", history1(first, lost, swapped("y", "4 u", 7, applied)), history1(first, lost, swapped("y", "6 u", 7, applied)), "replaced"},
		{"the data is another one", history1(first, swapped("y", "5 z", 7, applied)), history1(first, swapped("y", "5 x", 7, applied)), "replaced"},
	})
	p := history1(first, lost)
	for z, right := range map[entry]bool{{Data: "x", Stat: embed.Stat{Mzxid: 5}}: true, {Data: "u", Stat: embed.Stat{Mzxid: 6}}: true, {Data: "u", Stat: embed.Stat{Mzxid: 4}}: false, {Data: "y", Stat: embed.Stat{Mzxid: 6}}: false, {}: false} {
		z.Path = first.Path
		if found := findLostSwaps(&p, []entry{z}); (len(found) == 0) != right {
			t.Errorf("%q of zxid %d: found %q", z.Data, z.Stat.Mzxid, found)
		}
	}
}

func TestFindTwiceGiven(t *testing.T) {
	of := func(path, key string) deed { return deed{Kind: deedID, Path: path, Key: key} }
	hold(t, findTwiceGiven, []badHistory{
		{"an id is given twice", past{Deeds: []deed{of("/a/ids/0", "7"), of("/a/ids/0", "8"), of("/a/ids/0", "7")}}, past{Deeds: []deed{of("/a/ids/0", "7"), of("/a/ids/1", "7")}}, "twice"},
	})
}

func TestFindOldTimes(t *testing.T) {
	used := func(path string, token embed.Zxid, ms string) deed {
		return deed{Kind: deedTime, Path: path, Key: ms, Token: lock.Token{Zxid: token}}
	}
	of := func(d ...deed) past { return past{Deeds: d} }
	const one, two = "/a/workers/held/1", "/a/workers/held/2"
	hold(t, findOldTimes, []badHistory{
		{"a time is used again", of(used(one, 1, "7"), used(one, 2, "7")), of(used(one, 1, "7"), used(one, 1, "7"), used(one, 2, "8")), "token"},
		{"two owners before", of(used(one, 1, "9"), used(one, 2, "12"), used(one, 2, "10"), used(one, 3, "11")), of(used(one, 3, "13"), used(one, 2, "12"), used(one, 2, "10"), used(one, 1, "9")), "token"},
		{"another number", of(used(one, 1, "9"), used(one, 2, "8")), of(used(one, 1, "9"), used(two, 2, "8")), "token"},
	})
}
