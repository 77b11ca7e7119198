package election

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// Whatever the processes of a Balance lead, all who have too many give at once: nobody gets more than its share on the way, and in the end all
// have theirs.
func TestGives(t *testing.T) {
	for range 3000 {
		var ids []embed.SessionID
		leads := make(map[embed.SessionID]int)
		total := 0
		for i := range rand.IntN(9) + 1 {
			id := embed.SessionID(i + 1)
			ids = append(ids, id)
			leads[id] = rand.IntN(12)
			total += leads[id]
		}
		least, most := total/len(ids), (total+len(ids)-1)/len(ids)
		for given := true; given; {
			given = false
			next := make(map[embed.SessionID]int)
			for _, id := range ids {
				next[id] += leads[id]
				if to, ok := gives(leads, slices.Clone(ids), id); ok {
					if leads[to] >= most {
						t.Fatalf("%d gives to %d, which has its share: %v", id, to, leads)
					}
					next[id]--
					next[to]++
					given = true
				}
			}
			for id, n := range next {
				if n > max(leads[id], most) {
					t.Fatalf("%d gets more than its share: %v after %v", id, next, leads)
				}
			}
			leads = next
		}
		for id, n := range leads {
			if n < least || n > most {
				t.Fatalf("%d has %d: %v", id, n, leads)
			}
		}
	}
}
