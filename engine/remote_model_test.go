package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A remote model is a team with clients. Members 1 and 2 crash, start again, and are cut off for a
// while, in one direction or both. The clients go from member to member, write, fall silent and
// close. Member 3 is always up to date, so its state is the truth.
type remoteModel struct {
	*team
	rng     *rand.Rand
	clients []*modelClient
	calls   []*modelCall
	seen    map[string]int

	mu   sync.Mutex
	told []func() // what calls have returned, until hear
}

// tell queues what a call has returned.
func (m *remoteModel) tell(fn func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, fn)
}

// hear processes what tell queued.
func (m *remoteModel) hear() {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, fn := range m.told {
		fn()
	}
	m.told = nil
}

const modelShards = 3

// A modelClient is a client, with what it knows itself.
type modelClient struct {
	s        *Session
	timeout  time.Duration
	touched  time.Time // when a member that it had reason to trust last heard it
	busy     bool      // with a handshake
	silent   bool
	closing  bool
	resolved error // the error of its newest handshake
}

type modelCall struct {
	client *modelClient
	path   string
	done   bool
	told   error
	real   bool // it was applied
}

func (m *remoteModel) step() {
	switch n := m.rng.IntN(100); {
	case n < 6:
		m.connect(&modelClient{timeout: time.Duration(1+m.rng.IntN(3)) * testTimeout})
	case n < 22:
		if c := m.any(); c != nil && c.s != nil && !c.busy && !c.silent {
			m.connect(c)
		}
	case n < 55:
		m.call()
	case n < 57:
		if c := m.any(); c != nil && c.s != nil && !c.busy {
			c.closing, c.silent = true, true
			go c.s.Close()
		}
	case n < 60:
		if c := m.any(); c != nil {
			c.silent = true
		}
	case n < 62:
		m.crash(MemberID(1 + m.rng.IntN(2)))
	case n < 68:
		if n := m.nodes[MemberID(1+m.rng.IntN(2))]; n != nil {
			m.deaf[n] = m.rng.IntN(2) == 0
			m.mute[n] = m.rng.IntN(2) == 0
			m.seen["cut"]++
		}
	case n < 76:
		for _, n := range m.nodes {
			m.deaf[n], m.mute[n] = false, false
		}
	case n < 78:
		m.elect([]MemberID{0, 3, 3, 3}[m.rng.IntN(4)])
	case n < 79:
		if n := m.nodes[1]; n != nil {
			n.fake.Pause(time.Duration(m.rng.IntN(60)) * time.Second)
		}
	}
	m.live(time.Duration(m.rng.IntN(800)) * time.Millisecond)
}

// live lets time pass. Clients talk to members that they have reason to trust.
func (m *remoteModel) live(d time.Duration) {
	m.t.Helper()
	for m.hear(); d > 0; d -= 100 * time.Millisecond {
		for _, c := range m.clients {
			if c.s == nil || c.silent || c.busy || c.s.Err() != nil {
				continue
			}
			if state, _ := c.s.State(); state.String() == "connected" {
				c.s.Heard()
				c.touched = time.Now()
			}
		}
		m.run(min(d, 100*time.Millisecond))
		m.check()
	}
}

func (m *remoteModel) any() *modelClient {
	if len(m.clients) == 0 {
		return nil
	}
	return m.clients[m.rng.IntN(len(m.clients))]
}

// connect opens a client's session, or reattaches it to some member.
func (m *remoteModel) connect(c *modelClient) {
	at := MemberID(1 + m.rng.IntN(3))
	n := m.nodes[at]
	if n == nil || m.leader == 0 {
		return
	}
	c.busy = true
	was := c.s
	go func() {
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		defer cancel()
		var s *Session
		var err error
		if was == nil {
			s, err = n.OpenRemote(ctx, c.timeout)
		} else {
			s, err = n.Reattach(ctx, was.ID(), was.Password(), c.timeout)
		}
		now := time.Now()
		m.tell(func() {
			c.busy, c.resolved = false, err
			if err == nil {
				c.s, c.touched = s, now
				m.seen[fmt.Sprint("connected ", was != nil)]++
			}
			if was == nil && err == nil {
				m.clients = append(m.clients, c)
			}
		})
	}()
	synctest.Wait()
}

func (m *remoteModel) call() {
	c := m.any()
	if c == nil || c.s == nil || c.busy || c.closing {
		return
	}
	call := &modelCall{client: c, path: m.nodes[3].on(ShardID(1+m.rng.IntN(modelShards)), len(m.calls))}
	m.calls = append(m.calls, call)
	s := c.s
	go func() {
		_, err := s.Submit(m.t.Context(), []tree.Op{ephemeral(call.path)}).Result()
		m.tell(func() { call.told, call.done = keeper.Single(err), true })
	}()
	synctest.Wait()
}

func (m *remoteModel) crash(id MemberID) {
	m.seen["crash"]++
	if m.nodes[id] == nil {
		m.start(id)
		return
	}
	m.kill(id)
}

// note records what exists, if only until the next entry.
func (m *remoteModel) note(n *node) {
	if n != m.nodes[3] {
		return
	}
	for _, call := range m.calls {
		call.real = call.real || n.exists(call.path)
	}
}

// check compares the callers' outcomes with the truth, and checks that all clients live that must.
func (m *remoteModel) check() {
	m.t.Helper()
	m.hear()
	truth := m.nodes[3]
	for _, call := range m.calls {
		there := truth.exists(call.path)
		c := call.client
		// The others have heard a trusted member at most a third of the timeout ago.
		if call.done && call.told == nil && !there && !c.closing && time.Since(c.touched) < c.timeout*2/3-time.Second {
			m.t.Fatalf("%s of session %d is gone: the client was heard %v ago, its timeout is %v", call.path, c.s.ID(), time.Since(c.touched), c.timeout)
		}
	}
	for _, n := range m.nodes {
		if !m.deaf[n] {
			n.checkRemotes()
		}
	}
}

// drain lets the clients that still talk come back, and the others expire.
func (m *remoteModel) drain() {
	m.t.Helper()
	for id := range MemberID(3) {
		if m.nodes[id+1] == nil {
			m.start(id + 1)
		}
	}
	for _, n := range m.nodes {
		m.deaf[n], m.mute[n] = false, false
	}
	m.elect(3)
	m.live(3 * time.Second)
	for _, c := range m.clients {
		for tries := 0; !c.silent && (c.s.Err() != nil || c.busy); tries++ {
			if c.resolved == session.ErrExpired || tries > 10 {
				c.silent = true // it was too late
				m.seen["expired"]++
				break
			}
			if !c.busy {
				m.connect(c)
			}
			m.live(500 * time.Millisecond)
		}
	}
	for range 12 { // of the largest timeout: sessions that were silent for a while end on all shards
		m.live(testTimeout / 2)
	}
	for _, call := range m.calls {
		c := call.client
		if !call.done {
			m.t.Errorf("%s has no outcome", call.path)
		}
		if unknown := errors.Is(call.told, outbox.ErrUnknownOutcome) || errors.Is(call.told, ErrFailed); !unknown && call.real != (call.told == nil) {
			m.t.Errorf("the create of %s returned %v; it was applied: %v", call.path, call.told, call.real)
		}
		for id, n := range m.nodes {
			if want := call.real && !c.silent; n.exists(call.path) != want {
				m.t.Errorf("member %d has %s of session %d: %v, want %v", id, call.path, c.s.ID(), !want, want)
			}
		}
	}
	for id, n := range m.nodes {
		if left := n.endedAtHome(); len(left) > 0 {
			m.t.Errorf("member %d remembers %v", id, left)
		}
	}
}

// G1: the members of clients fail in every way. Clients keep their sessions while they are heard in
// time, and lose them soon after if they are not. Every caller gets the true outcome.
func TestRemoteSessionsOnFailingMembers(t *testing.T) {
	seen := make(map[string]int)
	for _, seed := range enginetest.Seeds(t, 10) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			withTeam(t, modelShards, func(t *testing.T, team *team) {
				m := &remoteModel{team: team, rng: rand.New(rand.NewPCG(seed, 29)), seen: seen}
				team.after = m.note
				for range 250 {
					m.step()
				}
				m.drain()
			})
		})
	}
	for _, what := range []string{"connected false", "connected true", "crash", "cut"} {
		if seen[what] == 0 && *enginetest.SeedFlag == 0 {
			t.Errorf("%s: not once", what)
		}
	}
	t.Log(seen)
}
