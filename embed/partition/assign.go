package partition

import (
	"cmp"
	"container/heap"
	"hash/fnv"
	"maps"
	"slices"
)

// A member is who may own parts.
type member struct {
	id     string
	name   string // of its znode
	weight int    // at least 1
	set    *set   // the parts that it knows
}

// A set is the parts that a member knows. Members with the same parts share it.
type set struct {
	raw   string   // as it stands in the data
	parts []string // sorted
	has   map[string]bool
}

// assign returns the owner of each part. The result depends on the members only, not on their
// order. Every version of this package must compute the same: members of two versions that disagree
// leave parts without an owner.
//
// A member's share is the number of all parts by its weight, rounded up. Parts and members choose
// each other by rank. A part asks the members that know it, the highest rank first; a member keeps
// the parts that rank highest, up to its share, and sends the others on. The result does not depend
// on the order of asking, and a change of one member moves few parts. A part that finds no room
// goes to the first of its members all the same: their sets differ, and no other may take it.
func assign(members []member) map[string]string {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	parts, all := union(members)
	total := 0
	for _, m := range members {
		total += m.weight
	}
	seats := make([]seat, len(members))
	for i, m := range members {
		share := (len(parts)*m.weight + total - 1) / total
		seats[i] = seat{member: m, hash: hashOf(m.id), share: share}
	}
	owners := make(map[string]string, len(parts))
	for _, part := range parts {
		a := asking{part: part, hash: hashOf(part)}
		for {
			next, rank := a.next(seats, all)
			if next < 0 {
				first, _ := (&asking{part: a.part, hash: a.hash}).next(seats, all)
				owners[a.part] = seats[first].member.id
				break
			}
			a.asked, a.rank = true, rank
			sent, full := seats[next].take(a)
			if !full {
				break
			}
			a = sent
		}
	}
	for i := range seats {
		for _, a := range seats[i].kept {
			owners[a.part] = seats[i].member.id
		}
	}
	return owners
}

// union returns all parts that somebody knows, sorted, and whether everybody knows all of them.
func union(members []member) (parts []string, all bool) {
	all = true
	seen := make(map[*set]bool)
	for _, m := range members {
		seen[m.set] = true
	}
	if len(seen) == 1 {
		return members[0].set.parts, true
	}
	known := make(map[string]bool)
	for s := range seen {
		for _, part := range s.parts {
			known[part] = true
		}
	}
	return slices.Sorted(maps.Keys(known)), false
}

// An asking is a part that looks for an owner.
type asking struct {
	part  string
	hash  uint64
	asked bool
	rank  uint64 // of the member that it asked last
}

// next returns the member to ask next, and its rank, or -1 if the part has asked all that know it.
func (a *asking) next(seats []seat, all bool) (next int, rank uint64) {
	next = -1
	for i := range seats {
		if !all && !seats[i].member.set.has[a.part] {
			continue
		}
		r := seats[i].rank(a.hash)
		if (!a.asked || r < a.rank) && (next < 0 || r > rank) {
			next, rank = i, r
		}
	}
	return next, rank
}

// A seat is a member with the parts that it keeps.
type seat struct {
	member member
	hash   uint64
	share  int
	kept   askings
}

// rank returns how high a member and a part rank with each other. A member of a greater weight has
// more chances.
func (s *seat) rank(part uint64) (rank uint64) {
	for i := range s.member.weight {
		rank = max(rank, mix(part^mix(s.hash+uint64(i))))
	}
	return rank
}

// take keeps a part. If the member then has too many, it sends the lowest on.
func (s *seat) take(a asking) (sent asking, full bool) {
	heap.Push(&s.kept, a)
	if len(s.kept) <= s.share {
		return asking{}, false
	}
	return heap.Pop(&s.kept).(asking), true
}

// askings is a heap of parts, the one of the lowest rank first.
type askings []asking

func (h askings) Len() int { return len(h) }
func (h askings) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].rank, h[j].rank), cmp.Compare(h[i].part, h[j].part)) < 0
}
func (h askings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *askings) Push(a any)   { *h = append(*h, a.(asking)) }
func (h *askings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// hashOf returns the 64-bit FNV-1a hash of a text, mixed.
func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return mix(h.Sum64())
}

// mix spreads the bits of a number over all bits. It is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
