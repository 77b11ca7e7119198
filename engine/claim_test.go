package engine

import (
	"context"
	"errors"
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

func TestClaimReleasedWhileItsCreateIsQueuedIsNeverCreated(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		n.lead(0)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(c.Err(), keeper.ErrReleased) || !testkit.Closed(c.Done()) {
			t.Fatal(c.Err())
		}
		n.lead(enginetest.Other)
		n.wantRequests()
	})
}

// E7: the name of its znode is not known yet.
func TestClaimReleasedWhileItsCreateIsOnItsWayIsDeletedFirst(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		create := n.wantRequests("create /q")
		s.Submit(t.Context(), []tree.Op{{Kind: tree.KindDelete, Path: "/later"}})
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(c.Err(), keeper.ErrReleased) {
			t.Fatal(c.Err())
		}
		n.apply(create...)
		n.apply(n.wantRequests("release /q", "delete /later")...)
		if n.exists("/q") || !errors.Is(c.Err(), keeper.ErrReleased) {
			t.Fatal("the znode is still there")
		}
	})
}

func TestReleaseWaitsUntilTheZnodeIsGone(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		c := n.held(n.open(testTimeout), "/q")
		released := make(chan error, 2)
		for range 2 { // two at once: both wait for the one deletion
			go func() { released <- c.Release() }()
		}
		ps := n.wantRequests("release /q")
		if len(released) > 0 || !errors.Is(c.Err(), keeper.ErrReleased) || !errors.Is(cause(c.tenure.Context()), keeper.ErrReleased) {
			t.Fatalf("while it is being released: %v", c.Err())
		}
		n.apply(ps...)
		if err := errors.Join(<-released, <-released); err != nil || n.exists("/q") {
			t.Fatal(err)
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		n.wantRequests()
	})
}

// No one has asked since the deadline passed, and the node sends again. It must first release what
// the session held. Otherwise the batch would revive the session before its lock is free.
func TestLostHoldsGoAheadOfWhatIsSentNext(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, other := n.open(testTimeout), n.open(testTimeout)
		n.held(s, "/q")
		n.fake.Pause(testDeadline)
		other.Submit(t.Context(), []tree.Op{create("/x")})
		n.wantRequests("release /q", "create /x")
	})
}

// tells calls fn when the node has ended the claim, and no one can see that yet.
func (n *node) tells(c hold, fn func()) {
	ctx := c.tenure.Context()
	n.told = func() {
		if ctx.Err() != nil {
			fn()
			n.told = nil
		}
	}
}

// E3.1: a holder is told before anyone can see that its znode is gone.
func TestHolderIsToldBeforeItsZnodeIsSeenToBeGone(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		told := false
		n.tells(c, func() { told = n.exists("/q") })
		s.Submit(t.Context(), []tree.Op{{Kind: tree.KindDelete, Path: "/q", Version: tree.AnyVersion}})
		n.commit()
		if !told || c.Err() != keeper.ErrDeleted {
			t.Errorf("told while the znode existed: %v; %v", told, c.Err())
		}
	})
	withGap(t, func(t *testing.T, n *node, ahead *peer) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		told := false
		n.tells(c, func() { told = n.exists("/q") })
		ahead.do(tree.Op{Kind: tree.KindDelete, Path: "/q", Version: tree.AnyVersion})
		ahead.install()
		if !told || c.Err() != keeper.ErrDeleted {
			t.Errorf("by a snapshot: told while the znode existed: %v; %v", told, c.Err())
		}
	})
}

// What a holder wrote without waiting is applied before the next holder is granted the lock.
// Otherwise it would mix with the writes of the next holder.
func TestReleaseDoesNotOvertakeWhatItsSessionWrote(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, other := n.open(testTimeout), n.open(testTimeout)
		c := n.held(s, "/q")
		other.Submit(t.Context(), []tree.Op{create("/first")})
		first := n.wantRequests("create /first")
		gone := s.Submit(t.Context(), []tree.Op{create("/gone")})
		other.Submit(t.Context(), []tree.Op{create("/other")})
		s.Submit(t.Context(), []tree.Op{create("/b")})
		last := s.Submit(t.Context(), []tree.Op{create("/c")})
		go c.Release()
		synctest.Wait()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := gone.Wait(ended); errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatal("a request that is still queued cannot be cancelled")
		}
		n.log.Refuse(enginetest.ErrRefused)
		n.apply(first...)
		enginetest.Pass(time.Second)
		n.log.Refuse(nil)
		enginetest.Pass(outbox.PollInterval)
		n.apply(n.wantRequests("create /b", "create /c", "release /q", "create /other")...)
		if err := outcome(last); err != nil {
			t.Fatal(err)
		}
	})
}

// bigSet returns a transaction that fills more than half of a batch.
func bigSet(path string) []tree.Op {
	return []tree.Op{{Kind: tree.KindSet, Path: path, Data: make([]byte, command.BatchBytesMax/2+1), Version: tree.AnyVersion}}
}

// Nor do later writes of the session overtake a release, not even if a batch has room for only one
// of them.
func TestReleaseIsNotOvertakenByWhatItsSessionWritesLater(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		s.Submit(t.Context(), []tree.Op{create("/a")})
		first := n.wantRequests("create /a")
		s.Submit(t.Context(), bigSet("/a"))
		s.Submit(t.Context(), bigSet("/b"))
		go c.Release()
		synctest.Wait()
		s.Submit(t.Context(), []tree.Op{create("/last")})
		n.apply(first...)
		n.apply(n.wantRequests("set /a")...)
		n.apply(n.wantRequests("set /b", "release /q", "create /last")...)
	})
}

// A write is with Raft, which refuses it, when its session releases. The write still goes first.
func TestReleaseDoesNotOvertakeWhatRaftRefused(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		n.log.Refuse(enginetest.ErrRefused)
		n.log.OnNextPropose(func() {
			n.log.OnNextPropose(nil)
			s.Submit(t.Context(), []tree.Op{create("/second")})
			go c.Release()
			<-time.After(time.Millisecond) // the release is queued by now
		})
		s.Submit(t.Context(), []tree.Op{create("/first")})
		synctest.Wait()
		n.log.Refuse(nil)
		enginetest.Pass(outbox.PollInterval)
		n.wantRequests("create /first", "create /second", "release /q")
	})
}

// A release brings the queued calls of its session forward. The session stays within the limits of
// the queue.
func TestReleasesDoNotLiftTheBoundOfTheQueue(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(time.Minute)
		var claims []*keeper.Claim
		for _, path := range []string{"/q1", "/q2", "/q3"} {
			claims = append(claims, n.claim(s, path))
		}
		n.lead(0)
		for i, c := range claims {
			refused := false
			for range outbox.QueueBytesMax / (command.BatchBytesMax / 2) {
				refused = refused || testkit.Closed(s.Submit(t.Context(), bigSet("/a")).Done())
			}
			if !refused {
				t.Errorf("round %d: more than the bound is queued", i)
			}
			c.Release()
		}
	})
}

// The deadline passed while no one asked. Then the first thing that the holder does is to end the
// claim, its session, or the whole node. The claim was lost before that, and this is what the
// holder is told: another holder may have acted meanwhile.
func TestGivingUpAHoldThatWasLostSaysSo(t *testing.T) {
	for name, giveUp := range map[string]func(context.Context, *Session, hold) error{
		"release":   func(_ context.Context, _ *Session, c hold) error { return c.Release() },
		"close":     func(_ context.Context, s *Session, _ hold) error { return s.Close() },
		"shut down": func(ctx context.Context, s *Session, _ hold) error { return s.engine.keeper.CloseAll(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			withNode(t, func(t *testing.T, n *node) {
				s := n.open(testTimeout)
				c := n.held(s, "/q")
				n.fake.Pause(testDeadline)
				ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
				defer cancel()
				var err error
				go func() { err = giveUp(ctx, s, c) }()
				n.commit()
				if c.Err() != keeper.ErrSuspended || cause(c.tenure.Context()) != keeper.ErrSuspended {
					t.Errorf("the hold ended with %v, its context with %v", c.Err(), cause(c.tenure.Context()))
				}
				if err := errors.Join(err, giveUp(ctx, s, c), c.Release()); err != nil || n.exists("/q") {
					t.Errorf("and again: %v", err)
				}
			})
		})
	}
}

// A hold ended because there was no quorum, and its owner also stopped waiting for the release.
// When the session comes back, its contender must not block the lock.
func TestReleaseThatNobodyWaitsForIsStillSent(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.held(s, "/q")
		n.lead(0)
		var err error
		released := make(chan struct{})
		go func() { err = c.Release(); close(released) }()
		<-released
		if !errors.Is(err, outbox.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		enginetest.Pass(testDeadline)
		n.lead(enginetest.Other)
		n.apply(n.wantRequests("release /q")...)
		n.wantState(s, session.Connected)
		if n.exists("/q") {
			t.Fatal("the znode is still there")
		}
	})
}

// E4: to be first in the queue in the local state is not enough. The session must also be safe at
// that moment.
func TestHoldIsRefusedWhileSuspended(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := n.claim(s, "/q")
		n.fake.Pause(testDeadline)
		if err := holdErr(c); !errors.Is(err, keeper.ErrSuspended) {
			t.Fatal(err)
		}
		if err := c.Err(); err != nil {
			t.Fatalf("a claim that was not held ended: %v", err)
		}
		n.run(2 * time.Second)
		if err := holdErr(c); err != nil {
			t.Fatal(err)
		}
		if err := holdErr(c); !errors.Is(err, tree.ErrNotHeld) {
			t.Fatalf("held twice: %v", err)
		}
	})
}

// The znode is not known to exist. A claim cannot be held on a znode that may never exist.
func TestHoldIsRefusedBeforeTheZnodeExists(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		if err := holdErr(c); err == nil {
			t.Fatal("held")
		}
		n.commit()
		if err := holdErr(c); err != nil {
			t.Fatal(err)
		}
	})
}

func TestClaimWhoseCreateFailsEndsWithItsError(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/no/q", Mode: tree.Ephemeral}}, nil)
		n.commit()
		if _, err := c.Created(t.Context()); !errors.Is(err, tree.ErrNoNode) || !errors.Is(c.Err(), tree.ErrNoNode) || !testkit.Closed(c.Done()) {
			t.Fatalf("created %v, ended %v", err, c.Err())
		}
		if err := errors.Join(c.Release()); err != nil {
			t.Fatal(err)
		}
		n.wantRequests()
	})
}

func TestCreatedWaitsNoLongerThanItsCtx(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Created(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		n.commit()
		if r, err := c.Created(ctx); err != nil || r[0].Path != "/q" {
			t.Fatalf("the outcome is known: %v", err)
		}
	})
}

func TestClaimEndsWhenSomebodyDeletesItsZnode(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, other := n.open(testTimeout), n.open(testTimeout)
		c := n.held(s, "/q")
		other.Submit(t.Context(), []tree.Op{{Kind: tree.KindDelete, Path: "/q", Version: tree.AnyVersion}})
		n.commit()
		if !errors.Is(c.Err(), keeper.ErrDeleted) || !errors.Is(cause(c.tenure.Context()), keeper.ErrDeleted) {
			t.Fatal(c.Err())
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		n.wantRequests()
	})
}

// Someone deletes a part of a claim while its owner's transaction that gives up the whole claim is
// in flight. That transaction fails, and still nothing of the claim stays.
func TestLeavingClaimThatLosesAPartLeavesAsAWhole(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/a", Mode: tree.Ephemeral}, {Kind: tree.KindCreate, Path: "/b", Mode: tree.Ephemeral}}, nil)
		n.commit()
		s.Submit(t.Context(), []tree.Op{{Kind: tree.KindDelete, Path: "/a", Version: tree.AnyVersion}})
		with := new(keeper.With)
		leave, err := with.Release(s.Session, c)
		if err != nil {
			t.Fatal(err)
		}
		p := s.SubmitWith(t.Context(), append(leave, create("/x")), with)
		n.commit()
		if _, err := p.Result(); !errors.Is(err, tree.ErrNotHeld) || c.Err() == nil {
			t.Fatalf("given up in part: %v; the claim: %v", err, c.Err())
		}
		n.commit()
		if n.exists("/a") || n.exists("/b") || n.exists("/x") {
			t.Error("a part of it stays")
		}
	})
}

// Someone deleted the znode, and another claim has its path.
func TestReleaseLeavesAnotherClaimsZnodeAlone(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		first := n.claim(s, "/q")
		czxid := n.czxid("/q")
		go first.Release()
		release := n.wantRequests("release /q")
		c := enginetest.Decode(t, release[0].Cmd)
		c.Requests = []command.Request{
			{Kind: command.RequestTxn, Session: s.ID(), Ops: []tree.Op{{Kind: tree.KindDelete, Path: "/q", Version: tree.AnyVersion}}},
			{Kind: command.RequestTxn, Session: s.ID(), Ops: []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}},
			{Kind: command.RequestRelease, Session: s.ID(), Path: "/q", Czxid: czxid},
		}
		n.applyCommand(c)
		if !n.exists("/q") {
			t.Fatal("another znode was deleted")
		}
		synctest.Wait()
	})
}

func TestClaimOnAnEndedSessionEndsAtOnce(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		go s.Close()
		n.commit()
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		if !testkit.Closed(c.Done()) || !errors.Is(c.Err(), session.ErrClosed) || !errors.Is(holdErr(c), session.ErrClosed) {
			t.Fatal(c.Err())
		}
		n.wantRequests()
	})
}

// The session ends while the create is in flight, and its end deletes the znode. (curator@e5afda58:
// if it was closed before the answer to its create, the znode stayed.)
func TestClaimOfASessionThatEndedMeanwhileLeavesNothing(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		c := s.Claim(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		create := n.wantRequests("create /q")
		go s.Close()
		synctest.Wait()
		n.apply(create...)
		n.commit()
		if n.exists("/q") || !errors.Is(c.Err(), session.ErrClosed) {
			t.Fatalf("the claim ended with %v", c.Err())
		}
	})
}

func TestRefusedClaimIsReleasedByNothing(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s := n.open(testTimeout)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := s.Claim(ctx, []tree.Op{{Kind: tree.KindCreate, Path: "/q", Mode: tree.Ephemeral}}, nil)
		if !errors.Is(c.Err(), context.Canceled) {
			t.Fatal(c.Err())
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
		n.wantRequests()
	})
}

// Flush waits for what was submitted before, and for nothing else. It costs a request only if there
// is anything to wait for.
func TestFlush(t *testing.T) {
	withNode(t, func(t *testing.T, n *node) {
		s, other := n.open(testTimeout), n.open(testTimeout)
		c := n.held(s, "/q")
		other.Submit(t.Context(), []tree.Op{create("/other")})
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		n.apply(n.wantRequests("create /other")...)
		n.lead(0)
		taken := s.Submit(t.Context(), []tree.Op{create("/taken")})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := taken.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatalf("after a cancelled request: %v", err)
		}
		n.lead(enginetest.Other)
		s.Submit(t.Context(), []tree.Op{create("/x")})
		flushed := make(chan error, 1)
		go func() { flushed <- c.Flush() }()
		sent := n.wantRequests("create /x")
		if len(flushed) > 0 {
			t.Fatal("it did not wait")
		}
		n.apply(sent...)
		n.commit()
		if err := <-flushed; err != nil || !n.exists("/x") {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		n.wantRequests()
	})
}
