package keeper

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/claim"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A naiveKeeper looks at every session on every question. Each session has a life and a proof of
// its own.
type naiveKeeper struct {
	offset   time.Duration
	sessions map[tree.SessionID]*naiveSession
}

type naiveSession struct {
	life   *session.Life
	margin time.Duration
	offset time.Duration // while suspended: the offset by which the last jump was judged
	held   bool
}

func (k *naiveKeeper) live() (n int) {
	for _, s := range k.sessions {
		if !s.life.State().Final() {
			n++
		}
	}
	return n
}

func (k *naiveKeeper) look(now, offset time.Duration) {
	for _, s := range k.sessions {
		jump := offset - k.offset
		switch s.life.State() {
		case session.Connected:
			if s.life.Jump(now, jump); s.life.State() != session.Connected {
				s.offset, s.held = offset, false
			}
		case session.Suspended:
			if jump = offset - s.offset; jump > s.margin || jump < -s.margin {
				s.life.Suspend(now)
				s.offset = offset
			}
			s.life.Look(now)
		}
	}
}

func (k *naiveKeeper) proved(now, offset, sent, sentOffset time.Duration) {
	k.look(now, offset)
	k.offset = sentOffset
	for _, s := range k.sessions {
		s.life.Proved(now, sent)
	}
}

// A keeperModel drives a keeper and a naive one with the same moments.
type keeperModel struct {
	t          *testing.T
	rng        *rand.Rand
	keeper     *Keeper
	naive      *naiveKeeper
	now, wall  time.Duration
	sent       time.Duration // of the newest batch
	sentOffset time.Duration
	steps      []clockStep
	nextID     tree.SessionID
	sessions   map[tree.SessionID]*Session
	claims     map[tree.SessionID]*Claim
}

func newKeeperModel(t *testing.T, rng *rand.Rand) *keeperModel {
	m := &keeperModel{t: t, rng: rng, sessions: make(map[tree.SessionID]*Session), claims: make(map[tree.SessionID]*Claim)}
	clock := clock.Clock{Boot: func() time.Duration { return m.now }, Wall: func() time.Time { return time.Unix(0, int64(m.wall)) }}
	m.keeper = newRigOf(clock, 1).keeper
	m.naive = &naiveKeeper{sessions: make(map[tree.SessionID]*naiveSession)}
	return m
}

func (m *keeperModel) offset() time.Duration { return m.wall - m.now }

// A clockStep is the offset from a moment on.
type clockStep struct{ at, offset time.Duration }

// sendOne sends a batch at a moment that has already passed.
func (m *keeperModel) sendOne(at time.Duration) {
	m.sent = at
	for _, step := range m.steps {
		if step.at <= at {
			m.sentOffset = step.offset
		}
	}
}

func (m *keeperModel) step() {
	ms := func(n int) time.Duration { return time.Duration(m.rng.IntN(n)) * time.Millisecond }
	switch n := m.rng.IntN(20); {
	case n < 6:
		d := ms(700)
		m.now += d
		m.wall += d
	case n < 7:
		d := ms(6000)
		m.now += d
		m.wall += d
	case n < 8:
		m.wall += ms(500) - 250*time.Millisecond
		m.steps = append(m.steps, clockStep{m.now, m.offset()})
	case n < 10:
		m.open()
	case n < 11 && len(m.sessions) > 0:
		m.end()
	case n < 16:
		m.sendOne(m.sent + (m.now-m.sent)*time.Duration(m.rng.IntN(11))/10)
		m.naive.proved(m.now, m.offset(), m.sent, m.sentOffset)
		m.keeper.Proved(m.sent, m.sentOffset)
	case n < 18:
		m.hold()
	default:
		m.compare()
	}
}

func (m *keeperModel) any() tree.SessionID {
	ids := slices.Sorted(maps.Keys(m.sessions))
	if len(ids) == 0 {
		return 0
	}
	return ids[m.rng.IntN(len(ids))]
}

// open adds a session that the newest batch opened.
func (m *keeperModel) open() {
	m.nextID++
	timeouts := []time.Duration{time.Second, 1100 * time.Millisecond, 3 * time.Second, 10 * time.Second}
	timeout := timeouts[m.rng.IntN(len(timeouts))]
	s := newSession(m.keeper, timeout, nil, nil)
	if m.naive.live() == 0 {
		m.naive.offset = m.sentOffset
	}
	m.naive.sessions[m.nextID] = &naiveSession{life: session.NewLife(timeout, m.sent), margin: session.Margin(timeout)}
	m.keeper.add(s, m.nextID, m.sent, m.sentOffset)
	m.sessions[m.nextID] = s
	c := &Claim{session: s, outbox: m.keeper.home, kind: ClaimKind(m.nextID) % ClaimKinds}
	c.Begin((*owner)(c), nil, false)
	c.AppliedLocked([]tree.Result{{Kind: tree.KindCreate, Path: "/c", Stat: tree.Stat{EphemeralOwner: m.nextID}}}, m.nextID, nil)
	m.claims[m.nextID] = c
}

func (m *keeperModel) end() {
	id := m.any()
	m.keeper.Ended(command.HomeShard, session.ErrClosed, id)
	m.forget(id)
}

func (m *keeperModel) forget(id tree.SessionID) {
	delete(m.naive.sessions, id)
	delete(m.sessions, id)
	delete(m.claims, id)
}

func (m *keeperModel) hold() {
	id := m.any()
	if id == 0 {
		return
	}
	m.naive.look(m.now, m.offset())
	naive := m.naive.sessions[id]
	_, err := m.claims[id].Hold(false)
	once := naive.held // a claim can be held only once here
	if over := m.claims[id].StateLocked() == claim.Over; !over && (err == nil) != (naive.life.State() == session.Connected && !once) {
		m.t.Fatalf("hold of session %d: %v, while the model says %v", id, err, naive.life.State())
	}
	naive.held = naive.held || err == nil
}

func (m *keeperModel) compare() {
	m.naive.look(m.now, m.offset())
	var counts ClaimCounts
	for _, s := range m.sessions {
		if err := s.verifyClaimsLocked(&counts); err != nil {
			m.t.Fatal(err)
		}
	}
	if counted := m.keeper.mu.claims; counts != counted {
		m.t.Fatalf("the claims are %v, counted were %v", counts, counted)
	}
	for id, naive := range m.naive.sessions {
		want := naive.life.State()
		if got, _ := m.sessions[id].State(); got != want {
			m.t.Fatalf("session %d is %v, want %v", id, got, want)
		}
		c := m.claims[id]
		if held := c.WasHeldLocked() && c.Err() == nil; held != naive.held {
			m.t.Fatalf("the claim of session %d is held: %v, want %v (%v)", id, held, naive.held, c.Err())
		}
		if want == session.Expired {
			if !errors.Is(m.sessions[id].Err(), session.ErrExpired) {
				m.t.Fatalf("session %d ended with %v", id, m.sessions[id].Err())
			}
			m.forget(id)
		}
	}
}

// Sessions share one moment, and the keeper skips looks that can change nothing. Neither may change
// an answer.
func TestKeeperAnswersAsIfItLookedAtEverySession(t *testing.T) {
	for _, seed := range enginetest.Seeds(t, 200) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			m := newKeeperModel(t, rand.New(rand.NewPCG(seed, 11)))
			for range 400 {
				m.step()
			}
			m.compare()
		})
	}
}
