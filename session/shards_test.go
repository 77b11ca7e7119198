package session

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// A world is a home shard and another shard, each with its log, and members whose sessions use
// both. Members start again, and remote clients come from one member to another. The leader of the
// home shard may forget at any time what it has proposed. A proposal may be lost, applied late, and
// applied again. Only a stream's batches count once and in order, as Accept ensures.
type world struct {
	t           *testing.T
	rng         *rand.Rand
	home, other *side
	members     []*member
	events      []event                 // the transactions of the home shard: the first has zxid 1
	gone        map[tree.SessionID]bool // the leader has seen that nothing is left there
	nextID      tree.SessionID
	truth       view
	newest      map[tree.SessionID]tree.Zxid // the newest attachment that the other shard has had
	seen        map[string]int               // how often each thing happened
}

// An event is a transaction of the home shard, as far as members learn from it.
type event struct {
	id      tree.SessionID
	opened  *standing // the session that was opened
	at      MemberID  // where the session was attached
	noted   bool      // the session uses the other shard
	ended   bool
	lost    bool
	member  MemberID // the member that registered
	started uint64
}

// standing is what a member knows of a session.
type standing struct {
	remote   bool
	start    uint64 // of the incarnation that opened it
	at       MemberID
	attached tree.Zxid
	noted    bool
	ended    tree.Zxid
	lost     bool
}

// A view is what a member knows that has applied the home shard's log up to transaction known.
type view struct {
	known    tree.Zxid
	sessions map[tree.SessionID]standing
	started  map[MemberID]uint64
}

func newView() view {
	return view{sessions: make(map[tree.SessionID]standing), started: make(map[MemberID]uint64)}
}

func (v *view) apply(events []event) {
	for _, e := range events {
		v.known++
		s := v.sessions[e.id]
		switch {
		case e.opened != nil:
			s = *e.opened
			s.attached = v.known
		case e.at != 0:
			s.at, s.attached = e.at, v.known
		case e.noted:
			s.noted = true
		case e.ended:
			s.ended, s.lost = v.known, e.lost
		}
		if e.id != 0 {
			v.sessions[e.id] = s
		}
		if e.member != 0 {
			v.started[e.member] = e.started
		}
	}
}

// A member has a start, and a replica of the home shard that lags.
type member struct {
	id    MemberID
	start uint64
	seq   map[*side]uint64             // of the newest batch that was sent
	late  func()                       // its Register on the other shard, not sent yet
	asked map[tree.SessionID]tree.Zxid // attachments of the sessions it has introduced
	view  view
	out   bool // for ever: its process has ended
}

// speaksFor reports whether the node speaks for a session, as far as it knows. It speaks for no
// session before it has applied its own Register at home, and for an in-process session only in the
// process that opened it.
func (m *member) speaksFor(id tree.SessionID) bool {
	s, ok := m.view.sessions[id]
	return ok && s.at == m.id && s.ended == 0 && m.view.started[m.id] == m.start && (s.remote || s.start == m.start)
}

// speaks returns the wanted sessions among those that the node speaks for.
func (m *member) speaks(wanted func(id tree.SessionID, s standing) bool) (ids []tree.SessionID) {
	for id, s := range m.view.sessions {
		if m.speaksFor(id) && wanted(id, s) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// A side is one shard's table, and what is on its way to it.
type side struct {
	table *Table
	way   []func()
	store image
}

func newWorld(t *testing.T, seed uint64, members int, seen map[string]int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), home: &side{table: NewTable()}, other: &side{table: NewTable()}, seen: seen,
		gone: make(map[tree.SessionID]bool), newest: make(map[tree.SessionID]tree.Zxid), truth: newView()}
	for i := range members {
		w.members = append(w.members, &member{id: MemberID(i + 1), view: newView()})
	}
	return w
}

// happens records a transaction of the home shard.
func (w *world) happens(e event) {
	w.events = append(w.events, e)
	w.truth.apply([]event{e})
}

// send proposes something that will arrive never, once or twice.
func (w *world) send(s *side, what func()) {
	for range w.rng.IntN(3) {
		s.way = append(s.way, what)
	}
}

// batch sends a batch of a member's stream until it is accepted: nothing of a stream is lost.
func (w *world) batch(m *member, s *side, apply func()) {
	m.seq[s]++
	start, seq, home := m.start, m.seq[s], m.view.known
	var arrives func()
	arrives = func() {
		switch s.table.Accept(m.id, start, seq) {
		case Accepted:
			s.table.AcknowledgeEnds(m.id, home)
			apply()
		case Gap, Unregistered:
			if start == m.start { // its node sends it again
				s.way = append(s.way, arrives)
			}
		}
	}
	s.way = append(s.way, arrives)
}

// arrive applies something that is on its way. The batches of a stream apply in order, since a
// batch after a gap is sent again.
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
	w.check(s)
}

func (w *world) check(s *side) {
	if err := s.table.Verify(); err != nil {
		w.t.Fatal(err)
	}
	if s == w.home {
		return
	}
	for id := range s.table.sessions {
		r, _ := s.table.Get(id)
		if r.Attached < w.newest[id] {
			w.t.Fatalf("session %d goes back from attachment %d to %d", id, w.newest[id], r.Attached)
		}
		w.newest[id] = r.Attached
	}
}

// end ends a session at home.
func (w *world) end(id tree.SessionID, lost bool) {
	if _, ok := w.home.table.Get(id); ok {
		w.happens(event{id: id, ended: true, lost: lost})
		w.home.table.Close(id, w.truth.known, lost)
	}
}

// closeDue closes the due sessions on the other shard.
func (w *world) closeDue() {
	for _, id := range w.other.table.Due() {
		for _, path := range w.other.table.Ephemerals(id) {
			w.other.table.Track([]tree.Change{{Type: tree.Deleted, Path: path, Owner: id}})
		}
		told, lost := w.other.table.IsEnding(id), w.other.table.Lost(id)
		w.other.table.Close(id, 0, lost)
		w.gone[id] = w.gone[id] || told
		w.seen["closed there"]++
		s := w.truth.sessions[id]
		if want := !told || s.lost; lost != want {
			w.t.Fatalf("session %d ends as lost: %v, want %v", id, lost, want)
		}
		if o, _ := w.other.table.Origin(s.at); s.ended == 0 && (s.remote || o.Start <= s.start) {
			w.t.Fatalf("session %d lost its ephemerals and has not ended", id)
		}
	}
}

// registerOther sends to the other shard the Registers that have not been sent yet.
func (w *world) registerOther() {
	for _, m := range w.members {
		if m.late != nil {
			w.other.way = append(w.other.way, m.late)
			m.late = nil
		}
	}
}

// restart begins a new incarnation of a member. Its replica is what its directory has.
func (w *world) restart(m *member) {
	m.start++
	m.seq, m.asked = make(map[*side]uint64), make(map[tree.SessionID]tree.Zxid)
	w.seen["restarted"]++
	o := Origin{Member: m.id, Start: m.start}
	m.late = func() {
		w.other.table.Register(o)
		w.closeDue()
	}
	w.home.way = append(w.home.way, func() {
		if ended, err := w.home.table.Register(o); err == nil {
			w.happens(event{member: o.Member, started: o.Start})
			for _, id := range ended {
				w.end(id, true)
			}
		}
	})
	w.batch(m, w.home, func() {})
}

// retire takes a member out, unless it is the last. Its sessions and what is on its way stay.
func (w *world) retire(m *member) {
	stays := slices.ContainsFunc(w.members, func(other *member) bool { return other != m && !other.out && other.start > 0 })
	if !stays {
		return
	}
	m.out = true
	w.seen["retired"]++
	for _, s := range []*side{w.home, w.other} {
		s.way = append(s.way, func() {
			waits := len(s.table.ensure(m.id).purged)
			if s.table.Retire(m.id); waits > 0 {
				w.seen["discharged"]++
			}
		})
	}
}

func (w *world) step() {
	if w.rng.IntN(60) == 0 {
		w.registerOther()
	}
	m := w.members[w.rng.IntN(len(w.members))]
	n := w.rng.IntN(14)
	if m.start == 0 && n > 0 || m.out {
		return
	}
	if w.rng.IntN(3000) == 0 {
		w.retire(m)
		return
	}
	switch n {
	case 0: // a new incarnation
		if m.start == 0 || w.rng.IntN(40) == 0 {
			w.restart(m)
		}
	case 1: // a session is opened
		w.nextID++
		w.open(m, w.nextID, w.rng.IntN(3) > 0)
	case 2, 3: // a session uses the other shard
		if id := w.any(m.speaks(func(_ tree.SessionID, s standing) bool { return !s.noted })); id != 0 {
			w.batch(m, w.home, func() {
				if w.home.table.AddShard(id, m.id, 2) == nil {
					w.happens(event{id: id, noted: true})
				}
			})
		}
	case 4, 5: // a session is introduced there
		if id := w.any(m.speaks(func(_ tree.SessionID, s standing) bool { return s.noted })); id != 0 {
			w.introduce(m, id)
		}
	case 6: // a session creates an ephemeral there
		if id := w.any(m.speaks(func(id tree.SessionID, s standing) bool { return m.asked[id] == s.attached })); id != 0 {
			path := fmt.Sprintf("/%d", w.rng.IntN(100))
			w.batch(m, w.other, func() {
				if w.other.table.Usable(id, m.id) == nil {
					w.seen["ephemeral"]++
					w.other.table.Track([]tree.Change{{Type: tree.Created, Path: path, Owner: id}})
				}
			})
		}
	case 7: // a session ends
		w.endOne(m)
	case 8: // the member applies some of the home shard's log
		m.view.apply(w.events[m.view.known:][:w.rng.IntN(len(w.events)-int(m.view.known)+1)])
	case 9: // the leader purges
		w.purge()
	case 10: // a batch of other sessions
		w.batch(m, w.other, func() {})
	case 11: // the shards start from storage
		for _, s := range []*side{w.home, w.other} {
			if w.rng.IntN(4) == 0 {
				s.store.drain(w.t, s.table)
				s.table = s.store.load(w.t, s.table)
			}
		}
	default: // a remote client comes to this member
		w.reattach(m)
	}
}

func (w *world) open(m *member, id tree.SessionID, remote bool) {
	start := m.start
	w.batch(m, w.home, func() {
		var attached tree.Zxid
		if remote {
			attached = w.truth.known + 1
		}
		if err := w.home.table.Open(id, [16]byte{byte(id)}, time.Second, m.id, attached, nil); err != nil {
			w.t.Fatal(err)
		}
		w.happens(event{id: id, opened: &standing{remote: remote, start: start, at: m.id}})
	})
}

func (w *world) introduce(m *member, id tree.SessionID) {
	s := m.view.sessions[id]
	m.asked[id] = s.attached
	attached := s.attached
	if !s.remote {
		attached = 0
	}
	w.batch(m, w.other, func() {
		_, there := w.other.table.Get(id)
		switch err := w.other.table.Introduce(id, time.Second, m.id, attached, nil); err {
		case nil:
			if w.seen["introduced"]++; there {
				w.seen["reattached there"]++
			}
		case ErrAttachedElsewhere:
			w.seen["refused after a reattach"]++
		case ErrExpired:
			w.seen["refused"]++
		default:
			w.t.Fatal(err)
		}
	})
}

func (w *world) endOne(m *member) {
	if w.rng.IntN(3) > 0 { // by its owner
		id := w.any(m.speaks(func(tree.SessionID, standing) bool { return true }))
		s := m.view.sessions[id]
		if !s.remote {
			s.attached = 0
		}
		w.batch(m, w.home, func() {
			switch err := w.home.table.CheckAttachment(id, m.id, s.attached); err {
			case nil:
				if now := w.truth.sessions[id]; now.remote && now.attached != s.attached {
					w.t.Fatalf("session %d is closed for an attachment %d, and has %d", id, s.attached, now.attached)
				}
				w.end(id, false)
			case ErrAttachedElsewhere:
				w.seen["not closed after a reattach"]++
			}
		})
	} else if w.rng.IntN(4) == 0 { // lost
		w.end(w.any(slices.Collect(maps.Keys(w.home.table.sessions))), true)
	}
}

func (w *world) reattach(m *member) {
	id := w.any(slices.Collect(maps.Keys(w.home.table.sessions)))
	w.batch(m, w.home, func() {
		before := w.truth.sessions[id]
		err := w.home.table.Reattach(id, [16]byte{byte(id)}, time.Second, m.id, w.truth.known+1, nil)
		if err == nil {
			w.happens(event{id: id, at: m.id})
			if w.seen["reattached"]++; before.at == m.id {
				w.seen["came back"]++
			}
		}
		if want := before.remote && before.ended == 0; (err == nil) != want {
			w.t.Fatalf("session %d, which is %+v, comes to member %d: %v", id, before, m.id, err)
		}
	})
}

// purge does what the home shard's leader does. It proposes Purge where it has not seen the result,
// and reports the results that it has seen. A new leader has seen none.
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
			if w.other.table.Purge(r.ID, r.Former, r.Ended, r.Lost) {
				w.gone[r.ID] = true
			}
			w.closeDue()
		})
	}
}

func (w *world) any(ids []tree.SessionID) tree.SessionID {
	if len(ids) == 0 {
		return 0
	}
	slices.Sort(ids)
	return ids[w.rng.IntN(len(ids))]
}

// F2: commands are lost, late or repeated, members die, and clients come to other members at any
// time. A session that has ended at home has nothing left on the other shard in the end. No session
// loses anything there before it has ended. No late Introduce takes a session back to a former
// member. No end is remembered for ever. M36: some members go and never come back.
func TestSessionsOverShards(t *testing.T) {
	seeds := uint64(30)
	if testkit.Night() {
		seeds = 150
	}
	seen := make(map[string]int)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed, 1+int(seed%3), seen)
			for range 800 * len(w.members) {
				w.step()
				for range w.rng.IntN(5) {
					w.arrive([]*side{w.home, w.other}[w.rng.IntN(2)])
				}
			}
			w.deliverAll()
		})
	}
	for _, what := range []string{"introduced", "refused", "ephemeral", "closed there", "restarted", "reattached", "came back", "reattached there",
		"refused after a reattach", "not closed after a reattach"} {
		if seen[what] < int(seeds)*2/3 {
			t.Errorf("%s %d times only", what, seen[what])
		}
	}
	if seen["discharged"] < int(seeds)/15 {
		t.Errorf("a member that was waited for was retired %d times only", seen["discharged"])
	}
	t.Log(seen)
}

// deliverAll lets everything arrive, and checks the result.
func (w *world) deliverAll() {
	w.registerOther()
	for range 200 {
		for _, s := range []*side{w.home, w.other} {
			for len(s.way) > 0 {
				what := s.way[0]
				s.way = s.way[1:]
				what()
			}
			w.check(s)
		}
		w.purge()
		for _, m := range w.members {
			m.view.apply(w.events[m.view.known:])
			if m.start > 0 {
				w.batch(m, w.other, func() {})
			}
		}
	}
	for id := range w.other.table.sessions {
		if w.truth.sessions[id].ended != 0 {
			w.t.Errorf("session %d has ended and is still there; it owns %v", id, w.other.table.Ephemerals(id))
		}
	}
	if left := w.home.table.Ended(2); len(left) > 0 {
		w.t.Errorf("never purged: %v", left)
	}
	for id := range w.other.table.ended {
		w.t.Errorf("session %d is remembered for ever", id)
	}
	for _, m := range w.members {
		for id, attached := range m.asked {
			if _, there := w.other.table.Get(id); m.speaksFor(id) && !there && !m.out {
				w.t.Errorf("session %d is open, was introduced with attachment %d, and was forgotten", id, attached)
			}
		}
	}
}
