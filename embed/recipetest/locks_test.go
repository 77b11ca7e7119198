package recipetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// callersOf is the number of callers for each kind of lock.
const callersOf = 6

// Callers on sessions of all members acquire, hold and release locks of all kinds at random, give
// up and lose sessions. Meanwhile members are cut off, killed and started again. The model checks
// every grant.
func TestLocks(t *testing.T) { schedules(t, playLocks) }

// locks is what only schedules of locks have.
type locks struct {
	delays  bool           // callers use Options.Delay
	limits  map[string]int // of the semaphores, as far as known
	unknown map[string]int // the greatest limit that may still be applied
	// By keptBy of a contender's path: the sighting since which the contender is known to stand
	// behind a kept lock.
	behind sync.Map
}

func playLocks(t *testing.T, seed uint64) {
	s := newSchedule(t, seed, lockKinds, lockFaults, func(*embed.Config) {})
	s.delays = s.rng.IntN(2) == 0
	s.limits, s.unknown = make(map[string]int), make(map[string]int)
	for _, path := range semaphores.paths() {
		s.limits[path] = permitsAgreed
		s.model.limited(path, permitsAgreed)
	}
	var callers []func()
	for i, k := range s.kinds {
		for j := range callersOf {
			c := &lockCaller{caller: s.caller(i*callersOf+j, k, fmt.Sprintf("%s caller %d", k.name, j)), paths: k.paths()}
			if j%2 == 0 {
				c.paths = k.hot
			}
			callers = append(callers, c.run)
		}
	}
	s.play(callers)
	s.left(func(k *kind) bool { return k.keeps || s.delays })
	s.tell("delays: %v", s.delays)
}

// A lockCaller acquires locks of one kind.
type lockCaller struct {
	caller
	paths []string
}

func (c *lockCaller) run() {
	for c.last.Err() == nil {
		if s := c.session(); s != nil {
			c.call(s)
		}
	}
}

// call acquires a lock, uses it and releases it.
func (c *lockCaller) call(s *embed.Session) {
	w := c.kind.want(c.rng, c.paths)
	w.note = c.begin(s)
	if c.delays && !w.keep {
		w.delay = time.Duration(c.rng.IntN(4)) * 50 * time.Millisecond
		if c.kind.identities {
			w.identity = pick(c.rng, "", "x", "y")
		}
	}
	ctx, cancel := c.patience()
	defer cancel()
	g := w.grant(c.kind)
	if !w.try && !w.keep && c.rng.IntN(3) == 0 {
		g.saw = c.queue(ctx, s, w.paths)
	}
	g.began = c.model.now()
	tooLate := s.Err()
	h, err := c.kind.acquire(ctx, s, w)
	if err != nil {
		c.refuse(err)
		c.model.notef("%+v: %v (session: %v)", w, err, s.Err())
		if !c.mayRefuse(ctx, s, w, err) {
			c.t.Errorf("%+v ended with %v (session: %v)", w, err, s.Err())
		}
		return
	}
	c.granted(g, h)
	if tooLate != nil {
		c.t.Errorf("%v was granted to a session that had ended: %v", g, tooLate)
	}
	if w.keep && g.token.Local > 0 {
		c.bounded(s, g)
	}
	c.use(s, w, h, g)
}

// grant returns the grant of a caller that gets what it wants.
func (w want) grant(k *kind) *grant {
	g := &grant{kind: k.name, who: w.note, paths: w.paths, mode: w.mode, permits: w.permits, delay: w.delay, identity: w.identity}
	if !k.keeps {
		g.note = w.note
	}
	return g
}

// queue returns the notes of the contenders that hold some paths, or wait for them.
func (c *lockCaller) queue(ctx context.Context, s *embed.Session, paths []string) (notes []string) {
	for _, path := range paths {
		for _, look := range []func(context.Context, *embed.Session, string) ([]lock.Contender, error){lock.Holders, lock.Waiters} {
			list, _ := look(ctx, s, path) // a contender that is not seen is not known to be first
			for _, who := range list {
				if who.Note != "" {
					notes = append(notes, who.Note)
				}
			}
		}
	}
	return notes
}

// mayRefuse reports whether a call may end with an error.
func (c *lockCaller) mayRefuse(ctx context.Context, s *embed.Session, w want, err error) bool {
	switch {
	case w.try && (errors.Is(err, lock.ErrHeld) || errors.Is(err, embed.ErrSuspended) || errors.Is(err, embed.ErrUnavailable)):
	case errors.Is(err, lock.ErrTooManyPermits) && w.permits > 1: // the limit may have been smaller
	default:
		return c.caller.mayRefuse(ctx, s, w.paths, err)
	}
	return true
}

// granted records a Hold in the model.
func (c *lockCaller) granted(g *grant, h *lock.Hold) {
	if h.Token().Local > 0 {
		g.saw = nil // it has taken over a place
	}
	g.gets(h)
	c.model.granted(g)
}

// A sighting is when something was seen: the time, and the number of events so far.
type sighting struct {
	at     time.Time
	events int
}

// bounded checks that a kept lock is not granted again and again while others wait for long. The
// number of events counts too, because on a machine that stopped for a moment nobody could act.
func (c *lockCaller) bounded(s *embed.Session, g *grant) {
	const slack, enough = time.Second, 100
	now := sighting{time.Now(), c.model.now()}
	for _, znode := range contenders(c.ctx, s, g.paths[0]) {
		if znode == g.znode {
			continue
		}
		first, _ := c.behind.LoadOrStore(keptBy{s, znode}, now)
		since := first.(sighting)
		if waited := now.at.Sub(since.at); waited > keepFor+slack && now.events > since.events+enough && c.model.held(g) {
			c.t.Errorf("%v was granted without a commit, and %s has stood behind it for %v", g, znode, waited)
		}
	}
}

// use works under a Hold, and releases or loses it.
func (c *lockCaller) use(s *embed.Session, w want, h *lock.Hold, g *grant) {
	for again := true; again; {
		r := c.holder(s, h, g)
		r.use()
		changes := c.kind.change != nil && c.rng.IntN(3) == 0
		if changes {
			h, g, w = c.change(r, h, w)
		}
		again = g != r.grant
		if err := r.hold.Err(); err != nil && !again {
			c.model.lost(g)
			if errors.Is(err, embed.ErrReleased) && !changes {
				c.t.Errorf("nobody has released %v: %v", g, err)
			}
		}
		if !again || c.rng.IntN(2) == 0 { // after a change, releasing the old Hold frees nothing
			r.release()
		}
		if c.rng.IntN(2) == 0 {
			r.submit()
		}
		r.drain()
	}
}

// change turns a read Hold into a write Hold, or the other way round. It returns what the caller
// then has.
func (c *lockCaller) change(r *holder, h *lock.Hold, w want) (*lock.Hold, *grant, want) {
	next := w
	next.mode = alone + shared - w.mode
	next.note += " changed"
	ctx, cancel := c.patience()
	defer cancel()
	changed, err := c.kind.change(ctx, r.session, h, next)
	if err == nil {
		g := next.grant(c.kind)
		g.from = r.grant
		c.granted(g, changed)
		return changed, g, next
	}
	c.refuse(err)
	c.model.notef("%+v: %v (session: %v)", next, err, r.session.Err())
	ended := r.hold.Err()
	if !c.mayRefuse(ctx, r.session, next, err) && !errors.Is(err, lock.ErrUpgrade) &&
		!(ended != nil && (errors.Is(err, embed.ErrNotHeld) || errors.Is(err, embed.ErrSuspended))) {
		c.t.Errorf("%+v ended with %v (session: %v)", next, err, r.session.Err())
	}
	if errors.Is(err, lock.ErrUpgrade) && errors.Is(ended, embed.ErrReleased) {
		c.t.Errorf("%+v ended with %v, and the read hold is gone", next, err)
	}
	return h, r.grant, w
}
