package lock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
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

var (
	seedFlag      = flag.Uint64("seed", 0, "the random choices of TestSchedules; zero means new ones")
	schedulesFlag = flag.Int("schedules", 0, "how many schedules with every fault TestSchedules plays; zero means a short one")
	longFlag      = flag.Duration("long", 0, "TestSchedules plays schedules with every fault until so much time has passed")
)

const (
	// callersOf is how many callers each kind of lock has.
	callersOf = 6
	// requestTimeout is short: who is on a member that is cut off is to go on with something else.
	requestTimeout = 300 * time.Millisecond
	// Sessions with shortTimeout, the least there is, are lost to faults; one of longTimeout outlives most.
	shortTimeout = 720 * time.Millisecond
	longTimeout  = 6 * time.Second
)

// Callers on sessions of all members take, hold and release locks of all kinds at random, lose patience and lose sessions, while
// members are cut off, killed and started again. Every grant is held against a model, see there. What they choose follows from the
// seed; what comes of it also from the machine.
func TestSchedules(t *testing.T) {
	before := runtime.NumGoroutine()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	began, long := time.Now(), *schedulesFlag > 0 || *longFlag > 0
	for i := 0; i < max(1, *schedulesFlag) || time.Since(began) < *longFlag; i++ {
		if i > 0 {
			seed = rand.New(rand.NewPCG(seed, 0)).Uint64()
		}
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { play(t, seed, long) }) {
			return // what is left is in the way of the next
		}
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks())
		}
	}
}

// stacks shows what every goroutine is at.
func stacks() string {
	b := make([]byte, 1<<22)
	return string(b[:runtime.Stack(b, true)])
}

// A schedule is one run of callers and faults, on an ensemble of its own.
type schedule struct {
	t     *testing.T
	ens   *embedtest.Ensemble
	model *model
	rng   *rand.Rand      // of the faults
	ctx   context.Context // bounds everything
	last  context.Context // ends when the callers are to come to an end
	slots []*slot
	turn  atomic.Pointer[chan struct{}] // closed when the next fault comes

	long    bool           // every fault, and all that happened if it fails
	delays  bool           // callers ask for delays
	limits  map[string]int // of the semaphores, as far as is known
	unknown map[string]int // the greatest that may come yet
	lagged  atomic.Bool    // a member has been given a snapshot, perhaps
	behind  sync.Map       // keptBy of a contender's path: since when it is known to stand behind a lock that is kept

	mu struct {
		sync.Mutex
		nodes    map[embed.MemberID]*embed.Node // also of those that are down
		calls    int
		accesses int            // of registers
		refused  map[string]int // calls, by error
		faults   map[string]int
	}
}

// A slot is a place for a session on a member. Who finds that it has ended opens the next.
type slot struct {
	member  embed.MemberID
	timeout time.Duration
	mu      sync.Mutex
	session *embed.Session // guarded by mu
}

// play plays a schedule: a short one, or one with every fault there is.
func play(t *testing.T, seed uint64, long bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	s := &schedule{t: t, long: long, rng: rand.New(rand.NewPCG(seed, 0)), ctx: ctx}
	s.mu.nodes, s.mu.refused, s.mu.faults = make(map[embed.MemberID]*embed.Node), make(map[string]int), make(map[string]int)
	s.model = newModel(t.Errorf)
	s.delays = s.rng.IntN(2) == 0
	s.limits, s.unknown = make(map[string]int), make(map[string]int)
	for _, path := range semaphores.paths() {
		s.limits[path] = permitsAgreed
		s.model.limited(path, permitsAgreed)
	}
	s.ens = embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.RequestTimeout = requestTimeout }})
	for _, id := range s.ens.Members() {
		s.mu.nodes[id] = s.ens.Node(id)
		s.slots = append(s.slots, &slot{member: id, timeout: shortTimeout}, &slot{member: id, timeout: shortTimeout})
	}
	s.slots = append(s.slots, &slot{member: s.member(), timeout: longTimeout})
	s.prepare()
	s.nextTurn()
	last, end := context.WithCancel(s.ctx)
	defer end()
	s.last = last
	var callers sync.WaitGroup
	for i, k := range kinds {
		for j := range callersOf {
			c := &caller{schedule: s, kind: k, paths: k.paths(), name: fmt.Sprintf("%s caller %d", k.name, j), rng: rand.New(rand.NewPCG(seed, uint64(1+i*callersOf+j)))}
			if j%2 == 0 {
				c.paths = k.hot
			}
			callers.Go(c.run)
		}
	}
	s.disturb()
	end()
	s.nextTurn()
	s.join(&callers)
	s.model.finish()
	s.left()
	s.tell()
}

// prepare makes the registers, and every other path of a lock: the rest are for the locks to make.
func (s *schedule) prepare() {
	session := s.ens.Session(1, embed.SessionOptions{})
	create := func(path string) {
		if _, err := session.Create(s.ctx, path, nil, embed.Persistent); !errors.Is(err, embed.ErrNodeExists) {
			must(s.t, err)
		}
	}
	for _, k := range kinds {
		for i, path := range k.paths() {
			create(path[:strings.LastIndexByte(path, '/')])
			create(register(path))
			if i%2 == 0 {
				create(path)
			}
		}
	}
	_ = session.Close() // the node goes on trying
}

// join waits until all callers are gone: nothing is broken any more that could keep them.
func (s *schedule) join(callers *sync.WaitGroup) {
	gone := make(chan struct{})
	go func() {
		callers.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		s.t.Errorf("callers wait for what does not come\n%s", stacks())
		s.left()
		s.tell()
		s.t.FailNow()
	}
}

// left checks that nobody is left behind: no contender, no goroutine, no lock that cannot be had.
func (s *schedule) left() {
	for _, id := range s.ens.Members() {
		session := s.ens.Session(id, embed.SessionOptions{Timeout: longTimeout})
		for _, k := range kinds {
			for _, path := range k.paths() {
				_, err := session.Sync(s.ctx, path)
				must(s.t, err)
				soon := k.keeps || s.delays
				if !soon {
					s.emptied(session, k, path)
				}
				h, err := k.all(s.ctx, session, path, soon)
				if err != nil {
					s.t.Errorf("nobody has %s, but member %d says: %v", path, id, err)
					continue
				}
				s.ens.Until("a lock to be released", func() bool { return h.Release() == nil })
				s.emptied(session, k, path)
			}
		}
		_ = session.Close() // the node goes on trying
	}
	s.ens.Until("the goroutines of the locks to end", func() bool {
		all := stacks()
		return !strings.Contains(all, "vivarium/embed/lock.(") && !strings.Contains(all, "vivarium/embed/internal/queue.")
	})
}

// emptied checks that the queue of a path becomes empty.
func (s *schedule) emptied(session *embed.Session, k *kind, path string) {
	names := k.queued(s.ctx, session, path)
	for deadline := time.Now().Add(20 * time.Second); len(names) > 0; names = k.queued(s.ctx, session, path) {
		if time.Now().After(deadline) {
			s.t.Errorf("left behind: %q", names)
			return
		}
		runtime.Gosched()
	}
}

// tell logs what has come of the schedule.
func (s *schedule) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	s.t.Logf("delays: %v; faults: %v\n%d calls, %d accesses\ngrants: %v\nlost: %v\nrefused: %v", s.delays, s.mu.faults, s.mu.calls, s.mu.accesses, s.model.grants, s.model.losses, s.mu.refused)
	if s.t.Failed() {
		log := s.model.log
		if !s.long {
			log = log[max(0, len(log)-400):]
		}
		s.t.Logf("what happened:\n%s", strings.Join(log, "\n"))
	}
}

// nextTurn lets those go on who hold something until the next fault.
func (s *schedule) nextTurn() {
	next := make(chan struct{})
	if last := s.turn.Swap(&next); last != nil {
		close(*last)
	}
}

// pass lets so much happen, or so much time go by.
func (s *schedule) pass(events int, most time.Duration) {
	happened, expired := make(chan struct{}), time.NewTimer(most)
	defer expired.Stop()
	s.model.after(events, func() { close(happened) })
	select {
	case <-happened:
	case <-expired.C:
	}
}

// open returns the session of a slot, a new one if the last has ended, or nil if none can be had now.
func (s *schedule) open(sl *slot) *embed.Session {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	if sl.session != nil && sl.session.Err() == nil {
		return sl.session
	}
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	session, err := s.node(sl.member).NewSession(ctx, embed.SessionOptions{Timeout: sl.timeout})
	if err != nil {
		s.refuse(err)
		return nil
	}
	sl.session = session
	return session
}

// anySession returns a session of any slot, or nil.
func (s *schedule) anySession(rng *rand.Rand) *embed.Session {
	return s.open(s.slots[rng.IntN(len(s.slots))])
}

func (s *schedule) node(id embed.MemberID) *embed.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nodes[id]
}

// refuse counts an error.
func (s *schedule) refuse(err error) {
	text := err.Error()
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+2:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.refused[text]++
}

// A caller takes locks of one kind.
type caller struct {
	*schedule
	kind  *kind
	paths []string
	name  string
	rng   *rand.Rand

	n      int            // calls
	member embed.MemberID // of the session of this one
}

func (c *caller) run() {
	for c.last.Err() == nil {
		sl := pick(c.rng, c.slots...)
		session := c.open(sl)
		if session == nil {
			c.pass(1, 10*time.Millisecond)
			continue
		}
		c.member = sl.member
		c.call(session)
	}
}

// call takes a lock, uses it and gives it back.
func (c *caller) call(s *embed.Session) {
	c.n++
	c.mu.Lock()
	c.mu.calls++
	c.mu.Unlock()
	w := c.kind.want(c.rng, c.paths)
	w.note = fmt.Sprintf("%s, call %d (session %x)", c.name, c.n, s.ID())
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
	h, err := c.kind.take(ctx, s, w)
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

// patience returns a context that may end soon, or when more has happened.
func (c *caller) patience() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.ctx)
	switch c.rng.IntN(10) {
	case 0:
		cancel()
	case 1, 2, 3: // often while the create is on its way
		timer := time.AfterFunc(time.Duration(c.rng.IntN(8000))*time.Microsecond, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	case 4, 5:
		c.model.after(1+c.rng.IntN(2*callersOf), cancel)
	}
	return ctx, cancel
}

// grant is what a caller has when it gets what it wants.
func (w want) grant(k *kind) *grant {
	g := &grant{kind: k.name, who: w.note, paths: w.paths, mode: w.mode, permits: w.permits, delay: w.delay, identity: w.identity}
	if !k.keeps {
		g.note = w.note
	}
	return g
}

// queue returns the notes of those who hold some paths, or wait for them.
func (c *caller) queue(ctx context.Context, s *embed.Session, paths []string) (notes []string) {
	for _, path := range paths {
		for _, look := range []func(context.Context, *embed.Session, string) ([]lock.Contender, error){lock.Holders, lock.Waiters} {
			list, _ := look(ctx, s, path) // who is not seen is not known to be first
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
func (c *caller) mayRefuse(ctx context.Context, s *embed.Session, w want, err error) bool {
	if errors.Is(err, embed.ErrUnknownOutcome) || errors.Is(err, embed.ErrFailed) {
		select { // of a member that is killed they end a moment later
		case <-s.Done():
		case <-time.After(time.Second):
		}
	}
	ended := s.Err()
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case ended != nil && (errors.Is(err, ended) || errors.Is(err, embed.ErrUnknownOutcome) || errors.Is(err, embed.ErrFailed)):
	case errors.Is(err, embed.ErrUnknownOutcome) && c.lagged.Load(): // a snapshot has taken its place
	case w.try && (errors.Is(err, lock.ErrHeld) || errors.Is(err, embed.ErrSuspended) || errors.Is(err, embed.ErrUnavailable)):
	case errors.Is(err, embed.ErrDeleted) && c.model.tookAny(w.paths...):
	case errors.Is(err, lock.ErrLimit) && w.permits > 1: // the limit may have been smaller
	default:
		return false
	}
	return true
}

// granted tells the model of a Hold.
func (c *caller) granted(g *grant, h *lock.Hold) {
	g.hold, g.znode, g.token = h, h.Path(), h.Token()
	c.model.granted(g)
}

// bounded checks that a lock that is kept is not granted again and again while others wait for long.
func (c *caller) bounded(s *embed.Session, g *grant) {
	const slack = time.Second // for a machine that has other things to do
	for _, znode := range contenders(c.ctx, s, g.paths[0]) {
		if znode == g.znode {
			continue
		}
		since, _ := c.behind.LoadOrStore(keptBy{s, znode}, time.Now())
		if waited := time.Since(since.(time.Time)); waited > keepFor+slack && c.model.held(g) {
			c.t.Errorf("%v was granted without a commit, and %s has stood behind it for %v", g, znode, waited)
		}
	}
}

// use works under a Hold and gives it back, or loses it.
func (c *caller) use(s *embed.Session, w want, h *lock.Hold, g *grant) {
	for again := true; again; {
		r := &holder{caller: c, session: s, hold: h, grant: g, versions: make(map[string]int32)}
		r.look()
		switch n := c.rng.IntN(12); {
		case n == 0 && !slices.Contains(c.kind.hot, g.paths[0]): // until the next fault has come and gone
			r.cling(2)
			r.submit()
		case n == 1: // until more has happened
			c.pass(1+c.rng.IntN(callersOf), 20*time.Millisecond)
		}
		for range c.rng.IntN(4) {
			if !r.work() { // its member is in trouble: now it is to be seen when the Hold ends
				r.cling(1)
			}
		}
		if c.rng.IntN(4) == 0 {
			r.submit() // may be on its way when the Hold ends
		}
		changes := c.kind.change != nil && c.rng.IntN(3) == 0
		if changes {
			h, g, w = c.change(r, w)
		}
		again = g != r.grant
		if err := r.hold.Err(); err != nil && !again {
			c.model.lost(g)
			if errors.Is(err, embed.ErrReleased) && !changes {
				c.t.Errorf("nobody has released %v: %v", g, err)
			}
		}
		if !again || c.rng.IntN(2) == 0 { // of what has gone over to another Hold it frees nothing
			r.release()
		}
		if c.rng.IntN(2) == 0 {
			r.submit()
		}
		r.settle()
	}
}

// change has a read Hold go over into a write Hold, or the other way round. It returns what the caller has then.
func (c *caller) change(r *holder, w want) (*lock.Hold, *grant, want) {
	next := w
	next.mode = alone + shared - w.mode
	next.note += " changed"
	ctx, cancel := c.patience()
	defer cancel()
	h, err := c.kind.change(ctx, r.session, r.hold, next)
	if err == nil {
		g := next.grant(c.kind)
		g.from = r.grant
		c.granted(g, h)
		return h, g, next
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
	return r.hold, r.grant, w
}
