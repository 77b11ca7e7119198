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
)

// newDeaf starts three members of which the first may be made deaf. Member 2 leads. The tick is longer: a deaf member hears no leader either, and
// can say something only until it knows of none any more, which is to be long also for a busy machine.
func newDeaf(t *testing.T, requestTimeout time.Duration) *embedtest.Ensemble {
	t.Helper()
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		c.RequestTimeout, c.Tick = requestTimeout, 10*embedtest.DefaultTick
	}})
	ens.MoveLeader(2)
	return ens
}

// expires is the timeout of a session that a test has the ensemble expire: no longer than that takes, and long enough to be kept alive on a busy
// machine until then.
const expires = 4 * time.Second

// deafen makes member 1 deaf: what it says reaches the others, and it learns nothing of what became of it.
func deafen(ens *embedtest.Ensemble) {
	ens.Faults(2).SetLink(1, embedtest.Link{Cut: true})
	ens.Faults(3).SetLink(1, embedtest.Link{Cut: true})
}

// releaseAll releases a hold many times at once and returns what came of it.
func releaseAll(h *lock.Hold) (errs []error) {
	errs = make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = h.Release() })
	}
	wg.Wait()
	return errs
}

// The ensemble has released the lock and granted it anew, and the old holder was never told. It tries again, many times at
// once: without an answer, and when it has one. The new holder keeps the lock. (etcd#22082: an Unlock that was tried again
// deleted a newer acquisition. CURATOR-486: after a release that had failed there was no other.)
func TestHold_ReleaseWhoseAnswerIsLostIsTriedAgainUnderANewHolder(t *testing.T) {
	t.Parallel()
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
	got := <-next // it went through all the same
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
	ens.Until("the old holder to be told", func() bool { return errors.Join(releaseAll(old)...) == nil })
	_, err = s.Sync(bounded(t), "/")
	must(t, err)
	must(t, got.hold.Err())
	if names := queued(t, s); len(names) != 1 || path+"/"+names[0] != got.hold.Path() {
		t.Errorf("in the queue: %v, want %s", names, got.hold.Path())
	}
	if got.hold.Token().Compare(old.Token()) <= 0 {
		t.Errorf("token %v after %v", got.hold.Token(), old.Token())
	}
}

// Whoever waits for a lock loses patience while nobody on its member knows whether its contender exists. It does, and it
// stands before another one. Once its member can hear, it goes, although nobody waits for that. (CURATOR-315, CURATOR-462:
// what was created for a caller that had gone stayed for ever.)
func TestMutex_CancelledWhileItsCreationIsUnknown(t *testing.T) {
	t.Parallel()
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
}

// The same with a bare claim, which many give up at once, and again when it is gone.
func TestClaim_ReleasedWhileItsCreationIsUnknown(t *testing.T) {
	t.Parallel()
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
						t.Errorf("a claim of which nobody knows: %v", err)
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
}

// leavesTheQueue has contend queue on a deaf member, and has it give up there.
func leavesTheQueue(t *testing.T, contend func(*embed.Session) (giveUp func())) {
	t.Helper()
	ens := newDeaf(t, time.Hour)
	s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	free(t, s) // the path is there
	free(t, other)
	_, err := s.Sync(bounded(t), path)
	must(t, err) // and the deaf one has heard that nobody queues
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

// The holder's session expires while its member is cut off, and another holds the lock. The old one releases then, while it is
// cut off and afterwards, many times at once. (CURATOR-468, CURATOR-337: releasing what was not held any more, or never was.)
func TestHold_ReleaseAfterItsSessionExpired(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 200 * time.Millisecond }})
	ens.MoveLeader(2)
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
	ens.Until("the old holder to be told", func() bool { return errors.Join(releaseAll(old)...) == nil })
	must(t, got.hold.Err())
	if names := queued(t, other); len(names) != 1 || path+"/"+names[0] != got.hold.Path() {
		t.Errorf("in the queue: %v, want %s", names, got.hold.Path())
	}
}

// The node is closed while many release: each of them is answered, and so is whoever asks later, also when the member is there
// again and another holds the lock.
func TestHold_ReleaseOnAClosedNode(t *testing.T) {
	t.Parallel()
	ens := newDeaf(t, time.Hour)
	s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	old, err := lock.NewMutex(s, path).Lock(bounded(t))
	must(t, err)
	ens.Isolate(1) // so that the release is under way
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
	ens.Kill(1) // takes the closed node out of the ensemble
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
}

// A contender's znode is taken away and one of the same name is put in its place, in one transaction: the lock is another's. The
// hold ends, and no Release of it touches the new one. (CURATOR-498: what is found under the old name is adopted.)
func TestHold_AnotherZnodeOfItsNameIsNotItsOwn(t *testing.T) {
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
}

// Tokens of a path grow, whatever happens between two grants. (etcd's tokens are revisions, which went back when a member
// crashed while it compacted, etcd#17780; Curator had none to give, CURATOR-607.)
func TestToken_Grows(t *testing.T) {
	rounds := func(n int, do func(*embedtest.Ensemble)) func(*embedtest.Ensemble, func()) {
		return func(ens *embedtest.Ensemble, grant func()) {
			grant()
			for range n {
				do(ens)
				grant()
			}
		}
	}
	// down has every member stop and start again.
	down := func(end func(*embedtest.Ensemble, embed.MemberID)) func(*embedtest.Ensemble) {
		return func(ens *embedtest.Ensemble) {
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
	for name, between := range map[string]func(ens *embedtest.Ensemble, grant func()){
		"over the deletion of its parents": rounds(5, func(ens *embedtest.Ensemble) {
			s := ens.Session(1, embed.SessionOptions{})
			_, err := s.Sync(bounded(t), "/")
			must(t, err)
			for _, p := range []string{deep, "/a/b", "/a"} {
				if err := s.Delete(bounded(t), p, embed.AnyVersion); !errors.Is(err, embed.ErrNoNode) { // it has been empty: the ensemble may be first
					must(t, err)
				}
			}
		}),
		"over restarts of all members": rounds(3, down((*embedtest.Ensemble).Stop)),
		"over crashes of all members":  rounds(3, down((*embedtest.Ensemble).Kill)),
		"over crashes after snapshots": rounds(3, func(ens *embedtest.Ensemble) {
			for _, id := range ens.Members() {
				_ = ens.Snapshot(id) // it crashes in the midst of it
			}
			down((*embedtest.Ensemble).Kill)(ens)
		}),
		"over changes of leader": rounds(6, func(ens *embedtest.Ensemble) { ens.MoveLeader(ens.Leader()%3 + 1) }),
		"over the loss of the leader": rounds(3, func(ens *embedtest.Ensemble) {
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
			ens := embedtest.New(t, 3, embedtest.Options{})
			var last lock.Token
			turn := 0
			between(ens, func() {
				turn++
				s := ens.Session(embed.MemberID(turn%3+1), embed.SessionOptions{})
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
	}
}

// A member dies with a lock, a read-write lock, permits and several paths in its hands, with callers who wait, and right after releases. All of
// it is free for the others, and nobody waits for the dead. (CURATOR-595: permits of a lost client stayed out; kazoo#412: a lock that had
// been released by a process that then died was never free; etcd#17470: a client was gone and its lock was kept alive.)
func TestHold_AMemberThatDiesGivesBackAllItHad(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	ens.MoveLeader(2)
	dying, s := ens.Session(1, embed.SessionOptions{Timeout: expires}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	kinds := map[string]func(s *embed.Session, at string) taker{
		"mutex": func(s *embed.Session, at string) taker { return lock.NewMutex(s, at).Lock },
		"kept": func(s *embed.Session, at string) taker {
			return lock.NewMutex(s, at).With(lock.Options{Keep: time.Hour}).Lock
		},
		"reader": func(s *embed.Session, at string) taker { return lock.NewRWMutex(s, at).RLock },
		"writer": func(s *embed.Session, at string) taker { return lock.NewRWMutex(s, at).Lock },
		"permit": func(s *embed.Session, at string) taker { return acquires(lock.NewSemaphore(s, at, 2), 2) },
		"multi":  func(s *embed.Session, at string) taker { return lock.NewMulti(s, at, at+"-2").Lock },
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
		for range 2 { // who wait on the dying member, ahead of the others
			wg.Go(func() { _, _ = kind(dying, "/held/"+name)(bounded(t)) })
		}
		h, err = kind(dying, "/released/"+name)(bounded(t))
		must(t, err)
		released = append(released, h)
	}
	for _, h := range released {
		wg.Go(func() { _ = h.Release() }) // which may get through or not
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
}

// The ctx by which a lock was waited for ends before the Hold does: that ends nothing, and the release gets through all the same.
// (CURATOR-468: the thread that was to release a lock had been interrupted, so the delete was never sent.)
func TestHold_ReleaseAfterTheCtxOfItsLock(t *testing.T) {
	ens := one(t)
	s := ens.Session(1, embed.SessionOptions{})
	rw := lock.NewRWMutex(s, path)
	for name, take := range map[string]taker{
		"a mutex": lock.NewMutex(s, path).Lock, "a reader": rw.RLock, "a writer": rw.Lock,
		"several": lock.NewMulti(s, path, path+"2").Lock, "permits": acquires(lock.NewSemaphore(s, path, 3), 3),
	} {
		ctx, cancel := context.WithCancel(bounded(t))
		h, err := take(ctx)
		must(t, err)
		cancel()
		if h.Err() != nil || h.Context().Err() != nil {
			t.Errorf("%s: ended with the ctx that it was taken by: %v", name, h.Err())
		}
		must(t, h.Release())
		if n := left(t, s); n != 0 {
			t.Errorf("%s: %d znodes are left", name, n)
		}
	}
}
