package engine

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

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
