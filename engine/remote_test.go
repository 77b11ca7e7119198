package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// Every member can tell which member speaks for a session, until the session's end is decided.
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
		next := m.reattach(2, s)
		want(s.ID(), 2, nil)
		if _, err := await(m, func() (struct{}, error) { return struct{}{}, next.Close() }); err != nil {
			t.Fatal(err)
		}
		want(s.ID(), 0, ErrNoSession)
		want(12345, 0, ErrNoSession)
		if _, err := next.Member(t.Context(), other.ID()); err != session.ErrClosed {
			t.Errorf("a session that has ended asks: %v", err)
		}
	})
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.shard.Portion = 1
		m := n.joined(2, 1)
		m.open(testTimeout)
		waits := m.open(testTimeout)
		n.joined(2, 2) // and one waits for its turn
		if got, err := s.Member(t.Context(), waits); err != ErrNoSession || !slices.Contains(n.sessionsOf(2), waits) {
			t.Errorf("whose end is decided: member %d, %v", got, err)
		}
	})
}

// A client comes back, to the same member or to another. What it owns stays. What its former
// connection had not sent yet is refused. The client may go on from both.
func TestRemoteSessionMoves(t *testing.T) {
	for name, to := range map[string]MemberID{"here": 1, "elsewhere": 2} {
		t.Run(name, func(t *testing.T) {
			withTeam(t, 1, func(t *testing.T, m *team) {
				s := m.open(1)
				m.mustCreate(s, "/e")
				w, err := s.Watch("/e", watch.Data, watch.Options{}, "")
				if err != nil {
					t.Fatal(err)
				}
				m.nodes[1].log.Elect(0)
				queued := s.Submit(t.Context(), []tree.Op{ephemeral("/queued")})
				var next *Session
				if to == 1 {
					go func() { next, _ = m.nodes[1].Reattach(t.Context(), s.ID(), s.Password(), 2*testTimeout) }()
					synctest.Wait()
					m.nodes[1].lead(3)
					m.commit()
					// The queued create was sent before the Reattach, and belongs to the session.
					if err := outcome(queued); err != nil {
						t.Fatalf("what was queued before: %v", err)
					}
				} else {
					next = m.reattach(2, s)
					if err := outcome(queued); err != session.ErrMoved {
						t.Fatalf("what was queued: %v", err)
					}
					m.nodes[1].lead(3)
					m.commit()
					m.wantThere(false, "/queued")
				}
				wantEnd(t, s, session.ErrMoved)
				if w.Err() != session.ErrMoved {
					t.Errorf("its watch ended with %v", w.Err())
				}
				wantEnd(t, next, nil)
				if next.ID() != s.ID() || next.Password() != s.Password() || next == s {
					t.Errorf("session %d went on as %d", s.ID(), next.ID())
				}
				if _, err := s.Submit(t.Context(), []tree.Op{create("/late")}).Result(); err != session.ErrMoved {
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
				wantEnd(t, next, session.ErrClosed)
			})
		})
	}
}

// 5.1.6, E3.2: who learns that the session has expired. Nothing changes by asking.
func TestReattachIsRefused(t *testing.T) {
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
		record, _ := tableOf(m.nodes[1].shard).Get(own.ID())
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
					return m.nodes[at+1].Reattach(t.Context(), c.id, c.password, testTimeout)
				})
				if err != session.ErrExpired {
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

// A former connection was about to submit a request when its session came back here. The request is
// not applied after those that were cancelled in the queue, because it came after them.
func TestNothingIsSubmittedAfterItsSessionHasLeft(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		ops := []tree.Op{create("/late")}
		w := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestTxn, Session: s.ID(), Ops: ops})
		next := m.reattach(1, s)
		_, _ = s.engine.shards.At("/late").Outbox.Submit(w) // its error is its outcome
		m.commit()
		if err := callOutcome(w); err != session.ErrMoved {
			t.Errorf("its outcome is %v", err)
		}
		m.wantThere(false, "/late")
		m.mustCreate(next, "/late")
	})
}

// A member that starts again speaks for the sessions of its clients. They have their full timeout
// again to come back, and end in time if they do not.
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
		back, away = m.reattach(1, back), m.reattach(2, away)
		for time.Since(started) < testTimeout {
			m.wantThere(true, "/stays")
			m.chat(keeper.RemoteTickMin, back, away)
		}
		m.chat(testTimeout, back, away)
		m.wantThere(false, "/stays")
		m.wantThere(true, "/back", "/away")
	})
}

// A node speaks for no session before it has applied its own Register. What it knows until then is
// old, and the client may have gone to another member.
func TestNodeAdoptsNobodyBeforeItsRegister(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		m.mustCreate(s, "/e")
		old := len(m.logs[command.HomeShard])
		m.kill(1)
		next := m.reattach(2, s)
		n := m.start(1)
		m.deaf[n], m.mute[n] = true, true
		for _, p := range m.logs[command.HomeShard][:old] {
			n.applyOn(command.HomeShard, enginetest.Decode(t, p.Cmd))
		}
		m.done[n][command.HomeShard] = old
		if r, _ := tableOf(n.shard).Get(s.ID()); r.Origin != 1 {
			t.Fatalf("it knows already: %+v", r)
		}
		m.chat(2*testTimeout, next)
		n.checkRemotes()
		m.deaf[n], m.mute[n] = false, false
		m.chat(2*testTimeout, next)
		wantEnd(t, next, nil)
		m.wantThere(true, "/e")
	})
}

// A member dies. Its clients have their timeout to go to another member. The log ends the sessions
// of those that do not, whoever leads.
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
		moves = m.reattach(2, moves)
		m.elect(3)
		for time.Since(died) < testTimeout {
			m.wantThere(true, "/stays")
			m.chat(keeper.RemoteTickMin, moves)
		}
		m.chat(testTimeout, moves) // a leader change loses a step of silence
		m.wantThere(false, "/stays")
		if _, err := m.tryReattach(3, stays); err != session.ErrExpired {
			t.Errorf("reattached: %v", err)
		}
		m.wantThere(true, "/moves")
		m.start(1)
		m.chat(3*testTimeout, moves)
		m.wantThere(true, "/moves")
	})
}

// A node that is closed ends its in-process sessions. Remote sessions stay, and their clients can
// reattach them elsewhere.
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
		if _, err := await(m, func() (int, error) { return 0, n.keeper.CloseAll(ctx) }); err != nil {
			t.Fatal(err)
		}
		m.wantThere(false, "/own")
		m.wantThere(true, "/e")
		if _, err := n.OpenRemote(t.Context(), testTimeout); err != outbox.ErrClosed {
			t.Errorf("open: %v", err)
		}
		if _, err := n.Reattach(t.Context(), s.ID(), s.Password(), testTimeout); err != outbox.ErrClosed {
			t.Errorf("reattach: %v", err)
		}
		wantEnd(t, s, nil)
		n.finish(outbox.ErrClosed, nil)
		wantEnd(t, s, outbox.ErrClosed)
		delete(m.nodes, 1)
		m.run(testTimeout / 2)
		next := m.reattach(2, s)
		m.chat(2*testTimeout, next)
		m.wantThere(true, "/e")
	})
}

// An opener that stops waiting leaves no session behind. A caller of Reattach that stops waiting
// leaves the session to its client.
func TestImpatientCallers(t *testing.T) {
	// Each alone: of two requests, one may wait for the other, and then it is certainly not
	// applied.
	lose := func(t *testing.T, m *team, call func(ctx context.Context) error) {
		t.Helper()
		m.gone = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		enginetest.Pass(2 * time.Second)
		if err := <-done; !errors.Is(err, outbox.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
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
			if all := tableOf(m.nodes[2].shard).Sessions(2); len(all) > 0 {
				t.Errorf("member 2 has %+v", all)
			}
		})
	})
	t.Run("reattach", func(t *testing.T) {
		withTeam(t, 1, func(t *testing.T, m *team) {
			s := m.open(1)
			m.mustCreate(s, "/e")
			lose(t, m, func(ctx context.Context) error {
				_, err := m.nodes[2].Reattach(ctx, s.ID(), s.Password(), testTimeout)
				return err
			})
			wantEnd(t, s, session.ErrMoved)
			if all := tableOf(m.nodes[2].shard).Sessions(2); len(all) != 1 || all[0].ID != s.ID() {
				t.Errorf("member 2 has %+v", all)
			}
			m.wantThere(true, "/e")
			m.run(testTimeout + time.Second)
			m.wantThere(false, "/e")
		})
	})
}

// A session that uses four shards is attached elsewhere, comes back, and ends. What the former
// member asks of a shard that does not know of the reattachment yet has no effect.
func TestRemoteSessionMovesOnAllItsShards(t *testing.T) {
	withTeam(t, 4, func(t *testing.T, m *team) {
		s := m.open(1)
		var paths []string
		for id := range ShardID(3) { // it does not use the fourth
			paths = append(paths, m.nodes[1].on(id+1, 0))
		}
		m.mustCreate(s, paths...)
		next := m.reattach(2, s)
		for id := range ShardID(3) {
			if r, _ := tableOf(m.nodes[3].shards[id]).Get(s.ID()); r.Origin != 2 || r.Attached != next.Attached() {
				t.Errorf("Reattach has returned, and shard %d has %+v", id+1, r)
			}
		}
		wantOwned(t, next, m, paths...)
		for id := range ShardID(4) {
			path := m.nodes[1].on(id+1, 1)
			m.mustCreate(next, path)
			paths = append(paths, path)
		}
		again := m.reattach(2, next)
		wantEnd(t, next, session.ErrMoved)
		back := m.reattach(1, again)
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

// A shard that does not answer keeps Reattach waiting, but no longer than its ctx. The next
// Reattach finds the shard as it is.
func TestReattachWaitsForTheShardsOfTheSession(t *testing.T) {
	withTeam(t, 2, func(t *testing.T, m *team) {
		s, path := m.open(1), m.nodes[1].on(2, 0)
		m.mustCreate(s, path)
		n := m.nodes[2]
		n.log.RefuseShard(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := await(m, func() (*Session, error) { return n.Reattach(ctx, s.ID(), s.Password(), testTimeout) }); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("reattach: %v", err)
		}
		wantEnd(t, s, session.ErrMoved)
		n.log.RefuseShard(0)
		next := m.reattach(2, s)
		m.mustCreate(next, n.on(2, 1))
		m.wantThere(true, path, n.on(2, 1))
	})
}

// What was submitted before SetIdentities is judged by the old identities, and what comes after by
// the new ones. This holds on all shards, even on one that the session is only beginning to use.
func TestSetIdentitiesIsInTheOrderOfTheStream(t *testing.T) {
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
			var before, after []keeper.Pending
			for _, dir := range dirs {
				before = append(before, s.Submit(t.Context(), []tree.Op{set(dir)}))
			}
			identified := make(chan error, 1)
			go func() { identified <- s.SetIdentities(t.Context(), alice) }()
			synctest.Wait()
			for _, dir := range dirs {
				after = append(after, s.Submit(t.Context(), []tree.Op{set(dir)}))
			}
			m.run(time.Second)
			if err := <-identified; err != nil {
				t.Fatal(err)
			}
			for i := range dirs {
				if err := keeper.Single(outcome(before[i])); err != tree.ErrNoAuth {
					t.Errorf("fresh %v, shard %d, before: %v", fresh, i+1, err)
				}
				if err := outcome(after[i]); err != nil {
					t.Errorf("fresh %v, shard %d, after: %v", fresh, i+1, err)
				}
			}
			if _, _, err := s.Get(dirs[1]); err != nil {
				t.Errorf("read after: %v", err)
			}
			if fresh {
				// A client that comes back has the identities of its new connection.
				next := m.reattach(2, s)
				if _, _, err := next.Get(dirs[1]); err != tree.ErrNoAuth {
					t.Errorf("read after the move: %v", err)
				}
				if _, err := await(m, func() ([]tree.Result, error) {
					return next.Submit(t.Context(), []tree.Op{set(dirs[1])}).Result()
				}); keeper.Single(err) != tree.ErrNoAuth {
					t.Errorf("write after the move: %v", err)
				}
				if err := s.SetIdentities(t.Context(), alice); err != session.ErrMoved {
					t.Errorf("identify of the former connection: %v", err)
				}
			}
		}
	})
}

// The identities of a former connection come after the Reattach in this node's stream. They do not
// affect the new connection.
func TestLateSetIdentitiesChangesNothing(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		n := m.nodes[1]
		late := command.EncodeRequest(&command.Request{Kind: command.RequestSetIdentities, Session: s.ID(), Attached: s.Attached(), Identities: []tree.Identity{alice}})
		next := m.reattach(1, s)
		if _, err := n.outbox.Submit(&outbox.Call{Encoded: late, Done: make(chan struct{})}); err != nil {
			t.Fatal(err)
		}
		m.commit()
		if r, _ := tableOf(n.shard).Get(next.ID()); len(r.Identities) > 0 {
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
		if err := s.SetIdentities(t.Context(), alice); err == nil {
			t.Error("it may be somebody else")
		}
	})
}

// A remote session holds no claims here. Its client decides what it holds.
func TestRemoteSessionHoldsNothingHere(t *testing.T) {
	withTeam(t, 1, func(t *testing.T, m *team) {
		s := m.open(1)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/c", Mode: tree.Ephemeral}}, nil)
		m.commit()
		if err := holdErr(c); err != keeper.ErrSuspended {
			t.Errorf("hold: %v", err)
		}
		m.reattach(2, s)
		if err := c.Err(); err != session.ErrMoved {
			t.Errorf("the claim ended with %v", err)
		}
		m.wantThere(true, "/c")
	})
}

// A snapshot skips the entries that attach sessions and that end them. The node takes charge of its
// own sessions, and lets go of the others.
func TestInstallBringsRemoteSessions(t *testing.T) {
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
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
			step, d, _ := tableOf(ahead.shard).NextStep(enginetest.Member)
			ahead.node.apply(&enginetest.Proposal{Cmd: command.EncodeSilence(step, d, 1)})
		}
		var back *Session
		go func() { back, _ = n.Reattach(t.Context(), anew.ID(), anew.Password(), testTimeout) }()
		var opening error
		go func() { _, opening = n.OpenRemote(t.Context(), testTimeout) }()
		list, swallowed := n.requests()
		for gone := 0; gone < 2; list, swallowed = n.requests() { // the Reattach and the Open
			for _, r := range list {
				if r.Kind == command.RequestReattach || r.Kind == command.RequestOpen {
					gone++
				}
			}
			ahead.node.apply(swallowed...)
			ahead.install()
		}
		wantEnd(t, stays, nil)
		wantEnd(t, anew, session.ErrMoved)
		wantEnd(t, gone, session.ErrExpired)
		n.checkRemotes()
		n.apply(swallowed...)
		n.commit() // the Reattach that was asked for again
		if back == nil || back.Err() != nil || opening != outbox.ErrUnknownOutcome {
			t.Fatalf("reattached %v, opened %v", back, opening)
		}
		n.checkRemotes()
		if known := len(n.sessionsOf(enginetest.Member)); known != 3 {
			t.Errorf("%d sessions, want those two and what was opened", known)
		}
		for range 20 {
			back.Heard()
			n.run(testTimeout / 10)
		}
		wantEnd(t, stays, session.ErrExpired)
		if all := n.sessionsOf(enginetest.Member); !slices.Equal(all, []tree.SessionID{back.ID()}) || n.exists("/stays") || !n.exists("/anew") {
			t.Errorf("left are %v", all)
		}
	})
}

// A snapshot arrives before this node has registered. The sessions that it shows as attached to
// this member may be attached to another by now.
func TestInstallBeforeTheRegisterAdoptsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := enginetest.Origin()
		former := command.EncodeRegister(origin, 0, enginetest.Rules())
		origin.Start++
		n := newNodeOf(t, origin).withImage()
		ahead := &peer{node: newNodeOf(t, session.Origin{Member: 9}).withImage(), of: n}
		open := command.Request{Kind: command.RequestOpen, Timeout: testTimeout, Remote: true}
		ahead.node.apply(&enginetest.Proposal{Cmd: former},
			&enginetest.Proposal{Cmd: command.EncodeBatch(enginetest.Member, origin.Start-1, 1, 0, 0, 1, slices.Values([][]byte{command.EncodeRequest(&open)}))})
		ahead.install()
		if known := len(n.sessionsOf(enginetest.Member)); known != 1 {
			t.Fatalf("it knows %d sessions", known)
		}
		n.checkRemotes()
		n.lead(enginetest.Other)
		n.commit()
		n.checkRemotes()
		for range 20 {
			n.run(testTimeout / 10)
		}
		if left := n.sessionsOf(enginetest.Member); len(left) > 0 {
			t.Errorf("it has registered, and lets the silent %v live", left)
		}
	})
}
