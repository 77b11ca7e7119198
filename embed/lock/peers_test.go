package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// The tests of this file play what went wrong with locks in other coordination systems, as far as no other test shows it. Which bug is
// shown where is in embed/testdata/peers.md.

// A taker is a call that takes a Hold.
type taker = func(context.Context) (*lock.Hold, error)

// A crowd checks who is in a read-write lock together.
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

// Readers and writers come in every order, and leave in any, those who wait too. In are always the first ones: the readers up to the first
// writer, or the one writer. (CURATOR-211: who was in was counted among other znodes than those whose order counts.
// kazoo#649: a reader came to wait for a writer behind it.)
func TestRWMutex_WhoIsInFollowsFromTheQueue(t *testing.T) {
	ens := one(t)
	s := ens.Session(1, embed.SessionOptions{})
	m := lock.NewRWMutex(s, path)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
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
			c.out = taking(t, ens, s, func(context.Context) (*lock.Hold, error) {
				take := m.RLock
				if c.writes {
					take = m.Lock
				}
				h, err := take(ctx)
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
				t.Fatalf("one who gave up: %v", o.err)
			}
		}
		ens.Until("all to leave", func() bool { return len(queued(t, s)) == 0 })
	}
}

// Every kind of Hold has a znode of its session's and guards what is written under it. (CURATOR-662: a read-write lock kept the path of its
// znode to itself, so nothing could be tied to it.)
func TestGuard_OfEveryKindOfHold(t *testing.T) {
	ens := one(t)
	s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
	for _, p := range []string{"/locks", "/locks/data"} {
		_, err := s.Create(bounded(t), p, nil, embed.Persistent)
		must(t, err)
	}
	rw := lock.NewRWMutex(s, "/locks/rw")
	for _, k := range []struct {
		name string
		take taker
	}{
		{"read", rw.RLock},
		{"write", rw.Lock},
		{"downgraded", func(ctx context.Context) (*lock.Hold, error) {
			w, err := rw.Lock(ctx)
			if err != nil {
				return nil, err
			}
			return rw.Downgrade(ctx, w)
		}},
		{"upgraded", func(ctx context.Context) (*lock.Hold, error) {
			r, err := rw.RLock(ctx)
			if err != nil {
				return nil, err
			}
			return rw.Upgrade(ctx, r)
		}},
		{"permits", acquires(lock.NewSemaphore(s, "/locks/semaphore", 3), 2)},
		{"several", lock.NewMulti(s, "/locks/a", "/locks/b").Lock},
	} {
		h, err := k.take(bounded(t))
		if err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if stat, ok, err := s.Exists(bounded(t), h.Path()); !ok || err != nil || stat.EphemeralOwner != s.ID() {
			t.Errorf("%s: %s is of session %d: %v, %v", k.name, h.Path(), stat.EphemeralOwner, ok, err)
		}
		guarded(t, s, lock.Guard(h), k.name)
		guarded(t, other, lock.Guard(h), k.name+" by another session")
		must(t, h.Release())
		guarded(t, other, lock.Guard(h), k.name+" late", embed.ErrNotHeld)
	}
}

// A looker is a ctx that does something when it is asked for its Err for the n-th time, which every method of a Session does first of all.
type looker struct {
	context.Context
	n     int64
	do    func()
	looks atomic.Int64
}

func (l *looker) Err() error {
	if l.looks.Add(1) == l.n {
		l.do()
	}
	return l.Context.Err()
}

// asleep waits until it is not asked any more, or returns false when done is closed. It may be wrong if the machine is slow.
func (l *looker) asleep(done <-chan struct{}) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for quiet, last := 0, int64(-1); quiet < 4; quiet++ {
		select {
		case <-done:
			return false
		case <-tick.C:
		}
		if now := l.looks.Load(); now != last {
			quiet, last = -1, now
		}
	}
	return true
}

// left returns how many stand in the queues that the tests of this file use, and have permits.
func left(t testing.TB, s *embed.Session) (n int) {
	t.Helper()
	for _, p := range []string{path, path + "2", path + "/locks", path + "/leases"} {
		names, _, err := s.Children(bounded(t), p)
		if err != nil && !errors.Is(err, embed.ErrNoNode) {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "_") {
				n++
			}
		}
	}
	return n
}

// A stage is what a caller finds. It is set anew for each call.
type stage struct {
	take taker  // if not the one of all calls
	wake func() // has the caller's turn come; nil: it has, or never does
	over func() // ends the stage
}

// Callers lose patience at every single step of their way: on a lock that is free, on one that stays taken, and on one that becomes free.
// They have the Hold, or they are told so and leave nothing. (CURATOR-315: a semaphore's lease stayed when its caller failed after creating
// it; CURATOR-462: when its caller was interrupted. kazoo#429: so did the lock around it. go-zookeeper#237: a lock's znode stayed when its
// caller failed. CURATOR-41: what went wrong in leaving was told instead of why.)
func TestLock_CancelledAtAnyStepLeavesNothing(t *testing.T) {
	t.Parallel()
	ens := one(t)
	s := ens.Session(1, embed.SessionOptions{})
	mutex, rw, permits := lock.NewMutex(s, path), lock.NewRWMutex(s, path), lock.NewSemaphore(s, path, 2)
	several := lock.NewMulti(s, path, path+"2")
	free := func() stage { return stage{over: func() {}} }
	taken := func(take taker) func() stage {
		return func() stage {
			h, err := take(bounded(t))
			must(t, err)
			return stage{over: func() { must(t, h.Release()) }}
		}
	}
	freed := func(take taker) func() stage {
		return func() stage {
			st := taken(take)()
			st.wake = st.over // which may be called twice
			return st
		}
	}
	upgrade := func(wakes bool) func() stage { // beside a reader and ahead of a writer
		return func() stage {
			mine, err := rw.RLock(bounded(t))
			must(t, err)
			other, err := rw.RLock(bounded(t))
			must(t, err)
			ctx, cancel := context.WithCancel(bounded(t))
			writer := taking(t, ens, s, func(context.Context) (*lock.Hold, error) { return rw.Lock(ctx) })
			st := stage{
				take: func(ctx context.Context) (*lock.Hold, error) {
					h, err := rw.Upgrade(ctx, mine)
					if (err == nil) == (mine.Err() == nil) {
						t.Errorf("the upgrade ended with %v, its read Hold with %v", err, mine.Err())
					}
					return h, err
				},
				over: func() {
					cancel()
					must(t, errors.Join(mine.Release(), other.Release()))
					if o := <-writer; o.err == nil {
						must(t, o.hold.Release())
					}
				},
			}
			if wakes {
				st.wake = func() { must(t, other.Release()) }
			}
			return st
		}
	}
	downgrade := func() stage { // ahead of a writer
		mine, err := rw.Lock(bounded(t))
		must(t, err)
		writer := taking(t, ens, s, rw.Lock)
		return stage{
			take: func(ctx context.Context) (*lock.Hold, error) {
				h, err := rw.Downgrade(ctx, mine)
				if mine.Err() == nil {
					t.Error("a write Hold outlived its downgrade")
				}
				return h, err
			},
			over: func() { must(t, granted(t, writer).Release()) },
		}
	}
	for _, k := range []struct {
		name string
		take taker
		with func() stage
	}{
		{"a mutex", mutex.Lock, free},
		{"a taken mutex", mutex.Lock, taken(mutex.Lock)},
		{"a mutex that is released", mutex.Lock, freed(mutex.Lock)},
		{"a lock to read", rw.RLock, free},
		{"a lock to read that is written", rw.RLock, freed(rw.Lock)},
		{"a lock to write that is read", rw.Lock, freed(rw.RLock)},
		{"an upgrade", nil, upgrade(false)},
		{"an upgrade when the other reader leaves", nil, upgrade(true)},
		{"a downgrade", nil, downgrade},
		{"several", several.Lock, free},
		{"several of which one is taken", several.Lock, freed(lock.NewMutex(s, path+"2").Lock)},
		{"permits", acquires(permits, 2), free},
		{"permits that are out", acquires(permits, 2), taken(acquires(permits, 1))},
		{"permits that come back", acquires(permits, 2), freed(acquires(permits, 1))},
	} {
		for n := int64(1); ; n++ {
			before := left(t, s)
			st := k.with()
			if st.take == nil {
				st.take = k.take
			}
			inner, cancel := context.WithCancel(bounded(t))
			ctx := &looker{Context: inner, n: n, do: cancel}
			var h *lock.Hold
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				h, err = st.take(ctx)
			}()
			if ctx.asleep(done) {
				if st.wake != nil {
					st.wake()
				} else {
					cancel()
				}
			}
			<-done
			cancel()
			if err == nil {
				must(t, h.Release())
			} else if !errors.Is(err, context.Canceled) {
				t.Errorf("%s, step %d: %v", k.name, n, err)
			}
			st.over()
			ens.Until(fmt.Sprintf("%s, step %d: nothing to be left", k.name, n), func() bool { return left(t, s) == before })
			if ctx.looks.Load() < n {
				t.Logf("%s: %d steps", k.name, n-1)
				break
			}
		}
	}
}

// Whenever a permit comes back, or the limit grows, while somebody who waits looks: it is told, and nobody is forgotten. (CURATOR-75: a limit
// that grew woke nobody; CURATOR-527: who left between two looks left its successor waiting.)
func TestSemaphore_WhatChangesWhileAWaiterLooks(t *testing.T) {
	ens := one(t)
	s := ens.Session(1, embed.SessionOptions{})
	m := lock.NewSemaphore(s, path, 0)
	must(t, m.Resize(bounded(t), 1))
	for name, change := range map[string]func(*lock.Hold){
		"a permit comes back": func(h *lock.Hold) { must(t, h.Release()) },
		"the limit grows":     func(*lock.Hold) { must(t, m.Resize(bounded(t), 2)) },
	} {
		for n := int64(1); ; n++ {
			must(t, m.Resize(bounded(t), 1))
			first, err := m.Acquire(bounded(t), 1)
			must(t, err)
			ctx := &looker{Context: bounded(t), n: n, do: func() { change(first) }}
			done := make(chan struct{})
			var second *lock.Hold
			go func() {
				defer close(done)
				second, err = m.Acquire(ctx, 1)
			}()
			late := ctx.asleep(done) && ctx.looks.Load() < n
			if late {
				must(t, first.Release())
			}
			select {
			case <-done:
			case <-bounded(t).Done():
				t.Fatalf("%s at step %d, and who waits is not told", name, n)
			}
			must(t, err)
			must(t, errors.Join(first.Release(), second.Release()))
			if late {
				t.Logf("%s: %d steps", name, n-1)
				break
			}
		}
	}
}

// Somebody else takes the only permit, or queues for it, while a caller looks at one that is there. What the caller has seen does not count.
func TestSemaphore_WhatIsTakenWhileACallerLooks(t *testing.T) {
	ens := one(t)
	s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
	m, theirs := lock.NewSemaphore(s, path, 1), lock.NewSemaphore(other, path, 1)
	for name, takes := range map[string]func() (over func() error){
		"taken": func() func() error {
			h, err := theirs.TryAcquire(bounded(t), 1)
			if errors.Is(err, lock.ErrHeld) {
				return nil // the caller has it
			}
			must(t, err)
			return h.Release
		},
		"waited for": func() func() error {
			if left(t, other) > 0 {
				return nil
			}
			at, err := other.Create(bounded(t), path+"/locks/_c_00000000-0000-4000-8000-000000000000-lock-", nil, embed.EphemeralSequential)
			must(t, err)
			return func() error { return other.Delete(bounded(t), at, embed.AnyVersion) }
		},
	} {
		h, err := m.Acquire(bounded(t), 1) // makes the znodes
		must(t, err)
		must(t, h.Release())
		for n := int64(1); ; n++ {
			var over func() error
			ctx := &looker{Context: bounded(t), n: n, do: func() { over = takes() }}
			h, err := m.TryAcquire(ctx, 1)
			if over != nil && !errors.Is(err, lock.ErrHeld) {
				t.Errorf("a permit that was %s at step %d: %v, %v", name, n, h, err)
			} else if over == nil {
				must(t, err)
			}
			if err == nil {
				must(t, h.Release())
			}
			if over != nil {
				must(t, over())
			}
			if ctx.looks.Load() < n {
				break
			}
		}
	}
}

// Goroutines share a Semaphore, and sessions do: the permits that are out are never more than there are, and what one gives back is its
// own. (CURATOR-376: two threads raced for the one lease that a semaphore of one had room to remember. kazoo#65, kazoo#93: who would not
// wait, or not for long, had to.)
func TestSemaphore_ManyGoroutinesAndSessions(t *testing.T) {
	ens := one(t)
	const limit = 3
	var out atomic.Int32
	var held, refused, late atomic.Int32
	var wg sync.WaitGroup
	for i := range 3 {
		s := ens.Session(1, embed.SessionOptions{})
		m := lock.NewSemaphore(s, path, limit)
		for j := range 3 {
			wg.Go(func() {
				for k := range 15 {
					n := (i+j+k)%limit + 1
					ctx, cancel := context.WithCancel(bounded(t))
					take := m.Acquire
					switch k % 3 {
					case 1:
						take = m.TryAcquire
					case 2:
						ctx, cancel = context.WithTimeout(ctx, time.Duration(k)*200*time.Microsecond)
					}
					h, err := take(ctx, n)
					cancel()
					switch {
					case err == nil:
						held.Add(1)
						if now := out.Add(int32(n)); now > limit {
							t.Errorf("%d permits of %d are out", now, limit)
						}
						out.Add(int32(-n))
						if err := errors.Join(h.Err(), h.Release(), h.Release()); err != nil {
							t.Error(err)
						}
					case k%3 == 1 && errors.Is(err, lock.ErrHeld):
						refused.Add(1)
					case k%3 == 2 && errors.Is(err, context.DeadlineExceeded):
						late.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d held, %d refused, %d late", held.Load(), refused.Load(), late.Load())
	s := ens.Session(1, embed.SessionOptions{})
	ens.Until("the late ones to leave", func() bool { return left(t, s) == 0 })
	h, err := lock.NewSemaphore(s, path, limit).TryAcquire(bounded(t), limit)
	must(t, err)
	must(t, h.Release())
}

// Who holds and who waits is told of every kind of lock, of its own znodes. (curator@10eb1efe: a semaphore told of another path's.)
func TestHolders_OfEveryKind(t *testing.T) {
	ens := one(t)
	s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
	rw, theirs := lock.NewRWMutex(s, path), lock.NewRWMutex(other, path)
	note := func(o string) lock.Options { return lock.Options{Note: o} }
	for _, k := range []struct {
		name  string
		holds []taker
		waits taker
	}{
		{name: "a mutex", holds: []taker{lock.NewMutex(s, path).With(note("a")).Lock}, waits: lock.NewMutex(other, path).With(note("z")).Lock},
		{name: "a writer", holds: []taker{rw.With(note("a")).Lock}, waits: theirs.With(note("z")).RLock},
		{name: "readers", holds: []taker{rw.With(note("a")).RLock, rw.With(note("b")).RLock}, waits: theirs.With(note("z")).Lock},
		{name: "permits", holds: []taker{acquires(lock.NewSemaphore(s, path, 2).With(note("a")), 1), acquires(lock.NewSemaphore(s, path, 2).With(note("b")), 1)},
			waits: acquires(lock.NewSemaphore(other, path, 2).With(note("z")), 1)},
	} {
		var holds []*lock.Hold
		for _, take := range k.holds {
			h, err := take(bounded(t))
			must(t, err)
			holds = append(holds, h)
		}
		next := permits(t, ens, s, k.waits)
		is := func(what string, c lock.Contender, session embed.SessionID, note string) {
			t.Helper()
			stat, ok, err := s.Exists(bounded(t), c.Path)
			if !ok || err != nil || c.Session != session || stat.EphemeralOwner != session || c.Note != note {
				t.Errorf("%s: %s: %+v, of session %d with the note %q; there: %v, %v", k.name, what, c, session, note, ok, err)
			}
		}
		list, err := lock.Holders(bounded(t), other, path)
		must(t, err)
		if len(list) != len(holds) {
			t.Fatalf("%s: %d hold it: %+v", k.name, len(list), list)
		}
		for i, c := range list {
			is("holder", c, s.ID(), string(rune('a'+i)))
			if c.Path != holds[i].Path() || c.Token != holds[i].Token() {
				t.Errorf("%s: %s holds it with token %v, want %s with %v", k.name, c.Path, c.Token, holds[i].Path(), holds[i].Token())
			}
		}
		list, err = lock.Waiters(bounded(t), s, path)
		must(t, err)
		if len(list) != 1 {
			t.Fatalf("%s: %d wait for it: %+v", k.name, len(list), list)
		}
		is("waiter", list[0], other.ID(), "z")
		for _, h := range holds {
			must(t, h.Release())
		}
		h := granted(t, next)
		list, err = lock.Holders(bounded(t), s, path)
		if err != nil || len(list) != 1 || list[0].Path != h.Path() || list[0].Note != "z" {
			t.Errorf("%s: then %+v holds it, %v; want %s", k.name, list, err, h.Path())
		}
		must(t, h.Release())
	}
}

// A member dies with a lock, a read-write lock, permits and several paths in its hands, with callers who wait, and right after releases. All of
// it is free for the others, and nobody waits for the dead. (CURATOR-595: permits of a lost client stayed out; kazoo#412: a lock that had
// been released by a process that then died was never free; etcd#17470: a client was gone and its lock was kept alive.)
func TestHold_AMemberThatDiesGivesBackAllItHad(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 3, embedtest.Options{})
	ens.MoveLeader(2)
	dying, s := ens.Session(1, embed.SessionOptions{Timeout: time.Second}), ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
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

// A session ends whose callers wait, for every kind of lock: each of them learns it at once, while those ahead go on, and none is granted
// anything. (etcd#16221: a read-write lock was granted to a session that had expired; etcd#9921: so was a mutex.)
func TestLock_AWaiterWithADeadSessionFailsAtOnce(t *testing.T) {
	ens := one(t)
	s, dying := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
	rw, theirs := lock.NewRWMutex(s, "/rw"), lock.NewRWMutex(dying, "/rw")
	reading := lock.NewRWMutex(dying, "/up")
	own, err := reading.RLock(bounded(t))
	must(t, err)
	outs := make(map[string]chan outcome)
	var holds []*lock.Hold
	for _, k := range []struct {
		name         string
		holds, waits taker
	}{
		{"a mutex", lock.NewMutex(s, "/mutex").Lock, lock.NewMutex(dying, "/mutex").Lock},
		{"a mutex that is kept", lock.NewMutex(s, "/kept").Lock, lock.NewMutex(dying, "/kept").With(lock.Options{Keep: time.Hour}).Lock},
		{"a reader behind a writer", rw.Lock, theirs.RLock},
		{"a writer", nil, theirs.Lock},
		{"an upgrade", lock.NewRWMutex(s, "/up").RLock, func(ctx context.Context) (*lock.Hold, error) { return reading.Upgrade(ctx, own) }},
		{"permits", acquires(lock.NewSemaphore(s, "/permits", 2), 1), acquires(lock.NewSemaphore(dying, "/permits", 2), 2)},
		{"permits behind others", nil, acquires(lock.NewSemaphore(dying, "/permits", 2), 1)},
		{"several", lock.NewMutex(s, "/several").Lock, lock.NewMulti(dying, "/several", "/free").Lock},
	} {
		if k.holds != nil {
			h, err := k.holds(bounded(t))
			must(t, err)
			holds = append(holds, h)
		}
		before, err := dying.Ephemerals(bounded(t), "/")
		must(t, err)
		out := make(chan outcome, 1)
		outs[k.name] = out
		go func() {
			h, err := k.waits(bounded(t))
			out <- outcome{h, err}
		}()
		ens.Until(k.name+" to queue", func() bool {
			now, err := dying.Ephemerals(bounded(t), "/")
			return err == nil && len(now) > len(before)
		})
	}
	must(t, dying.Close())
	for name, out := range outs {
		if o := <-out; !errors.Is(o.err, embed.ErrSessionClosed) {
			t.Errorf("%s: %v, %v", name, o.hold, o.err)
		}
	}
	for _, h := range holds {
		must(t, errors.Join(h.Err(), h.Release()))
	}
}

// A session is Suspended, and back, while its callers wait: what it held has ended, and they wait on and are served in their order.
// (kazoo#170: after that a lock was waited for for ever.)
func TestLock_AWaiterWhoseSessionIsSuspendedMeanwhile(t *testing.T) {
	ens := one(t)
	s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	m, permits := lock.NewRWMutex(s, path), lock.NewSemaphore(s, "/permits", 1)
	hours := 0
	suspend := func() {
		t.Helper()
		hours++
		ens.Faults(1).SetWallClock(time.Duration(hours) * time.Hour)
		if state, _ := s.State(); state != embed.Suspended {
			t.Fatalf("the session is %v", state)
		}
	}
	for range 3 {
		hold, err := m.Lock(bounded(t))
		must(t, err)
		permit, err := permits.Acquire(bounded(t), 1)
		must(t, err)
		reads, writes := taking(t, ens, s, m.RLock), taking(t, ens, s, m.Lock)
		enough := make(chan outcome, 1)
		go func() {
			h, err := permits.Acquire(bounded(t), 1)
			enough <- outcome{h, err}
		}()
		suspend() // which ends the Holds, and nobody's place
		if hold.Err() == nil || permit.Err() == nil {
			t.Error("a Hold outlived the suspension")
		}
		must(t, errors.Join(hold.Release(), permit.Release()))
		read := granted(t, reads)
		must(t, read.Release())
		must(t, granted(t, writes).Release())
		must(t, granted(t, enough).Release())
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

// Locks are taken, waited for in vain, asked to be given up, and lost; when nothing of them is held any more none of their goroutines is
// left. (curator#1277: what told of changes ran in threads that nobody ended.)
func TestLock_LeavesNoGoroutine(t *testing.T) {
	ens := one(t)
	s := ens.Session(1, embed.SessionOptions{})
	rw := lock.NewRWMutex(s, path)
	for i, take := range []taker{
		lock.NewMutex(s, path).Lock, kept(s, time.Millisecond).Lock, kept(s, time.Hour).Lock, rw.RLock, rw.Lock,
		lock.NewMulti(s, path, path+"2").Lock, acquires(lock.NewSemaphore(s, "/permits", 2), 2),
	} {
		for _, lose := range []bool{false, true} {
			h, err := take(bounded(t))
			must(t, err)
			derived, stop := context.WithCancel(h.Context())
			defer stop()
			revoked := h.Revoked()
			ctx, cancel := context.WithCancel(bounded(t))
			waiter := make(chan outcome, 1)
			go func() {
				h, err := lock.NewMutex(s, path).Lock(ctx)
				waiter <- outcome{h, err}
			}()
			if i%2 == 0 {
				for _, at := range []string{path, "/permits"} {
					must(t, lock.Revoke(bounded(t), s, at))
				}
				<-revoked
			}
			if lose {
				must(t, s.Delete(bounded(t), h.Path(), embed.AnyVersion))
				<-derived.Done()
			}
			cancel()
			if o := <-waiter; o.err == nil {
				must(t, o.hold.Release())
			} else if !errors.Is(o.err, context.Canceled) {
				t.Error(o.err)
			}
			must(t, h.Release())
		}
	}
	ens.Until("their goroutines to end", func() bool { return goroutines("/embed/lock.")+goroutines("/embed/internal/queue.") == 0 })
	m := kept(s, time.Hour)
	for range 3 {
		h, err := m.Lock(bounded(t))
		must(t, err)
		_ = h.Revoked()
		must(t, h.Release())
	}
	ens.Until("those of Holds to end whose lock is kept", func() bool { return goroutines("/embed/lock.(*Hold)") == 0 })
}

// goroutines returns how many goroutines are in something.
func goroutines(in string) (n int) {
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
	for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
		if strings.Contains(stack, in) {
			n++
		}
	}
	return n
}
