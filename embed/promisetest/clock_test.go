package promisetest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A3.3: the clock of a holder jumps. Its first question is answered "lost", whichever question it
// is.
func TestClock_TheFirstQuestionAfterAJumpIsAnsweredLost(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var w embedkit.Watchmaker
		n := alone(t, inside.Seams{Clock: w.Clock()})
		ctx := bounded(t)
		s, err := n.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		type held struct {
			hold   *lock.Hold
			leader *election.Leadership
			claim  *claim.Claim
			tenure *claim.Tenure
		}
		lost := func(done <-chan struct{}) error {
			if embedkit.Closed(done)() != nil {
				return nil
			}
			return embed.ErrSuspended
		}
		questions := map[string]func(held) error{
			"Hold.Err":                  func(h held) error { return h.hold.Err() },
			"Hold.Context().Err":        func(h held) error { return h.hold.Context().Err() },
			"Cause of Hold.Context":     func(h held) error { return context.Cause(h.hold.Context()) },
			"Leadership.Err":            func(h held) error { return h.leader.Err() },
			"Leadership.Context().Err":  func(h held) error { return h.leader.Context().Err() },
			"Proclaim":                  func(h held) error { return h.leader.Proclaim(ctx, nil) },
			"Hold.Done":                 func(h held) error { return lost(h.hold.Done()) },
			"Hold.Context().Done":       func(h held) error { return lost(h.hold.Context().Done()) },
			"Leadership.Done":           func(h held) error { return lost(h.leader.Done()) },
			"Leadership.Context().Done": func(h held) error { return lost(h.leader.Context().Done()) },
			"Claim.Done":                func(h held) error { return lost(h.claim.Done()) },
			"Claim.Err":                 func(h held) error { return h.claim.Err() },
			"Claim.Hold":                func(h held) error { _, err := h.claim.Hold(true); return err },
			"Tenure.Done":               func(h held) error { return lost(h.tenure.Done()) },
			"Tenure.Err":                func(h held) error { return h.tenure.Err() },
			"Tenure.Context().Err":      func(h held) error { return h.tenure.Context().Err() },
			"State": func(h held) error {
				s.State() // may be Connected again; but then the holds have ended
				return embedkit.Closed(h.hold.Done())()
			},
		}
		for _, by := range []time.Duration{time.Hour, -time.Hour, 2 * s.Timeout() / 10} {
			for name, ask := range questions {
				hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
				must(t, err)
				leader, err := election.New(s, "/election").Campaign(ctx, nil)
				must(t, err)
				made, err := claim.New(ctx, s, embed.OpCreate("/claim", nil, embed.Ephemeral))
				must(t, err)
				_, err = made.Created(ctx)
				must(t, err)
				tenure, err := made.Hold(false)
				must(t, err)

				w.Jump(by)
				if got := ask(held{hold, leader, made, tenure}); (got == nil) != (name == "State") {
					t.Errorf("after a jump of %v %s says %v", by, name, got)
				}
				testkit.Reaches(t, s.State, embed.Connected)
				for _, err := range []error{hold.Err(), leader.Err(), made.Err()} {
					if !errors.Is(err, embed.ErrSuspended) {
						t.Errorf("after a jump of %v: %v", by, err)
					}
				}
				must(t, made.Release()) // its znode must be gone before the next round
			}
		}
		must(t, s.Err())
	})
}

// The ctx that Do and Run pass to their functions compares the clock too.
func TestClock_TheCtxOfDoAndRunComparesTheClock(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var w embedkit.Watchmaker
		n := alone(t, inside.Seams{Clock: w.Clock()})
		questions := map[string]func(context.Context) error{
			"Err":   context.Context.Err,
			"Cause": context.Cause,
			"Done": func(ctx context.Context) error {
				if embedkit.Closed(ctx.Done())() != nil {
					return nil
				}
				return ctx.Err()
			},
		}
		for name, ask := range questions {
			err := lock.Do(bounded(t), n, "/lock", func(ctx context.Context, _ lock.Token) error {
				w.Jump(time.Hour)
				if ask(ctx) == nil {
					t.Errorf("lock.Do: %s says nothing", name)
				}
				return nil
			})
			if !errors.Is(err, embed.ErrSuspended) {
				t.Errorf("lock.Do returned %v", err)
			}
			calls := 0
			enough := errors.New("enough")
			err = election.Run(bounded(t), n, "/election", nil, func(ctx context.Context, _ lock.Token) error {
				if calls++; calls == 2 {
					return enough
				}
				w.Jump(-time.Hour)
				if ask(ctx) == nil {
					t.Errorf("election.Run: %s says nothing", name)
				}
				return nil
			})
			if !errors.Is(err, enough) {
				t.Errorf("election.Run returned %v", err)
			}
		}
	})
}

func TestClock_ASmallCorrectionCostsNothing(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var w embedkit.Watchmaker
		n := alone(t, inside.Seams{Clock: w.Clock()})
		ctx := bounded(t)
		s, err := n.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
		must(t, err)
		// Both jumps are within the margin, which is a second.
		for _, by := range []time.Duration{300 * time.Millisecond, -300 * time.Millisecond} {
			w.Jump(by)
			must(t, hold.Err())
			_, err := s.Create(ctx, "/job-", nil, embed.Sequential)
			must(t, err)
		}
	})
}

// A3.2: a laptop's lid closes. Boot time runs on while the machine sleeps.
func TestClock_TheMachineSlept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sleep time.Duration // in timeouts
		want  embed.State
	}{
		"for longer than the timeout":       {sleep: 1, want: embed.Connected},
		"for longer than twice the timeout": {sleep: 3, want: embed.Expired},
	} {
		run(t, name, func(t *testing.T) {
			var w embedkit.Watchmaker
			n := alone(t, inside.Seams{Clock: w.Clock()})
			ctx := bounded(t)
			s, err := n.NewSession(ctx, embed.SessionOptions{})
			must(t, err)
			hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
			must(t, err)
			w.Sleep(c.sleep * s.Timeout())
			if hold.Err() == nil {
				t.Error("the hold outlived the sleep")
			}
			testkit.Reaches(t, s.State, c.want)
			// The session is over only by the clock of its own node, so nobody else would remove
			// its znodes.
			fresh, err := n.NewSession(ctx, embed.SessionOptions{})
			must(t, err)
			next, err := lock.NewMutex(fresh, "/lock").Lock(ctx)
			must(t, err)
			if next.Token().Compare(hold.Token()) <= 0 {
				t.Errorf("token %v after %v", next.Token(), hold.Token())
			}
		})
	}
}

// Somebody sets the clock while no session is open. Nothing can be lost, and the next session works
// like any other.
func TestClock_SetWhileNoSessionIsOpen(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var w embedkit.Watchmaker
		n := alone(t, inside.Seams{Clock: w.Clock()})
		ctx := bounded(t)
		for _, by := range []time.Duration{time.Hour, -2 * time.Hour} {
			w.Jump(by)
			s, err := n.NewSession(ctx, embed.SessionOptions{})
			must(t, err)
			if state, _ := s.State(); state != embed.Connected {
				t.Errorf("a session is %v at birth", state)
			}
			hold, err := lock.NewMutex(s, "/lock").TryLock(ctx)
			must(t, err)
			must(t, hold.Err())
			must(t, s.Close())
		}
	})
}

// A session is Suspended after a jump of the clock, and its node sends a heartbeat that would prove
// it alive again. Then the clock jumps once more. What was sent before the second jump proves
// nothing.
func TestClock_AJumpWhileTheProofIsOnItsWay(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var w embedkit.Watchmaker
		g := embedkit.NewGate()
		n := alone(t, inside.Seams{Clock: w.Clock(), Fault: g.Ask})
		defer g.Set(false) // or Close would wait for the sync
		ctx := bounded(t)
		// A long timeout: the node sends no other heartbeat within the test.
		s, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Minute})
		must(t, err)
		state := func(want embed.State, when string) {
			t.Helper()
			if got, _ := s.State(); got != want {
				t.Fatalf("%v %s, want %v", got, when, want)
			}
		}
		<-time.After(time.Second) // a node that has just started syncs its log for a snapshot
		g.Set(true)
		w.Jump(time.Hour)
		state(embed.Suspended, "after a jump")
		g.Await()
		w.Jump(time.Hour)
		state(embed.Suspended, "after a second jump")
		g.Pass()
		settle()
		state(embed.Suspended, "by a heartbeat that was sent before the second jump")
		g.Set(false)
		_, err = s.Set(ctx, embedkit.OfSessions, nil, embed.AnyVersion)
		must(t, err)
		testkit.Reaches(t, s.State, embed.Connected)
	})
}

// E4: while the clock keeps jumping, no session is ever safe. A free lock is not reported as held,
// nobody is granted it, and nobody stays in the queue.
//
// This needs real time: the contender proves itself alive again after each jump, and never waits.
func TestClock_NothingIsGrantedWhileTheClockJumps(t *testing.T) {
	t.Parallel()
	var w embedkit.Watchmaker
	system := w.Clock()
	var jumping sync.Mutex // held: it stands still
	jumping.Lock()
	clock := clock.Clock{Boot: system.Boot, Wall: func() time.Time {
		if jumping.TryLock() {
			jumping.Unlock()
			w.Jump(time.Hour)
		}
		return system.Wall()
	}}
	n := embedkit.Alone(t, t.TempDir(), inside.Seams{Clock: clock})
	ctx := bounded(t)
	// It is not safe for long on a busy machine, and must not expire.
	s, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Minute})
	must(t, err)
	m := lock.NewMutex(s, "/lock")
	jumping.Unlock()
	if hold, err := m.TryLock(ctx); !errors.Is(err, embed.ErrSuspended) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryLock: %v, %v", hold, err)
	}
	if names, _, err := s.Children(ctx, "/lock"); len(names) > 0 || err != nil && !errors.Is(err, embed.ErrNoNode) {
		t.Errorf("left in the queue: %v, %v", names, err)
	}
	granted := make(chan *lock.Hold)
	go func() {
		hold, err := m.Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		granted <- hold
	}()
	until(t, "the contender to queue", func() bool {
		names, _, _ := s.Children(ctx, "/lock")
		return len(names) == 1
	})
	select {
	case <-granted:
		t.Error("granted to a session that is not safe")
	default:
	}
	jumping.Lock()
	must(t, (<-granted).Err())
}

// "A clock jumped" of docs/runbook.md: the log says by how far, and what the member's sessions held
// has ended. Its sessions are Connected again, and election.Run campaigns again by itself. The other
// members are not concerned.
func TestRunbook_AClockJumped(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var log embedkit.Record
		ens := embedtest.New(t, 3, embedtest.Options{
			Logger: slog.New(slog.NewJSONHandler(&log, nil)),
			Config: func(c *embed.Config) { c.Slow = time.Minute }, // a busy machine is no jump
		})
		ctx := bounded(t)
		here := ens.Session(1, embed.SessionOptions{})
		other, err := lock.NewMutex(ens.Session(2, embed.SessionOptions{Timeout: time.Minute}), "/other").Lock(ctx)
		must(t, err)
		hold, err := lock.NewMutex(here, "/lock").Lock(ctx)
		must(t, err)
		over, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		leads := make(chan lock.Token)
		running.Go(func() {
			_ = election.Run(over, ens.Node(1), "/election", nil, func(ctx context.Context, token lock.Token) error {
				select {
				case leads <- token:
					<-ctx.Done()
				case <-ctx.Done():
				}
				return nil
			})
		})
		lead := func() (token lock.Token) {
			t.Helper()
			select {
			case token = <-leads:
			case <-ctx.Done():
				t.Fatal("nobody leads")
			}
			return token
		}
		first := lead()

		const jump = time.Hour
		ens.Faults(1).SetWallClock(jump)
		if err := hold.Err(); !errors.Is(err, embed.ErrSuspended) {
			t.Errorf("the hold says %v", err)
		}
		const told = "the clock jumped: see what sets it"
		until(t, "the log to tell of the jump", func() bool { return len(log.Of(1, told)) > 0 })
		text, _ := log.Of(1, told)[0]["by"].(float64)
		if by := time.Duration(text); (by - jump).Abs() > time.Minute {
			t.Errorf("the log says that it jumped by %v", by)
		}
		if next := lead(); next.Compare(first) <= 0 {
			t.Errorf("token %v after %v", next, first)
		}
		testkit.Reaches(t, here.State, embed.Connected)
		_, err = lock.NewMutex(here, "/lock").Lock(ctx)
		must(t, err)
		must(t, other.Err())
		if lines := append(log.Of(2, told), log.Of(3, told)...); len(lines) > 0 {
			t.Errorf("others tell of it: %v", lines)
		}
	})
}
