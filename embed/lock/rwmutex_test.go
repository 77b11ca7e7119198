package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
)

// acquiring starts a call that waits for a Hold. It returns a channel for the outcome once the
// contender is in the queue.
func acquiring(t testing.TB, ens *embedtest.Ensemble, s *embed.Session, acquire func(context.Context) (*lock.Hold, error)) <-chan outcome {
	t.Helper()
	// Otherwise contenders that queued on another member would be counted for it.
	_, err := s.Sync(bounded(t), "/")
	must(t, err)
	before := len(queued(t, s))
	out := make(chan outcome, 1)
	go func() {
		h, err := acquire(bounded(t))
		out <- outcome{h, err}
	}()
	ens.Until("the contender to queue", func() bool { return len(queued(t, s)) > before })
	return out
}

// granted returns the Hold of a call that has it, or soon will.
func granted(t testing.TB, out <-chan outcome) *lock.Hold {
	t.Helper()
	o := <-out
	must(t, o.err)
	return o.hold
}

// pending fails the test if one of the calls has its Hold. Everything that could grant one was
// applied before.
func pending(t testing.TB, s *embed.Session, what string, outs ...<-chan outcome) {
	t.Helper()
	_, err := s.Sync(bounded(t), "/")
	must(t, err)
	for _, out := range outs {
		select {
		case o := <-out:
			t.Fatalf("%s: %v", what, o.err)
		default:
		}
	}
}

func grows(t testing.TB, holds ...*lock.Hold) {
	t.Helper()
	for i := range holds[1:] {
		if holds[i+1].Token().Compare(holds[i].Token()) <= 0 {
			t.Errorf("token %v after %v", holds[i+1].Token(), holds[i].Token())
		}
	}
}

// behindAWriter makes a writer hold the lock, with a reader and another writer behind it.
func behindAWriter(t testing.TB) (ens *embedtest.Ensemble, s *embed.Session, m *lock.RWMutex, writer *lock.Hold, reads, writes <-chan outcome) {
	t.Helper()
	ens = one(t)
	s = ens.Session(1, embed.SessionOptions{})
	m = lock.NewRWMutex(s, path)
	writer, err := m.Lock(bounded(t))
	must(t, err)
	reads = acquiring(t, ens, s, m.RLock)
	return ens, s, m, writer, reads, acquiring(t, ens, s, m.Lock)
}

func TestRWMutex_ReadersShareAndAWriterIsAlone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewRWMutex(s, path)
		r1, err := m.RLock(bounded(t))
		must(t, err)
		r2, err := m.TryRLock(bounded(t))
		must(t, err)
		if _, err := m.TryLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("TryLock beside readers: %v", err)
		}
		w := acquiring(t, ens, s, m.Lock)
		if _, err := m.TryRLock(bounded(t)); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("TryRLock beside a waiting writer: %v", err)
		}
		late := acquiring(t, ens, s, m.RLock)
		pending(t, s, "in beside a reader", w, late)
		must(t, r1.Release())
		pending(t, s, "in beside a reader", w, late)
		must(t, r2.Release())
		writer := granted(t, w)
		pending(t, s, "a reader is in beside the writer", late)
		must(t, writer.Release())
		r3 := granted(t, late)
		grows(t, r1, r2, writer, r3)
		must(t, r3.Release())
		empty(t, s)
	})
}

// CURATOR-621: a writer that also took the read lock got a place behind a queued writer, which then
// came in beside it.
func TestRWMutex_DowngradeLetsNoQueuedWriterIn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens, s, m, w1, r, w2 := behindAWriter(t)
		late := acquiring(t, ens, s, m.RLock)
		down, err := m.Downgrade(bounded(t), w1)
		must(t, err)
		if !errors.Is(w1.Err(), embed.ErrReleased) {
			t.Errorf("the write Hold after a downgrade: %v", w1.Err())
		}
		joined := granted(t, r)
		pending(t, s, "in beside readers", w2, late)
		must(t, joined.Release())
		pending(t, s, "in beside the former writer", w2, late)
		grows(t, w1, down)
		must(t, down.Release())
		next := granted(t, w2)
		grows(t, down, next)
		must(t, w1.Release())
		if next.Err() != nil {
			t.Error("the release of the downgraded Hold freed the next writer's")
		}
		must(t, next.Release())
		must(t, granted(t, late).Release())
		if _, err := m.Downgrade(bounded(t), next); !errors.Is(err, embed.ErrNotHeld) {
			t.Errorf("downgrade of a Hold that has ended: %v", err)
		}
	})
}

func TestRWMutex_UpgradeWaitsForTheReadersAndNobodyElse(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewRWMutex(s, path)
		r1, err := m.RLock(bounded(t))
		must(t, err)
		r2, err := m.RLock(bounded(t))
		must(t, err)
		w := acquiring(t, ens, s, m.Lock)
		late := acquiring(t, ens, s, m.RLock)
		up := acquiring(t, ens, s, func(ctx context.Context) (*lock.Hold, error) { return m.Upgrade(ctx, r1) })
		pending(t, s, "in beside a reader", w, late, up)
		if _, err := m.Upgrade(bounded(t), r2); !errors.Is(err, lock.ErrUpgrade) {
			t.Fatalf("the second upgrade: %v", err)
		}
		if r2.Err() != nil {
			t.Errorf("its read Hold: %v", r2.Err())
		}
		must(t, r2.Release())
		write := granted(t, up)
		if !errors.Is(r1.Err(), embed.ErrReleased) {
			t.Errorf("the read Hold after an upgrade: %v", r1.Err())
		}
		pending(t, s, "in beside the writer", w, late)
		grows(t, r1, r2, write)
		down, err := m.Downgrade(bounded(t), write)
		must(t, err)
		grows(t, write, down)
		again, err := m.Upgrade(bounded(t), down)
		must(t, err)
		grows(t, down, again)
		pending(t, s, "in beside the writer", w, late)
		must(t, again.Release())
		next := granted(t, w)
		grows(t, again, next)
		must(t, next.Release())
		must(t, granted(t, late).Release())
		empty(t, s)
	})
}

// Nobody waits, so the upgrade stands at the end, and later callers come behind it.
func TestRWMutex_UpgradeThatIsGivenUpLeavesTheReadHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewRWMutex(s, path)
		r1, err := m.RLock(bounded(t))
		must(t, err)
		r2, err := m.RLock(bounded(t))
		must(t, err)
		ctx, cancel := context.WithCancel(bounded(t))
		up := acquiring(t, ens, s, func(context.Context) (*lock.Hold, error) { return m.Upgrade(ctx, r1) })
		late := acquiring(t, ens, s, m.RLock)
		pending(t, s, "in beside a reader that waits to be the writer", late)
		cancel()
		if o := <-up; !errors.Is(o.err, context.Canceled) || r1.Err() != nil {
			t.Errorf("the upgrade ended with %v, its read Hold with %v", o.err, r1.Err())
		}
		r3 := granted(t, late)
		for _, h := range []*lock.Hold{r1, r2, r3} {
			must(t, h.Release())
		}
		empty(t, s)
	})
}

// kazoo#649: a reader waited for a writer that had come later.
func TestRWMutex_AReaderWaitsForNoLaterWriter(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, s, _, w1, r, w2 := behindAWriter(t)
		must(t, w1.Release())
		reader := granted(t, r)
		pending(t, s, "in beside a reader", w2)
		must(t, reader.Release())
		must(t, granted(t, w2).Release())
	})
}

// A reader loses its Hold while it upgrades, because its machine slept, and its session comes back.
// The writer behind it then holds the lock, and nobody may get in front of that writer.
func TestRWMutex_UpgradeOfAReadThatIsLostMeanwhile(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		m := lock.NewRWMutex(s, path)
		read, err := m.RLock(bounded(t))
		must(t, err)
		_, err = other.Sync(bounded(t), "/")
		must(t, err)
		waiting := acquiring(t, ens, other, lock.NewRWMutex(other, path).Lock)
		_, err = s.Sync(bounded(t), "/")
		must(t, err)
		var asleep sync.Once
		write, err := m.Upgrade(fickle{bounded(t), func() bool { // ends after the look at the read Hold
			asleep.Do(func() { ens.Faults(1).Sleep(55 * time.Second) })
			return false
		}}, read)
		if !errors.Is(err, embed.ErrNotHeld) || !errors.Is(err, embed.ErrSuspended) {
			t.Errorf("Upgrade: %v", err)
		}
		next := granted(t, waiting)
		if write != nil && write.Err() == nil && next.Err() == nil {
			t.Error("two writers are in")
		}
		ens.Until("the reader to be gone", func() bool { return len(queued(t, other)) == 1 })
	})
}

// The same with only another reader ahead: others may have held the lock since.
func TestRWMutex_UpgradeWaitsForItsReadHold(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(2)
		s, other := ens.Session(1, embed.SessionOptions{Timeout: time.Minute}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
		m := lock.NewRWMutex(s, path)
		read, err := m.RLock(bounded(t))
		must(t, err)
		beside, err := lock.NewRWMutex(other, path).RLock(bounded(t))
		must(t, err)
		_, err = s.Sync(bounded(t), "/")
		must(t, err)
		upgrading := acquiring(t, ens, s, func(ctx context.Context) (*lock.Hold, error) { return m.Upgrade(ctx, read) })
		ens.Faults(1).Sleep(55 * time.Second)
		if err := read.Err(); !errors.Is(err, embed.ErrSuspended) {
			t.Fatalf("the read hold after a sleep: %v", err)
		}
		if got := <-upgrading; !errors.Is(got.err, embed.ErrNotHeld) || !errors.Is(got.err, embed.ErrSuspended) {
			t.Errorf("Upgrade: %v, %v", got.hold, got.err)
		}
		// It does not keep out a reader beside the other one.
		third, err := lock.NewRWMutex(other, path).RLock(bounded(t))
		must(t, err)
		must(t, third.Release())
		must(t, beside.Release())
		ens.Until("all to be gone", func() bool { return len(queued(t, other)) == 0 })
	})
}

// The member of an upgraded reader dies before it could give its read lock up. A contender that
// takes over the reader's place has a smaller token than the writer, so nobody may have seen the
// writer's.
func TestRWMutex_UpgradeGivesTheReadLockUpFirst(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 200 * time.Millisecond }})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		delayed := lock.Options{Delay: time.Hour, Identity: "x"}
		m := lock.NewRWMutex(s, path).With(delayed)
		read, err := m.RLock(bounded(t))
		must(t, err)
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		cut := make(chan struct{})
		var once sync.Once
		upgraded := make(chan outcome, 1)
		go func() {
			h, err := m.Upgrade(fickle{ctx, func() bool {
				if names, _, err := s.Children(context.Background(), path); err == nil && len(names) == 2 {
					once.Do(func() { ens.Isolate(1); close(cut) })
				}
				return ctx.Err() != nil
			}}, read)
			upgraded <- outcome{h, err}
		}()
		<-cut
		patience := time.AfterFunc(time.Second, cancel)
		defer patience.Stop()
		write := <-upgraded
		ens.Kill(1)
		ens.HealAll()
		ens.Restart(1)
		again, err := lock.NewRWMutex(ens.Session(1, embed.SessionOptions{}), path).With(delayed).RLock(bounded(t))
		must(t, err)
		if write.err == nil && again.Token().Compare(write.hold.Token()) < 0 {
			t.Errorf("a reader has token %v, and there was a writer with %v", again.Token(), write.hold.Token())
		}
	})
}

// The session of an upgraded reader is Suspended before it could give its read lock up. It holds
// nothing any more, and the error is the same as a moment before.
func TestRWMutex_UpgradeThatIsLostAtItsEnd(t *testing.T) {
	sessionsflag.Member(t, "a client does not judge by its member's clock")
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = 200 * time.Millisecond }})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		m := lock.NewRWMutex(s, path)
		read, err := m.RLock(bounded(t))
		must(t, err)
		ctx := bounded(t)
		var cut, asleep sync.Once
		write, err := m.Upgrade(fickle{ctx, func() bool {
			if names, _, err := s.Children(context.Background(), path); err == nil && len(names) == 2 {
				cut.Do(func() { ens.Isolate(1) })
			}
			if errors.Is(read.Err(), embed.ErrReleased) { // as its member knows
				asleep.Do(func() { ens.Faults(1).Sleep(55 * time.Second) })
			}
			return ctx.Err() != nil
		}}, read)
		if write != nil || !errors.Is(err, embed.ErrNotHeld) || !errors.Is(err, embed.ErrSuspended) {
			t.Errorf("%v", err)
		}
	})
}

// A Hold from Held cannot be released, so it cannot be upgraded or downgraded either.
func TestRWMutex_NeitherUpgradesNorDowngradesWhatIsHeldOutside(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewRWMutex(s, path)
		for name, k := range map[string]struct {
			acquire acquirer
			change  func(context.Context, *lock.Hold) (*lock.Hold, error)
		}{"upgrade": {m.RLock, m.Upgrade}, "downgrade": {m.Lock, m.Downgrade}} {
			h, err := k.acquire(bounded(t))
			must(t, err)
			inner, ok := lock.HeldRead(h.Context(), path)
			if !ok {
				t.Fatalf("%s: not held", name)
			}
			if got, err := k.change(bounded(t), inner); !errors.Is(err, embed.ErrNotHeld) {
				t.Fatalf("%s: %v, %v", name, got, err)
			}
			if names := queued(t, s); h.Err() != nil || len(names) != 1 {
				t.Errorf("%s: it ended the Hold: %v, in the queue: %v", name, h.Err(), names)
			}
			must(t, h.Release())
		}
	})
}

// A crowd checks who holds a read-write lock together.
type crowd struct {
	mu               sync.Mutex
	readers, writers int
}

func (c *crowd) enter(t *testing.T, writes bool) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writers > 0 || writes && c.readers > 0 {
		t.Errorf("one more (a writer: %v) is in beside %d readers and %d writers", writes, c.readers, c.writers)
	}
	c.count(writes, 1)
}

func (c *crowd) leave(writes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count(writes, -1)
}

func (c *crowd) count(writes bool, n int) {
	if writes {
		c.writers += n
	} else {
		c.readers += n
	}
}

// Readers and writers come and leave in any order, even while they wait. The holders are always the
// first in the queue: the readers up to the first writer, or one writer. In CURATOR-211 the count
// of holders used other znodes than those in the queue. In kazoo#649 a reader waited for a writer
// behind it.
func TestRWMutex_WhoIsInFollowsFromTheQueue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewRWMutex(s, path)
		rng := testkit.Rand(t)
		type member struct {
			writes bool
			cancel context.CancelFunc
			out    <-chan outcome
			hold   *lock.Hold
		}
		const n = 4
		for pattern := range 1 << n {
			var in crowd
			var queue []*member
			for i := range n {
				c := &member{writes: pattern>>i&1 == 1}
				ctx, cancel := context.WithCancel(bounded(t))
				c.cancel = cancel
				c.out = acquiring(t, ens, s, func(context.Context) (*lock.Hold, error) {
					acquire := m.RLock
					if c.writes {
						acquire = m.Lock
					}
					h, err := acquire(ctx)
					if err == nil {
						in.enter(t, c.writes)
					}
					return h, err
				})
				queue = append(queue, c)
			}
			for len(queue) > 0 {
				for i, c := range queue {
					writer := slices.IndexFunc(queue, func(c *member) bool { return c.writes })
					first := i == 0 || !c.writes && (writer < 0 || i < writer)
					switch {
					case first && c.hold == nil:
						c.hold = granted(t, c.out)
					case !first:
						pending(t, s, fmt.Sprintf("pattern %0*b: number %d of %d is in", n, pattern, i, len(queue)), c.out)
					}
				}
				i := rng.IntN(len(queue))
				c := queue[i]
				queue = slices.Delete(queue, i, i+1)
				c.cancel()
				if c.hold != nil {
					in.leave(c.writes)
					must(t, c.hold.Release())
				} else if o := <-c.out; !errors.Is(o.err, context.Canceled) {
					t.Fatalf("a caller that gave up: %v", o.err)
				}
			}
			ens.Until("all to leave", func() bool { return len(queued(t, s)) == 0 })
		}
	})
}
