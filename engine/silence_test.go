package engine

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// G1: the former member learns late of the reattachment. What it still sends, a write or a close
// for its client's silence, is refused. Its callers get the true outcome.
func TestFormerMemberOfARemoteSessionIsLate(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		m.mustCreate(s, "/e")
		former := m.nodes[1]
		m.deaf[former], m.mute[former] = true, true
		write := s.Submit(t.Context(), []tree.Op{create("/late")})
		next := m.reattach(2, s)
		wantEnd(t, s, nil) // it cannot know
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		m.run(time.Second)
		m.mute[former] = false
		m.commit() // both come after the Reattach
		m.deaf[former] = false
		m.commit()
		m.run(time.Second)
		if err := outcome(write); err != session.ErrMoved {
			t.Errorf("the late write: %v", err)
		}
		if err := <-closed; err != session.ErrMoved {
			t.Errorf("the late close: %v", err)
		}
		m.wantThere(true, "/e")
		m.wantThere(false, "/late")
		wantEnd(t, next, nil)
		m.chat(2*testTimeout, next)
		m.wantThere(true, "/e")
	})
}

// G1: the former member counts its client's silence while it does not know that the client is
// attached again, to it or elsewhere.
func TestSilenceOfAFormerAttachmentClosesNothing(t *testing.T) {
	for name, to := range map[string]MemberID{"here": 1, "elsewhere": 2} {
		t.Run(name, func(t *testing.T) {
			withTeam(t, 1, func(t *testing.T, m *team) {
				s := m.open(1)
				m.mustCreate(s, "/e")
				former := m.nodes[1]
				m.run(testTimeout / 2)
				var next *Session
				if to != 1 {
					m.deaf[former] = true
					next = m.reattach(2, s)
				}
				if to == 1 { // the Reattach is ahead of the close
					go func() { next, _ = former.Reattach(t.Context(), s.ID(), s.Password(), testTimeout) }()
					synctest.Wait()
				}
				// The close is queued while the former attachment is all that this node knows.
				former.outbox.QueueEnd(outbox.NewCall(nil, &command.Request{Kind: command.RequestClose, Session: s.ID(), Attached: s.Attached(), Lost: true}))
				former.outbox.Pump()
				m.commit()
				m.deaf[former] = false
				m.chat(2*testTimeout, next)
				wantEnd(t, next, nil)
				m.wantThere(true, "/e")
			})
		})
	}
}

// G2: silence closes a session after its timeout, and not before. A client that speaks begins anew.
func TestRemoteSessionIsClosedForItsSilence(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		quiet, loud := m.open(1), m.open(1)
		m.mustCreate(quiet, "/quiet")
		m.mustCreate(loud, "/loud")
		quiet.Heard()
		heard := time.Now()
		for quiet.Err() == nil && time.Since(heard) < 2*testTimeout {
			m.chat(keeper.RemoteTickMin/2, loud)
			if quiet.Err() == nil {
				m.wantThere(true, "/quiet")
			}
		}
		if took := time.Since(heard); took < testTimeout || took > testTimeout+3*keeper.RemoteTickMin {
			t.Fatalf("closed after %v, timeout %v", took, testTimeout)
		}
		wantEnd(t, quiet, session.ErrExpired)
		m.commit()
		m.wantThere(false, "/quiet")
		m.wantThere(true, "/loud")
		if _, err := m.tryReattach(1, quiet); err != session.ErrExpired {
			t.Errorf("reattached: %v", err)
		}
	})
}

// A client that is kept waiting is not silent, because nobody listens to it. Afterwards it has as
// long as others.
func TestBusySessionIsNotSilent(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s, silent := m.open(1), m.open(1)
		s.Busy(true)
		silent.Busy(false)
		m.run(3*testTimeout + testTimeout/2)
		wantEnd(t, s, nil)
		wantEnd(t, silent, session.ErrExpired)
		s.Busy(false)
		s.Heard() // what it has said meanwhile
		for range 20 {
			m.run(testTimeout / 21)
			s.Busy(true) // for a moment, which does not count
			s.Busy(false)
		}
		wantEnd(t, s, nil)
		m.run(testTimeout / 10)
		wantEnd(t, s, session.ErrExpired)
	})
}

// Nor is it silent because of the time before the wait, when the wait ends and nothing has been
// read yet.
func TestSessionIsNotSilentForHavingBeenBusy(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		m.run(2 * keeper.RemoteTickMin)
		s.Busy(true)
		m.run(testTimeout - 2*keeper.RemoteTickMin)
		s.Busy(false)
		m.run(testTimeout - keeper.RemoteTickMin)
		wantEnd(t, s, nil)
		m.run(3 * keeper.RemoteTickMin)
		wantEnd(t, s, session.ErrExpired)
	})
}

// What clients say costs no proposal. An idle node sends only its beats, however many sessions it
// has.
func TestIdleRemoteSessionsCostBeatsOnly(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		var all []*Session
		for range 20 {
			all = append(all, m.open(1))
		}
		before := len(m.logs[command.HomeShard])
		m.chat(3*testTimeout, all...)
		sent := m.logs[command.HomeShard][before:]
		for _, p := range sent {
			if c := enginetest.Decode(t, p.Cmd); c.Kind != command.KindBatch || len(c.Requests) > 0 {
				t.Errorf("sent %+v", c)
			}
		}
		if most := 3*keeper.BeatsPerTimeout + 2; len(sent) > most {
			t.Errorf("%d entries in three timeouts, want at most %d", len(sent), most)
		}
		for _, s := range all {
			wantEnd(t, s, nil)
		}
	})
}

// G2: the node was stopped. The pings of its clients are in its sockets. They are read before any
// client is judged, and a client that says nothing then has been silent for a tick at most. This
// also holds for a stop that is too short to suspend the node.
func TestStoppedNodeJudgesNobodyByItsOwnPause(t *testing.T) {
	for _, stop := range []time.Duration{3 * keeper.RemoteTickMin, time.Second, time.Minute} {
		for _, left := range []time.Duration{1, 2, 5, 50} { // ticks
			t.Run(fmt.Sprintf("stop=%v/left=%d", stop, left), func(t *testing.T) {
				withTeam(t, 1, func(t *testing.T, m *team) {
					s, silent := m.open(1), m.open(1)
					m.mustCreate(s, "/e")
					n := m.nodes[1]
					m.run(testTimeout + keeper.RemoteTickMin - left*keeper.RemoteTickMin) // a client has its timeout and a tick
					enginetest.Pass(keeper.RemoteTickMin / 2)
					n.fake.Pause(stop)
					n.keeper.Signal() // a tick comes before anything is read
					synctest.Wait()
					if left > 1 { // and the node is stopped again: this time it counts, as one tick
						n.fake.Pause(stop)
						n.keeper.Signal()
						synctest.Wait()
					}
					wantEnd(t, s, nil)
					s.Heard()
					m.chat(testTimeout, s)
					wantEnd(t, s, nil)
					m.wantThere(true, "/e")
					m.chat(testTimeout+time.Second, s)
					wantEnd(t, silent, session.ErrExpired)
				})
			})
		}
	}
}

// G3: a node that is cut off says so in time. It closes no session, nor does it close those that
// have gone elsewhere when it is back. Its other clients have their full timeout again, because it
// was the node that they could not reach.
func TestNodeThatIsCutOffClosesNoRemoteSession(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		moves, stays := m.open(1), m.open(1)
		m.mustCreate(moves, "/moves")
		m.mustCreate(stays, "/stays")
		n := m.nodes[1]
		m.gone = true // no member has a quorum, so no silence is counted
		n.lead(0)
		_, changed := stays.State()
		var changes atomic.Int64
		stays.OnStateChange(func() { changes.Add(1) })
		wantTurn := func(state session.State) {
			t.Helper()
			if changes.Swap(0) == 0 || stays.CurrentState() != state {
				t.Errorf("no change was reported, or the state is %v, not %v", stays.CurrentState(), state)
			}
		}
		m.run(testTimeout/keeper.SuspendedParts + keeper.RemoteTickMin)
		n.wantState(stays, session.Suspended)
		if !testkit.Closed(changed) {
			t.Fatal("no one was told")
		}
		wantTurn(session.Suspended)
		m.run(3 * testTimeout)
		wantEnd(t, stays, nil)
		m.gone = false
		m.deaf[n], m.mute[n] = true, true
		moves = m.reattach(2, moves)
		m.run(testTimeout / 4)
		m.deaf[n], m.mute[n] = false, false
		n.lead(3)
		m.chat(time.Second, moves)
		back := time.Now()
		n.wantState(stays, session.Connected)
		wantTurn(session.Connected)
		for time.Since(back) < testTimeout-time.Second-keeper.RemoteTickMin {
			m.wantThere(true, "/stays")
			m.chat(keeper.RemoteTickMin, moves)
		}
		m.chat(testTimeout/2, moves)
		wantEnd(t, stays, session.ErrExpired)
		wantTurn(session.Expired)
		m.wantThere(false, "/stays")
		m.wantThere(true, "/moves")
		wantEnd(t, moves, nil)
	})
}

// No number of interruptions keeps the session of a client that never comes back. After the first
// one it has its full timeout again. After another one it has that only if it was heard in between.
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
		wantEnd(t, gone, session.ErrExpired)
		if cycles < 3 {
			t.Errorf("it ended after %d interruptions", cycles)
		}
		m.wantThere(false, "/gone")
		m.wantThere(true, "/stays")
		wantEnd(t, stays, nil)
	})
}

// G1 on a shard that does not know of the reattachment: the close for silence goes only to the home
// shard, which does know.
func TestSilenceIsJudgedAtHome(t *testing.T) {
	withTeam(t, 2, func(t *testing.T, m *team) {
		s, path := m.open(1), m.nodes[1].on(2, 0)
		m.mustCreate(s, path)
		// The Reattach is applied at home, and what tells shard 2 is lost for now.
		n := m.nodes[2]
		move := command.EncodeRequest(&command.Request{Kind: command.RequestReattach, Session: s.ID(), Password: s.Password(), Timeout: testTimeout})
		late := m.nodes[1]
		m.deaf[late] = true
		w := &outbox.Call{Encoded: move, Done: make(chan struct{})}
		if _, err := n.outbox.Submit(w); err != nil {
			t.Fatal(err)
		}
		m.commit()
		if r, _ := tableOf(n.shard).Get(s.ID()); r.Origin != 2 {
			t.Fatal("not moved")
		}
		go s.Close()
		synctest.Wait()
		m.commit()
		m.deaf[late] = false
		m.commit()
		m.wantThere(true, path)
	})
}

// A session that was closed for its client's silence is reported as expired, on every member. A
// session that its client closed is not.
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
		wantEnd(t, quiet, session.ErrExpired)
		for id := range m.nodes {
			if !slices.Equal(told[id], []tree.SessionID{quiet.ID()}) {
				t.Errorf("member %d reported %d as expired, want %d", id, told[id], quiet.ID())
			}
		}
	})
}

// outlive runs a node until the session has ended or the limit has passed. latency says how long a
// commit takes when it is sent. outlive returns how long the session lived.
func (n *node) outlive(s *Session, limit time.Duration, latency func() time.Duration) time.Duration {
	n.t.Helper()
	var waiting []*enginetest.Proposal
	var due []time.Time
	begin := time.Now()
	for s.Err() == nil && time.Since(begin) < limit {
		enginetest.Pass(20 * time.Millisecond)
		for _, p := range n.log.Drain() {
			waiting, due = append(waiting, p), append(due, p.At.Add(latency()))
		}
		for len(waiting) > 0 && time.Now().After(due[0]) {
			n.apply(waiting[0])
			waiting, due = waiting[1:], due[1:]
		}
	}
	return time.Since(begin)
}

// openRemote opens a remote session.
func (n *node) openRemote(timeout time.Duration) (s *Session) {
	n.t.Helper()
	go func() { s, _ = n.OpenRemote(n.t.Context(), timeout) }()
	n.commit()
	if s == nil {
		n.t.Fatal("no session")
	}
	return s
}

// G3.1: commits take more than a third of another session's timeout, and of the session's own. If
// its client has gone, the session still ends in a time that its own timeout bounds.
func TestSilenceIsCountedWhileCommitsAreSlow(t *testing.T) {
	const timeout = 10 * time.Second
	always := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	alternate := func(all ...time.Duration) func() time.Duration {
		i := 0
		return func() time.Duration { i++; return all[i%len(all)] }
	}
	slack := 4 * keeper.RemoteTick(time.Second)
	for name, c := range map[string]struct {
		latency func() time.Duration
		most    time.Duration
	}{
		"a third of another's":         {always(400 * time.Millisecond), timeout + slack},
		"its timeout of another's":     {always(1100 * time.Millisecond), timeout + slack},
		"just below a third":           {always(timeout/keeper.SuspendedParts - 50*time.Millisecond), 8*timeout + slack},
		"a third":                      {always(timeout / keeper.SuspendedParts), 4*timeout + slack},
		"half":                         {always(timeout / 2), 4*timeout + slack},
		"nearly all":                   {always(timeout - 100*time.Millisecond), 4*timeout + slack},
		"more":                         {always(3 * timeout), 4*3*timeout + timeout + slack},
		"now longer, now short":        {alternate(3*timeout, 10*time.Millisecond), 8*3*timeout + slack},
		"now long, now short":          {alternate(timeout*9/10, 10*time.Millisecond), 8*timeout + slack},
		"now long, now nearly a third": {alternate(timeout*9/10, timeout*3/10), 8*timeout + slack},
	} {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				n.openRemote(time.Second)
				s := n.openRemote(timeout)
				s.Heard()
				took := n.outlive(s, 2*c.most, c.latency)
				if t.Logf("it lived for %v", took); took < timeout || took > c.most {
					t.Errorf("it lived for %v, want %v to %v", took, timeout, c.most)
				}
			})
		})
	}
}

// G3.1: a session with a short timeout that is Suspended again and again gives no other session its
// full timeout again.
func TestSuspensionIsOfOneTimeout(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		short, long := n.openRemote(time.Second), n.openRemote(30*time.Second)
		opened := time.Now()
		n.lead(0)
		n.run(2 * time.Second)
		n.wantState(short, session.Suspended)
		n.wantState(long, session.Connected)
		n.lead(enginetest.Other)
		for short.Err() == nil {
			n.run(keeper.RemoteTickMin)
		}
		if took := time.Since(opened); took > 4*time.Second {
			t.Errorf("the short one ended after %v", took)
		}
		for long.Err() == nil && time.Since(opened) < time.Minute {
			n.run(keeper.RemoteTickMin)
		}
		if took := time.Since(opened); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("the long one ended after %v", took)
		}
	})
}

// A timeout of a few ticks, or of less than one, is not rounded. Otherwise its client would see the
// session Suspended between any two beats, and a timeout of no ticks would never end it.
func TestTimeoutsOfFewTicksAreExact(t *testing.T) {
	least := SessionTimeoutFloor(time.Millisecond)
	for _, timeout := range []time.Duration{least, 2*keeper.RemoteTickMin - time.Millisecond} {
		t.Run(fmt.Sprint(timeout), func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				n.cfg.MinSessionTimeout = timeout
				s := n.openRemote(timeout)
				for range 100 {
					s.Heard()
					n.run(10 * time.Millisecond)
					n.wantState(s, session.Connected)
				}
				n.run(timeout + 3*keeper.RemoteTickMin)
				wantEnd(t, s, session.ErrExpired)
			})
		})
	}
}

// G3.2: an outage takes nothing from a client that had been heard when it began. This holds however
// long it is, and wherever in it the batches were sent that end it.
func TestOutageIsNobodysSilence(t *testing.T) {
	for _, outage := range []time.Duration{testTimeout / 2, testTimeout * 9 / 10, 2 * testTimeout, time.Hour} {
		t.Run(fmt.Sprint(outage), func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.openRemote(testTimeout)
				n.run(testTimeout / 3) // as far apart as its pings
				until := time.Now().Add(outage)
				n.outlive(s, outage+time.Second, func() time.Duration { return max(time.Until(until), 10*time.Millisecond) })
				n.wantState(s, session.Connected)
				n.run(testTimeout - time.Second - 2*keeper.RemoteTickMin)
				wantEnd(t, s, nil)
				n.run(time.Second + 4*keeper.RemoteTickMin)
				wantEnd(t, s, session.ErrExpired)
			})
		})
	}
}
