package clienttest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// Callers in the process share what a path offers with clients of go-zookeeper, of kazoo and of
// Curator, and with kazoo's clients under Curator's names. Nobody holds it together with a
// contender that it excludes, and contenders acquire it in the order of arrival.
func TestLocks(t *testing.T) {
	t.Run("go-zookeeper", func(t *testing.T) {
		e := startEnsemble(t)
		list := e.mutexes("/shared")
		share(t, e, "/shared", 1, 1, list)
		t.Run("fenced", func(t *testing.T) { fenced(t, e, "/shared", list[0]) })
	})
	t.Run("kazoo", func(t *testing.T) {
		interpreter := python(t)
		e := startEnsemble(t)
		p := e.kazoo(interpreter, sessionTimeout, 2, 3, 1)
		t.Run("mutex", func(t *testing.T) {
			list := p.contenders(8, 1, "lock", "/shared")
			share(t, e, "/shared", 1, 1, slices.Concat(list, e.mutexes("/shared")))
			t.Run("fenced", func(t *testing.T) { fenced(t, e, "/shared", list[0]) })
		})
		t.Run("read-write lock", func(t *testing.T) {
			list := slices.Concat(p.readersAndWriters("read", "write", "/rw"), e.callersRW("/rw"))
			share(t, e, "/rw", 1, allOfIt, list)
		})
	})
	t.Run("Curator", func(t *testing.T) {
		run := curator(t, "testdata/Curator.java")
		e := startEnsemble(t)
		p := e.curator(run, sessionTimeout, 2, 3, 1)
		k := e.kazoo(python(t), sessionTimeout, 2, 3, 1)
		t.Run("mutex", func(t *testing.T) {
			list := slices.Concat(p.contenders(6, 1, "lock", "/shared"), p.contenders(2, 1, "select", "/shared"), e.callers(4, e.multi, "/shared"))
			share(t, e, "/shared", 1, 1, slices.Concat(list, e.mutexes("/shared")))
			t.Run("fenced", func(t *testing.T) { fenced(t, e, "/shared", list[0]) })
		})
		t.Run("all in one queue", func(t *testing.T) {
			list := slices.Concat(p.contenders(3, 1, "lock", "/all"), k.contenders(3, 1, "curator-lock", "/all"), e.ownClients(4, e.mutex, "/all"), e.callers(3, e.mutex, "/all"))
			share(t, e, "/all", 1, 1, list)
		})
		t.Run("revoked", func(t *testing.T) { revoked(t, e, p) })
		t.Run("mutex that is kept", func(t *testing.T) {
			list := slices.Concat(p.contenders(3, 1, "lock", "/kept"), k.contenders(2, 1, "curator-lock", "/kept"), e.callers(2, e.mutex, "/kept"))
			for _, id := range e.Members() {
				list = append(list, e.keepers(3, e.Session(id, embed.SessionOptions{}), "/kept")...)
			}
			neverTooMuch(t, 1, list)
		})
		t.Run("read-write lock", func(t *testing.T) {
			list := slices.Concat(p.readersAndWriters("read", "write", "/rw"), k.readersAndWriters("curator-read", "curator-write", "/rw"))
			share(t, e, "/rw", 1, allOfIt, slices.Concat(list, e.callersRW("/rw")))
		})
		t.Run("semaphore", func(t *testing.T) {
			list := slices.Concat(p.contenders(5, 1, "1/6", "/semaphore"), k.contenders(5, 1, "1/6", "/semaphore"))
			for _, n := range []int{1, 2, 3, 4, 6} {
				list = append(list, e.callers(2, e.permits(n, 6), "/semaphore")...)
			}
			share(t, e, "/semaphore/locks", 0, 6, list)
		})
		t.Run("semaphore of one", func(t *testing.T) {
			list := append(p.contenders(4, 1, "alone", "/one"), e.callers(4, e.permits(1, 1), "/one")...)
			share(t, e, "/one/locks", 0, 1, list)
		})
		t.Run("election", func(t *testing.T) {
			list := p.contenders(8, 1, "latch", "/leader")
			list = slices.Concat(list, k.contenders(4, 1, "curator-latch", "/leader"))
			share(t, e, "/leader", 1, 1, slices.Concat(list, e.callers(4, e.returner, "/leader"), e.callers(4, e.candidate, "/leader")))
			list = slices.Concat(list, e.callers(3, e.candidate, "/leader"), e.callers(2, e.preferred, "/leader"), e.callers(2, e.returner, "/leader"),
				e.callers(2, e.transferrer, "/leader"))
			for _, id := range e.Members() {
				list = append(list, e.latched(id, "/leader"))
			}
			t.Run("out of turn", func(t *testing.T) { neverTooMuch(t, 1, list) })
			must(t, list[0].acquire())
			s := e.Session(1, embed.SessionOptions{})
			_, err := s.Sync(t.Context(), "/leader")
			must(t, err)
			now, err := election.New(s, "/leader").Leader(t.Context())
			must(t, err)
			if string(now.Value) != "Curator" {
				t.Errorf("%q leads", now.Value)
			}
			must(t, list[0].release())
		})
		mortal := e.curator(run, 10*time.Second, 2, 3)
		t.Run("told first", func(t *testing.T) {
			e.TransferLeadership(3)
			inherit(t, e, e.heirs(mortal, false), func() { e.Isolate(1) })
			e.HealAll()
		})
		t.Run("killed", func(t *testing.T) {
			inherit(t, e, append(e.heirs(mortal, true), e.halfway(mortal)), func() { must(t, mortal.kill()) })
		})
	})
}

// heirs returns callers that wait for what a process's clients hold, or clients that wait for what
// callers hold.
func (e *ensemble) heirs(p *process, callersWait bool) (list []heir) {
	s := e.Session(1, embed.SessionOptions{Timeout: 5 * time.Second})
	for _, k := range []struct {
		what, path, queue string
		standing          int
		caller            contender
	}{
		{"lock", "/lock", "/lock", 1, e.mutex(s, "/lock")},
		{"write", "/write", "/write", 1, e.writer(s, "/write")},
		{"read", "/read", "/read", 1, e.writer(s, "/read")},
		{"3/3", "/semaphore3", "/semaphore3/locks", 0, e.permits(3, 3)(s, "/semaphore3")},
		{"latch", "/latch", "/latch", 1, e.candidate(s, "/latch")},
	} {
		client := p.contender(k.caller.weight, k.what, k.path)
		h := heir{contender: client, of: k.caller, queue: k.queue, standing: k.standing}
		if callersWait {
			h.contender, h.of = h.of, h.contender
		}
		list = append(list, h)
	}
	return list
}

// halfway returns a caller that waits for a client's permits. The client has some permits and waits
// for the last, with a lease that does not count yet.
func (e *ensemble) halfway(p *process) heir {
	const path = "/halfway"
	acquire := func() error {
		if err := p.contender(1, "1/3", path).acquire(); err != nil {
			return err
		}
		// the client dies before it acquires them
		go func() { _ = p.contender(3, "3/3", path).acquire() }()
		witness := e.connect(2)
		e.Until("a lease too many", func() bool {
			names, _, err := witness.Children(path + "/leases")
			return err == nil && len(names) == 4
		})
		return nil
	}
	return heir{contender: e.permits(3, 3)(e.Session(1, embed.SessionOptions{}), path), of: contender{who: p.who, acquire: acquire}, queue: path + "/locks", standing: 1}
}

// mutexes returns eight clients of go-zookeeper and eight callers.
func (e *ensemble) mutexes(path string) (list []contender) {
	for i := range 8 {
		list = append(list, e.goClient(e.spread(i), path))
	}
	return slices.Concat(list, e.callers(8, e.mutex, path), e.ownClients(4, e.mutex, path))
}

// callersRW returns readers and writers, some of which become the other.
func (e *ensemble) callersRW(path string) []contender {
	return slices.Concat(e.callers(3, e.reader, path), e.callers(2, e.upgrader, path), e.callers(2, e.downgrader, path), e.callers(2, e.writer, path))
}

// callers returns n callers with sessions that are spread over the members.
func (e *ensemble) callers(n int, one func(*embed.Session, string) contender, path string) (list []contender) {
	for i := range n {
		list = append(list, one(e.Session(e.spread(i), embed.SessionOptions{}), path))
	}
	return list
}

// allOfIt is the weight of a writer. All readers together weigh less.
const allOfIt = 1000

// readersAndWriters returns five readers and three writers.
func (p *process) readersAndWriters(read, write, path string) (list []contender) {
	for i := range 8 {
		if i%3 == 2 {
			list = append(list, p.contender(allOfIt, write, path))
		} else {
			list = append(list, p.contender(1, read, path))
		}
	}
	return list
}

// contenders returns n contenders of a process.
func (p *process) contenders(n, weight int, what, path string) (list []contender) {
	for range n {
		list = append(list, p.contender(weight, what, path))
	}
	return list
}

// share checks that contenders of all kinds share what a path offers. The last of list, which wants
// all of it, is the first in the queue.
func share(t *testing.T, e *ensemble, queue string, standing, limit int, list []contender) {
	t.Helper()
	t.Run("never too much", func(t *testing.T) { neverTooMuch(t, limit, list) })
	t.Run("fair", func(t *testing.T) { fair(t, e, queue, standing, limit, list) })
}

// neverTooMuch checks that the contenders that are in never have more than there is, by their own
// account, and that each one gets in. All contenders continue until the slowest has been in three
// times, except those that would keep the slowest out.
func neverTooMuch(t *testing.T, limit int, list []contender) {
	const turns = 3
	var taken, waiting atomic.Int64
	var newest atomic.Pointer[lock.Token] // of the last contender that had all of it
	waiting.Store(int64(len(list)))
	var all sync.WaitGroup
	for _, c := range list {
		all.Go(func() {
			for turn := 1; waiting.Load() > 0 && (c.most == 0 || turn <= c.most); turn++ {
				if err := c.acquire(); err != nil {
					t.Errorf("%s: %v", c.who, err)
					waiting.Store(0)
					return
				}
				weight := c.weight
				in := func(more int) {
					if sum := taken.Add(int64(more)); sum > int64(limit) {
						t.Errorf("%s has %d, that makes %d of %d", c.who, weight, sum, limit)
					}
					if weight == limit && c.hold != nil {
						now := c.hold().Token()
						if last := newest.Swap(&now); last != nil && now.Compare(*last) <= 0 {
							t.Errorf("token %v after %v", now, *last)
						}
					}
					<-time.After(time.Millisecond) // gives the others time to come in, if they can
				}
				in(weight)
				if c.change != nil {
					// others may already have the difference before this contender knows that it
					// has less
					taken.Add(int64(c.between - weight))
					weight = c.between
					changed, err := c.change()
					if err != nil {
						t.Errorf("%s changes its weight: %v", c.who, err)
					}
					if changed {
						weight = c.to
						in(c.to - c.between)
					}
				}
				taken.Add(int64(-weight))
				if weight > 0 {
					if err := c.release(); err != nil {
						t.Errorf("%s: %v", c.who, err)
					}
				}
				if turn == turns {
					waiting.Add(-1)
				}
			}
		})
	}
	all.Wait()
}

// fair checks that contenders are served in the order of arrival, together with those behind them
// for which there is enough too. The tokens of callers grow, even if clients are served in between.
// Of the contenders that are in, standing remain in the queue.
func fair(t *testing.T, e *ensemble, queue string, standing, limit int, list []contender) {
	first := list[len(list)-1]
	must(t, first.acquire())
	rest := takeTurns(list[:len(list)-1])
	rounds := inRounds(limit, rest)
	h := &hall{t: t, rounds: make([]*round, 1+rounds[len(rounds)-1])}
	for i := range h.rounds {
		h.rounds[i] = &round{full: make(chan struct{})}
	}
	for _, n := range rounds {
		h.rounds[n].missing++
	}
	witness := e.connect(1)
	var all sync.WaitGroup
	for i, c := range rest {
		all.Go(func() {
			if err := c.acquire(); err != nil {
				t.Errorf("%s: %v", c.who, err)
				return
			}
			h.enter(rounds[i], c)
			if err := c.release(); err != nil {
				t.Errorf("%s: %v", c.who, err)
			}
		})
		e.Until("a contender in the queue", func() bool {
			names, _, err := witness.Children(queue)
			return err == nil && len(names) == standing+i+1
		})
	}
	if first.hold != nil {
		h.newest = first.hold().Token()
	}
	must(t, first.release())
	all.Wait()
}

// takeTurns orders contenders so that those of each kind take turns.
func takeTurns(list []contender) (mixed []contender) {
	var kinds [][]contender
	for _, c := range list {
		i := slices.IndexFunc(kinds, func(k []contender) bool { return k[0].who == c.who })
		if i < 0 {
			kinds, i = append(kinds, nil), len(kinds)
		}
		kinds[i] = append(kinds[i], c)
	}
	for len(kinds) > 0 {
		for i, k := range kinds {
			mixed, kinds[i] = append(mixed, k[0]), k[1:]
		}
		kinds = slices.DeleteFunc(kinds, func(k []contender) bool { return len(k) == 0 })
	}
	return mixed
}

// inRounds returns the round in which each contender is served. A contender shares a round with
// those before it, as long as there is enough for all.
func inRounds(limit int, list []contender) (rounds []int) {
	n, sum := 0, 0
	for _, c := range list {
		if sum += c.weight; sum > limit {
			n, sum = n+1, c.weight
		}
		rounds = append(rounds, n)
	}
	return rounds
}

// A hall holds the contenders that are served, round by round.
type hall struct {
	t      *testing.T
	mu     sync.Mutex
	now    int // the round
	rounds []*round
	newest lock.Token // of the rounds before
	next   lock.Token // the newest of all
}

type round struct {
	missing int
	full    chan struct{} // closed when all contenders of the round are in
}

// enter returns when all contenders of the round are in.
func (h *hall) enter(n int, c contender) {
	h.mu.Lock()
	if n < h.now {
		h.t.Errorf("%s is served in round %d, after one of round %d", c.who, n, h.now)
	} else if n > h.now {
		h.now, h.newest = n, h.next
	}
	if c.hold != nil {
		if now := c.hold().Token(); now.Compare(h.newest) <= 0 {
			h.t.Errorf("token %v after %v", now, h.newest)
		} else if now.Compare(h.next) > 0 {
			h.next = now
		}
	}
	r := h.rounds[n]
	if r.missing--; r.missing == 0 {
		close(r.full)
	}
	h.mu.Unlock()
	select {
	case <-r.full:
	case <-time.After(patience):
		h.t.Errorf("%s waits for %d more of round %d", c.who, r.missing, n)
	}
}

// An heir waits for what another contender holds.
type heir struct {
	contender
	of       contender
	queue    string // where it waits
	standing int    // how many stand there, the holder included
}

// inherit checks that an heir acquires what its holder had, once the holder is gone. If the holder
// was a caller, it knows of its loss by then.
func inherit(t *testing.T, e *ensemble, heirs []heir, leave func()) {
	witness := e.connect(2)
	var all sync.WaitGroup
	for _, h := range heirs {
		must(t, h.of.acquire())
		all.Go(func() {
			if err := h.acquire(); err != nil {
				t.Errorf("%s in %s: %v", h.who, h.queue, err)
				return
			}
			if h.of.hold != nil && h.of.hold().Err() == nil {
				t.Errorf("%s in %s has it, but %s does not know of its loss", h.who, h.queue, h.of.who)
			}
			if err := h.release(); err != nil {
				t.Errorf("%s in %s: %v", h.who, h.queue, err)
			}
		})
		e.Until("an heir in the queue", func() bool {
			names, _, err := witness.Children(h.queue)
			return err == nil && len(names) == h.standing+1
		})
	}
	leave()
	all.Wait()
}

// revoked checks that a caller's request reaches Curator's listener, and Curator's request a
// caller.
func revoked(t *testing.T, e *ensemble, p *process) {
	s := e.Session(1, embed.SessionOptions{})
	theirs := p.contender(1, "revocable", "/revoked")
	must(t, theirs.acquire())
	_, err := s.Sync(t.Context(), "/revoked")
	must(t, err)
	must(t, lock.Revoke(t.Context(), s, "/revoked"))
	must(t, theirs.release())
	hold, err := lock.NewMutex(s, "/revoked").Lock(t.Context())
	must(t, err)
	select {
	case <-hold.Revoked():
		t.Error("a request arrived too early")
	default:
	}
	must(t, p.contender(1, "revoke", "/revoked").acquire())
	select {
	case <-hold.Revoked():
	case <-time.After(patience):
		t.Error("the request did not arrive")
	}
	must(t, hold.Release())
}

// fenced cuts a caller off and removes its contender, and a client on another member acquires the
// lock. The caller still believes in its Hold. Nevertheless nothing is written under it, neither by
// its own node when that is back nor by another.
func fenced(t *testing.T, e *ensemble, path string, client contender) {
	mine, other := e.Session(1, embed.SessionOptions{Timeout: time.Minute}), e.Session(2, embed.SessionOptions{Timeout: time.Minute})
	_, err := other.Create(t.Context(), "/data", nil, embed.Persistent)
	must(t, err)
	hold, err := lock.NewMutex(mine, path).Lock(t.Context())
	must(t, err)
	e.TransferLeadership(3)
	e.Isolate(1)
	_, err = other.Multi(t.Context(), lock.Guard(hold), embed.OpSet("/data", []byte("held"), embed.AnyVersion))
	must(t, err)
	must(t, other.Delete(t.Context(), hold.Path(), embed.AnyVersion))
	must(t, client.acquire())
	if hold.Err() != nil {
		t.Errorf("the hold has ended by its own clock: %v", hold.Err())
	}
	_, err = other.Multi(t.Context(), lock.Guard(hold), embed.OpSet("/data", []byte("another's"), embed.AnyVersion))
	is(t, "a write by another session", err, embed.ErrNotHeld)
	late := mine.Submit(t.Context(), lock.Guard(hold), embed.OpSet("/data", []byte("late"), embed.AnyVersion))
	e.HealAll()
	_, err = late.Result()
	is(t, "a write from where it was cut off", err, embed.ErrNotHeld)
	must(t, client.release())
	next, err := lock.NewMutex(other, path).Lock(t.Context())
	must(t, err)
	if next.Token().Compare(hold.Token()) <= 0 {
		t.Errorf("token %v after %v", next.Token(), hold.Token())
	}
	_, err = other.Multi(t.Context(), lock.Guard(next), embed.OpSet("/data", []byte("next"), embed.AnyVersion))
	must(t, err)
}
