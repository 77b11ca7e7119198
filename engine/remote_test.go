package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A team is an ensemble without Raft: what a member proposes is committed, and every member applies it, but for those that the test keeps
// from it.
type team struct {
	t      *testing.T
	shards int
	leader MemberID
	nodes  map[MemberID]*node // that run
	starts map[MemberID]uint64
	logs   map[ShardID][]*fakeProposal
	done   map[*node]map[ShardID]int // how much of them it has applied
	mute   map[*node]bool            // what it proposes does not arrive
	deaf   map[*node]bool            // it applies nothing
	gone   bool                      // no quorum: nothing is committed
	after  func(*node)               // unless nil called when a member has applied an entry
}

// withTeam runs fn in a bubble with members 1, 2 and 3 of which the last one leads.
func withTeam(t *testing.T, shards int, fn func(t *testing.T, m *team)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &team{t: t, shards: shards, leader: 3, nodes: make(map[MemberID]*node), starts: make(map[MemberID]uint64),
			logs: make(map[ShardID][]*fakeProposal), done: make(map[*node]map[ShardID]int), mute: make(map[*node]bool), deaf: make(map[*node]bool)}
		for id := range MemberID(3) {
			m.start(id + 1)
		}
		m.commit()
		fn(t, m)
		for _, n := range m.nodes {
			for _, shard := range n.shards {
				if err := shard.mu.table.Verify(); err != nil {
					t.Errorf("member %d, shard %d: %v", n.cfg.Member, shard.shard, err)
				}
			}
			n.checkRemotes()
		}
	})
}

// checkRemotes holds the keeper to the invariants of remotes.
func (n *node) checkRemotes() {
	n.t.Helper()
	k := n.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.mu.remotes
	if len(r.byID) != len(r.list) {
		n.t.Errorf("member %d has %d remote sessions, and %d in its list", n.cfg.Member, len(r.byID), len(r.list))
	}
	for i, one := range r.list {
		if r.byID[one.s.id] != one.s || one.s.remote.place != i || one.s.end != nil {
			n.t.Errorf("member %d: session %d at %d is %d in the list, ended with %v", n.cfg.Member, one.s.id, i, one.s.remote.place, one.s.end)
		}
		if rec, ok := n.shard.mu.table.Get(one.s.id); !ok || MemberID(rec.Origin) != n.cfg.Member || rec.Attached != one.s.remote.attached {
			n.t.Errorf("member %d has session %d of %d, the table %+v", n.cfg.Member, one.s.id, one.s.remote.attached, rec)
		}
	}
}

// start starts a member, anew if it ran before: it applies the logs from their beginning.
func (m *team) start(id MemberID) *node {
	m.starts[id]++
	o := session.Origin{Member: session.MemberID(id), Start: m.starts[id], Directory: [16]byte{byte(id)}, Digest: testOrigin().Digest, Level: formatLevel}
	n := newShardedNode(m.t, o, m.shards)
	m.nodes[id], m.done[n] = n, make(map[ShardID]int)
	n.lead(m.leader)
	return n
}

// kill ends a member as a crash does.
func (m *team) kill(id MemberID) {
	n := m.nodes[id]
	n.finish(ErrFailed, errors.New("killed"))
	n.log.take()
	delete(m.nodes, id)
}

func (m *team) elect(id MemberID) {
	m.leader = id
	for _, n := range m.nodes {
		n.lead(id)
	}
}

// commit commits and applies until there is nothing more.
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
			for _, p := range n.log.take() {
				m.logs[p.shard] = append(m.logs[p.shard], p)
			}
		}
		for _, n := range m.nodes {
			for shard, log := range m.logs {
				for !m.deaf[n] && m.done[n][shard] < len(log) {
					p := log[m.done[n][shard]]
					m.done[n][shard]++
					n.applyOn(shard, mustDecode(m.t, p.cmd))
					if m.after != nil {
						m.after(n)
					}
					more = true
				}
			}
		}
	}
}

// run lets time pass, with all that members do in it.
func (m *team) run(d time.Duration) {
	m.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); {
		pass(min(10*time.Millisecond, time.Until(until)))
		for _, n := range m.nodes {
			n.lookAround()
			n.expirer.look(time.Now())
			for _, shard := range n.shards[1:] {
				shard.expirer.look(time.Now())
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
	m.t.Fatal("it does not return")
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

func (m *team) tryResume(at MemberID, s *Session, who ...tree.Identity) (*Session, error) {
	m.t.Helper()
	return await(m, func() (*Session, error) {
		return m.nodes[at].Resume(m.t.Context(), s.ID(), s.Password(), testTimeout, who...)
	})
}

func (m *team) resume(at MemberID, s *Session, who ...tree.Identity) *Session {
	m.t.Helper()
	next, err := m.tryResume(at, s, who...)
	if err != nil {
		m.t.Fatalf("resume on %d: %v", at, err)
	}
	return next
}

// create creates an ephemeral of a session.
func (m *team) create(s *Session, path string) error {
	m.t.Helper()
	_, err := await(m, func() ([]tree.Result, error) { return s.Submit(m.t.Context(), []tree.Op{ephemeral(path)}).Result() })
	return Single(err)
}

func (m *team) mustCreate(s *Session, paths ...string) {
	m.t.Helper()
	for _, path := range paths {
		if err := m.create(s, path); err != nil {
			m.t.Fatalf("create %s: %v", path, err)
		}
	}
}

// wantThere says of every member that runs whether it has a znode.
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
	if want != nil && (!isClosed(s.Done()) || cause(s.Context()) != want) {
		t.Fatalf("its context ended with %v", cause(s.Context()))
	}
}

// chat lets time pass while clients say something every now and then.
func (m *team) chat(d time.Duration, all ...*Session) {
	m.t.Helper()
	for ; d > 0; d -= testTimeout / 10 {
		for _, s := range all {
			s.Heard()
		}
		m.run(min(d, testTimeout/10))
	}
}

// Every member can tell which one speaks for a session, for as long as its end is not decided.
func TestMemberOfASession(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s, other := m.open(1), m.open(2)
		want := func(id tree.SessionID, member MemberID, err error) {
			t.Helper()
			if got, e := other.Member(t.Context(), id); got != member || e != err {
				t.Errorf("of member %d, %v; want %d, %v", got, e, member, err)
			}
		}
		want(s.ID(), 1, nil)
		next := m.resume(2, s)
		want(s.ID(), 2, nil)
		if _, err := await(m, func() (struct{}, error) { return struct{}{}, next.Close() }); err != nil {
			t.Fatal(err)
		}
		want(s.ID(), 0, ErrNoSession)
		want(12345, 0, ErrNoSession)
		if _, err := next.Member(t.Context(), other.ID()); err != ErrSessionClosed {
			t.Errorf("a session that has ended asks: %v", err)
		}
	})
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.shard.portion = 1
		m := n.joined(2, 1)
		m.open(testTimeout)
		waits := m.open(testTimeout)
		n.joined(2, 2) // and one waits for its turn
		if got, err := s.Member(t.Context(), waits); err != ErrNoSession || !slices.Contains(n.sessionsOf(2), waits) {
			t.Errorf("whose end is decided: member %d, %v", got, err)
		}
	})
}

// A client that comes back, to the same member or another: what it owns stays, what its former connection has still to be sent is not, and it
// may go on from both.
func TestRemoteSessionMoves(t *testing.T) {
	for name, to := range map[string]MemberID{"here": 1, "elsewhere": 2} {
		t.Run(name, func(t *testing.T) {
			withTeam(t, 1, func(t *testing.T, m *team) {
				s := m.open(1)
				m.mustCreate(s, "/e")
				w, err := s.Watch("/e", watch.Data, "")
				if err != nil {
					t.Fatal(err)
				}
				m.nodes[1].log.elect(0)
				queued := s.Submit(t.Context(), []tree.Op{ephemeral("/queued")})
				var next *Session
				if to == 1 {
					go func() { next, _ = m.nodes[1].Resume(t.Context(), s.ID(), s.Password(), 2*testTimeout) }()
					synctest.Wait()
					m.nodes[1].lead(3)
					m.commit()
					// The queued create went out before the Move, and is the session's.
					if err := outcome(queued.waiter); err != nil {
						t.Fatalf("what was queued before: %v", err)
					}
				} else {
					next = m.resume(2, s)
					if err := outcome(queued.waiter); err != ErrSessionMoved {
						t.Fatalf("what was queued: %v", err)
					}
					m.nodes[1].lead(3)
					m.commit()
					m.wantThere(false, "/queued")
				}
				wantEnd(t, s, ErrSessionMoved)
				if w.Err() != ErrSessionMoved {
					t.Errorf("its watch ended with %v", w.Err())
				}
				wantEnd(t, next, nil)
				if next.ID() != s.ID() || next.Password() != s.Password() || next == s {
					t.Errorf("session %d went on as %d", s.ID(), next.ID())
				}
				if _, err := s.Submit(t.Context(), []tree.Op{create("/late")}).Result(); err != ErrSessionMoved {
					t.Errorf("a late write: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Errorf("a late close: %v", err)
				}
				m.mustCreate(next, "/new")
				m.chat(3*testTimeout, next)
				m.wantThere(true, "/e", "/new")
				if _, err := await(m, func() (int, error) { return 0, next.Close() }); err != nil {
					t.Fatal(err)
				}
				m.wantThere(false, "/e", "/new")
				wantEnd(t, next, ErrSessionClosed)
			})
		})
	}
}

// G1: the former member hears late of the move. What it still sends, a write or a close for its client's silence, is refused, and whoever
// waits for it is told the truth.
func TestFormerMemberOfARemoteSessionIsLate(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		m.mustCreate(s, "/e")
		former := m.nodes[1]
		m.deaf[former], m.mute[former] = true, true
		write := s.Submit(t.Context(), []tree.Op{create("/late")})
		next := m.resume(2, s)
		wantEnd(t, s, nil) // it cannot know
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		m.run(time.Second)
		m.mute[former] = false
		m.commit() // both come after the move
		m.deaf[former] = false
		m.commit()
		m.run(time.Second)
		if err := outcome(write.waiter); err != ErrSessionMoved {
			t.Errorf("the late write: %v", err)
		}
		if err := <-closed; err != ErrSessionMoved {
			t.Errorf("the late close: %v", err)
		}
		m.wantThere(true, "/e")
		m.wantThere(false, "/late")
		wantEnd(t, next, nil)
		m.chat(2*testTimeout, next)
		m.wantThere(true, "/e")
	})
}

// G1: the former member counts its client's silence while it does not know that the client has moved, to it anew or elsewhere.
func TestSilenceOfAFormerAttachmentClosesNothing(t *testing.T) {
	for name, to := range map[string]MemberID{"here": 1, "elsewhere": 2} {
		t.Run(name, func(t *testing.T) {
			withTeam(t, 1, func(t *testing.T, m *team) {
				s := m.open(1)
				m.mustCreate(s, "/e")
				former := m.nodes[1]
				k := former.keeper
				m.run(testTimeout / 2)
				var next *Session
				if to != 1 {
					m.deaf[former] = true
					next = m.resume(2, s)
				}
				// The close is queued while the former attachment is all that this node knows.
				k.mu.Lock()
				k.endLocked(s, session.Expired, ErrSessionExpired)
				k.queueCloseLocked(s, true)
				k.mu.Unlock()
				if to == 1 { // the Move is ahead of the close
					former.log.elect(0)
					go func() { next, _ = former.Resume(t.Context(), s.ID(), s.Password(), testTimeout) }()
					synctest.Wait()
					former.pipe.mu.Lock()
					q := &former.pipe.mu.queue
					q.front, q.rest = append(q.rest, q.front...), nil
					former.pipe.mu.Unlock()
					former.lead(3)
				} else {
					k.home.pump()
				}
				m.commit()
				m.deaf[former] = false
				m.chat(2*testTimeout, next)
				wantEnd(t, next, nil)
				m.wantThere(true, "/e")
			})
		})
	}
}

// 5.1.6, E3.2: who is told that the session has expired. Nothing changes by it.
func TestResumeIsRefused(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		own, err := await(m, func() (*Session, error) { return m.nodes[1].OpenSession(t.Context(), testTimeout) })
		if err != nil {
			t.Fatal(err)
		}
		closed := m.open(1)
		if _, err := await(m, func() (int, error) { return 0, closed.Close() }); err != nil {
			t.Fatal(err)
		}
		record, _ := m.nodes[1].shard.mu.table.Get(own.ID())
		for name, c := range map[string]struct {
			id       tree.SessionID
			password [16]byte
		}{
			"wrong password": {s.ID(), [16]byte{1}},
			"unknown":        {s.ID() + 1000, s.Password()},
			"none":           {0, s.Password()},
			"closed":         {closed.ID(), closed.Password()},
			"in-process":     {own.ID(), record.Password},
			"no password":    {own.ID(), own.Password()},
		} {
			for at := range MemberID(2) {
				_, err := await(m, func() (*Session, error) {
					return m.nodes[at+1].Resume(t.Context(), c.id, c.password, testTimeout)
				})
				if err != ErrSessionExpired {
					t.Errorf("%s on member %d: %v", name, at+1, err)
				}
			}
		}
		wantEnd(t, s, nil)
		wantEnd(t, own, nil)
		m.chat(2*testTimeout, s)
		wantEnd(t, s, nil)
		wantEnd(t, own, nil)
	})
}

// G2: silence closes a session after its timeout, and not before; whoever speaks begins anew.
func TestRemoteSessionIsClosedForItsSilence(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		quiet, loud := m.open(1), m.open(1)
		m.mustCreate(quiet, "/quiet")
		m.mustCreate(loud, "/loud")
		quiet.Heard()
		heard := time.Now()
		for quiet.Err() == nil && time.Since(heard) < 2*testTimeout {
			m.chat(remoteTickMin/2, loud)
			if quiet.Err() == nil {
				m.wantThere(true, "/quiet")
			}
		}
		if took := time.Since(heard); took < testTimeout || took > testTimeout+3*remoteTickMin {
			t.Fatalf("closed after %v, timeout %v", took, testTimeout)
		}
		wantEnd(t, quiet, ErrSessionExpired)
		m.commit()
		m.wantThere(false, "/quiet")
		m.wantThere(true, "/loud")
		if _, err := m.tryResume(1, quiet); err != ErrSessionExpired {
			t.Errorf("resumed: %v", err)
		}
	})
}

// Whoever is kept waiting is not silent: nobody listens to it. Then it has as long as others.
func TestBusySessionIsNotSilent(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s, silent := m.open(1), m.open(1)
		s.Busy(true)
		silent.Busy(false)
		m.run(3*testTimeout + testTimeout/2)
		wantEnd(t, s, nil)
		wantEnd(t, silent, ErrSessionExpired)
		s.Busy(false)
		s.Heard() // what it has said meanwhile
		for range 20 {
			m.run(testTimeout / 21)
			s.Busy(true) // for a moment, which does not count
			s.Busy(false)
		}
		wantEnd(t, s, nil)
		m.run(testTimeout / 10)
		wantEnd(t, s, ErrSessionExpired)
	})
}

// What a former connection was about to submit when its session came back here is not applied behind what was taken out of the queue: it
// came after that.
func TestNothingIsSubmittedAfterItsSessionHasLeft(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		ops := []tree.Op{create("/late")}
		w := s.newTxn(ops)
		if err := s.admissible(t.Context(), w, ops, nil); err != nil {
			t.Fatal(err)
		}
		next := m.resume(1, s)
		s.engine.at("/late").pipe.take(w, nil)
		m.commit()
		if err := outcome(w); err != ErrSessionMoved {
			t.Errorf("its outcome is %v", err)
		}
		m.wantThere(false, "/late")
		m.mustCreate(next, "/late")
	})
}

// Nor is it by what lies before the wait, when that ends and nothing has been read yet.
func TestSessionIsNotSilentForHavingBeenBusy(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		m.run(2 * remoteTickMin)
		s.Busy(true)
		m.run(testTimeout - 2*remoteTickMin)
		s.Busy(false)
		m.run(testTimeout - remoteTickMin)
		wantEnd(t, s, nil)
		m.run(3 * remoteTickMin)
		wantEnd(t, s, ErrSessionExpired)
	})
}

// What clients say costs no proposal: an idle node sends its beats, however many sessions it has.
func TestIdleRemoteSessionsCostBeatsOnly(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		var all []*Session
		for range 20 {
			all = append(all, m.open(1))
		}
		before := len(m.logs[homeShard])
		m.chat(3*testTimeout, all...)
		sent := m.logs[homeShard][before:]
		for _, p := range sent {
			if c := mustDecode(t, p.cmd); c.kind != commandBatch || len(c.requests) > 0 {
				t.Errorf("sent %+v", c)
			}
		}
		if most := 3*beatsPerTimeout + 2; len(sent) > most {
			t.Errorf("%d entries in three timeouts, want at most %d", len(sent), most)
		}
		for _, s := range all {
			wantEnd(t, s, nil)
		}
	})
}

// G2: the node was stopped. Its clients' pings lie in its sockets; they are read before anybody is judged, and who says nothing then has been
// silent for a tick at most. Also of a stop that is too short for the node to be Suspended.
func TestStoppedNodeJudgesNobodyByItsOwnPause(t *testing.T) {
	for _, stop := range []time.Duration{3 * remoteTickMin, time.Second, time.Minute} {
		for _, left := range []uint64{1, 2, 5, 50} { // ticks
			t.Run(fmt.Sprintf("stop=%v/left=%d", stop, left), func(t *testing.T) {
				withTeam(t, 1, func(t *testing.T, m *team) {
					s, silent := m.open(1), m.open(1)
					m.mustCreate(s, "/e")
					n := m.nodes[1]
					for n.keeper.due(s, s.remote.heard.Load()) > n.keeper.ticks.Load()+left {
						m.run(10 * time.Millisecond)
					}
					pass(remoteTickMin / 2)
					n.fake.pause(stop)
					n.keeper.signal() // a tick comes before anything is read
					synctest.Wait()
					if left > 1 { // and the node is stopped again: this time it counts, as one
						n.fake.pause(stop)
						n.keeper.signal()
						synctest.Wait()
					}
					wantEnd(t, s, nil)
					s.Heard()
					m.chat(testTimeout, s)
					wantEnd(t, s, nil)
					m.wantThere(true, "/e")
					m.chat(testTimeout+time.Second, s)
					wantEnd(t, silent, ErrSessionExpired)
				})
			})
		}
	}
}

// A member that starts again speaks for its clients' sessions; they have their timeout anew to come back, and end in time if they do not.
func TestRestartKeepsRemoteSessions(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		stays, back, away := m.open(1), m.open(1), m.open(1)
		own, err := await(m, func() (*Session, error) { return m.nodes[1].OpenSession(t.Context(), testTimeout) })
		if err != nil {
			t.Fatal(err)
		}
		m.mustCreate(stays, "/stays")
		m.mustCreate(back, "/back")
		m.mustCreate(away, "/away")
		m.mustCreate(own, "/own")
		m.run(testTimeout / 2)
		m.kill(1)
		wantEnd(t, back, ErrFailed)
		m.run(testTimeout / 4)
		m.start(1)
		m.commit()
		started := time.Now()
		m.wantThere(false, "/own")
		m.run(testTimeout * 3 / 4)
		back, away = m.resume(1, back), m.resume(2, away)
		for time.Since(started) < testTimeout {
			m.wantThere(true, "/stays")
			m.chat(remoteTickMin, back, away)
		}
		m.chat(testTimeout, back, away)
		m.wantThere(false, "/stays")
		m.wantThere(true, "/back", "/away")
		if n := len(m.nodes[1].keeper.mu.remotes.list); n != 1 {
			t.Errorf("%d sessions are attached", n)
		}
	})
}

// A node speaks for nobody before it has applied its own Register: what it knows until then is old, and its client may have moved.
func TestNodeAdoptsNobodyBeforeItsRegister(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		m.mustCreate(s, "/e")
		old := len(m.logs[homeShard])
		m.kill(1)
		next := m.resume(2, s)
		n := m.start(1)
		m.deaf[n], m.mute[n] = true, true
		for _, p := range m.logs[homeShard][:old] {
			n.applyOn(homeShard, mustDecode(t, p.cmd))
		}
		m.done[n][homeShard] = old
		if r, _ := n.shard.mu.table.Get(s.ID()); r.Origin != 1 {
			t.Fatalf("it knows already: %+v", r)
		}
		m.chat(2*testTimeout, next)
		if len(n.keeper.mu.remotes.list) > 0 {
			t.Error("it speaks for a session of its predecessor")
		}
		m.deaf[n], m.mute[n] = false, false
		m.chat(2*testTimeout, next)
		wantEnd(t, next, nil)
		m.wantThere(true, "/e")
		if len(n.keeper.mu.remotes.list) > 0 {
			t.Error("it speaks for a session that has moved")
		}
	})
}

// A member dies. Its clients have their timeout to come to another; the log ends those that do not, whoever leads.
func TestClientsOfADeadMemberMove(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		moves, stays := m.open(1), m.open(1)
		m.mustCreate(moves, "/moves")
		m.mustCreate(stays, "/stays")
		died := time.Now()
		m.kill(1)
		m.run(testTimeout / 4)
		m.elect(2)
		m.run(testTimeout / 2)
		moves = m.resume(2, moves)
		m.elect(3)
		for time.Since(died) < testTimeout {
			m.wantThere(true, "/stays")
			m.chat(remoteTickMin, moves)
		}
		m.chat(testTimeout, moves) // a leader change loses a step of silence
		m.wantThere(false, "/stays")
		if _, err := m.tryResume(3, stays); err != ErrSessionExpired {
			t.Errorf("resumed: %v", err)
		}
		m.wantThere(true, "/moves")
		m.start(1)
		m.chat(3*testTimeout, moves)
		m.wantThere(true, "/moves")
	})
}

// G3: a node that is cut off says so in time, closes nobody, and when it is back nobody who has moved. Its other clients have their
// timeout again: it was the node that they could not reach.
func TestNodeThatIsCutOffClosesNoRemoteSession(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		moves, stays := m.open(1), m.open(1)
		m.mustCreate(moves, "/moves")
		m.mustCreate(stays, "/stays")
		n := m.nodes[1]
		m.gone = true // nobody has a quorum, so nobody's silence is booked
		n.lead(0)
		_, changed := stays.State()
		var turns atomic.Int64
		stays.OnTurn(func() { turns.Add(1) })
		wantTurn := func(state session.State) {
			t.Helper()
			if turns.Swap(0) == 0 || stays.Now() != state {
				t.Errorf("told of no turn, or it is %v and not %v", stays.Now(), state)
			}
		}
		m.run(testTimeout/suspendedParts + remoteTickMin)
		n.wantState(stays, session.Suspended)
		if !isClosed(changed) {
			t.Fatal("nobody is told")
		}
		wantTurn(session.Suspended)
		m.run(3 * testTimeout)
		wantEnd(t, stays, nil)
		m.gone = false
		m.deaf[n], m.mute[n] = true, true
		moves = m.resume(2, moves)
		m.run(testTimeout / 4)
		m.deaf[n], m.mute[n] = false, false
		n.lead(3)
		m.chat(time.Second, moves)
		back := time.Now()
		n.wantState(stays, session.Connected)
		wantTurn(session.Connected)
		for time.Since(back) < testTimeout-time.Second-remoteTickMin {
			m.wantThere(true, "/stays")
			m.chat(remoteTickMin, moves)
		}
		m.chat(testTimeout/2, moves)
		wantEnd(t, stays, ErrSessionExpired)
		wantTurn(session.Expired)
		m.wantThere(false, "/stays")
		m.wantThere(true, "/moves")
		wantEnd(t, moves, nil)
	})
}

// A client that never comes back is kept by no number of interruptions: after the first it has its timeout anew, after another only if it was
// heard in between.
func TestCutOffAgainAndAgainKeepsNobody(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		gone, stays := m.open(1), m.open(1)
		m.mustCreate(gone, "/gone")
		m.mustCreate(stays, "/stays")
		n := m.nodes[1]
		cycles := 0
		for ; gone.Err() == nil && cycles < 20; cycles++ {
			m.gone = true
			n.lead(0)
			m.run(testTimeout / 2)
			n.wantState(stays, session.Suspended)
			m.gone = false
			n.lead(3)
			m.chat(testTimeout/4, stays)
		}
		wantEnd(t, gone, ErrSessionExpired)
		if cycles < 3 {
			t.Errorf("it ended after %d interruptions", cycles)
		}
		m.wantThere(false, "/gone")
		m.wantThere(true, "/stays")
		wantEnd(t, stays, nil)
	})
}

// A node that is closed ends its in-process sessions; those of remote clients stay, for them to take elsewhere.
func TestEndOfANodeLeavesRemoteSessions(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		own, err := await(m, func() (*Session, error) { return m.nodes[1].OpenSession(t.Context(), testTimeout) })
		if err != nil {
			t.Fatal(err)
		}
		m.mustCreate(s, "/e")
		m.mustCreate(own, "/own")
		n := m.nodes[1]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := await(m, func() (int, error) { return 0, n.keeper.closeAll(ctx) }); err != nil {
			t.Fatal(err)
		}
		m.wantThere(false, "/own")
		m.wantThere(true, "/e")
		if _, err := n.OpenRemote(t.Context(), testTimeout); err != ErrClosed {
			t.Errorf("open: %v", err)
		}
		if _, err := n.Resume(t.Context(), s.ID(), s.Password(), testTimeout); err != ErrClosed {
			t.Errorf("resume: %v", err)
		}
		wantEnd(t, s, nil)
		n.finish(ErrClosed, nil)
		wantEnd(t, s, ErrClosed)
		delete(m.nodes, 1)
		m.run(testTimeout / 2)
		next := m.resume(2, s)
		m.chat(2*testTimeout, next)
		m.wantThere(true, "/e")
	})
}

// Whoever opens a session and loses patience leaves none behind; whoever resumes one leaves it to its client.
func TestImpatientCallers(t *testing.T) {
	// Each alone: of two requests one may wait for the other, and is certainly not applied.
	lose := func(t *testing.T, m *team, call func(ctx context.Context) error) {
		t.Helper()
		m.gone = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		pass(2 * time.Second)
		if err := <-done; !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it returned %v", err)
		}
		m.gone = false
		m.run(time.Second)
	}
	t.Run("open", func(t *testing.T) {
		withTeam(t, 1, func(t *testing.T, m *team) {
			lose(t, m, func(ctx context.Context) error {
				_, err := m.nodes[2].OpenRemote(ctx, testTimeout)
				return err
			})
			if all := m.nodes[2].shard.mu.table.Sessions(2); len(all) > 0 {
				t.Errorf("member 2 has %+v", all)
			}
		})
	})
	t.Run("resume", func(t *testing.T) {
		withTeam(t, 1, func(t *testing.T, m *team) {
			s := m.open(1)
			m.mustCreate(s, "/e")
			lose(t, m, func(ctx context.Context) error {
				_, err := m.nodes[2].Resume(ctx, s.ID(), s.Password(), testTimeout)
				return err
			})
			wantEnd(t, s, ErrSessionMoved)
			if all := m.nodes[2].shard.mu.table.Sessions(2); len(all) != 1 || all[0].ID != s.ID() {
				t.Errorf("member 2 has %+v", all)
			}
			m.wantThere(true, "/e")
			m.run(testTimeout + time.Second)
			m.wantThere(false, "/e")
		})
	})
}

func wantOwned(t *testing.T, s *Session, m *team, want ...string) {
	t.Helper()
	got, err := await(m, func() ([]string, error) { return s.Ephemerals(t.Context(), "/") })
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("it owns %q (%v), want %q", got, err, want)
	}
}

// A session that uses four shards moves, comes back, and ends. What the former member asks of a shard that does not know of the move
// yet takes nothing.
func TestRemoteSessionMovesOnAllItsShards(t *testing.T) {
	withTeam(t, 4, func(t *testing.T, m *team) {
		s := m.open(1)
		var paths []string
		for id := range ShardID(3) { // the fourth it does not use
			paths = append(paths, m.nodes[1].on(id+1, 0))
		}
		m.mustCreate(s, paths...)
		next := m.resume(2, s)
		for id := range ShardID(3) {
			if r, _ := m.nodes[3].shards[id].mu.table.Get(s.ID()); r.Origin != 2 || r.Attached != next.remote.attached {
				t.Errorf("Resume has returned, and shard %d has %+v", id+1, r)
			}
		}
		wantOwned(t, next, m, paths...)
		for id := range ShardID(4) {
			path := m.nodes[1].on(id+1, 1)
			m.mustCreate(next, path)
			paths = append(paths, path)
		}
		again := m.resume(2, next)
		wantEnd(t, next, ErrSessionMoved)
		back := m.resume(1, again)
		m.mustCreate(back, m.nodes[1].on(4, 2))
		paths = append(paths, m.nodes[1].on(4, 2))
		m.chat(2*testTimeout, back)
		m.wantThere(true, paths...)
		wantOwned(t, back, m, paths...)
		if _, err := await(m, func() (int, error) { return 0, back.Close() }); err != nil {
			t.Fatal(err)
		}
		m.run(2 * time.Second)
		m.wantThere(false, paths...)
		for _, n := range m.nodes {
			if left := n.endedAtHome(); len(left) > 0 {
				t.Errorf("remembered at home: %v", left)
			}
		}
	})
}

// G1 on a shard that has not heard of the move: the close for silence goes to the home shard alone, which has.
func TestSilenceIsJudgedAtHome(t *testing.T) {
	withTeam(t, 2, func(t *testing.T, m *team) {
		s, path := m.open(1), m.nodes[1].on(2, 0)
		m.mustCreate(s, path)
		// The Move is applied at home, and what tells shard 2 is lost for now.
		n := m.nodes[2]
		move := encodeRequest(&request{kind: requestMove, session: s.ID(), password: s.Password(), timeout: testTimeout})
		late := m.nodes[1]
		m.deaf[late] = true
		w := &waiter{wire: move, done: make(chan struct{})}
		if err := n.pipe.submit(w); err != nil {
			t.Fatal(err)
		}
		m.commit()
		if r, _ := n.shard.mu.table.Get(s.ID()); r.Origin != 2 {
			t.Fatal("not moved")
		}
		k := late.keeper
		k.mu.Lock()
		k.closeLocked(s)
		k.mu.Unlock()
		k.pumpAll()
		m.commit()
		m.deaf[late] = false
		m.commit()
		m.wantThere(true, path)
	})
}

// A shard that cannot be asked keeps Resume waiting, and no longer than its ctx; the next one finds it as it is.
func TestResumeWaitsForTheShardsOfTheSession(t *testing.T) {
	withTeam(t, 2, func(t *testing.T, m *team) {
		s, path := m.open(1), m.nodes[1].on(2, 0)
		m.mustCreate(s, path)
		n := m.nodes[2]
		n.shards[1].pipe.mu.Lock()
		n.shards[1].pipe.mu.sending = true // nothing goes out on it
		n.shards[1].pipe.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := await(m, func() (*Session, error) { return n.Resume(ctx, s.ID(), s.Password(), testTimeout) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("resume: %v", err)
		}
		wantEnd(t, s, ErrSessionMoved)
		n.shards[1].pipe.mu.Lock()
		n.shards[1].pipe.mu.sending = false
		n.shards[1].pipe.mu.Unlock()
		next := m.resume(2, s)
		m.mustCreate(next, n.on(2, 1))
		m.wantThere(true, path, n.on(2, 1))
	})
}

// What was submitted before Identify is judged by what the client was, what comes after by what it is: on all shards, also on one that
// the session is just beginning to use.
func TestIdentifyIsInTheOrderOfTheStream(t *testing.T) {
	withTeam(t, 3, func(t *testing.T, m *team) {
		n := m.nodes[1]
		s := m.open(1)
		var dirs []string
		for id := range ShardID(3) {
			dir := n.on(id+1, 0)
			if _, err := await(m, func() ([]tree.Result, error) {
				return s.Submit(t.Context(), []tree.Op{createFor(dir, alicesOnly)}).Result()
			}); err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, dir)
		}
		for _, fresh := range []bool{false, true} {
			s := m.open(1)
			if !fresh {
				for id := range ShardID(3) {
					m.mustCreate(s, n.on(id+1, 1))
				}
			}
			if _, _, err := s.Get(dirs[1]); err != tree.ErrNoAuth {
				t.Fatalf("read before: %v", err)
			}
			var before, after []Pending
			for _, dir := range dirs {
				before = append(before, s.Submit(t.Context(), []tree.Op{set(dir)}))
			}
			identified := make(chan error, 1)
			go func() { identified <- s.Identify(t.Context(), alice) }()
			synctest.Wait()
			for _, dir := range dirs {
				after = append(after, s.Submit(t.Context(), []tree.Op{set(dir)}))
			}
			m.run(time.Second)
			if err := <-identified; err != nil {
				t.Fatal(err)
			}
			for i := range dirs {
				if err := Single(outcome(before[i].waiter)); err != tree.ErrNoAuth {
					t.Errorf("fresh %v, shard %d, before: %v", fresh, i+1, err)
				}
				if err := outcome(after[i].waiter); err != nil {
					t.Errorf("fresh %v, shard %d, after: %v", fresh, i+1, err)
				}
			}
			if _, _, err := s.Get(dirs[1]); err != nil {
				t.Errorf("read after: %v", err)
			}
			if fresh {
				// A client that comes back is what its new connection shows.
				next := m.resume(2, s)
				if _, _, err := next.Get(dirs[1]); err != tree.ErrNoAuth {
					t.Errorf("read after the move: %v", err)
				}
				if _, err := await(m, func() ([]tree.Result, error) {
					return next.Submit(t.Context(), []tree.Op{set(dirs[1])}).Result()
				}); Single(err) != tree.ErrNoAuth {
					t.Errorf("write after the move: %v", err)
				}
				if err := s.Identify(t.Context(), alice); err != ErrSessionMoved {
					t.Errorf("identify of the former connection: %v", err)
				}
			}
		}
	})
}

// What a former connection shows comes behind the Move in this node's stream: the new one is not judged by it.
func TestLateIdentifyChangesNothing(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		n := m.nodes[1]
		late := encodeRequest(&request{kind: requestIdentify, session: s.ID(), attached: s.remote.attached, identities: []tree.Identity{alice}})
		next := m.resume(1, s)
		if err := n.pipe.submit(&waiter{wire: late, done: make(chan struct{})}); err != nil {
			t.Fatal(err)
		}
		m.commit()
		if r, _ := n.shard.mu.table.Get(next.ID()); len(r.Identities) > 0 {
			t.Errorf("it is %v", r.Identities)
		}
	})
}

func TestInProcessSessionIsNoRemoteOne(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		s.Heard()
		if s.Password() != [16]byte{} {
			t.Error("it has a password to tell")
		}
		if err := s.Identify(t.Context(), alice); err == nil {
			t.Error("it may be somebody else")
		}
	})
}

// What a remote session holds is its client's to judge.
func TestRemoteSessionHoldsNothingHere(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/c", Mode: tree.Ephemeral}}, nil)
		m.commit()
		if err := holdErr(c); err != ErrSuspended {
			t.Errorf("hold: %v", err)
		}
		m.resume(2, s)
		if err := c.Err(); err != ErrSessionMoved {
			t.Errorf("the claim ended with %v", err)
		}
		m.wantThere(true, "/c")
	})
}

// A snapshot passes by what attaches sessions, and what ends them: the node takes charge of those that are its own, and lets go of the others.
func TestInstallBringsRemoteSessions(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *replica) {
		openRemote := func(timeout time.Duration) (s *Session) {
			go func() { s, _ = n.OpenRemote(t.Context(), timeout) }()
			n.commit()
			return s
		}
		stays, anew, gone := openRemote(testTimeout), openRemote(testTimeout), openRemote(time.Second)
		n.own(stays, "/stays")
		n.own(anew, "/anew")
		ahead.catchUp()
		for range 4 { // quarters of the least timeout
			step, d, _ := ahead.shard.mu.table.NextStep(testMember)
			ahead.node.apply(&fakeProposal{cmd: encodeSilence(step, d, 1)})
		}
		var back *Session
		go func() { back, _ = n.Resume(t.Context(), anew.ID(), anew.Password(), testTimeout) }()
		var opening error
		go func() { _, opening = n.OpenRemote(t.Context(), testTimeout) }()
		_, swallowed := n.requests()
		for len(swallowed) > 0 {
			ahead.node.apply(swallowed...)
			queued := n.pipe.mu.queue.len()
			ahead.install()
			if _, swallowed = n.requests(); queued == 0 {
				break
			}
		}
		wantEnd(t, stays, nil)
		wantEnd(t, anew, ErrSessionMoved)
		wantEnd(t, gone, ErrSessionExpired)
		n.checkRemotes()
		n.apply(swallowed...)
		n.commit() // the Move that was asked for again
		if back == nil || back.Err() != nil || opening != ErrUnknownOutcome {
			t.Fatalf("resumed %v, opened %v", back, opening)
		}
		n.checkRemotes()
		if known := len(n.keeper.mu.remotes.list); known != 3 {
			t.Errorf("%d sessions, want those two and what was opened", known)
		}
		for range 20 {
			back.Heard()
			n.run(testTimeout / 10)
		}
		wantEnd(t, stays, ErrSessionExpired)
		if all := n.sessionsOf(testMember); !slices.Equal(all, []tree.SessionID{back.ID()}) || n.exists("/stays") || !n.exists("/anew") {
			t.Errorf("left are %v", all)
		}
	})
}

// A snapshot comes before this node has registered: the sessions that it has attached to this member may be another's by now.
func TestInstallBeforeTheRegisterAdoptsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := testOrigin()
		former := encodeRegister(origin, 0, nil)
		origin.Start++
		n := newNodeOf(t, origin).withImage()
		ahead := &replica{node: newNodeOf(t, session.Origin{Member: 9}).withImage(), of: n}
		open := request{kind: requestOpen, timeout: testTimeout, remote: true}
		ahead.node.apply(&fakeProposal{cmd: former},
			&fakeProposal{cmd: encodeBatch(testMember, origin.Start-1, 1, 0, 0, []*waiter{{wire: encodeRequest(&open)}})})
		ahead.install()
		if known := len(n.sessionsOf(testMember)); known != 1 || len(n.keeper.mu.remotes.list) > 0 {
			t.Fatalf("of %d sessions it speaks for %d", known, len(n.keeper.mu.remotes.list))
		}
		n.lead(otherMember)
		n.commit()
		if len(n.keeper.mu.remotes.list) != 1 {
			t.Error("it has registered, and speaks for none")
		}
		n.checkRemotes()
	})
}

// Whoever watches the log is told of a session that was closed for its client's silence, on every member, and of none that its client closed.
func TestSilenceIsToldAsExpiry(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		told := make(map[MemberID][]tree.SessionID)
		for id, n := range m.nodes {
			n.cfg.SessionExpired = func(s tree.SessionID) { told[id] = append(told[id], s) }
		}
		quiet, polite := m.open(1), m.open(2)
		if _, err := await(m, func() (int, error) { return 0, polite.Close() }); err != nil {
			t.Fatal(err)
		}
		m.run(2 * testTimeout)
		wantEnd(t, quiet, ErrSessionExpired)
		for id := range m.nodes {
			if !slices.Equal(told[id], []tree.SessionID{quiet.ID()}) {
				t.Errorf("member %d was told of %d, want %d", id, told[id], quiet.ID())
			}
		}
	})
}
