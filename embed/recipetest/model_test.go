package recipetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A mode says with whom a grant shares its path.
type mode int

const (
	alone   mode = iota // with nobody
	shared              // with other shared ones
	counted             // with other counted ones, as long as there are permits
)

func (m mode) excludes(other mode) bool { return m == alone || other == alone }

// hold is what the model asks of a Hold.
type hold interface {
	Err() error
	Context() context.Context
	Done() <-chan struct{}
}

// A grant is one Hold that a caller of a schedule got.
type grant struct {
	// Set by the caller before the call.
	kind     string // of the lock
	who      string // the caller, and which of its calls
	note     string // of its contenders; empty if the contender serves several Holds
	value    string // of elections: its first value, which others may publish too
	paths    []string
	mode     mode
	permits  int           // of a counted one
	delay    time.Duration // during which others are kept out if the Hold is lost
	identity string        // the one that is not kept out; empty: nobody
	saw      []string      // notes of those that were in the queue before the call: they come first
	began    int           // the number of events before the call

	// Set when it is granted.
	from  *grant // the Hold that was turned into this one; nil: none
	hold  hold
	znode string // of its contender, or of the first of several
	token lock.Token

	// Guarded by the model's mu.
	ctx   context.Context // the Hold's, as of the first question
	done  <-chan struct{}
	most  int       // the largest limit between the call and the grant
	alive time.Time // the Hold had not ended then
	ended bool      // the Hold has answered so
}

// gets records what was granted.
func (g *grant) gets(h held) { g.hold, g.znode, g.token = h, h.Path(), h.Token() }

func (g *grant) String() string { return fmt.Sprintf("%s (token %v)", g.who, g.token) }

// A write is one that a grant guarded and that was applied.
type write struct {
	*grant
	zxid embed.Zxid
}

// A place is a path and what the model knows of it.
type place struct {
	live   []*grant // those that had not ended at the last question
	lost   []*grant // those whose delay may still run
	ended  []*grant
	tops   [counted + 1]*grant // by mode: the one with the greatest token
	tokens map[lock.Token]*grant
	downs  []*grant // readers that were writers
	notes  map[string]*grant
	seen   map[string][]*grant // by note: those that came after it
	taken  map[string]bool     // znodes and notes of contenders deleted by hand
	writes []write
	limits []limit

	// Of elections.
	standing map[string]int  // by note: the priorities of those that wait
	offered  map[string]bool // values of those that may go ahead of others
	moves    []move
}

// A limit is the largest number of permits that a semaphore may have had from event at on.
type limit struct{ at, most int }

// A model checks every grant of a schedule against what the locks promise, as it happens. It asks
// the Holds then and there.
type model struct {
	found func(format string, args ...any) // reports a fault of the locks

	mu     sync.Mutex
	places map[string]*place
	alarms map[int][]func()
	events int            // the number of events: grants and ends
	grants map[string]int // by kind
	losses map[string]int
	sights int // of observers
	began  time.Time
	log    []string
}

func newModel(found func(string, ...any)) *model {
	return &model{found: found, began: time.Now(), places: make(map[string]*place), alarms: make(map[int][]func()), grants: make(map[string]int), losses: make(map[string]int)}
}

// placeLocked returns the place of a path.
func (m *model) placeLocked(path string) *place {
	p := m.places[path]
	if p == nil {
		p = &place{tokens: make(map[lock.Token]*grant), notes: make(map[string]*grant), seen: make(map[string][]*grant), taken: make(map[string]bool),
			standing: make(map[string]int), offered: make(map[string]bool)}
		m.places[path] = p
	}
	return p
}

// notef adds to the log, which is shown when something is wrong.
func (m *model) notef(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteLocked(format, args...)
}

func (m *model) noteLocked(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%8.3fs %5d ", time.Since(m.began).Seconds(), m.events)+fmt.Sprintf(format, args...))
}

// happenedLocked counts an event and wakes those that wait for it.
func (m *model) happenedLocked() {
	m.events++
	for _, f := range m.alarms[m.events] {
		f()
	}
	delete(m.alarms, m.events)
}

// after calls f when n more events have happened.
func (m *model) after(n int, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alarms[m.events+n] = append(m.alarms[m.events+n], f)
}

// now returns the number of events so far.
func (m *model) now() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.events
}

// granted records a Hold, as soon as its caller has it, and asks the Holds that it excludes.
func (m *model) granted(g *grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grants[g.kind]++
	m.heldLocked(g)
	m.noteLocked("%v has %v as %s", g, g.paths, g.znode)
	for _, path := range g.paths {
		p := m.placeLocked(path)
		m.orderLocked(path, p, g)
		m.betweenLocked(path, p, g)
		m.excludeLocked(path, p, g)
		m.delayLocked(path, p, g)
		p.live = append(p.live, g)
		p.tokens[g.token] = g
		p.notes[g.note] = g
		if top := p.tops[g.mode]; top == nil || top.token.Compare(g.token) < 0 {
			p.tops[g.mode] = g
		}
		if g.mode == counted {
			g.most = p.mostSince(g.began)
			m.countLocked(path, p)
		}
	}
	m.happenedLocked()
}

// orderLocked checks that the grants of a path are made in the order of their tokens, and of their
// contenders.
func (m *model) orderLocked(path string, p *place, g *grant) {
	if twin := p.tokens[g.token]; twin != nil {
		m.found("%s: %v and %v have one token", path, twin, g)
	}
	for mode, top := range p.tops {
		// A smaller token is an earlier grant that was recorded late. It ended before the later one
		// was made.
		if top != nil && g.mode.excludes(top.mode) && g.token.Compare(top.token) < 0 && !p.took(g) && m.heldLocked(g) {
			m.found("%s: %v was granted after %v, of mode %d", path, g, top, mode)
		}
	}
	for _, note := range g.saw {
		p.seen[note] = append(p.seen[note], g)
		if first := p.notes[note]; first != nil && !(first.mode == shared && g.mode == shared) && first.token.Compare(g.token) > 0 && !p.offered[g.value] {
			m.found("%s: %v overtook %v, which was in the queue when it came", path, g, first)
		}
	}
	for _, late := range p.seen[g.note] {
		if !(late.mode == shared && g.mode == shared) && late.token.Compare(g.token) < 0 && !p.offered[late.value] {
			m.found("%s: %v overtook %v, which was in the queue when it came", path, late, g)
		}
	}
}

// betweenLocked checks that nobody had the lock alone between a writer and the reader that it
// became.
func (m *model) betweenLocked(path string, p *place, g *grant) {
	check := func(down, other *grant) {
		if other.mode == alone && down.from.token.Compare(other.token) < 0 && other.token.Compare(down.token) < 0 {
			m.found("%s: %v came between %v and %v", path, other, down.from, down)
		}
	}
	for _, down := range p.downs {
		check(down, g)
	}
	if g.from != nil && g.mode == shared {
		p.downs = append(p.downs, g)
		for _, other := range p.tokens {
			check(g, other)
		}
	}
}

// excludeLocked asks every Hold that a grant excludes.
func (m *model) excludeLocked(path string, p *place, g *grant) {
	p.live = slices.DeleteFunc(p.live, func(earlier *grant) bool {
		if m.heldLocked(earlier) {
			// A greater token was granted later; orderLocked has asked g itself.
			if g.mode.excludes(earlier.mode) && earlier.token.Compare(g.token) < 0 && !p.took(earlier) {
				m.found("%s: %v still holds while %v does", path, earlier, g)
			}
			return false
		}
		p.ended = append(p.ended, earlier)
		if earlier.delay > 0 && !p.took(earlier) && unclean(earlier.hold.Err()) {
			p.lost = append(p.lost, earlier)
		}
		return true
	})
	for _, old := range p.ended[max(0, len(p.ended)-10):] {
		m.heldLocked(old)
	}
}

// unclean reports whether a Hold's reason to end leaves its delay: its session or its process was
// lost.
func unclean(err error) bool {
	return errors.Is(err, embed.ErrSuspended) || errors.Is(err, embed.ErrSessionExpired) || errors.Is(err, embed.ErrFailed)
}

// delayLocked checks that nobody is granted the lock during the delay of a lost Hold. The delay
// began when the Hold was last alive, or later. It ends when the Hold's place is taken over.
func (m *model) delayLocked(path string, p *place, g *grant) {
	p.lost = slices.DeleteFunc(p.lost, func(lost *grant) bool {
		back := g.identity != "" && g.identity == lost.identity && g.token.Zxid == lost.token.Zxid
		return back || p.took(lost) || time.Since(lost.alive) >= lost.delay
	})
	for _, lost := range p.lost {
		if g.mode.excludes(lost.mode) && !(g.identity != "" && g.identity == lost.identity) && m.heldLocked(g) {
			m.found("%s: %v was granted %v after %v was lost, whose delay is %v", path, g, time.Since(lost.alive), lost, lost.delay)
		}
	}
}

// countLocked checks that the Holds of a semaphore had permits when they were granted. When a Hold
// that is alive now was granted, all of those with smaller tokens were alive too.
func (m *model) countLocked(path string, p *place) {
	alive := slices.DeleteFunc(slices.Clone(p.live), func(g *grant) bool { return p.took(g) || !m.heldLocked(g) })
	slices.SortFunc(alive, func(a, b *grant) int { return a.token.Compare(b.token) })
	sum := 0
	for _, g := range p.lost { // they still have their permits
		if g.mode == counted {
			sum += g.permits
		}
	}
	for _, g := range alive {
		if sum += g.permits; sum > g.most {
			m.found("%s: %d permits are held with %v, of %d", path, sum, g, g.most)
		}
	}
}

// mostSince returns the largest limit since event at.
func (p *place) mostSince(at int) (most int) {
	for i, l := range p.limits {
		if i+1 == len(p.limits) || p.limits[i+1].at > at {
			most = max(most, l.most)
		}
	}
	return most
}

// limited records the largest number of permits that a semaphore may have from now on.
func (m *model) limited(path string, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.placeLocked(path)
	m.happenedLocked() // a call that has begun began before
	p.limits = append(p.limits, limit{m.events, most})
}

// heldLocked asks a Hold in every possible way whether it lasts.
func (m *model) heldLocked(g *grant) bool {
	if g.ctx == nil {
		g.ctx, g.done = g.hold.Context(), g.hold.Done()
	}
	asked := time.Now()
	if err := g.hold.Err(); err == nil {
		g.alive = asked
		if g.ended {
			m.found("%v had ended and holds again", g)
		}
		return true
	}
	g.ended = true
	if g.ctx.Err() == nil || g.hold.Context().Err() == nil {
		m.found("%v has ended and its Context goes on", g)
	}
	for _, done := range []<-chan struct{}{g.done, g.hold.Done()} {
		select {
		case <-done:
		default:
			m.found("%v has ended and its Done is open", g)
		}
	}
	return false
}

// held asks a Hold whether it lasts.
func (m *model) held(g *grant) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heldLocked(g)
}

// lost records a Hold that ended although its caller did not give it up.
func (m *model) lost(g *grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.losses[g.kind]++
	m.noteLocked("%v is lost: %v", g, g.hold.Err())
	m.happenedLocked()
}

// released records a Hold that was given up.
func (m *model) released(g *grant, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteLocked("%v is released: %v", g, err)
	if m.heldLocked(g) {
		m.found("%v was released and still holds", g)
	}
	m.happenedLocked()
}

// took records that a contender with a note is about to be deleted by hand. Its Hold ends when its
// node applies that, which may be after the next grant.
func (m *model) took(path, znode, note string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteLocked("%s of %s is deleted by hand", znode, note)
	p := m.placeLocked(path)
	p.taken[znode], p.taken[note] = true, true
}

// took reports whether the contender of a grant was deleted by hand.
func (p *place) took(g *grant) bool {
	data := cmp.Or(g.value, g.note)
	return p.taken[g.znode] || data != "" && p.taken[data]
}

// tookAny reports whether any contender of some paths was deleted by hand.
func (m *model) tookAny(paths ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(paths, func(path string) bool { return len(m.placeLocked(path).taken) > 0 })
}

// wrote records a guarded write that was applied. ended says that the Hold had ended before the
// write was issued.
func (m *model) wrote(g *grant, path string, zxid embed.Zxid, ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ended {
		m.found("%s: a write of %v was applied at zxid %d and the hold had ended before", path, g, zxid)
		return
	}
	p := m.placeLocked(path)
	p.writes = append(p.writes, write{g, zxid})
}

// read checks what a holder finds in the register of its path: the token of the last writer.
func (m *model) read(g *grant, path string, token lock.Token) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if token.Compare(g.token) > 0 && m.heldLocked(g) && !m.placeLocked(path).took(g) {
		m.found("%s: %v finds the token %v in the register", path, g, token)
	}
}

// finish checks what can be known only at the end.
func (m *model) finish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path, p := range m.places {
		for _, g := range p.ended {
			m.heldLocked(g)
		}
		for _, g := range p.live {
			if m.heldLocked(g) {
				m.found("%s: %v still holds when everybody is gone", path, g)
			}
		}
		m.writesLocked(path, p)
		m.movesLocked(path, p)
		m.overlapLocked(path, p)
	}
}

// writesLocked checks that no guarded write was applied after one of a later grant that excludes
// it.
func (m *model) writesLocked(path string, p *place) {
	slices.SortFunc(p.writes, func(a, b write) int { return cmp.Compare(a.zxid, b.zxid) })
	var tops [counted + 1]*grant
	for _, w := range p.writes {
		for _, top := range tops {
			if top != nil && w.mode.excludes(top.mode) && w.token.Compare(top.token) < 0 {
				m.found("%s: a write of %v was applied at zxid %d, after one of %v", path, w.grant, w.zxid, top)
			}
		}
		if top := tops[w.mode]; top == nil || top.token.Compare(w.token) < 0 {
			tops[w.mode] = w.grant
		}
	}
}

// overlapLocked checks by the zxids of guarded writes that the Holds of a semaphore never had more
// permits than the largest limit. A Hold had its permits from its first write to its last one.
func (m *model) overlapLocked(path string, p *place) {
	last := make(map[*grant]embed.Zxid)
	for _, w := range p.writes {
		last[w.grant] = w.zxid
	}
	most := p.mostSince(-1)
	begun := make(map[*grant]bool)
	for _, w := range p.writes {
		if w.mode != counted {
			continue
		}
		begun[w.grant] = true
		sum := 0
		for g := range begun {
			if last[g] < w.zxid {
				delete(begun, g)
			} else {
				sum += g.permits
			}
		}
		if sum > most {
			m.found("%s: at zxid %d writes of %d permits pass, of %d", path, w.zxid, sum, most)
		}
	}
}
