package engine

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A team is an ensemble without Raft. Every proposal of a member is committed, and every member
// applies it. A test can keep members from either.
type team struct {
	t      *testing.T
	shards int
	leader MemberID
	nodes  map[MemberID]*node // the nodes that run
	starts map[MemberID]uint64
	logs   map[ShardID][]*enginetest.Proposal
	done   map[*node]map[ShardID]int // how much of each log it has applied
	mute   map[*node]bool            // its proposals are lost
	deaf   map[*node]bool            // it applies nothing
	gone   bool                      // no quorum: nothing is committed
	after  func(*node)               // called when a member has applied an entry; may be nil
}

// withTeam runs fn in a bubble with members 1, 2 and 3. Member 3 leads.
func withTeam(t *testing.T, shards int, fn func(t *testing.T, m *team)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &team{t: t, shards: shards, leader: 3, nodes: make(map[MemberID]*node), starts: make(map[MemberID]uint64),
			logs: make(map[ShardID][]*enginetest.Proposal), done: make(map[*node]map[ShardID]int), mute: make(map[*node]bool), deaf: make(map[*node]bool)}
		for id := range MemberID(3) {
			m.start(id + 1)
		}
		m.commit()
		fn(t, m)
		for _, n := range m.nodes {
			for _, shard := range n.shards {
				if err := tableOf(shard).Verify(); err != nil {
					t.Errorf("member %d, shard %d: %v", n.cfg.Member, shard.Shard, err)
				}
			}
			n.checkRemotes()
		}
	})
}

// checkRemotes checks the keeper's invariants.
func (n *node) checkRemotes() {
	n.t.Helper()
	if err := n.keeper.Verify(tableOf(n.shard)); err != nil {
		n.t.Errorf("member %d: %v", n.cfg.Member, err)
	}
}

// start starts a member, or restarts it. The member applies the logs from their beginning.
func (m *team) start(id MemberID) *node {
	m.starts[id]++
	o := session.Origin{Member: session.MemberID(id), Start: m.starts[id], Directory: [16]byte{byte(id)}, Digest: enginetest.Origin().Digest, Level: command.LevelMin}
	n := newShardedNode(m.t, o, m.shards)
	m.nodes[id], m.done[n] = n, make(map[ShardID]int)
	n.lead(m.leader)
	return n
}

// kill ends a member as a crash does.
func (m *team) kill(id MemberID) {
	n := m.nodes[id]
	n.finish(ErrFailed, errors.New("killed"))
	n.log.Drain()
	delete(m.nodes, id)
}

func (m *team) elect(id MemberID) {
	m.leader = id
	for _, n := range m.nodes {
		n.lead(id)
	}
}

// commit commits and applies until there is nothing more to do.
func (m *team) commit() {
	m.t.Helper()
	for more := true; more; {
		more = false
		synctest.Wait()
		for id := MemberID(1); id <= 3; id++ {
			n := m.nodes[id]
			if n == nil || m.mute[n] || m.gone {
				continue
			}
			for _, p := range n.log.Drain() {
				m.logs[p.Shard] = append(m.logs[p.Shard], p)
			}
		}
		for _, n := range m.nodes {
			for shard, log := range m.logs {
				for !m.deaf[n] && m.done[n][shard] < len(log) {
					p := log[m.done[n][shard]]
					m.done[n][shard]++
					n.applyOn(shard, enginetest.Decode(m.t, p.Cmd))
					if m.after != nil {
						m.after(n)
					}
					more = true
				}
			}
		}
	}
}

// run lets time pass, with everything that members do in it.
func (m *team) run(d time.Duration) {
	m.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); {
		enginetest.Pass(min(10*time.Millisecond, time.Until(until)))
		for _, n := range m.nodes {
			n.lookAround()
			n.shard.ExpireDue(time.Now())
			for _, shard := range n.shards[1:] {
				shard.ExpireDue(time.Now())
			}
		}
		m.commit()
	}
}

// await runs the team until fn has returned.
func await[T any](m *team, fn func() (T, error)) (v T, err error) {
	m.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		v, err = fn()
	}()
	for range 3000 {
		m.commit()
		select {
		case <-done:
			return v, err
		default:
		}
		m.run(10 * time.Millisecond)
	}
	m.t.Fatal("the call does not return")
	return v, err
}

func (m *team) open(at MemberID, who ...tree.Identity) *Session {
	m.t.Helper()
	s, err := await(m, func() (*Session, error) { return m.nodes[at].OpenRemote(m.t.Context(), testTimeout, who...) })
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

func (m *team) tryReattach(at MemberID, s *Session, who ...tree.Identity) (*Session, error) {
	m.t.Helper()
	return await(m, func() (*Session, error) {
		return m.nodes[at].Reattach(m.t.Context(), s.ID(), s.Password(), testTimeout, who...)
	})
}

func (m *team) reattach(at MemberID, s *Session, who ...tree.Identity) *Session {
	m.t.Helper()
	next, err := m.tryReattach(at, s, who...)
	if err != nil {
		m.t.Fatalf("reattach on %d: %v", at, err)
	}
	return next
}

// create creates an ephemeral of a session.
func (m *team) create(s *Session, path string) error {
	m.t.Helper()
	_, err := await(m, func() ([]tree.Result, error) { return s.Submit(m.t.Context(), []tree.Op{ephemeral(path)}).Result() })
	return keeper.Single(err)
}

func (m *team) mustCreate(s *Session, paths ...string) {
	m.t.Helper()
	for _, path := range paths {
		if err := m.create(s, path); err != nil {
			m.t.Fatalf("create %s: %v", path, err)
		}
	}
}

// wantThere checks on every running member whether it has the znodes.
func (m *team) wantThere(want bool, paths ...string) {
	m.t.Helper()
	for id, n := range m.nodes {
		for _, path := range paths {
			if !m.deaf[n] && n.exists(path) != want {
				m.t.Fatalf("member %d has %s: %v, want %v", id, path, !want, want)
			}
		}
	}
}

func wantEnd(t *testing.T, s *Session, want error) {
	t.Helper()
	if err := s.Err(); err != want {
		t.Fatalf("the session ended with %v, want %v", err, want)
	}
	if want != nil && (!testkit.Closed(s.Done()) || cause(s.Context()) != want) {
		t.Fatalf("its context ended with %v", cause(s.Context()))
	}
}

// chat lets time pass while clients say something now and then.
func (m *team) chat(d time.Duration, all ...*Session) {
	m.t.Helper()
	for ; d > 0; d -= testTimeout / 10 {
		for _, s := range all {
			s.Heard()
		}
		m.run(min(d, testTimeout/10))
	}
}

func wantOwned(t *testing.T, s *Session, m *team, want ...string) {
	t.Helper()
	got, err := await(m, func() ([]string, error) { return s.Ephemerals(t.Context(), "/") })
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("it owns %q (%v), want %q", got, err, want)
	}
}
