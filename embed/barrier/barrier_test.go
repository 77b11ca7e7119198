package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

func init() { sessionsflag.Define(clienttest.Over) }

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ensemble returns members whose ensemble has risen to the level of the barriers.
func ensemble(t *testing.T, n int) *embedtest.Ensemble {
	ens := embedtest.New(t, n, embedtest.Options{})
	return ens
}

// watches returns how many watches there are on the members.
func watches(ens *embedtest.Ensemble) (n int) {
	for _, id := range ens.Members() {
		for sample := range ens.Node(id).Samples() {
			if sample.Name == "vivarium_watches" {
				n += int(sample.Value)
			}
		}
	}
	return n
}

// children returns who is below a path.
func children(t *testing.T, s *embed.Session, path string) []string {
	t.Helper()
	names, _, err := s.Children(bounded(t), path)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		t.Fatal(err)
	}
	return names
}

// Nobody passes before all have come, and nobody has left before all leave.
func TestEnter_AllWaitForAll(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens, rng := bounded(t), ensemble(t, 3), testkit.Rand(t)
		const n = 7
		for round := range 8 {
			path := fmt.Sprint("/round/", round)
			var came, left atomic.Int32
			var wg sync.WaitGroup
			for i := range n {
				s := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
				wg.Go(func() {
					for range rng.IntN(1000) {
						runtime.Gosched()
					}
					came.Add(1)
					pass, err := barrier.Enter(ctx, s, path, n)
					if err != nil || came.Load() != n {
						t.Errorf("passed when %d had come: %v", came.Load(), err)
						return
					}
					left.Add(1)
					if err := pass.Leave(ctx); err != nil || left.Load() != n {
						t.Errorf("left when %d were leaving: %v", left.Load(), err)
					}
					must(t, s.Close())
				})
			}
			wg.Wait()
			s := ens.Session(1, embed.SessionOptions{})
			ens.Until("nothing to be left", func() bool { return len(children(t, s, path)) == 0 })
		}
	})
}

// A member that is slow to look passes although the fast ones have left and come again: rounds on
// one path. They do not wait for one another in circles. (In Curator a slow member counts again
// after the fast ones have left, and sees too few. Then all wait for each other.)
func TestEnter_RoundsOnOnePath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		const n, rounds = 2, 60
		var wg sync.WaitGroup
		for range n {
			s := ens.Session(1, embed.SessionOptions{})
			wg.Go(func() {
				for i := range rounds {
					pass, err := barrier.Enter(ctx, s, "/again", n)
					if err == nil {
						err = pass.Leave(ctx)
					}
					if err != nil {
						t.Errorf("round %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// What a crashed round has left behind lets nobody pass alone, unlike in Curator, and does not count
// as a member (Netflix/curator#99).
func TestEnter_AStaleReady(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/b", "/b/ready"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		stale, _, err := s.Exists(ctx, "/b/ready")
		must(t, err)
		var passed atomic.Int32
		var wg sync.WaitGroup
		enter := func() {
			s := ens.Session(1, embed.SessionOptions{})
			wg.Go(func() {
				if _, err := barrier.Enter(ctx, s, "/b", 3); err != nil {
					t.Error(err)
				}
				passed.Add(1)
			})
		}
		enter()
		enter()
		ens.Until("both to wait, and ready to go", func() bool {
			names := children(t, s, "/b")
			return len(names) == 2 && !slices.Contains(names, "ready")
		})
		if n := passed.Load(); n > 0 {
			t.Fatalf("%d have passed of three", n)
		}
		enter()
		wg.Wait()
		ens.Until("the new ready", func() bool { now, ok, _ := s.Exists(ctx, "/b/ready"); return ok && now.Czxid > stale.Czxid })
	})
}

// Those who pass put a new ready in the place of a stale one, also if all came before it was cleared
// away. A member that looks only after the others have gone needs it.
func TestEnter_AStaleReadyOfAFullRound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/b", "/b/ready"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		stale, _, err := s.Exists(ctx, "/b/ready")
		must(t, err)
		_, err = barrier.Enter(ctx, s, "/b", 1)
		must(t, err)
		now, ok, err := s.Exists(ctx, "/b/ready")
		must(t, err)
		if !ok || now.Czxid <= stale.Czxid {
			t.Errorf("ready is there: %v, of %v after %v", ok, now.Czxid, stale.Czxid)
		}
	})
}

// A member passes because n were there, although it looks only when they have gone again.
func TestEnter_PassesForWhatWas(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s, waits := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		done := make(chan error, 1)
		go func() { _, err := barrier.Enter(ctx, waits, "/b", 3); done <- err }()
		ens.Until("it to wait", func() bool { return len(children(t, s, "/b")) == 1 })
		// Two come and go in two transactions, as two processes would that are killed.
		_, err := s.Multi(ctx, embed.OpCreate("/b/x", nil, embed.Ephemeral), embed.OpCreate("/b/y", nil, embed.Ephemeral))
		must(t, err)
		must(t, s.Close())
		must(t, <-done)
	})
}

// Two that are there only within one transaction were never there (curator#1290: a spurious wake-up
// let members through).
func TestEnter_NotForWhatNobodySaw(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s, waits := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		over, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { _, err := barrier.Enter(over, waits, "/b", 2); done <- err }()
		ens.Until("it to wait", func() bool { return len(children(t, s, "/b")) == 1 })
		for range 100 {
			_, err := s.Multi(ctx, embed.OpCreate("/b/x", nil, embed.Ephemeral), embed.OpDelete("/b/x", 0))
			must(t, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
		ens.Until("nothing to be left", func() bool { return len(children(t, s, "/b")) == 0 })
	})
}

// A member that is lost before the others come does not count. One that is lost later counts as if
// it had left. A Leave whose ctx ends returns an error (in CURATOR-536 it went on for ever, in
// CURATOR-233 it returned as if all had left).
func TestEnter_MembersThatAreLost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		watcher := ens.Session(1, embed.SessionOptions{})
		lost := ens.Session(1, embed.SessionOptions{})
		done := make(chan error, 1)
		go func() { _, err := barrier.Enter(ctx, lost, "/b", 2); done <- err }()
		ens.Until("it to wait", func() bool { return len(children(t, watcher, "/b")) == 1 })
		must(t, lost.Close())
		if err := <-done; !errors.Is(err, embed.ErrSessionClosed) && !errors.Is(err, embed.ErrDeleted) {
			t.Fatalf("%v", err)
		}
		a, b := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		passes := make(chan *barrier.Pass, 2)
		enter := func(s *embed.Session) {
			p, err := barrier.Enter(ctx, s, "/b", 2)
			if err != nil {
				t.Error(err)
			}
			passes <- p
		}
		go enter(a)
		ens.Until("one to wait", func() bool { return len(children(t, watcher, "/b")) == 1 })
		select {
		case <-passes:
			t.Fatal("one has passed of two")
		default:
		}
		go enter(b)
		first, second := <-passes, <-passes
		// Even a ctx that has ended before Leave looks.
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := first.Leave(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "still there: ") {
			t.Fatalf("%v", err)
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if err := first.Leave(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still there: ") {
			t.Fatalf("%v", err)
		}
		must(t, errors.Join(a.Close(), b.Close())) // one of them is the second's
		_ = second
		third := ens.Session(1, embed.SessionOptions{})
		over, cancel := context.WithCancel(ctx)
		go func() {
			ens.Until("it to wait", func() bool {
				return slices.Equal(children(t, watcher, "/b"), nil) || len(children(t, watcher, "/b")) == 1
			})
			cancel()
		}()
		if _, err := barrier.Enter(over, third, "/b", 2); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// A looker is a ctx that calls do when its Err is called for the n-th time. Every method of a
// Session calls Err first.
type looker struct {
	context.Context
	n     int32
	do    func()
	looks atomic.Int32
}

func (l *looker) Err() error {
	if l.looks.Add(1) == l.n {
		l.do()
	}
	return l.Context.Err()
}

// A member that gives up at any step has passed, or leaves nothing. (In CURATOR-80 and CURATOR-318
// one that had timed out counted as present.)
func TestEnter_CancelledAtAnyStep(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		for _, stale := range []bool{false, true} {
			for n := int32(1); n < 40; n++ {
				path := fmt.Sprint("/cancelled-", stale, "/", n)
				if stale {
					_, _, err := s.CreateWith(ctx, path+"/ready", nil, embed.CreateOptions{Parents: true})
					must(t, err)
				}
				over, cancel := context.WithCancel(ctx)
				step := &looker{Context: over, n: n, do: cancel}
				time.AfterFunc(50*time.Millisecond, cancel) // a barrier of two does not open
				if _, err := barrier.Enter(step, s, path, 2); !errors.Is(err, context.Canceled) {
					t.Fatalf("step %d: %v", n, err)
				}
				last := step.looks.Load() < n
				over, cancel = context.WithCancel(ctx)
				one := &looker{Context: over, n: n, do: cancel} // a barrier of one opens
				pass, err := barrier.Enter(one, s, path, 1)
				switch {
				case err == nil:
					must(t, pass.Leave(ctx))
				case !errors.Is(err, context.Canceled):
					t.Fatalf("step %d of one: %v", n, err)
				}
				cancel()
				ens.Until(fmt.Sprintf("nobody to be left after step %d", n), func() bool {
					names := children(t, s, path)
					return len(names) == 0 || slices.Equal(names, []string{"ready"})
				})
				if last && one.looks.Load() < n {
					break
				}
			}
		}
	})
}

func TestEnter_Refused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		for path, want := range map[string]error{"": embed.ErrInvalidPath, "b": embed.ErrInvalidPath, "/b/": embed.ErrInvalidPath} {
			if _, err := barrier.Enter(ctx, s, path, 1); !errors.Is(err, want) {
				t.Errorf("%q: %v", path, err)
			}
		}
		if _, err := barrier.Enter(ctx, s, "/b", 0); !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("%v", err)
		}
		pass, err := barrier.Enter(ctx, s, "/b", 1)
		must(t, err)
		must(t, pass.Leave(ctx))
		must(t, pass.Leave(ctx))
	})
}

// far returns members whose requests time out after 3 s, and sessions of the first, which is 40 ms
// from the leader, and of the leader.
func far(t *testing.T) (ens *embedtest.Ensemble, away, leads *embed.Session) {
	ens = embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 3 * time.Second }})
	ens.TransferLeadership(2)
	ens.Faults(1).SetLink(2, embedtest.Link{Delay: 40 * time.Millisecond})
	ens.Faults(2).SetLink(1, embedtest.Link{Delay: 40 * time.Millisecond})
	long := embed.SessionOptions{Timeout: 40 * time.Second}
	return ens, ens.Session(1, long), ens.Session(2, long)
}

// enters calls Enter with a ctx that never ends.
func enters(s *embed.Session, path string, n int) <-chan error {
	done := make(chan error, 1)
	go func() { _, err := barrier.Enter(context.Background(), s, path, n); done <- err }()
	return done
}

// Enter outlasts the lack of a quorum, whichever of its writes has no answer: the member's znode,
// the deletion of a stale ready, or ready.
func TestEnter_IsBoundedByCtxAlone(t *testing.T) {
	for _, stale := range []bool{false, true} {
		for wait := time.Duration(0); wait < 300*time.Millisecond; wait += 20 * time.Millisecond {
			testkit.Bubble(t, func(t *testing.T) {
				ens, away, leads := far(t)
				if stale {
					_, _, err := leads.CreateWith(bounded(t), "/b/ready", nil, embed.CreateOptions{Parents: true})
					must(t, err)
				}
				first, second := enters(away, "/b", 2), (<-chan error)(nil)
				if !stale {
					<-time.After(time.Second)
					second = enters(leads, "/b", 2)
				}
				<-time.After(wait)
				ens.Isolate(1)
				<-time.After(10 * time.Second)
				ens.HealAll()
				if stale {
					second = enters(leads, "/b", 2)
				}
				for who, done := range map[string]<-chan error{"who was cut off": first, "the other": second} {
					if err := <-done; err != nil {
						t.Errorf("stale %v, cut off after %v: %s: %v", stale, wait, who, err)
					}
				}
			})
		}
	}
}

// A persistent child that somebody else has created is no member: nobody passes for it, nobody waits
// for it to leave, and it makes no ready of a former round a new one.
func TestEnter_CountsOnlyEphemerals(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		for _, path := range []string{"/b", "/b/notes", "/b/ready"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		time.AfterFunc(10*time.Second, func() { _, _ = s.Create(ctx, "/b/more", nil, embed.Persistent) })
		if _, err := barrier.Enter(short, s, "/b", 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it was alone: %v", err)
		}
		pass, err := barrier.Enter(ctx, s, "/b", 1)
		must(t, err)
		must(t, pass.Leave(ctx))
	})
}

// lagging returns sessions of the leader and of a member that is 300 ms behind.
func lagging(t *testing.T) (leads, lags *embed.Session, lag func()) {
	ens := ensemble(t, 3)
	ens.TransferLeadership(1)
	leads, lags = ens.Session(1, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
	return leads, lags, func() {
		_, err := lags.Sync(bounded(t), "/")
		must(t, err)
		ens.Faults(1).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
		<-time.After(time.Second)
	}
}

// drop deletes a countdown of one name.
func drop(t *testing.T, s *embed.Session, path, name string) {
	_, err := s.Multi(bounded(t), embed.OpDelete(path+"/"+name, embed.AnyVersion), embed.OpDelete(path, embed.AnyVersion))
	must(t, err)
}

// A countdown begins anew on its path. A member that still has the former one does not pass for it.
func TestCountdown_WaitsForTheRoundOfTheCall(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		leads, lags, lag := lagging(t)
		must(t, barrier.NewCountdown(leads, "/work", 1).Done(ctx, "x"))
		lag()
		drop(t, leads, "/work", "x")
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := barrier.NewCountdown(lags, "/work", 1).Wait(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing is done: %v", err)
		}
	})
}

// Nor does it refuse a name of the new countdown, whatever total that has.
func TestCountdown_CountsInTheNewRound(t *testing.T) {
	for _, total := range []int{1, 5} {
		testkit.Bubble(t, func(t *testing.T) {
			ctx := bounded(t)
			leads, lags, lag := lagging(t)
			must(t, barrier.NewCountdown(leads, "/work", 1).Done(ctx, "x"))
			lag()
			drop(t, leads, "/work", "x")
			if total > 1 {
				must(t, barrier.NewCountdown(leads, "/work", total).Done(ctx, "x"))
			}
			must(t, barrier.NewCountdown(lags, "/work", total).Done(ctx, "y"))
		})
	}
}

// Wait outlasts the lack of a quorum, from its first look on.
func TestCountdown_WaitsWithoutAQuorum(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := ensemble(t, 3)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		ens.Isolate(1)
		done := make(chan error, 1)
		go func() { done <- barrier.NewCountdown(s, "/work", 1).Wait(context.Background()) }()
		<-time.After(20 * time.Second)
		ens.HealAll()
		must(t, barrier.NewCountdown(ens.Session(2, embed.SessionOptions{}), "/work", 1).Done(bounded(t), "x"))
		must(t, <-done)
	})
}

// So does the Wait of a Gate.
func TestGate_WaitsWithoutAQuorum(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := ensemble(t, 3)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		ens.Isolate(1)
		done := make(chan error, 1)
		go func() { done <- barrier.NewGate(s, "/gate").Wait(context.Background()) }()
		<-time.After(20 * time.Second)
		must(t, barrier.NewGate(ens.Session(2, embed.SessionOptions{}), "/gate").Shut(bounded(t)))
		ens.HealAll()
		<-time.After(5 * time.Second)
		select {
		case err := <-done:
			t.Fatalf("it has passed a gate that is shut: %v", err)
		default:
		}
		must(t, barrier.NewGate(ens.Session(2, embed.SessionOptions{}), "/gate").Open(bounded(t)))
		must(t, <-done)
	})
}

// Shut shuts a gate that another member has opened, although its own replica does not know that.
func TestGate_ShutWhereItIsSeenTooLateThatItWasOpened(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 3)
		ens.TransferLeadership(1)
		opener, late := ens.Session(1, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
		must(t, barrier.NewGate(late, "/gate").Shut(ctx))
		for range 3 {
			ens.Faults(1).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
			must(t, barrier.NewGate(opener, "/gate").Open(ctx))
			must(t, barrier.NewGate(late, "/gate").Shut(ctx))
			ens.Faults(1).SetLink(3, embedtest.Link{})
			_, err := opener.Sync(ctx, "/gate")
			must(t, err)
			if _, there, err := opener.Exists(ctx, "/gate"); err != nil || !there {
				t.Fatalf("the gate that was shut is open (%v)", err)
			}
		}
	})
}

// Whoever waits at a gate passes when it opens, even if it is shut again at once.
func TestGate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 3)
		s := ens.Session(1, embed.SessionOptions{})
		g := barrier.NewGate(s, "/gates/g")
		must(t, g.Wait(ctx)) // it was never shut
		must(t, g.Open(ctx))
		for range 20 {
			must(t, g.Shut(ctx))
			must(t, g.Shut(ctx))
			var wg sync.WaitGroup
			var waiting atomic.Int32
			for i := range 6 {
				other := ens.Session(embed.MemberID(i%3+1), embed.SessionOptions{})
				wg.Go(func() {
					_, err := other.Sync(ctx, "/gates/g")
					must(t, err)
					waiting.Add(1)
					if err := barrier.NewGate(other, "/gates/g").Wait(ctx); err != nil {
						t.Error(err)
					}
					must(t, other.Close())
				})
			}
			ens.Until("all to come", func() bool { return waiting.Load() == 6 })
			// Those that have not looked yet see the second time that it is open.
			must(t, g.Open(ctx))
			must(t, g.Shut(ctx))
			must(t, g.Open(ctx))
			wg.Wait()
		}
		must(t, g.Shut(ctx))
		over, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if err := g.Wait(over); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		for _, path := range []string{"", "/g/", "g"} {
			bad := barrier.NewGate(s, path)
			for what, err := range map[string]error{"shut": bad.Shut(ctx), "open": bad.Open(ctx), "wait": bad.Wait(ctx)} {
				if !errors.Is(err, embed.ErrInvalidPath) {
					t.Errorf("%s %q: %v", what, path, err)
				}
			}
		}
		for _, root := range []string{"", "/tenant"} { // no session can delete its root
			s := ens.Session(1, embed.SessionOptions{Root: root})
			bad := barrier.NewGate(s, "/")
			for what, err := range map[string]error{"shut": bad.Shut(ctx), "open": bad.Open(ctx), "wait": bad.Wait(ctx)} {
				if !errors.Is(err, embed.ErrInvalidPath) {
					t.Errorf("%s / of a session with the root %q: %v", what, root, err)
				}
			}
		}
		waiting := make(chan error)
		go func() { waiting <- g.Wait(ctx) }()
		go s.Close()
		if err := <-waiting; !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("%v", err)
		}
	})
}

// A countdown counts each name once, and whoever waits passes even if it is deleted at once.
func TestCountdown(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 3)
		s := ens.Session(1, embed.SessionOptions{})
		const total = 5
		c := barrier.NewCountdown(s, "/parts/17", total)
		var wg sync.WaitGroup
		before := watches(ens)
		for i := range 3 {
			other := ens.Session(embed.MemberID(i+1), embed.SessionOptions{})
			wg.Go(func() {
				if err := barrier.NewCountdown(other, "/parts/17", total).Wait(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		ens.Until("them to wait", func() bool { return watches(ens) >= before+3 })
		for i := range total {
			left, err := c.Left(ctx)
			must(t, err)
			if left != total-i {
				t.Errorf("%d left after %d", left, i)
			}
			must(t, c.Done(ctx, fmt.Sprint(i)))
			must(t, c.Done(ctx, fmt.Sprint(i)))
		}
		must(t, c.Wait(ctx))
		if sessionsflag.Open != nil { // the watches of clients are too many to say who waits
			wg.Wait()
		}
		ops := []embed.Op{}
		for i := range total {
			ops = append(ops, embed.OpDelete(fmt.Sprint("/parts/17/", i), 0))
		}
		_, err := s.Multi(ctx, append(ops, embed.OpDelete("/parts/17", 0))...)
		must(t, err)
		wg.Wait()

		must(t, barrier.NewCountdown(s, "/parts/18", 2).Done(ctx, "a"))
		for what, err := range map[string]error{
			"another total":    barrier.NewCountdown(s, "/parts/18", 3).Done(ctx, "b"),
			"a negative total": barrier.NewCountdown(s, "/parts/19", -1).Wait(ctx),
			"a name of two":    barrier.NewCountdown(s, "/parts/18", 2).Done(ctx, "a/b"),
		} {
			if !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := barrier.NewCountdown(s, "/", 1).Wait(ctx); !errors.Is(err, embed.ErrInvalidPath) {
			t.Errorf("the root: %v", err)
		}
		must(t, barrier.NewCountdown(s, "/parts/20", 0).Wait(ctx))
		if _, there, err := s.Exists(ctx, "/parts/20"); there || err != nil {
			t.Errorf("%v, %v", there, err)
		}
	})
}

// Whoever waits before there is a total compares the one that is written then.
func TestCountdown_AnotherTotalWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		waited := make(chan error, 1)
		go func() { waited <- barrier.NewCountdown(s, "/parts/21", 1).Wait(ctx) }()
		synctest.Wait() // it waits, and nobody has written a total yet
		must(t, barrier.NewCountdown(s, "/parts/21", 2).Done(ctx, "a"))
		if err := <-waited; !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("it returned %v", err)
		}
	})
}

// M157: the transaction that creates the last name also sets another total. At no zxid were all done.
func TestCountdown_AnotherTotalWithTheLastName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		for i, path := range []string{"/parts/1", "/parts/2"} {
			c := barrier.NewCountdown(s, path, 2)
			must(t, c.Done(ctx, "a"))
			waited := make(chan error, 1)
			go func() { waited <- c.Wait(ctx) }()
			<-time.After(time.Second)
			ops := []embed.Op{embed.OpCreate(path+"/b", nil, embed.Persistent), embed.OpSet(path, embed.Int32.Format(3), embed.AnyVersion)}
			if i == 1 {
				slices.Reverse(ops)
			}
			_, err := s.Multi(ctx, ops...)
			must(t, err)
			if err := <-waited; !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%s: it returned %v", path, err)
			}
		}
	})
}

// M124: all are there, and a hard quota has no room for ready. All pass: those who came before, and
// one that comes while they are there. Whoever comes when they have left waits.
func TestEnter_WithoutRoomForReady(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := ensemble(t, 1)
		admin := ens.Session(1, embed.SessionOptions{})
		_, err := admin.Put(t.Context(), "/b", nil)
		must(t, err)
		_, err = admin.Put(t.Context(), "/zookeeper/quota/b/zookeeper_stats", nil)
		must(t, err)
		limit := func(n int) {
			_, err := admin.Put(t.Context(), "/zookeeper/quota/b/zookeeper_limits", fmt.Appendf(nil, "countHardLimit=%d", n))
			must(t, err)
		}
		var sessions []*embed.Session
		comes := func() <-chan error {
			sessions = append(sessions, ens.Session(1, embed.SessionOptions{}))
			return enters(sessions[len(sessions)-1], "/b", 2)
		}
		passes := func(who string, member <-chan error) {
			t.Helper()
			select {
			case err := <-member:
				if err != nil {
					t.Errorf("%s: %v", who, err)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s waits, and %v are there", who, children(t, admin, "/b"))
			}
		}
		limit(1 + 2)
		first := comes()
		<-time.After(time.Second)
		passes("the second", comes())
		passes("the first", first)
		limit(1 + 3)
		passes("the third", comes())
		for _, s := range sessions {
			must(t, s.Close())
		}
		select {
		case err := <-comes():
			t.Errorf("one that is alone passes: %v", err)
		case <-time.After(time.Minute):
		}
	})
}

// M120: all are done, and by then the next round has begun, with another total. Who waited for the
// former round passes, also where both are seen at once.
func TestCountdown_WaitsForARoundThatHasEnded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		leads, lags, lag := lagging(t)
		must(t, barrier.NewCountdown(leads, "/work", 2).Done(ctx, "x"))
		lag()
		waited := make(chan error, 1)
		go func() { waited <- barrier.NewCountdown(lags, "/work", 2).Wait(ctx) }()
		<-time.After(3 * time.Second)
		must(t, barrier.NewCountdown(leads, "/work", 2).Done(ctx, "y"))
		_, err := leads.Multi(ctx, embed.OpDelete("/work/x", embed.AnyVersion), embed.OpDelete("/work/y", embed.AnyVersion),
			embed.OpDelete("/work", embed.AnyVersion))
		must(t, err)
		must(t, barrier.NewCountdown(leads, "/work", 5).Done(ctx, "x"))
		must(t, <-waited)
	})
}

// Nor does it pass for names of a round that has another total.
func TestCountdown_AnotherTotalWithoutItsZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := bounded(t), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		must(t, barrier.NewCountdown(s, "/work", 2).Done(ctx, "x"))
		waited := make(chan error, 1)
		go func() { waited <- barrier.NewCountdown(s, "/work", 2).Wait(ctx) }()
		<-time.After(time.Second)
		_, err := s.Set(ctx, "/work", embed.Int32.Format(3), embed.AnyVersion)
		must(t, err)
		if err := <-waited; !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("it returned %v", err)
		}
	})
}

// The sessions of a round end without a Leave. Nothing stays of it.
func TestEnter_ARoundWithoutLeave(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		if testkit.Night() {
			t.Skip("it takes minutes in real time")
		}
		slow := func(c *embed.Config) { c.Tick = time.Second }
		ens := embedtest.New(t, 1, embedtest.Options{Config: slow})
		a, b := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		first := enters(a, "/jobs/17/start", 2)
		_, err := barrier.Enter(t.Context(), b, "/jobs/17/start", 2)
		must(t, err)
		must(t, <-first)
		must(t, a.Close())
		must(t, b.Close())
		s := ens.Session(1, embed.SessionOptions{})
		for limit := time.Now().Add(time.Hour); ; <-time.After(time.Minute) {
			_, there, err := s.Exists(t.Context(), "/jobs")
			must(t, err)
			if !there {
				break
			}
			if time.Now().After(limit) {
				names, _, err := s.Children(t.Context(), "/jobs/17/start")
				t.Fatalf("an hour after all have gone: %v, %v", names, err)
			}
		}
	})
}

// Very many members pass, although no transaction could check them all.
func TestEnter_VeryMany(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, ens := t.Context(), ensemble(t, 1)
		s := ens.Session(1, embed.SessionOptions{})
		for _, n := range []int{100, 100_000} {
			path := fmt.Sprint("/b", n)
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
			for i := 0; i < n-1; {
				var ops []embed.Op
				for ; i < n-1 && len(ops) < 2000; i++ {
					ops = append(ops, embed.OpCreate(fmt.Sprintf("%s/%026d", path, i), nil, embed.Ephemeral))
				}
				_, err := s.Multi(ctx, ops...)
				must(t, err)
			}
			pass, err := barrier.Enter(ctx, s, path, n)
			must(t, err)
			_, ready, err := s.Exists(ctx, path+"/ready")
			if must(t, err); ready != (n == 100) {
				t.Errorf("with %d members the znode ready is there: %v", n, ready)
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err = pass.Leave(short)
			if !errors.Is(err, context.DeadlineExceeded) || len(err.Error()) > 1000 {
				t.Errorf("Leave: %.2000s", err)
			}
		}
	})
}

// A member that lags shows a former round. Done counts nothing in the next one if the total differs.
func TestCountdown_DoneOfAnotherTotal(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		leads, lags, lag := lagging(t)
		must(t, barrier.NewCountdown(leads, "/work", 1).Done(ctx, "x"))
		lag()
		drop(t, leads, "/work", "x")
		must(t, barrier.NewCountdown(leads, "/work", 2).Done(ctx, "x"))
		err := barrier.NewCountdown(lags, "/work", 1).Done(ctx, "old")
		if !errors.Is(err, embed.ErrInvalidArgument) {
			t.Errorf("counted in another round: %v, children %v", err, children(t, leads, "/work"))
		}
	})
}
