package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// newDeaf starts three members; the first can be made deaf, and member 2 leads. A deaf member does
// not hear the leader either, and can send only until it notices that. So the tick is longer, to
// leave even a busy machine enough time.
func newDeaf(t *testing.T, requestTimeout time.Duration) *embedtest.Ensemble {
	t.Helper()
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		c.RequestTimeout, c.Tick = requestTimeout, 10*embedtest.DefaultTick
	}})
	ens.TransferLeadership(2)
	return ens
}

// expires is the timeout of a session that a test lets the ensemble expire. It is short, because
// the test waits for it, but long enough to keep the session alive on a busy machine until then.
const expires = 4 * time.Second

// deafen makes member 1 deaf: the others hear it, but it does not learn what became of its
// requests.
func deafen(ens *embedtest.Ensemble) {
	ens.Faults(2).SetLink(1, embedtest.Link{Cut: true})
	ens.Faults(3).SetLink(1, embedtest.Link{Cut: true})
}

// releaseAll releases a Hold many times at once and returns the errors.
func releaseAll(h *lock.Hold) (errs []error) {
	errs = make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = h.Release() })
	}
	wg.Wait()
	return errs
}

// The ensemble has released the lock and granted it to another holder, and the old holder did not
// hear it. It releases again, many times at once, first without an answer and then with one. The
// new holder keeps the lock. In etcd#22082 a repeated Unlock deleted a newer acquisition. In
// CURATOR-486 a failed release could not be repeated.
func TestHold_ReleaseWhoseAnswerIsLostIsTriedAgainUnderANewHolder(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := newDeaf(t, 200*time.Millisecond)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		old, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		next := waits(t, ens, other)
		deafen(ens)
		for _, err := range releaseAll(old) {
			if !errors.Is(err, embed.ErrUnknownOutcome) {
				t.Errorf("released without an answer: %v", err)
			}
		}
		got := <-next // the release arrived all the same
		must(t, got.err)
		for _, err := range releaseAll(old) {
			if !errors.Is(err, embed.ErrUnknownOutcome) {
				t.Errorf("and again: %v", err)
			}
		}
		must(t, got.hold.Err())
		if err := old.Err(); !errors.Is(err, embed.ErrReleased) {
			t.Errorf("the old hold: %v", err)
		}
		ens.HealAll()
		ens.Ready(1)
		ens.Until("the old Hold to end", func() bool { return errors.Join(releaseAll(old)...) == nil })
		_, err = s.Sync(bounded(t), "/")
		must(t, err)
		must(t, got.hold.Err())
		if names := queued(t, s); len(names) != 1 || path+"/"+names[0] != got.hold.Path() {
			t.Errorf("in the queue: %v, want %s", names, got.hold.Path())
		}
		if got.hold.Token().Compare(old.Token()) <= 0 {
			t.Errorf("token %v after %v", got.hold.Token(), old.Token())
		}
	})
}

// A caller gives up while its member does not know whether its contender exists. The contender does
// exist, ahead of another one. Once the member can hear, the contender goes, although nobody waits
// for that. In CURATOR-315 and CURATOR-462 what was created for such a caller stayed for ever.
func TestMutex_CancelledWhileItsCreationIsUnknown(t *testing.T) {
	sessionsflag.Member(t, "a client reads nothing while its member hears nobody")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		leavesTheQueue(t, func(s *embed.Session) (giveUp func()) {
			ctx, cancel := context.WithCancel(bounded(t))
			ended := make(chan error, 1)
			go func() {
				_, err := lock.NewMutex(s, path).Lock(ctx)
				ended <- err
			}()
			return func() {
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("Lock: %v", err)
				}
			}
		})
	})
}

// The same with a bare claim, which many goroutines release at once, and again when it is gone.
func TestClaim_ReleasedWhileItsCreationIsUnknown(t *testing.T) {
	sessionsflag.Member(t, "a client reads nothing while its member hears nobody")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		var made *claim.Claim
		leavesTheQueue(t, func(s *embed.Session) (giveUp func()) {
			var err error
			made, err = claim.New(bounded(t), s, embed.OpCreate(path+"/_c_00000000-0000-4000-8000-000000000000-lock-", nil, embed.EphemeralSequential))
			must(t, err)
			return func() {
				var wg sync.WaitGroup
				for range 16 {
					wg.Go(func() {
						if err := made.Release(); err != nil {
							t.Errorf("a claim with an unknown outcome: %v", err)
						}
					})
				}
				wg.Wait()
				if _, err := made.Hold(false); !errors.Is(err, embed.ErrReleased) {
					t.Errorf("a claim that was given up can be held: %v", err)
				}
			}
		})
		must(t, made.Release())
	})
}

// leavesTheQueue makes contend queue on a deaf member, and makes it give up there.
func leavesTheQueue(t *testing.T, contend func(*embed.Session) (giveUp func())) {
	t.Helper()
	ens := newDeaf(t, time.Hour)
	s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	free(t, s) // creates the path
	free(t, other)
	_, err := s.Sync(bounded(t), path)
	must(t, err) // the deaf member has heard that nobody queues
	deafen(ens)
	giveUp := contend(s)
	ens.Until("the contender of the deaf one to queue", func() bool { return len(queued(t, other)) == 1 })
	if names := queued(t, s); len(names) != 0 {
		t.Fatalf("it is not deaf, it knows of %v", names)
	}
	giveUp()
	next := waits(t, ens, other)
	select {
	case got := <-next:
		t.Fatalf("granted behind another: %v", got)
	default:
	}
	ens.HealAll()
	got := <-next
	must(t, got.err)
	ens.Until("the other to leave the queue", func() bool { return len(queued(t, s)) == 1 })
	must(t, got.hold.Release())
}

// The holder's session expires while its member is cut off, and another caller holds the lock. Then
// the old holder releases many times at once, while it is cut off and afterwards. CURATOR-468 and
// CURATOR-337 are about releasing a lock that is not held any more, or never was.
func TestHold_ReleaseAfterItsSessionExpired(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 200 * time.Millisecond }})
		ens.TransferLeadership(2)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: expires}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		old, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		next := waits(t, ens, other)
		ens.Isolate(1)
		got := <-next
		must(t, got.err)
		for _, err := range releaseAll(old) {
			if err != nil && !errors.Is(err, embed.ErrUnknownOutcome) && !errors.Is(err, embed.ErrUnavailable) {
				t.Errorf("cut off: %v", err)
			}
		}
		if err := old.Err(); !errors.Is(err, embed.ErrSuspended) {
			t.Errorf("the old hold was lost, and says %v", err)
		}
		ens.HealAll()
		<-s.Done()
		ens.Until("the old Hold to end", func() bool { return errors.Join(releaseAll(old)...) == nil })
		must(t, got.hold.Err())
		if names := queued(t, other); len(names) != 1 || path+"/"+names[0] != got.hold.Path() {
			t.Errorf("in the queue: %v, want %s", names, got.hold.Path())
		}
	})
}

// The node is closed while many callers release. All of them return, and so do later calls, even
// when the member runs again and another caller holds the lock.
func TestHold_ReleaseOnAClosedNode(t *testing.T) {
	sessionsflag.Member(t, "a client outlives a member")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := newDeaf(t, time.Hour)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		old, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		ens.Isolate(1) // so that the release stays in flight
		errs := make(chan error, 16)
		for range cap(errs) {
			go func() { errs <- old.Release() }()
		}
		<-old.Done()
		n := ens.Node(1)
		must(t, n.Close())
		enough := bounded(t)
		for range cap(errs) {
			select {
			case err := <-errs:
				if err != nil && !errors.Is(err, embed.ErrUnknownOutcome) && !errors.Is(err, embed.ErrClosed) {
					t.Errorf("Release: %v", err)
				}
			case <-enough.Done():
				t.Fatal("a Release outlives its node")
			}
		}
		ens.HealAll()
		ens.Kill(1) // removes the closed node from the ensemble
		ens.Restart(1)
		hold, err := lock.NewMutex(other, path).Lock(bounded(t))
		must(t, err)
		for _, err := range releaseAll(old) {
			if err != nil && !errors.Is(err, embed.ErrUnknownOutcome) && !errors.Is(err, embed.ErrClosed) {
				t.Errorf("Release after its node: %v", err)
			}
		}
		if err := old.Err(); !errors.Is(err, embed.ErrReleased) {
			t.Errorf("the old hold: %v", err)
		}
		must(t, hold.Err())
		must(t, hold.Release())
	})
}

// One transaction deletes a contender's znode and creates one with the same name: the lock belongs
// to another. The Hold ends, and no Release of it deletes the new znode. In CURATOR-498 a client
// adopted what it found under the old name.
func TestHold_AnotherZnodeOfItsNameIsNotItsOwn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		hold, err := lock.NewMutex(s, path).Lock(bounded(t))
		must(t, err)
		_, err = s.Multi(bounded(t), embed.OpDelete(hold.Path(), embed.AnyVersion), embed.OpCreate(hold.Path(), nil, embed.Ephemeral))
		must(t, err)
		if !errors.Is(hold.Err(), embed.ErrDeleted) {
			t.Errorf("the hold: %v", hold.Err())
		}
		must(t, errors.Join(releaseAll(hold)...))
		if _, ok, err := s.Exists(bounded(t), hold.Path()); !ok || err != nil {
			t.Errorf("the new znode is gone: %v", err)
		}
		if _, err := s.Multi(bounded(t), lock.Guard(hold)); !errors.Is(err, embed.ErrNotHeld) {
			t.Errorf("a guard: %v", err)
		}
	})
}

// Tokens of a path grow, whatever happens between two grants. etcd's tokens are revisions, which
// went back when a member crashed during a compaction (etcd#17780). Curator had none (CURATOR-607).
func TestToken_Grows(t *testing.T) {
	rounds := func(n int, do func(*testing.T, *embedtest.Ensemble)) func(*testing.T, *embedtest.Ensemble, func()) {
		return func(t *testing.T, ens *embedtest.Ensemble, grant func()) {
			grant()
			for range n {
				do(t, ens)
				grant()
			}
		}
	}
	// down makes every member stop and start again.
	down := func(end func(*embedtest.Ensemble, embed.MemberID)) func(*testing.T, *embedtest.Ensemble) {
		return func(_ *testing.T, ens *embedtest.Ensemble) {
			for _, id := range ens.Members() {
				end(ens, id)
			}
			for _, id := range ens.Members() {
				ens.Start(id)
			}
			for _, id := range ens.Members() {
				ens.Ready(id)
			}
		}
	}
	const deep = "/a/b/c"
	for name, between := range map[string]func(t *testing.T, ens *embedtest.Ensemble, grant func()){
		"over the deletion of its parents": rounds(5, func(t *testing.T, ens *embedtest.Ensemble) {
			s := ens.Session(1, embed.SessionOptions{})
			_, err := s.Sync(bounded(t), "/")
			must(t, err)
			for _, p := range []string{deep, "/a/b", "/a"} {
				// The znode is empty now and then, so the ensemble may delete it first.
				if err := s.Delete(bounded(t), p, embed.AnyVersion); !errors.Is(err, embed.ErrNoNode) {
					must(t, err)
				}
			}
		}),
		"over restarts of all members": rounds(3, down((*embedtest.Ensemble).Stop)),
		"over crashes of all members":  rounds(3, down((*embedtest.Ensemble).Kill)),
		"over crashes after snapshots": rounds(3, func(t *testing.T, ens *embedtest.Ensemble) {
			for _, id := range ens.Members() {
				_ = ens.Snapshot(id) // the crash comes in the middle of it
			}
			down((*embedtest.Ensemble).Kill)(t, ens)
		}),
		"over changes of leader": rounds(6, func(t *testing.T, ens *embedtest.Ensemble) { ens.TransferLeadership(ens.Leader()%3 + 1) }),
		"over the loss of the leader": rounds(3, func(t *testing.T, ens *embedtest.Ensemble) {
			leader := ens.Leader()
			ens.Kill(leader)
			ens.Leader()
			ens.Start(leader)
			for _, id := range ens.Members() {
				ens.Ready(id)
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := embedtest.New(t, 3, embedtest.Options{})
				var last lock.Token
				n := 0
				between(t, ens, func() {
					n++
					s := ens.Session(embed.MemberID(n%3+1), embed.SessionOptions{})
					h, err := lock.NewMutex(s, deep).Lock(bounded(t))
					must(t, err)
					if h.Token().Compare(last) <= 0 || fmt.Sprint(h.Token()) <= fmt.Sprint(last) {
						t.Errorf("token %v after %v", h.Token(), last)
					}
					last = h.Token()
					must(t, h.Release())
					must(t, s.Close())
				})
			})
		})
	}
}

// A member dies while it holds a lock, a read-write lock, permits and several paths, while callers
// wait there, and right after releases. Others get all of it, and nobody waits for the dead member.
// In CURATOR-595 permits of a lost client stayed out. In kazoo#412 a lock was never free after its
// holder released it and died. In etcd#17470 a client was gone and its lock was kept alive.
func TestHold_AMemberThatDiesGivesBackAllItHad(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		dying, s := ens.Session(1, embed.SessionOptions{Timeout: expires}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		kinds := map[string]func(s *embed.Session, at string) acquirer{
			"mutex": func(s *embed.Session, at string) acquirer { return lock.NewMutex(s, at).Lock },
			"kept": func(s *embed.Session, at string) acquirer {
				return lock.NewMutex(s, at).With(lock.Options{Keep: time.Hour}).Lock
			},
			"reader": func(s *embed.Session, at string) acquirer { return lock.NewRWMutex(s, at).RLock },
			"writer": func(s *embed.Session, at string) acquirer { return lock.NewRWMutex(s, at).Lock },
			"permit": func(s *embed.Session, at string) acquirer { return acquires(lock.NewSemaphore(s, at, 2), 2) },
			"multi":  func(s *embed.Session, at string) acquirer { return lock.NewMulti(s, at, at+"-2").Lock },
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		var released []*lock.Hold
		for name, kind := range kinds {
			h, err := kind(dying, "/held/"+name)(bounded(t))
			must(t, err)
			must(t, h.Release())
			_, err = kind(dying, "/held/"+name)(bounded(t))
			must(t, err)
			for range 2 { // they wait on the dying member, ahead of the others
				wg.Go(func() { _, _ = kind(dying, "/held/"+name)(bounded(t)) })
			}
			h, err = kind(dying, "/released/"+name)(bounded(t))
			must(t, err)
			released = append(released, h)
		}
		for _, h := range released {
			wg.Go(func() { _ = h.Release() }) // which may or may not arrive
		}
		ens.Kill(1)
		for name, kind := range kinds {
			if name == "reader" {
				kind = kinds["writer"]
			}
			for _, at := range []string{"/held/", "/released/"} {
				h, err := kind(s, at+name)(bounded(t))
				if err != nil {
					t.Fatalf("%s%s: %v", at, name, err)
				}
				must(t, h.Release())
			}
		}
	})
}

// The ctx of Lock ends before the Hold. That does not end the Hold, and its release arrives. In
// CURATOR-468 the thread that was to release a lock had been interrupted, so the delete was never
// sent.
func TestHold_ReleaseAfterTheCtxOfItsLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		rw := lock.NewRWMutex(s, path)
		for name, acquire := range map[string]acquirer{
			"a mutex": lock.NewMutex(s, path).Lock, "a reader": rw.RLock, "a writer": rw.Lock,
			"several": lock.NewMulti(s, path, path+"2").Lock, "permits": acquires(lock.NewSemaphore(s, path, 3), 3),
		} {
			ctx, cancel := context.WithCancel(bounded(t))
			h, err := acquire(ctx)
			must(t, err)
			cancel()
			if h.Err() != nil || h.Context().Err() != nil {
				t.Errorf("%s: ended with the ctx of its Lock: %v", name, h.Err())
			}
			must(t, h.Release())
			if n := left(t, s); n != 0 {
				t.Errorf("%s: %d znodes are left", name, n)
			}
		}
	})
}
