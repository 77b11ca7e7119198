package queue_test

import (
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

const uuid = "00112233-4455-4677-8899-aabbccddeeff"

// Candidates of one priority keep the order in which they came, up to the last number that a parent
// gives. A higher priority comes first.
func TestInFrontOfLower_Order(t *testing.T) {
	last := ""
	for _, priority := range []int{queue.PriorityMax, 10, 9, 1} {
		for _, n := range []int{1, 9, 15, 16, 0xffff, 0x10000, 1<<20 - 1, 1 << 20, 1<<20 + 1, 1<<31 - 2} {
			c := &queue.Contender{Paths: []string{fmt.Sprintf("/e/_c_%s-p%d-latch-%010d", uuid, priority, n)}, Czxid: 7}
			at := c.InFrontOfLower("/e/_c_"+uuid+"-latch-0000000005", 5, priority)
			if at.Number != "0000000004" || at.Key <= last || len(at.Key) != len("00112233-4455") {
				t.Errorf("priority %d, arrival %d: %+v after %s", priority, n, at, last)
			}
			last = at.Key
		}
	}
}

func TestJump(t *testing.T) {
	rng := testkit.Rand(t)
	for range 2000 {
		var names []string
		for n := range rng.IntN(7) + 1 {
			names = append(names, fmt.Sprintf("_c_%s-p%d-latch-%010d", uuid, rng.IntN(3), n))
		}
		own := names[rng.IntN(len(names))]
		c := &queue.Contender{Paths: []string{"/e/" + own}}
		priority := queue.Priority(own)
		wantLower, wantAhead := "", ""
		for i, name := range names {
			if name == own {
				break
			}
			if i > 0 && queue.Priority(name) < priority {
				wantLower, wantAhead = "/e/"+name, "/e/"+names[i-1]
				break
			}
		}
		shuffled := append([]string{"transfer-x-"}, names...)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		lower, ahead, ok := queue.Jump(c, shuffled, nil, priority)
		if lower != wantLower || ahead != wantAhead || ok != (wantLower != "") {
			t.Fatalf("%s of %v: before %q, behind %q; want %q and %q", own, names, lower, ahead, wantLower, wantAhead)
		}
	}
}
