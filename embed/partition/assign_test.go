package partition_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed/partition"
)

// numbered returns n names.
func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// equal returns n members of weight one.
func equal(n int) map[string]int {
	weights := make(map[string]int)
	for _, id := range numbered("member-", n) {
		weights[id] = 1
	}
	return weights
}

func counts(owners map[string]string) map[string]int {
	n := make(map[string]int)
	for _, id := range owners {
		n[id]++
	}
	return n
}

func moved(a, b map[string]string) (n int) {
	for part, id := range b {
		if a[part] != id {
			n++
		}
	}
	return n
}

// Nobody has more than its share rounded up, and a member that comes or goes moves little more than
// its own parts. (In KAFKA-14016 and kafka#12348 a rebalance moved more than it had to.)
func TestAssign_SharesAndMoves(t *testing.T) {
	for _, c := range []struct{ members, parts int }{{2, 20}, {3, 30}, {3, 100}, {5, 64}, {10, 100}, {10, 1000}, {30, 3000}, {7, 3}} {
		parts := numbered("part-", c.parts)
		all := func(string) []string { return parts }
		before := partition.Assign(equal(c.members), all)
		after := partition.Assign(equal(c.members+1), all)
		for n, owners := range map[int]map[string]string{c.members: before, c.members + 1: after} {
			share := (c.parts + n - 1) / n
			for id, has := range counts(owners) {
				if has > share {
					t.Errorf("%d parts, %d members: %s has %d, its share is %d", c.parts, n, id, has, share)
				}
			}
			if len(owners) != c.parts {
				t.Errorf("%d parts, %d members: %d have an owner", c.parts, n, len(owners))
			}
		}
		// What moves is the newcomer's share, and what the others' smaller shares push out.
		got, least := moved(before, after), float64(c.parts)/float64(c.members+1)
		t.Logf("%d parts on %d members: one more moves %d, at least %.1f", c.parts, c.members, got, least)
		if most := 1.6*least + 2*math.Sqrt(float64(c.parts)); float64(got) > most {
			t.Errorf("%d parts on %d members: one more moves %d, more than %.1f", c.parts, c.members, got, most)
		}
	}
}

func TestAssign_Weights(t *testing.T) {
	parts := numbered("part-", 1000)
	n := counts(partition.Assign(map[string]int{"a": 1, "b": 3, "c": 6}, func(string) []string { return parts }))
	for id, want := range map[string]int{"a": 100, "b": 300, "c": 600} {
		if n[id] != want { // the shares are whole and add up, so there is no choice
			t.Errorf("%s has %d, want %d", id, n[id], want)
		}
	}
}

// In kazoo's SetPartitioner, and with Kafka, members of different sets wait for one another. Here a
// part goes to somebody who knows it, even if that one has more than its share then.
func TestAssign_ToThoseThatKnowThePart(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		weights, parts := equal(1+rng.IntN(6)), numbered("part-", 1+rng.IntN(40))
		known := make(map[string][]string)
		union := make(map[string]bool)
		for id := range weights {
			for _, part := range parts {
				if rng.IntN(3) > 0 {
					known[id] = append(known[id], part)
					union[part] = true
				}
			}
		}
		owners := partition.Assign(weights, func(id string) []string { return known[id] })
		if len(owners) != len(union) {
			t.Fatalf("%d of %d parts have an owner", len(owners), len(union))
		}
		for part, id := range owners {
			if !slices.Contains(known[id], part) {
				t.Fatalf("%s, who knows %v, has %s", id, known[id], part)
			}
		}
	}
}

// Members of different versions compute the same, so this never changes.
func TestAssign_IsTheSameForEver(t *testing.T) {
	owners := partition.Assign(map[string]int{"a": 1, "b": 1, "c": 2}, func(id string) []string {
		return numbered("p", map[string]int{"a": 12, "b": 12, "c": 14}[id])
	})
	var got strings.Builder
	for _, part := range numbered("p", 14) {
		got.WriteString(owners[part])
	}
	if want := "cabacbaabccccc"; got.String() != want {
		t.Errorf("the owners are %s, want %s", got.String(), want)
	}
}

func TestAssign_Nobody(t *testing.T) {
	if owners := partition.Assign(nil, nil); len(owners) > 0 {
		t.Errorf("owners: %v", owners)
	}
}

// 10,000 parts on 100 members: some ten milliseconds.
func BenchmarkAssign(b *testing.B) {
	weights, parts := equal(100), numbered("part-", 10000)
	for b.Loop() {
		partition.Assign(weights, func(string) []string { return parts })
	}
}
