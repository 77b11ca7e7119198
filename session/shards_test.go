package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// A world is a home shard and another one, each with its log; one member whose sessions use both, of which new incarnations
// take over; and whoever leads the home shard, which may forget at any time what it has proposed. Whatever is proposed may be
// lost, applied late, and applied again, except that a stream's batches count once and in order, as Accept sees to.
type world struct {
	gone        map[tree.SessionID]bool // the leader has seen that nothing of the session is on the other shard
	t           *testing.T
	rng         *rand.Rand
	home, other *side
	start       uint64
	late        func() // the present incarnation's Register on the other shard, which is not on its way yet
	nextID      tree.SessionID

	// What the member's present incarnation knows: it has applied so much of the home shard's log.
	known tree.Zxid
	seen  map[string]int          // what happened how often
	open  map[tree.SessionID]bool // sessions that have not ended here
	noted map[tree.SessionID]bool // at home: uses the other shard
	using map[tree.SessionID]bool // admitted there
}

// A side is one shard's table, its transactions, and what is on its way to it.
type side struct {
	table *Table
	zxid  tree.Zxid
	seq   uint64 // of the newest batch that was sent
	way   []func()
	ended map[tree.SessionID]tree.Zxid // when
	store image
}

func newSide() *side { return &side{table: NewTable(), ended: make(map[tree.SessionID]tree.Zxid)} }

// send puts something on its way, as often as it may come.
func (w *world) send(s *side, what func()) {
	for range w.rng.IntN(3) {
		s.way = append(s.way, what)
	}
}

// batch sends a batch of the member's stream until it is accepted: nothing of a stream is lost.
func (w *world) batch(s *side, home tree.Zxid, apply func()) {
	s.seq++
	start, seq := w.start, s.seq
	var arrives func()
	arrives = func() {
		switch s.table.Accept(1, start, seq) {
		case Accepted:
			s.table.Carried(1, home)
			apply()
		case Gap, Unregistered:
			if start == w.start { // its node sends it again
				s.way = append(s.way, arrives)
			}
		}
	}
	s.way = append(s.way, arrives)
}

// arrive applies something that is on its way; what belongs to a stream in its order, since a gap is sent again.
func (w *world) arrive(s *side) {
	if len(s.way) == 0 {
		return
	}
	i := 0
	if w.rng.IntN(3) == 0 {
		i = w.rng.IntN(len(s.way))
	}
	what := s.way[i]
	if w.rng.IntN(4) > 0 {
		s.way = slices.Delete(s.way, i, i+1)
	}
	what()
	if err := s.table.Verify(); err != nil {
		w.t.Fatal(err)
	}
}

// end ends a session at home.
func (w *world) end(id tree.SessionID) {
	if _, ok := w.home.table.Get(id); ok {
		w.home.zxid++
		w.home.ended[id] = w.home.zxid
		w.home.table.Close(id, w.home.zxid)
	}
}

// closeDue closes what is due on the other shard.
func (w *world) closeDue() {
	for _, id := range w.other.table.Due() {
		for _, path := range w.other.table.Ephemerals(id) {
			w.other.table.Track([]tree.Change{{Type: tree.Deleted, Path: path, Owner: id}})
		}
		told := w.other.table.IsEnding(id)
		w.other.table.Close(id, 0)
		w.gone[id] = w.gone[id] || told
		w.seen["closed there"]++
		if w.home.ended[id] == 0 && !w.retired(id) {
			w.t.Fatalf("session %d lost its ephemerals and has not ended", id)
		}
	}
}

// retired reports whether a session is one of an incarnation that another has followed.
func (w *world) retired(id tree.SessionID) bool { return !w.open[id] }

// registerOther sends the Register that is still to be sent to the other shard.
func (w *world) registerOther() {
	if w.late != nil {
		w.other.way = append(w.other.way, w.late)
		w.late = nil
	}
}

func (w *world) step() {
	if w.rng.IntN(60) == 0 {
		w.registerOther()
	}
	switch w.rng.IntN(12) {
	case 0: // a new incarnation
		if w.start > 0 && w.rng.IntN(40) > 0 {
			return
		}
		w.start++
		w.seen["taken over"]++
		w.known, w.open, w.noted, w.using = 0, make(map[tree.SessionID]bool), make(map[tree.SessionID]bool), make(map[tree.SessionID]bool)
		register := func(s *side) func() {
			s.seq = 0
			o := Origin{Member: 1, Start: w.start}
			return func() {
				if ended, err := s.table.Register(o); err == nil && s == w.home {
					for _, id := range ended {
						w.end(id)
					}
				}
				w.closeDue()
			}
		}
		w.home.way = append(w.home.way, register(w.home))
		w.late = register(w.other)
		w.batch(w.home, 0, func() {})
	case 1: // a session is opened
		w.nextID++
		id := w.nextID
		open := w.open
		w.batch(w.home, 0, func() {
			w.home.zxid++
			if w.home.table.Open(id, [16]byte{}, time.Second, 1, nil) == nil {
				open[id] = true
			}
		})
	case 2, 3: // one attaches
		id := w.any(w.open)
		noted := w.noted
		w.batch(w.home, 0, func() {
			if w.home.table.Attach(id, 1, 2) == nil {
				noted[id] = true
			}
		})
	case 4, 5: // one that is noted is admitted, unless its node knows that it has ended
		if id := w.any(w.noted); w.open[id] {
			using := w.using
			w.batch(w.other, w.known, func() {
				if w.other.table.Admit(id, time.Second, 1, nil) == nil {
					using[id] = true
					w.seen["admitted"]++
				} else {
					w.seen["refused"]++
				}
			})
		}
	case 6: // one creates an ephemeral
		if id := w.any(w.using); w.open[id] {
			path := fmt.Sprintf("/%d", w.rng.IntN(100))
			w.batch(w.other, w.known, func() {
				if w.other.table.Usable(id, 1) == nil {
					w.seen["ephemeral"]++
					w.other.table.Track([]tree.Change{{Type: tree.Created, Path: path, Owner: id}})
				}
			})
		}
	case 7: // one ends
		if id := w.any(w.open); w.rng.IntN(2) == 0 {
			w.batch(w.home, 0, func() { w.end(id) }) // by its owner
			delete(w.open, id)
		} else if w.rng.IntN(3) == 0 {
			w.end(id) // in the log
		}
	case 8: // the member applies some of the home shard's log
		w.known += tree.Zxid(w.rng.IntN(int(w.home.zxid-w.known) + 1))
		for id := range w.open {
			if z := w.home.ended[id]; z != 0 && z <= w.known {
				delete(w.open, id)
			}
		}
	case 9: // the leader purges
		w.purge()
	case 10:
		w.batch(w.other, w.known, func() {}) // a batch of other sessions
	case 11:
		for _, s := range []*side{w.home, w.other} {
			if w.rng.IntN(4) == 0 {
				s.store.drain(w.t, s.table)
				s.table = s.store.load(w.t, s.table)
			}
		}
	}
}

// purge is the leader's: it proposes what it does not know to be done, and reports what it has seen to be done. A new leader
// has seen nothing.
func (w *world) purge() {
	if w.rng.IntN(10) == 0 {
		clear(w.gone)
	}
	for _, r := range w.home.table.Ended(2) {
		if w.gone[r.ID] {
			w.send(w.home, func() { w.home.table.Purged(r.ID, 2) })
			continue
		}
		w.send(w.other, func() {
			if w.other.table.Purge(r.ID, r.Origin, r.Ended) {
				w.gone[r.ID] = true
			}
			w.closeDue()
		})
	}
}

func (w *world) any(set map[tree.SessionID]bool) tree.SessionID {
	ids := make([]tree.SessionID, 0, len(set))
	for id := range set {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return 0
	}
	slices.Sort(ids)
	return ids[w.rng.IntN(len(ids))]
}

// F2: whatever is lost, late or repeated, and whoever dies when, a session that has ended at home has nothing left on the other
// shard in the end, no session loses anything there before it has ended, and nothing is remembered for ever.
func TestSessionsOverShards(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), home: newSide(), other: newSide(), seen: seen, gone: make(map[tree.SessionID]bool),
				open: make(map[tree.SessionID]bool), noted: make(map[tree.SessionID]bool), using: make(map[tree.SessionID]bool)}
			for range 800 {
				w.step()
				for range w.rng.IntN(5) {
					w.arrive([]*side{w.home, w.other}[w.rng.IntN(2)])
				}
			}
			w.settle()
		})
	}
	for _, what := range []string{"admitted", "refused", "ephemeral", "closed there", "taken over"} {
		if seen[what] < 100 {
			t.Errorf("%s %d times only", what, seen[what])
		}
	}
	t.Log(seen)
}

// settle lets everything arrive, and looks.
func (w *world) settle() {
	w.registerOther()
	for range 200 {
		for _, s := range []*side{w.home, w.other} {
			for len(s.way) > 0 {
				what := s.way[0]
				s.way = s.way[1:]
				what()
			}
		}
		w.purge()
		w.known = w.home.zxid
		for id := range w.open {
			if w.home.ended[id] != 0 {
				delete(w.open, id)
			}
		}
		w.batch(w.other, w.known, func() {})
	}
	for id := range w.other.table.sessions {
		if w.home.ended[id] != 0 {
			w.t.Errorf("session %d has ended and is still admitted; it owns %v", id, w.other.table.Ephemerals(id))
		}
	}
	if left := w.home.table.Ended(2); len(left) > 0 {
		w.t.Errorf("never purged: %v", left)
	}
	for id := range w.other.table.ended {
		w.t.Errorf("session %d is remembered for ever", id)
	}
	for id := range w.using {
		if _, there := w.other.table.Get(id); w.open[id] && !there {
			w.t.Errorf("session %d is open and was forgotten", id)
		}
	}
}
