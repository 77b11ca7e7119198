package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// stops are the ways to lose time before anyone asks. Either the process stands still, or the
// computer sleeps, which the usual clock does not show.
var stops = map[string]func(c *enginetest.Clock, d time.Duration){"stopped": (*enginetest.Clock).Pause, "asleep": (*enginetest.Clock).Sleep}

// A3.1: no timer has run when the first question is asked.
func TestFirstQuestionAfterAPauseIsAnsweredByTheClock(t *testing.T) {
	questions := map[string]func(n *node, s *Session, c hold) bool{
		"state":   func(n *node, s *Session, c hold) bool { st, _ := s.State(); return st == session.Suspended },
		"claim":   func(n *node, s *Session, c hold) bool { return errors.Is(c.Err(), keeper.ErrSuspended) },
		"hold":    func(n *node, s *Session, c hold) bool { return errors.Is(holdErr(c.Claim), keeper.ErrSuspended) },
		"session": func(n *node, s *Session, c hold) bool { return s.Err() == nil && c.Err() == keeper.ErrSuspended },
		"done":    func(n *node, s *Session, c hold) bool { return testkit.Closed(c.Done()) },
		"guard": func(n *node, s *Session, c hold) bool {
			_, err := new(keeper.With).Guard(s.Session, c.tenure)
			return errors.Is(err, tree.ErrNotHeld) && errors.Is(err, keeper.ErrSuspended)
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
					if !testkit.Closed(c.Done()) || !errors.Is(cause(c.tenure.Context()), keeper.ErrSuspended) {
						t.Fatalf("the claim goes on: %v", cause(c.tenure.Context()))
					}
				})
			})
		}
	}
}

// A3.1: the same for the session itself, which ends a timeout later.
func TestFirstQuestionAfterALongPauseIsToldTheEnd(t *testing.T) {
	for name, ended := range map[string]func(s *Session) bool{
		"err":     func(s *Session) bool { return errors.Is(s.Err(), session.ErrExpired) },
		"state":   func(s *Session) bool { state, _ := s.State(); return state == session.Expired },
		"done":    func(s *Session) bool { return testkit.Closed(s.Done()) },
		"context": func(s *Session) bool { return errors.Is(cause(s.Context()), session.ErrExpired) },
		"submit": func(s *Session) bool {
			_, err := s.Submit(context.Background(), []tree.Op{create("/x")}).Result()
			return errors.Is(err, session.ErrExpired)
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

// A batch that was sent in time is applied after the deadline, and no one looked in between. The
// session was suspended all the same, although it no longer is.
func TestBatchAppliedAfterTheDeadlineShowsThatItHadPassed(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		_, changed := s.State()
		enginetest.Pass(5 * time.Second)
		beat := n.wantRequests()
		if len(beat) == 0 {
			t.Fatal("no beat")
		}
		n.fake.Pause(4*time.Second + time.Millisecond)
		n.apply(beat[0])
		n.wantState(s, session.Connected)
		if err := c.Err(); !errors.Is(err, keeper.ErrSuspended) {
			t.Fatalf("the claim ended with %v", err)
		}
		if !testkit.Closed(changed) {
			t.Fatal("no one was told")
		}
		n.wantRequests("release /q")
	})
}

// A2: the batch was sent again and again before it was applied.
func TestProofCountsFromTheFirstSending(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		enginetest.Pass(2 * time.Second)
		_, queued := n.requests()
		at := queued[0].At
		enginetest.Pass(3 * time.Second)
		n.apply(queued[0])
		n.log.Drain()
		n.lead(0)
		enginetest.Pass(time.Until(at.Add(testDeadline)) - time.Nanosecond)
		n.wantState(s, session.Connected)
		enginetest.Pass(time.Nanosecond)
		n.wantState(s, session.Suspended)
	})
}

func TestProofIsNoProofOnceItsDeadlineHasPassed(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		enginetest.Pass(2 * time.Second)
		_, beat := n.requests()
		enginetest.Pass(testDeadline)
		n.apply(beat[0])
		n.wantState(s, session.Suspended)
		n.run(time.Second)
		n.wantState(s, session.Connected)
	})
}

// A3.3: a hypervisor stopped the computer, and only the wall clock was corrected.
func TestSetWallClockSuspendsUntilTheNextBatch(t *testing.T) {
	for _, step := range []time.Duration{1001 * time.Millisecond, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				c := n.held(s, "/q")
				n.fake.Step(step)
				n.wantState(s, session.Suspended)
				if !errors.Is(c.Err(), keeper.ErrSuspended) {
					t.Fatalf("the claim goes on: %v", c.Err())
				}
				release := n.wantRequests("release /q")
				enginetest.Pass(time.Second)
				n.wantState(s, session.Suspended) // nothing has happened that could prove it alive
				n.apply(release...)
				n.wantState(s, session.Connected)
			})
		})
	}
}

// A session that is suspended only because of a clock does not wait until the next beat is due.
func TestJumpIsFollowedByABeat(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		enginetest.Pass(time.Millisecond)
		n.fake.Step(time.Hour)
		n.wantState(s, session.Suspended)
		n.commit()
		n.wantState(s, session.Connected)
	})
}

func TestSlewedWallClockIsNoJump(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.fake.Step(time.Second)
		n.wantState(s, session.Connected)
		n.run(testTimeout)
		n.fake.Step(time.Second)
		n.wantState(s, session.Connected)
	})
}

// A batch was sent, then the computer stood still for longer than anything it knows. The session
// was already suspended, so the jump changes nothing visible. It must still keep the batch from
// proving what it cannot.
func TestJumpWhileSuspendedVoidsWhatWasSentBefore(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		enginetest.Pass(testDeadline)
		n.wantState(s, session.Suspended)
		_, beats := n.requests()
		beat := beats[len(beats)-1]
		if seq := enginetest.Decode(t, beat.Cmd).Seq; seq != enginetest.Decode(t, beats[0].Cmd).Seq {
			t.Fatalf("%d beats in flight", seq)
		}
		n.fake.Step(time.Minute)
		n.apply(beat)
		n.wantState(s, session.Suspended)
		n.run(2 * time.Second)
		n.wantState(s, session.Connected)
	})
}

// The clock was set while no session was open, so no session can have missed anything.
func TestSessionOpenedAfterTheClockWasSetIsConnected(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		n.fake.Step(time.Hour)
		var s *Session
		go func() { s, _ = n.OpenSession(t.Context(), testTimeout) }()
		_, ps := n.requests()
		enginetest.Pass(time.Millisecond)
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
		enginetest.Pass(time.Millisecond)
		n.fake.Step(time.Hour)
		n.apply(ps...)
		n.wantState(s, session.Suspended)
		n.run(testTimeout / keeper.BeatsPerTimeout)
		n.wantState(s, session.Connected)
	})
}

// Pauses that the boot clock does not show add up from the moment when a batch was sent, not from
// when it was applied.
func TestKeeperAddsUpWhatTheClockLostSinceTheProof(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		s.Submit(t.Context(), []tree.Op{create("/a")})
		sent := n.wantRequests("create /a")
		lost := session.Margin(testTimeout) * 9 / 10
		n.fake.Step(lost)
		n.apply(sent...)
		n.fake.Step(lost)
		if c.Err() == nil {
			t.Errorf("held, %v were lost since the proof was sent", 2*lost)
		}
	})
}

// A computer that is stopped while a batch is applied loses that time too.
func TestKeeperSeesAJumpWhileItIsTold(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		s.Submit(t.Context(), []tree.Op{create("/a")})
		sent := n.wantRequests("create /a")
		reads := 0
		read := func() {
			if reads++; reads == 1 {
				n.fake.Step(time.Minute)
			}
		}
		n.fake.OnRead.Store(&read)
		n.apply(sent...)
		n.fake.OnRead.Store(nil)
		if reads < 1 {
			n.fake.Step(time.Minute)
		}
		if c.Err() == nil {
			t.Error("held, a minute was lost")
		}
	})
}

// A process may be stopped between reading two clocks, as at any other moment. Neither clock has
// lost anything.
func TestProcessStoppedBetweenTwoClocksLosesNothing(t *testing.T) {
	for stopped := 1; stopped <= 4; stopped++ { // after which reading of the wall clock: by a question, or by the sender of a batch
		t.Run(fmt.Sprint("look ", stopped), func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				held := n.held(s, "/q")
				looks := 0
				looked := func() {
					if looks++; looks == stopped {
						n.fake.Pause(session.Margin(testTimeout) * 3 / 2)
					}
				}
				n.fake.OnRead.Store(&looked)
				if err := held.Err(); err != nil {
					t.Errorf("stopped for a sixth of its timeout it says: %v", err)
				}
				s.Submit(t.Context(), []tree.Op{create("/a")})
				n.commit()
				if looks < stopped {
					t.Fatalf("the clock was looked at %d times", looks)
				}
				if err := held.Err(); err != nil {
					t.Errorf("once a batch is applied it says: %v", err)
				}
			})
		})
	}
}
