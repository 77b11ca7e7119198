package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
	"github.com/vivarium-go/vivarium/watch"
)

// Sessions of these tests have a timeout of 10 s. So the margin is 1 s, and the deadline is 9 s
// after a proof.
const testTimeout, testDeadline = 10 * time.Second, 9 * time.Second

// describeRequest formats a request as these tests write it: "create /q", "release /q", "close 7".
func describeRequest(r command.Request) string {
	switch r.Kind {
	case command.RequestRelease:
		return "release " + r.Path
	case command.RequestClose:
		return fmt.Sprint("close ", r.Session)
	case command.RequestOpen:
		return "open"
	}
	if len(r.Ops) == 0 {
		return "nothing"
	}
	return r.Ops[0].Kind.String() + " " + r.Ops[0].Path
}

func describeAll(list []command.Request) []string {
	var out []string
	for _, r := range list {
		out = append(out, describeRequest(r))
	}
	return out
}

func (n *node) wantRequests(want ...string) []*enginetest.Proposal {
	n.t.Helper()
	list, ps := n.requests()
	if got := describeAll(list); !slices.Equal(got, want) {
		n.t.Fatalf("sent %q, want %q", got, want)
	}
	return ps
}

func TestSessionIsSuspendedAtItsDeadline(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		state, changed := s.State()
		if state != session.Connected {
			t.Fatal(state)
		}
		enginetest.Pass(testDeadline - time.Nanosecond)
		n.wantState(s, session.Connected)
		if testkit.Closed(changed) {
			t.Fatal("a state change was reported, but the state is the same")
		}
		enginetest.Pass(time.Nanosecond)
		n.wantState(s, session.Suspended)
		if !testkit.Closed(changed) {
			t.Fatal("no one was told of the new state")
		}
	})
}

// A8.1: a gap without commits costs the Holds, not the session.
func TestSuspensionEndsHeldClaimsAndDeletesThemFirst(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		held, waits := n.held(s, "/held"), n.claim(s, "/waits")
		n.lead(0)
		s.Submit(t.Context(), []tree.Op{{Kind: tree.KindDelete, Path: "/x"}})
		enginetest.Pass(testDeadline)
		if !testkit.Closed(held.Done()) {
			t.Fatal("the held claim goes on")
		}
		s.Submit(t.Context(), []tree.Op{{Kind: tree.KindDelete, Path: "/y"}})
		n.lead(enginetest.Other)
		n.apply(n.wantRequests("release /held", "delete /x", "delete /y")...)
		n.wantState(s, session.Connected)
		if n.exists("/held") || !n.exists("/waits") {
			t.Fatal("the wrong znode was deleted")
		}
		if err := holdErr(waits); err != nil {
			t.Fatalf("a claim that waited cannot be held: %v", err)
		}
		if err := holdErr(held.Claim); !errors.Is(err, keeper.ErrSuspended) {
			t.Fatalf("an ended claim is held again: %v", err)
		}
	})
}

// A4, A8.1, B4.1: after two timeouts without a commit, the session ends here, and so do its
// queued requests. The log learns of it.
func TestSessionThatStaysSuspendedExpiresHereAndIsClosedInTheLog(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.claim(s, "/waits")
		n.lead(0)
		queued := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/x"}})
		enginetest.Pass(testDeadline + testTimeout - time.Nanosecond)
		n.wantState(s, session.Suspended)
		enginetest.Pass(time.Nanosecond)
		n.wantState(s, session.Expired)
		if !errors.Is(s.Err(), session.ErrExpired) || !testkit.Closed(s.Done()) || !errors.Is(cause(s.Context()), session.ErrExpired) {
			t.Fatalf("ended with %v", s.Err())
		}
		if err := outcome(queued); !errors.Is(err, session.ErrExpired) {
			t.Fatalf("a queued request of it: %v", err)
		}
		n.lead(enginetest.Other)
		ps := n.wantRequests(fmt.Sprint("close ", s.ID()))
		n.apply(ps...)
		if n.exists("/waits") {
			t.Fatal("its ephemerals are still there")
		}
		n.wantState(s, session.Expired) // for good
	})
}

// A4: a node's beats speak for all its sessions, even for one that has ended on the node's own
// clock. No one else would ever end that session. So the node closes it, ahead of other requests.
func TestSessionThatEndedHereIsNotKeptAliveByItsNode(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		short, long := n.open(testTimeout), n.open(time.Minute)
		n.claim(short, "/waits")
		n.lead(0)
		long.Submit(t.Context(), []tree.Op{create("/other")})
		enginetest.Pass(testDeadline + testTimeout)
		n.wantState(short, session.Expired)
		n.lead(enginetest.Other)
		n.apply(n.wantRequests(fmt.Sprint("close ", short.ID()), "create /other")...)
		n.run(time.Minute)
		n.wantState(long, session.Connected)
		if n.exists("/waits") || len(n.sessionsOf(enginetest.Member)) != 1 {
			t.Fatalf("open are %v", n.sessionsOf(enginetest.Member))
		}
	})
}

// A5: what this node sends reaches the others, but nothing reaches this node. Its sessions end here
// for lack of a proof. Meanwhile no beat may keep them alive in the log. Neither Outbox.Beat nor
// readyLocked sends one beside a batch. This test fails if both do; TestNoBeatWhileABatchIsInFlight
// fails if only the first does.
func TestNodeThatHearsNothingStopsProvingItselfAlive(t *testing.T) {
	for name, c := range map[string]struct {
		each  int           // requests in each tenth of a second
		until time.Duration // the newest batch was sent by then
		sent  int           // batches
	}{
		"idle":               {0, testTimeout / keeper.BeatsPerTimeout, 1}, // a beat before the first one was missed
		"one asks":           {1, 0, 1},
		"a batch can be had": {outbox.SecondBatchMin, time.Second / 10, outbox.InflightMax},
	} {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				origin := enginetest.Origin()
				origin.Member, origin.Directory = enginetest.Other, [16]byte{2}
				other := newNodeOf(t, origin)
				other.loops.Go(func() { other.shard.ExpireLoop(other.stop, other.done) })
				other.log.Elect(enginetest.Other)
				other.leaderChanged(command.HomeShard, other.log.Leader(command.HomeShard))
				s := n.open(testTimeout)
				opened := time.Now()
				other.apply(n.applied...)
				var expired time.Time
				other.cfg.SessionExpired = func(tree.SessionID) { expired = time.Now() }
				sent := make(map[uint64]bool)
				for i := 0; expired.IsZero() && time.Since(opened) < 10*testTimeout; i++ {
					if i%10 == 0 {
						for range c.each {
							s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCheck, Path: "/"}})
						}
					}
					ps := n.log.Drain()
					for _, p := range ps {
						sent[enginetest.Decode(t, p.Cmd).Seq] = true
					}
					other.apply(ps...)
					other.commit()
					enginetest.Pass(10 * time.Millisecond)
				}
				n.wantState(s, session.Suspended)
				if len(sent) > c.sent {
					t.Errorf("it sent %d batches after the last one that it saw, want %d at most", len(sent), c.sent)
				}
				if took := expired.Sub(opened); expired.IsZero() || took > testTimeout+c.until+200*time.Millisecond {
					t.Errorf("expired %v after the last batch that its node saw, timeout %v", took, testTimeout)
				}
			})
		})
	}
}

// B4.1: a request that was sent may or may not be applied. Its session has ended here, so no one
// will say.
func TestRequestInFlightOfASessionThatExpiresHereIsUnknown(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, other := n.open(testTimeout), n.open(time.Minute)
		sent := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/x"}})
		stays := other.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/y"}})
		_, ps := n.requests()
		enginetest.Pass(testDeadline + testTimeout + time.Second)
		if err := outcome(sent); !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatalf("outcome %v", err)
		}
		n.apply(ps...)
		n.commit()
		if err := outcome(stays); err != nil {
			t.Fatalf("another session's request: %v", err)
		}
		if err := outcome(sent); !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatalf("the outcome has become %v", err)
		}
	})
}

// A3.4: the clocks drifted apart by more than is assumed.
func TestLogEndsASessionThatCountsAsSafe(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		var expired []tree.SessionID
		n.cfg.SessionExpired = func(id tree.SessionID) { expired = append(expired, id) }
		for { // four leaders with wild clocks
			step, d, ok := tableOf(n.shard).NextStep(enginetest.Member)
			if !ok {
				break
			}
			n.applyCommand(command.Command{Kind: command.KindSilence, Step: step, Silence: d})
		}
		n.wantState(s, session.Expired)
		if !errors.Is(c.Err(), session.ErrExpired) || !testkit.Closed(c.Done()) || n.exists("/q") {
			t.Fatalf("the claim: %v", c.Err())
		}
		if !slices.Equal(expired, []tree.SessionID{s.ID()}) {
			t.Fatalf("expiry was reported of %v", expired)
		}
		n.run(time.Second)
		n.wantState(s, session.Expired)
	})
}

// Events.SessionExpired reports what the log expires. If a node ends a session by its own clock,
// the log sees only a close, as when the owner closes it. That is so whether or not the session
// lost anything before.
func TestEndByTheOwnClockIsNotToldAsExpiry(t *testing.T) {
	for name, end := range map[string]func(n *node, s *Session){
		"expired here": func(n *node, _ *Session) { enginetest.Pass(testDeadline + testTimeout) },
		"closed when a claim was lost": func(n *node, s *Session) {
			n.heldToLinger(s, "/q")
			enginetest.Pass(testDeadline)
			n.wantState(s, session.Suspended)
			go s.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				var told []tree.SessionID
				n.cfg.SessionExpired = func(id tree.SessionID) { told = append(told, id) }
				end(n, s)
				n.run(time.Second)
				if len(n.sessionsOf(enginetest.Member)) > 0 || len(told) > 0 {
					t.Errorf("sessions left: %v; expiry was reported of %v", n.sessionsOf(enginetest.Member), told)
				}
			})
		})
	}
}

func TestEachSessionHasItsOwnDeadline(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		long, short := n.open(2*testTimeout), n.open(testTimeout)
		enginetest.Pass(testDeadline)
		n.wantState(short, session.Suspended)
		n.wantState(long, session.Connected)
		enginetest.Pass(testDeadline)
		n.wantState(long, session.Suspended)
		n.run(time.Second)
		n.wantState(long, session.Connected)
		n.wantState(short, session.Connected)
	})
}

func TestClosedSessionNoLongerSetsThePace(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		short := n.open(time.Second)
		long := n.open(time.Minute)
		go short.Close()
		n.commit()
		enginetest.Pass(9 * time.Second)
		n.wantRequests()
		if ps := n.log.Drain(); len(ps) > 0 {
			t.Fatal("a beat for a session that is closed")
		}
		n.wantState(long, session.Connected)
	})
}

func TestIdleNodeBeatsSixTimesATimeout(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		enginetest.Pass(time.Hour)
		if _, ps := n.requests(); len(ps) > 0 {
			t.Fatalf("%d beats without a session", len(ps))
		}
		s := n.open(testTimeout)
		n.open(time.Minute)
		before := len(n.applied)
		n.run(time.Minute)
		if beats := len(n.applied) - before; beats < 33 || beats > 36 {
			t.Fatalf("%d beats in six timeouts", beats)
		}
		n.wantState(s, session.Connected)
	})
}

func TestBusyNodeSendsNoBeats(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		for range 100 {
			s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCheck, Path: "/", Version: tree.AnyVersion}})
			_, ps := n.requests()
			if len(ps) != 1 {
				t.Fatalf("%d batches for one request", len(ps))
			}
			n.apply(ps...)
			enginetest.Pass(testTimeout/keeper.BeatsPerTimeout - time.Millisecond)
		}
	})
}

// A session is suspended and connected again at one moment. A caller that waits for a change is
// woken, and then sees the newest state.
func TestStateChannelClosesOnEveryChange(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		want := func(changed <-chan struct{}, state session.State) <-chan struct{} {
			t.Helper()
			if !testkit.Closed(changed) {
				t.Fatalf("%v was not reported", state)
			}
			n.wantState(s, state)
			_, next := s.State()
			if testkit.Closed(next) {
				t.Fatalf("the channel of %v is closed", state)
			}
			return next
		}
		_, changed := s.State()
		n.fake.Pause(testDeadline)
		enginetest.Pass(3 * time.Second)
		changed = want(changed, session.Suspended)
		n.run(3 * time.Second)
		changed = want(changed, session.Connected)
		go s.Close()
		synctest.Wait()
		changed = want(changed, session.Closed)
		n.run(time.Minute)
		if testkit.Closed(changed) {
			t.Fatal("a closed session has another state")
		}
	})
}

func TestOpenerThatGivesUpBeforeTheSendingOpensNothing(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.lead(0)
		var err error
		go func() { _, err = n.OpenSession(t.Context(), testTimeout) }()
		enginetest.Pass(n.cfg.RequestTimeout)
		if !errors.Is(err, outbox.ErrUnavailable) {
			t.Fatal(err)
		}
		n.lead(enginetest.Other)
		n.wantRequests()
	})
}

func TestSessionOfAnOpenerThatGaveUpIsClosed(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		var err error
		go func() { _, err = n.OpenSession(t.Context(), testTimeout) }()
		open := n.wantRequests("open")
		enginetest.Pass(n.cfg.RequestTimeout)
		if !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		n.log.Drain()
		n.apply(open[0])
		id := tableOf(n.shard).Sessions(enginetest.Member)[0].ID
		n.apply(n.wantRequests(fmt.Sprint("close ", id))...)
		if len(tableOf(n.shard).Sessions(enginetest.Member)) > 0 || n.keeper.BeatInterval() != 0 {
			t.Fatal("the session is still there")
		}
	})
}

func TestOpenTimeoutIsClamped(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		for asked, want := range map[time.Duration]time.Duration{
			-1: time.Second, time.Millisecond: time.Second, testTimeout: testTimeout, time.Hour: time.Minute,
		} {
			s := n.open(asked)
			if r, _ := tableOf(n.shard).Get(s.ID()); s.Timeout() != want || r.Timeout != want {
				t.Errorf("asked for %v, got %v here and %v in the ensemble", asked, s.Timeout(), r.Timeout)
			}
		}
	})
}

func TestCloseCancelsQueuedRequestsAndDeletesEphemerals(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		sent := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/sent"}})
		first := n.wantRequests("create /sent")
		queued := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/queued"}})
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if err := outcome(queued); !errors.Is(err, session.ErrClosed) {
			t.Fatalf("a queued request: %v", err)
		}
		if !errors.Is(c.Err(), session.ErrClosed) || !errors.Is(s.Err(), session.ErrClosed) {
			t.Fatalf("session %v, claim %v", s.Err(), c.Err())
		}
		if _, err := s.Submit(t.Context(), nil).Result(); !errors.Is(err, session.ErrClosed) {
			t.Fatalf("a request after Close: %v", err)
		}
		n.apply(first...)
		if err := outcome(sent); err != nil {
			t.Fatalf("a request that was sent before Close: %v", err)
		}
		n.commit()
		if err := <-closed; err != nil || n.exists("/q") {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("a second Close: %v", err)
		}
	})
}

// A10: Close stops waiting, but the session must still go once there is a leader.
func TestCloseWithoutALeaderIsSentLater(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.claim(s, "/q")
		n.lead(0)
		var err error
		go func() { err = s.Close() }()
		enginetest.Pass(n.cfg.RequestTimeout)
		if !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		n.lead(enginetest.Other)
		n.apply(n.wantRequests(fmt.Sprint("close ", s.ID()))...)
		if n.exists("/q") {
			t.Fatal("its ephemeral is still there")
		}
	})
}

func TestCloseOfAnExpiredSessionIsNoError(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		var err error
		go func() { err = s.Close() }()
		synctest.Wait()
		n.expire(s.ID()) // the ensemble was faster
		n.commit()
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestWatchesEndWithTheSession(t *testing.T) {
	ends := map[string]struct {
		end func(n *node, s *Session)
		why error
	}{
		"close":   {func(n *node, s *Session) { go s.Close(); n.commit() }, session.ErrClosed},
		"expired": {func(n *node, s *Session) { n.lead(0); enginetest.Pass(testDeadline + testTimeout) }, session.ErrExpired},
		"log": {func(n *node, s *Session) {
			n.expire(s.ID())
		}, session.ErrExpired},
		"node": {func(n *node, s *Session) { n.finish(ErrFailed, enginetest.ErrRefused) }, ErrFailed},
	}
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s, other := n.open(testTimeout), n.open(time.Minute)
				n.claim(s, "/q")
				w, err := s.Watch("/q", watch.Persistent, watch.Options{}, "")
				if err != nil {
					t.Fatal(err)
				}
				stays, _ := other.Watch("/q", watch.Persistent, watch.Options{}, "")
				c.end(n, s)
				if e, ok := <-w.Events(); ok {
					t.Fatalf("an event of its own end: %v", e)
				}
				if !errors.Is(w.Err(), c.why) {
					t.Fatalf("the watch ended with %v, want %v", w.Err(), c.why)
				}
				if name != "node" && testkit.Closed(stays.Events()) {
					t.Fatal("another session's watch ended too")
				}
				if _, err := s.Watch("/q", watch.Once, watch.Options{}, ""); !errors.Is(err, c.why) {
					t.Fatalf("a watch on an ended session: %v", err)
				}
			})
		})
	}
}

func TestNodesEndTellsSessionsWhy(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		n.finish(ErrFailed, enginetest.ErrRefused)
		n.wantState(s, session.Closed)
		if !errors.Is(s.Err(), ErrFailed) || !errors.Is(c.Err(), ErrFailed) {
			t.Fatalf("session %v, claim %v", s.Err(), c.Err())
		}
		if _, err := n.OpenSession(t.Context(), testTimeout); !errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
		if err := n.over(); !errors.Is(err, ErrFailed) {
			t.Fatal(err)
		}
	})
}

// CloseAll must leave no session that is opened behind its back. It also closes sessions that are
// being opened, and allows no new ones.
func TestCloseAllClosesWhatIsBeingOpened(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		go n.OpenSession(t.Context(), testTimeout)
		synctest.Wait()
		opens := n.log.Drain()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := n.keeper.CloseAll(ctx); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if _, err := n.OpenSession(t.Context(), testTimeout); err != outbox.ErrClosed {
			t.Errorf("another session: %v", err)
		}
		n.apply(opens...)
		synctest.Wait()
		select {
		case <-ended:
			t.Error("CloseAll does not wait for the close of a session that was being opened")
		default:
		}
		n.commit()
		<-ended
		if sessions := tableOf(n.shard).Sessions(enginetest.Member); len(sessions) > 0 {
			t.Errorf("open: %v", sessions)
		}
	})
}

// A11: sessions that have ended here end for the ensemble by the calls that this node sends. So CloseAll
// waits for them, whoever has ended the session.
func TestCloseAllWaitsForWhatHasEndedHere(t *testing.T) {
	for what, end := range map[string]func(n *node, s *Session){
		"closed by its owner":        func(_ *node, s *Session) { go s.Close() },
		"closed by another CloseAll": func(n *node, _ *Session) { go n.keeper.CloseAll(n.t.Context()) },
		"expired":                    func(n *node, s *Session) { n.expireHere(s) },
	} {
		withNode(t, func(t *testing.T, n *node) {
			end(n, n.open(testTimeout))
			synctest.Wait()
			ended := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ended <- n.keeper.CloseAll(ctx)
			}()
			synctest.Wait()
			if len(ended) > 0 {
				t.Errorf("%s: CloseAll does not wait", what)
			}
			n.commit()
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if sessions := tableOf(n.shard).Sessions(enginetest.Member); len(sessions) > 0 {
				t.Errorf("%s: open: %v", what, sessions)
			}
		})
	}
}

// A late question gets the same answer as an early one.
func TestEndedSessionSaysSoToWhoAsksLate(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.finish(ErrFailed, enginetest.ErrRefused)
		select {
		case <-s.Done():
		default:
			t.Error("Done is open")
		}
		if err := context.Cause(s.Context()); s.Context().Err() == nil || !errors.Is(err, ErrFailed) {
			t.Errorf("the context ended with %v", err)
		}
	})
}

// What a Session adds to the keeper's, which TestIdleSessionIsSmall measures. A node may have
// 100,000 of them.
func TestSessionAddsLittle(t *testing.T) {
	if size := reflect.TypeFor[Session]().Size(); size > 24 {
		t.Errorf("a Session adds %d bytes, want at most 24", size)
	}
}
