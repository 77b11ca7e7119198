package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// kept returns a Mutex that keeps its lock.
func kept(s *embed.Session, keep time.Duration) *lock.Mutex {
	return lock.NewMutex(s, path).With(lock.Options{Keep: keep})
}

// E1.2, E5.4: a lock is granted again without a commit, and its token grows all the same.
func TestKeep_TakesTheLockAgainWithoutACommit(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := kept(s, time.Hour)
		first, err := m.Lock(bounded(t))
		must(t, err)
		if _, err := m.TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("TryLock while it is held: %v", err)
		}
		must(t, first.Release())
		zxid := func() embed.Zxid { return ens.Node(1).Status().Shards[0].Zxid }
		before := zxid()
		last := first
		for range 100 {
			h, err := m.Lock(bounded(t))
			must(t, err)
			grows(t, last, h)
			if h.Token().Zxid != first.Token().Zxid || h.Err() != nil {
				t.Fatalf("token %v, %v", h.Token(), h.Err())
			}
			must(t, h.Release())
			if !errors.Is(h.Err(), embed.ErrReleased) || !errors.Is(context.Cause(h.Context()), embed.ErrReleased) {
				t.Fatalf("released: %v", h.Err())
			}
			last = h
		}
		if after := zxid(); after != before {
			t.Errorf("zxid %d became %d", before, after)
		}
		// What it keeps goes with its session.
		must(t, s.Close())
		if _, err := m.Lock(bounded(t)); !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("after the session: %v", err)
		}
	})
}

// E5.1: nobody is let in while a Hold lives. E5.5: the Mutex notices a contender from outside.
func TestKeep_AForeignContenderGetsIt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(2, embed.SessionOptions{})
		m := kept(s, 10*time.Millisecond)
		h, err := m.Lock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, other, lock.NewMutex(other, path).Lock)
		pending(t, other, "in beside the holder", w)
		must(t, h.Release()) // nobody in this Mutex wants it
		foreign := granted(t, w)
		grows(t, h, foreign)
		// The callers of this Mutex queue behind, and one of them keeps the lock for the rest.
		var wg sync.WaitGroup
		var mu sync.Mutex
		last := foreign
		for range 4 {
			wg.Go(func() {
				for range 5 {
					h, err := m.Lock(bounded(t))
					if err != nil {
						t.Error(err)
						return
					}
					if !mu.TryLock() {
						t.Error("two hold it")
						return
					}
					grows(t, last, h)
					last = h
					mu.Unlock()
					if err := h.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		ens.Until("one to queue", func() bool { return len(queued(t, s)) == 2 })
		must(t, foreign.Release())
		wg.Wait()
		must(t, s.Close())
	})
}

// When somebody else waits, the callers of this Mutex go on for Keep at most.
func TestKeep_IsBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		m := kept(s, 10*time.Millisecond)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					h, err := m.Lock(bounded(t))
					if err != nil {
						t.Error(err)
						return
					}
					if err := h.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		again(t, lock.NewMutex(other, path), 5) // whom they would otherwise never let in
		close(stop)
		wg.Wait()
	})
}

// E5.3: a write that an ended Hold guards is refused, although its znode still exists for the next
// Hold.
func TestKeep_GuardsEndWithTheHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		create(t, s, "/locks", "/locks/data")
		m := kept(s, time.Hour)
		h, err := m.Lock(bounded(t))
		must(t, err)
		guarded(t, s, lock.Guard(h), "the first")
		guarded(t, other, lock.Guard(h), "of another session, which keeps no order with the next Hold's", embed.ErrNotHeld)
		must(t, h.Release())
		guarded(t, s, lock.Guard(h), "late", embed.ErrNotHeld, embed.ErrReleased)
		next, err := m.Lock(bounded(t))
		must(t, err)
		guarded(t, s, lock.Guard(h), "under the next", embed.ErrNotHeld, embed.ErrReleased)
		guarded(t, s, lock.Guard(next), "the next")
	})
}

// E5.2: a grant without a commit compares the clock, as any other grant.
func TestKeep_IsLostWithTheDeadline(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		s := ens.Session(1, embed.SessionOptions{})
		m := kept(s, time.Hour)
		h, err := m.Lock(bounded(t))
		must(t, err)
		waits := make(chan outcome, 1)
		go func() {
			h, err := m.Lock(bounded(t))
			waits <- outcome{h, err}
		}()
		ens.Faults(1).Sleep(s.Timeout())
		if !errors.Is(h.Err(), embed.ErrSuspended) {
			t.Errorf("after a sleep: %v", h.Err())
		}
		next := granted(t, waits) // with a commit, though nobody has released the lock
		grows(t, h, next)
		if next.Token().Zxid == h.Token().Zxid {
			t.Error("a lost contender was granted again")
		}
		must(t, h.Release())
		if next.Err() != nil {
			t.Errorf("the release of a lost Hold ended the next: %v", next.Err())
		}
		must(t, next.Release())
	})
}

// The release is the first question after the deadline. The Hold was lost before it was given up,
// and says so.
func TestKeep_AReleaseComparesTheClock(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := kept(s, time.Hour)
		h, err := m.Lock(bounded(t))
		must(t, err)
		ctx := h.Context()
		ens.Faults(1).Sleep(s.Timeout())
		must(t, h.Release())
		if cause := context.Cause(ctx); !errors.Is(h.Err(), embed.ErrSuspended) || !errors.Is(cause, embed.ErrSuspended) {
			t.Errorf("the Hold ended with %v, its context with %v", h.Err(), cause)
		}
		next, err := m.Lock(bounded(t))
		must(t, err)
		if next.Token().Zxid == h.Token().Zxid {
			t.Error("a lost contender was granted again")
		}
		must(t, next.Release())
	})
}

func TestKeep_ACallerWhoGivesUpIsNoObstacle(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := kept(s, time.Hour)
		h, err := m.Lock(bounded(t))
		must(t, err)
		for range 20 {
			ctx, cancel := context.WithCancel(bounded(t))
			gone := make(chan outcome, 2)
			for range 2 {
				go func() {
					h, err := m.Lock(ctx)
					gone <- outcome{h, err}
				}()
			}
			go cancel()
			must(t, h.Release())
			for range 2 {
				if o := <-gone; o.err == nil {
					must(t, o.hold.Release())
				} else if !errors.Is(o.err, context.Canceled) {
					t.Fatal(o.err)
				}
			}
			h, err = m.Lock(bounded(t))
			must(t, err)
		}
	})
}

// What a holder wrote without waiting is there when the next Hold begins, although no commit lies
// between them.
func TestKeep_TheNextHolderSeesWhatTheLastOneWrote(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{})
		create(t, s, "/locks", "/locks/data")
		m := kept(s, time.Hour)
		for range 50 {
			h, err := m.Lock(bounded(t))
			must(t, err)
			_, before, err := s.Get(bounded(t), "/locks/data")
			must(t, err)
			written := s.Submit(bounded(t), lock.Guard(h), embed.OpSet("/locks/data", nil, before.Version))
			must(t, h.Release())
			next, err := m.Lock(bounded(t))
			must(t, err)
			if _, now, err := s.Get(bounded(t), "/locks/data"); now.Version != before.Version+1 || err != nil {
				t.Fatalf("the next holder sees version %d after %d, %v", now.Version, before.Version, err)
			}
			_, err = written.Result()
			must(t, err)
			must(t, next.Release())
		}
	})
}

// A request to give up one Hold does not reach the next Hold. A lock that somebody has asked for is
// not kept, and that caller gets it.
func TestKeep_EndsWithARevokedHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		m := kept(s, time.Hour)
		h, err := m.Lock(bounded(t))
		must(t, err)
		asked := h.Revoked()
		must(t, lock.Revoke(bounded(t), other, path))
		<-asked
		must(t, h.Release())
		got, err := lock.NewMutex(other, path).TryLock(bounded(t))
		must(t, err)
		grows(t, h, got)
		must(t, got.Release())
		next, err := m.Lock(bounded(t))
		must(t, err)
		if next.Token().Zxid <= got.Token().Zxid {
			t.Errorf("token %v after %v", next.Token(), got.Token())
		}
		must(t, next.Release())
	})
}

// A kept lock can be given up before its session ends. E5.1: while a Hold lives, it is given up
// when that ends.
func TestKeep_IsForgotten(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
		must(t, lock.NewMutex(s, path).Forget()) // it keeps nothing
		m := kept(s, time.Hour)
		must(t, m.Forget()) // this one does not either yet
		h, err := m.Lock(bounded(t))
		must(t, err)
		must(t, h.Release())
		if names := queued(t, s); len(names) != 1 {
			t.Errorf("kept: %v", names)
		}
		must(t, m.Forget())
		must(t, m.Forget())
		free(t, other)
		// While somebody holds it and another caller waits, it goes with the Hold.
		h, err = m.Lock(bounded(t))
		must(t, err)
		next := make(chan outcome, 1)
		go func() {
			h, err := m.Lock(bounded(t))
			next <- outcome{h, err}
		}()
		must(t, m.Forget())
		if h.Err() != nil || len(queued(t, s)) != 1 {
			t.Errorf("it was given up under a Hold: %v", h.Err())
		}
		must(t, h.Release())
		again := granted(t, next)
		if again.Token().Zxid <= h.Token().Zxid {
			t.Errorf("token %v after %v", again.Token(), h.Token())
		}
		// The lock that is acquired afterwards is kept again.
		must(t, again.Release())
		if names := queued(t, s); len(names) != 1 {
			t.Errorf("kept: %v", names)
		}
	})
}

// endedContext is a context that has ended; callers that wait for its end learn it later.
type endedContext struct {
	context.Context
	asked func()
	told  chan struct{}
}

func (c endedContext) Err() error { return context.Canceled }

func (c endedContext) Done() <-chan struct{} {
	c.asked()
	return c.told
}

// A caller whose ctx has ended acquires nothing and holds nobody up.
func TestKeep_ACallerWhoseCtxHasEnded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		m := kept(ens.Session(1, embed.SessionOptions{}), time.Hour)
		h, err := m.Lock(bounded(t))
		must(t, err)
		must(t, h.Release())
		queues := make(chan struct{})
		ended := endedContext{bounded(t), sync.OnceFunc(func() { close(queues) }), make(chan struct{})}
		if _, err := m.TryLock(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("TryLock: %v", err)
		}
		first := make(chan error, 1)
		go func() {
			_, err := m.Lock(ended)
			first <- err
		}()
		select {
		case <-queues: // with nobody ahead
		case err = <-first:
			first <- err
		}
		second := make(chan outcome, 1)
		waits := make(chan struct{})
		go func() {
			ctx := endedContext{bounded(t), sync.OnceFunc(func() { close(waits) }), nil}
			h, err := m.Lock(liveContext{ctx})
			second <- outcome{h, err}
		}()
		var got outcome
		select {
		case <-waits: // behind the first caller
		case got = <-second:
			second <- got
		}
		close(ended.told)
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		must(t, granted(t, second).Release())
	})
}

// liveContext is a context that has not ended. It tells when somebody asks for its channel.
type liveContext struct{ endedContext }

func (c liveContext) Err() error { return c.Context.Err() }

func (c liveContext) Done() <-chan struct{} {
	c.asked()
	return c.Context.Done()
}
