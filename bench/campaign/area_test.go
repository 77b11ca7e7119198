package campaign

import (
	"slices"
	"testing"
)

func TestAreas(t *testing.T) {
	for _, n := range []int{1, 2, 4, 64} {
		areas := areasOf(n)
		for i, area := range areas {
			if placeOf(area, n) != i || placeOf(area+registersPath+"/0-0", n) != i {
				t.Errorf("%s is not on shard %d of %d", area, i+1, n)
			}
		}
		if slices.Sort(areas); len(slices.Compact(areas)) != n {
			t.Errorf("not %d areas: %v", n, areas)
		}
	}
	if a, rest := apart("/a/b/c"); a != "/a" || rest != "/b/c" {
		t.Errorf("%q and %q", a, rest)
	}
	if a, rest := apart("/a"); a != "/a" || rest != "" {
		t.Errorf("%q and %q", a, rest)
	}
}
