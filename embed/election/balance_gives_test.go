package election

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Whatever the processes of a Balance lead, all that have too many give at once. Nobody gets more
// than its share on the way, and in the end all have theirs.
func TestGives(t *testing.T) {
	rng := testkit.Rand(t)
	for range 3000 {
		var ids []embed.SessionID
		leads := make(map[embed.SessionID]int)
		total := 0
		for i := range rng.IntN(9) + 1 {
			id := embed.SessionID(i + 1)
			ids = append(ids, id)
			leads[id] = rng.IntN(12)
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

// A town is a set of processes that each run a Balance, as far as they see one another. A process
// stands for each of its names all the time.
type town struct {
	names   []string
	leads   map[string]embed.SessionID
	members map[embed.SessionID]*balance
	deaf    map[embed.SessionID]bool // they answer no offer
}

// even does what balance.even does.
func (w *town) even(own embed.SessionID, now time.Time) bool {
	b := w.members[own]
	standing := make(map[string][]Standing)
	for _, name := range b.names {
		for id, m := range w.members {
			if w.leads[name] != id && slices.Contains(m.names, name) {
				standing[name] = append(standing[name], Standing{Owner: id})
			}
		}
		if id := w.leads[name]; id != 0 {
			standing[name] = slices.Insert(standing[name], 0, Standing{Owner: id})
		}
	}
	b.look(standing)
	to, ok := b.receiver(own, now)
	switch {
	case !ok:
		return false
	case w.deaf[to]:
		b.seen[to].deaf = now
		return true
	}
	for _, name := range b.names {
		if w.leads[name] == own && slices.Contains(w.members[to].names, name) {
			w.leads[name] = to
			return true
		}
	}
	return false
}

// rest lets all processes go on, in any order, until nobody gives anything.
func (w *town) rest(t *testing.T, now time.Time) {
	t.Helper()
	for range 100 {
		given := false
		for id := range w.members { // in any order
			if !w.deaf[id] {
				given = w.even(id, now) || given
			}
		}
		if !given {
			return
		}
	}
	t.Fatalf("they give for ever: %v", w)
}

func (w *town) String() string {
	text := fmt.Sprint(w.leads, " deaf ", w.deaf)
	for id, m := range w.members {
		text += fmt.Sprint(", ", id, " has ", m.names)
	}
	return text
}

// anyTown returns a town in which each process has the names that pick chooses. The first process
// with a name leads it.
func anyTown(rng *rand.Rand, pick func() bool) *town {
	w := &town{leads: make(map[string]embed.SessionID), members: make(map[embed.SessionID]*balance), deaf: make(map[embed.SessionID]bool)}
	for i := range rng.IntN(8) + 1 {
		w.names = append(w.names, fmt.Sprint("job-", i))
	}
	for i := range rng.IntN(5) + 2 {
		b := &balance{names: []string{w.names[0]}}
		for _, name := range w.names[1:] {
			if pick() {
				b.names = append(b.names, name)
			}
		}
		id := embed.SessionID(i + 1)
		w.members[id] = b
		for _, name := range b.names {
			if w.leads[name] == 0 || rng.IntN(6) == 0 {
				w.leads[name] = id
			}
		}
	}
	return w
}

// The transfers stop, whichever names each process has.
func TestBalance_OfDifferentNamesComesToRest(t *testing.T) {
	rng := testkit.Rand(t)
	for range 2000 {
		anyTown(rng, func() bool { return rng.IntN(3) > 0 }).rest(t, time.Now())
	}
}

// Some processes that lead nothing answer no offers: the others come to even shares. A process that
// answers again gets its share at the next offer.
func TestBalance_SharesPastTheDeaf(t *testing.T) {
	rng := testkit.Rand(t)
	for range 2000 {
		w := anyTown(rng, func() bool { return true })
		for _, id := range slices.Sorted(maps.Keys(w.members)) {
			w.deaf[id] = !slices.Contains(slices.Collect(maps.Values(w.leads)), id) && rng.IntN(3) > 0
		}
		even := func() {
			t.Helper()
			least, most := len(w.names), 0
			for id, m := range w.members {
				if w.deaf[id] {
					continue
				}
				n := 0
				for _, name := range m.names {
					if w.leads[name] == id {
						n++
					}
				}
				least, most = min(least, n), max(most, n)
			}
			if most-least > 1 {
				t.Fatalf("one has %d, another %d: %v", least, most, w)
			}
		}
		now := time.Now()
		w.rest(t, now)
		even()
		clear(w.deaf)
		w.rest(t, now.Add(deafTime))
		even()
	}
}

// A session that stands for nothing is forgotten. Until then it has a share, though between two
// leaderships it stands for fewer than all names.
func TestBalance_ForgetsWhoHasGone(t *testing.T) {
	b := &balance{names: []string{"a", "b"}}
	now := time.Now()
	see := func(a, b2 []Standing) (embed.SessionID, bool) {
		b.look(map[string][]Standing{"a": a, "b": b2})
		return b.receiver(1, now)
	}
	own, other := Standing{Owner: 1}, Standing{Owner: 2}
	for i, c := range []struct {
		a, b []Standing
		want embed.SessionID
	}{
		{[]Standing{own}, []Standing{own}, 0},
		{[]Standing{own}, []Standing{own, other}, 0}, // the other has another list
		{[]Standing{own, other}, []Standing{own}, 2}, // the other has the same list
		{[]Standing{own}, []Standing{own}, 0},
		{[]Standing{own, other}, []Standing{own}, 0}, // now it is a new session
		{[]Standing{own, other}, []Standing{own, other}, 2},
	} {
		if to, ok := see(c.a, c.b); to != c.want && ok || ok != (c.want != 0) {
			t.Errorf("look %d: gives to %d, %v; want %d", i, to, ok, c.want)
		}
	}
	b.seen[2].deaf = now
	if to, ok := see([]Standing{own, other}, []Standing{own, other}); ok {
		t.Errorf("gives to %d, which is deaf", to)
	}
	see([]Standing{own}, []Standing{own})
	if len(b.seen) != 1 {
		t.Errorf("%d are known, and one stands", len(b.seen))
	}
}
