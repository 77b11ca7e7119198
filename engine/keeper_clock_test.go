package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"

	"github.com/vivarium-go/vivarium/engine/clock"
)

// stops are the ways in which time is lost before anybody asks: the process stands still, or the machine sleeps, which the clock
// that is mostly asked does not show.
var stops = map[string]func(c *fakeClock, d time.Duration){"stopped": (*fakeClock).pause, "asleep": (*fakeClock).sleep}

// A3.1: no timer has run when the first question is asked.
func TestFirstQuestionAfterAPauseIsAnsweredByTheClock(t *testing.T) {
	questions := map[string]func(n *node, s *Session, c hold) bool{
		"state":   func(n *node, s *Session, c hold) bool { st, _ := s.State(); return st == session.Suspended },
		"claim":   func(n *node, s *Session, c hold) bool { return errors.Is(c.Err(), ErrSuspended) },
		"hold":    func(n *node, s *Session, c hold) bool { return errors.Is(holdErr(c.Claim), ErrSuspended) },
		"session": func(n *node, s *Session, c hold) bool { return s.Err() == nil && c.err == ErrSuspended },
		"done":    func(n *node, s *Session, c hold) bool { return testkit.Closed(c.Done()) },
		"guard": func(n *node, s *Session, c hold) bool {
			_, err := c.turn.guard(s)
			return errors.Is(err, tree.ErrNotHeld) && errors.Is(err, ErrSuspended)
		},
	}
	for name, lost := range questions {
		for how, stop := range stops {
			t.Run(name+"/"+how, func(t *testing.T) {
				withNode(t, func(t *testing.T, n *node) {
					s := n.open(testTimeout)
					c := n.held(s, "/q")
					n.wantState(s, session.Connected)
					stop(n.fake, testDeadline)
					if !lost(n, s, c) {
						t.Fatal("the first question is not answered lost")
					}
					if !testkit.Closed(c.Done()) || !errors.Is(cause(c.turn.Context()), ErrSuspended) {
						t.Fatalf("the claim goes on: %v", cause(c.turn.Context()))
					}
				})
			})
		}
	}
}

// A3.1: the same for the session itself, whose end comes a timeout later.
func TestFirstQuestionAfterALongPauseIsToldTheEnd(t *testing.T) {
	for name, ended := range map[string]func(s *Session) bool{
		"err":     func(s *Session) bool { return errors.Is(s.Err(), ErrSessionExpired) },
		"state":   func(s *Session) bool { state, _ := s.State(); return state == session.Expired },
		"done":    func(s *Session) bool { return testkit.Closed(s.Done()) },
		"context": func(s *Session) bool { return errors.Is(cause(s.Context()), ErrSessionExpired) },
		"submit": func(s *Session) bool {
			_, err := s.Submit(context.Background(), []tree.Op{create("/x")}).Result()
			return errors.Is(err, ErrSessionExpired)
		},
	} {
		for how, stop := range stops {
			t.Run(name+"/"+how, func(t *testing.T) {
				withNode(t, func(t *testing.T, n *node) {
					s := n.open(testTimeout)
					n.wantState(s, session.Connected)
					stop(n.fake, testDeadline+testTimeout)
					if !ended(s) {
						t.Fatal("the first question is answered as if the session lived")
					}
				})
			})
		}
	}
}

// A batch that was sent in time is applied after the deadline, and nobody had looked in between: the session was
// suspended all the same, though it is not any more.
func TestBatchAppliedAfterTheDeadlineShowsThatItHadPassed(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		_, changed := s.State()
		pass(5 * time.Second)
		beat := n.wantRequests()
		if len(beat) == 0 {
			t.Fatal("no beat")
		}
		n.fake.pause(4*time.Second + time.Millisecond)
		n.apply(beat[0])
		n.wantState(s, session.Connected)
		if err := c.Err(); !errors.Is(err, ErrSuspended) {
			t.Fatalf("the claim ended with %v", err)
		}
		if !testkit.Closed(changed) {
			t.Fatal("nobody was told")
		}
		n.wantRequests("release /q")
	})
}

// A2: the batch was sent again and again before it was applied.
func TestProofCountsFromTheFirstSending(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		pass(2 * time.Second)
		_, queued := n.requests()
		at := queued[0].at
		pass(3 * time.Second)
		n.apply(queued[0])
		n.log.take()
		n.lead(0)
		pass(time.Until(at.Add(testDeadline)) - time.Nanosecond)
		n.wantState(s, session.Connected)
		pass(time.Nanosecond)
		n.wantState(s, session.Suspended)
	})
}

func TestProofIsNoProofOnceItsDeadlineHasPassed(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		pass(2 * time.Second)
		_, beat := n.requests()
		pass(testDeadline)
		n.apply(beat[0])
		n.wantState(s, session.Suspended)
		n.run(time.Second)
		n.wantState(s, session.Connected)
	})
}

// A3.3: a hypervisor stopped the machine, and only the wall clock was put right.
func TestSetWallClockSuspendsUntilTheNextBatch(t *testing.T) {
	for _, step := range []time.Duration{1001 * time.Millisecond, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				c := n.held(s, "/q")
				n.fake.step(step)
				n.wantState(s, session.Suspended)
				if !errors.Is(c.Err(), ErrSuspended) {
					t.Fatalf("the claim goes on: %v", c.Err())
				}
				release := n.wantRequests("release /q")
				pass(time.Second)
				n.wantState(s, session.Suspended) // nothing has happened that could prove it alive
				n.apply(release...)
				n.wantState(s, session.Connected)
			})
		})
	}
}

// A session that is suspended only because of a clock does not wait for the next beat to be due.
func TestJumpIsFollowedByABeat(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		pass(time.Millisecond)
		n.fake.step(time.Hour)
		n.wantState(s, session.Suspended)
		n.commit()
		n.wantState(s, session.Connected)
	})
}

func TestSlewedWallClockIsNoJump(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.fake.step(time.Second)
		n.wantState(s, session.Connected)
		n.run(testTimeout)
		n.fake.step(time.Second)
		n.wantState(s, session.Connected)
	})
}

// A batch was sent, then the machine stood still for longer than anything it knows. The session was suspended before, so
// the jump changes nothing that anybody sees; it must still keep the batch from proving what it cannot.
func TestJumpWhileSuspendedVoidsWhatWasSentBefore(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		pass(testDeadline)
		n.wantState(s, session.Suspended)
		_, beats := n.requests()
		beat := beats[len(beats)-1]
		if seq := mustDecode(t, beat.cmd).Origin.LastSeq; seq != mustDecode(t, beats[0].cmd).Origin.LastSeq {
			t.Fatalf("%d beats in flight", seq)
		}
		n.fake.step(time.Minute)
		n.apply(beat)
		n.wantState(s, session.Suspended)
		n.run(2 * time.Second)
		n.wantState(s, session.Connected)
	})
}

// The clock was set while no session was open: there was nothing that could have been missed.
func TestSessionOpenedAfterTheClockWasSetIsConnected(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.fake.step(time.Hour)
		var s *Session
		go func() { s, _ = n.OpenSession(t.Context(), testTimeout) }()
		_, ps := n.requests()
		pass(time.Millisecond)
		n.apply(ps...)
		n.wantState(s, session.Connected)
	})
}

// … but not if it was set while the session was being opened.
func TestClockSetWhileASessionIsOpenedSuspendsIt(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		var s *Session
		go func() { s, _ = n.OpenSession(t.Context(), testTimeout) }()
		_, ps := n.requests()
		pass(time.Millisecond)
		n.fake.step(time.Hour)
		n.apply(ps...)
		n.wantState(s, session.Suspended)
		n.run(testTimeout / beatsPerTimeout)
		n.wantState(s, session.Connected)
	})
}

// Pauses that the boot clock does not see add up from the moment a batch was sent, not from when it was applied.
func TestKeeperAddsUpWhatTheClockLostSinceTheProof(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		s.Submit(t.Context(), []tree.Op{create("/a")})
		sent := n.wantRequests("create /a")
		lost := session.Margin(testTimeout) * 9 / 10
		n.fake.step(lost)
		n.apply(sent...)
		n.fake.step(lost)
		if c.Err() == nil {
			t.Errorf("held, %v were lost since the proof was sent", 2*lost)
		}
	})
}

// A machine that is stopped while a batch is applied loses that time too.
func TestKeeperSeesAJumpWhileItIsTold(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		s.Submit(t.Context(), []tree.Op{create("/a")})
		sent := n.wantRequests("create /a")
		clock := n.keeper.clock
		reads := 0
		n.keeper.clock.Wall = func() time.Time {
			if reads++; reads == 2 {
				n.fake.step(time.Minute)
			}
			return clock.Wall()
		}
		n.apply(sent...)
		n.keeper.clock = clock
		if reads < 2 {
			n.fake.step(time.Minute)
		}
		if c.Err() == nil {
			t.Error("held, a minute was lost")
		}
	})
}

// A process that is stopped between its looks at two clocks is stopped, as at any other moment; neither clock has lost anything.
func TestProcessStoppedBetweenTwoClocksLosesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(n *node) *clock.Clock // who reads them
		read int                        // after which of the next looks at the wall clock
	}{
		"by a question":        {func(n *node) *clock.Clock { return &n.keeper.clock }, 1},
		"by who sends a batch": {func(n *node) *clock.Clock { return &n.pipe.clock }, 2}, // the first one is stamped on it
	} {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				held := n.held(s, "/q")
				clock := c.of(n)
				wall, reads := clock.Wall, 0
				clock.Wall = func() time.Time {
					now := wall()
					if reads++; reads == c.read {
						n.fake.pause(session.Margin(testTimeout) * 3 / 2)
					}
					return now
				}
				if err := held.Err(); err != nil {
					t.Errorf("stopped for a sixth of its timeout it says: %v", err)
				}
				s.Submit(t.Context(), []tree.Op{create("/a")})
				n.commit()
				if reads < c.read {
					t.Fatalf("the clock was looked at %d times", reads)
				}
				if err := held.Err(); err != nil {
					t.Errorf("once a batch is applied it says: %v", err)
				}
			})
		})
	}
}

// The quick clock never says that it is earlier than it is, whatever happens between two looks: time that passes, that the machine sleeps
// through, that a stop takes within a look, and wall clocks that are set; but for what the wall clock was set back. (The system adds a sleep to
// both clocks at once, and the next look at all of them comes before anybody sets one.)
func TestGlanceIsNeverEarly(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var boot, mono, wall time.Duration = 1 << 40, 1 << 30, 1 << 60
		pass := func(n time.Duration) { boot, mono, wall = boot+n, mono+n, wall+n }
		some := func() time.Duration {
			if r.IntN(3) > 0 {
				return 0
			}
			return time.Duration(r.Int64N(int64(time.Minute)))
		}
		c := clock.Clock{Boot: func() time.Duration { return boot }, Wall: func() time.Time { return time.Unix(0, int64(wall)) },
			Quick: func() (time.Duration, time.Duration) { pass(some()); return wall, mono }}
		if _, _, ok := c.Glance(clock.Anchor{}); ok {
			t.Fatal("without an anchor")
		}
		now := boot
		a := c.Mark(now, c.Drift())
		back := time.Duration(0)
		for range 5 {
			pass(some())
			slept := some()
			boot, wall = boot+slept, wall+slept
			switch set := some(); r.IntN(3) {
			case 0:
				wall += set
			case 1:
				wall -= set
				back += set
			}
			said, _, _ := c.Glance(a)
			if early := boot - said; early > back {
				t.Fatalf("seed %d: %v early, and the wall clock was set back by %v", seed, early, back)
			}
		}
	}
}
