package recipetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

const (
	// requestTimeout is short, so that a caller on a member that is cut off goes on with something
	// else.
	requestTimeout = 300 * time.Millisecond
	// Sessions with shortTimeout, the shortest possible, are lost to faults. One with longTimeout
	// outlives most.
	shortTimeout = 720 * time.Millisecond
	longTimeout  = 6 * time.Second
	// patient is how long a call may take when nothing is broken.
	patient = time.Minute
)

// A kind of lock, or elections, take part in a schedule. The hot paths should be busy all the time:
// half of the callers use no others, and nobody keeps a Hold on them for long.
type kind struct {
	name      string
	hot, cold []string
	// all acquires all that a path has: at once, or if soon is set, after what somebody keeps or
	// has lost.
	all func(ctx context.Context, s *embed.Session, path string, soon bool) (held, error)
	// queued returns the znodes of all contenders of a path, in no order.
	queued func(context.Context, *embed.Session, string) []string

	lockKind // for locks only
}

// paths returns all paths of a kind.
func (k *kind) paths() []string { return append(append([]string(nil), k.hot...), k.cold...) }

// A schedule is one run of callers and faults on an ensemble of its own. The seed decides the
// choices. What comes of them depends on the machine too.
type schedule struct {
	t      *testing.T
	seed   uint64
	ens    *embedtest.Ensemble
	model  *model
	kinds  []*kind
	faults []fault         // besides those of all schedules
	rng    *rand.Rand      // for the faults
	ctx    context.Context // bounds everything
	last   context.Context // ends when the callers should stop
	slots  []*slot
	fault  atomic.Pointer[chan struct{}] // closed when the next fault begins
	lagged atomic.Bool                   // a member may have received a snapshot

	calls, accesses atomic.Int64 // accesses of registers

	locks // for schedules of locks only

	mu struct {
		sync.Mutex
		nodes   map[embed.MemberID]*embed.Node // including nodes that are down
		refused map[string]int                 // number of calls, by error
		faults  map[string]int
	}
}

// A slot is a place for a session on a member. A caller that finds it ended opens the next.
type slot struct {
	member  embed.MemberID
	timeout time.Duration
	turn    chan struct{} // held while a session is opened: in a bubble a mutex would stop the clock
	session *embed.Session
}

func newSlot(member embed.MemberID, timeout time.Duration) *slot {
	return &slot{member: member, timeout: timeout, turn: make(chan struct{}, 1)}
}

// newSchedule starts an ensemble, and creates the registers and every other path. The recipes
// create the rest.
func newSchedule(t *testing.T, seed uint64, kinds []*kind, faults []fault, configure func(*embed.Config)) *schedule {
	// ctx has no deadline, because a deadline would bound calls instead of requestTimeout.
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	bound := time.AfterFunc(10*time.Minute, cancel)
	t.Cleanup(func() { bound.Stop() })
	s := &schedule{t: t, seed: seed, kinds: kinds, faults: faults, rng: rand.New(rand.NewPCG(seed, 0)), ctx: ctx, model: newModel(t.Errorf)}
	s.mu.nodes, s.mu.refused, s.mu.faults = make(map[embed.MemberID]*embed.Node), make(map[string]int), make(map[string]int)
	s.ens = embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		c.RequestTimeout = requestTimeout
		configure(c)
	}})
	if !long() {
		embedkit.Distant(s.ens, time.Millisecond) // otherwise callers would stop the clock of a bubble
	}
	for _, id := range s.ens.Members() {
		s.mu.nodes[id] = s.ens.Node(id)
		s.slots = append(s.slots, newSlot(id, shortTimeout), newSlot(id, shortTimeout))
	}
	s.slots = append(s.slots, newSlot(s.member(), longTimeout))
	s.prepare()
	return s
}

func (s *schedule) prepare() {
	ctx, cancel := context.WithTimeout(s.ctx, patient)
	defer cancel()
	session := s.ens.Session(1, embed.SessionOptions{})
	create := func(path string) {
		if _, err := session.Create(ctx, path, nil, embed.Persistent); !errors.Is(err, embed.ErrNodeExists) {
			must(s.t, err)
		}
	}
	for _, k := range s.kinds {
		for i, path := range k.paths() {
			create(path[:strings.LastIndexByte(path, '/')])
			create(register(path))
			if i%2 == 0 {
				create(path)
			}
		}
	}
	_ = session.Close() // the node retries
}

// play runs callers until s.last ends, and disturbs them.
func (s *schedule) play(callers []func()) {
	s.nextFault()
	last, end := context.WithCancel(s.ctx)
	defer end()
	s.last = last
	var all sync.WaitGroup
	for _, c := range callers {
		all.Go(c)
	}
	s.disturb()
	end()
	s.nextFault()
	if s.join(&all) {
		s.model.finish()
	}
}

// join waits until all callers are gone. Nothing is broken any more that could keep them.
func (s *schedule) join(callers *sync.WaitGroup) bool {
	gone := make(chan struct{})
	go func() {
		callers.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return true
	case <-time.After(patient):
		s.t.Errorf("callers wait for ever\n%s", testkit.Stacks())
		return false
	}
}

// left checks that nothing is left behind: no contender, no goroutine, no lock that cannot be
// acquired. The locks of kinds for which soon is true may take a while.
func (s *schedule) left(soon func(*kind) bool) {
	ctx, cancel := context.WithTimeout(s.ctx, 3*patient)
	defer cancel()
	for _, id := range s.ens.Members() {
		// A write behind all that the callers have sent. What they no longer wait for may be
		// visible only once it is applied.
		s.visit(id, func(session *embed.Session, _ *kind, path string) error {
			err := session.Delete(ctx, register(path)+"-nobody", embed.AnyVersion)
			if errors.Is(err, embed.ErrNoNode) {
				return nil
			}
			return err
		})
	}
	for _, id := range s.ens.Members() {
		s.visit(id, func(session *embed.Session, k *kind, path string) error {
			if _, err := session.Sync(ctx, path); err != nil {
				return err
			}
			if !soon(k) {
				s.emptied(session, k, path)
			}
			h, err := k.all(ctx, session, path, soon(k))
			if err != nil {
				return err
			}
			s.ens.Until("the acquired lock to be released", func() bool { return h.Release() == nil })
			s.emptied(session, k, path)
			return nil
		})
	}
	s.ens.Until("the goroutines of the recipes to end", func() bool {
		all := testkit.Stacks()
		for _, room := range []string{"lock.(", "election.", "internal/queue."} {
			if strings.Contains(all, "vivarium/embed/"+room) {
				return false
			}
		}
		return true
	})
}

// visit calls do for each path through a member. It repeats a call if its session was lost
// meanwhile, as can happen on a busy machine.
func (s *schedule) visit(id embed.MemberID, do func(*embed.Session, *kind, string) error) {
	session := s.ens.Session(id, embed.SessionOptions{Timeout: longTimeout})
	for _, k := range s.kinds {
		for _, path := range k.paths() {
			err := do(session, k, path)
			for err != nil && session.Err() != nil {
				session = s.ens.Session(id, embed.SessionOptions{Timeout: longTimeout})
				err = do(session, k, path)
			}
			if err != nil {
				s.t.Errorf("nobody has %s, but member %d says: %v", path, id, err)
			}
		}
	}
	_ = session.Close() // the node retries
}

// emptied checks that the queue of a path becomes empty.
func (s *schedule) emptied(session *embed.Session, k *kind, path string) {
	names := k.queued(s.ctx, session, path)
	for deadline := time.Now().Add(patient); len(names) > 0; names = k.queued(s.ctx, session, path) {
		if time.Now().After(deadline) {
			s.t.Errorf("left behind: %q", names)
			return
		}
		<-time.After(time.Millisecond)
	}
}

// tell logs what has come of the schedule.
func (s *schedule) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.mu.Lock()
	defer s.model.mu.Unlock()
	s.t.Logf("%s; faults: %v\n%d calls, %d accesses\ngrants: %v\nlost: %v\nrefused: %v", fmt.Sprintf(format, args...), s.mu.faults, s.calls.Load(), s.accesses.Load(), s.model.grants, s.model.losses, s.mu.refused)
	if s.t.Failed() {
		log := s.model.log
		if !long() {
			log = log[max(0, len(log)-400):]
		}
		s.t.Logf("what happened:\n%s", strings.Join(log, "\n"))
	}
}

// nextFault wakes the callers that hold something until the next fault.
func (s *schedule) nextFault() {
	next := make(chan struct{})
	if last := s.fault.Swap(&next); last != nil {
		close(*last)
	}
}

// pass waits until that many events have happened, or the time is over.
func (s *schedule) pass(events int, most time.Duration) {
	happened, expired := make(chan struct{}), time.NewTimer(most)
	defer expired.Stop()
	s.model.after(events, func() { close(happened) })
	select {
	case <-happened:
	case <-expired.C:
	}
}

// open returns the session of a slot: a new one if the last has ended, or nil if none can be opened
// now.
func (s *schedule) open(sl *slot) *embed.Session {
	sl.turn <- struct{}{}
	defer func() { <-sl.turn }()
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

// A caller uses the paths of one kind.
type caller struct {
	*schedule
	kind *kind
	name string
	rng  *rand.Rand

	n      int            // number of calls
	member embed.MemberID // whose session this call uses
}

// caller returns the caller with a number.
func (s *schedule) caller(number int, k *kind, name string) caller {
	return caller{schedule: s, kind: k, name: name, rng: rand.New(rand.NewPCG(s.seed, uint64(1+number)))}
}

// session returns the session to use next, or nil.
func (c *caller) session() *embed.Session {
	sl := pick(c.rng, c.slots...)
	session := c.open(sl)
	if session == nil {
		c.pass(1, 10*time.Millisecond)
		return nil
	}
	c.member = sl.member
	return session
}

// begin counts a call, and returns the note of its contenders.
func (c *caller) begin(s *embed.Session) string {
	c.n++
	c.calls.Add(1)
	return fmt.Sprintf("%s, call %d (session %x)", c.name, c.n, s.ID())
}

// patience returns a context that may end soon, or after some events.
func (c *caller) patience() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.ctx)
	switch c.rng.IntN(10) {
	case 0:
		cancel()
	case 1, 2, 3: // often while the create is in flight
		timer := time.AfterFunc(time.Duration(c.rng.IntN(8000))*time.Microsecond, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	case 4, 5:
		c.model.after(1+c.rng.IntN(2*callersOf), cancel)
	}
	return ctx, cancel
}

// mayRefuse reports whether any call may end with an error.
func (c *caller) mayRefuse(ctx context.Context, s *embed.Session, paths []string, err error) bool {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return true
	// A snapshot has replaced the answer.
	case errors.Is(err, embed.ErrUnknownOutcome) && c.lagged.Load():
		return true
	case errors.Is(err, embed.ErrDeleted) && c.model.tookAny(paths...):
		return true
	case errors.Is(err, embed.ErrUnknownOutcome), errors.Is(err, embed.ErrFailed):
		select { // on a member that is killed, they end a moment later
		case <-s.Done():
		case <-time.After(patient):
		}
		return s.Err() != nil
	}
	ended := s.Err()
	return ended != nil && errors.Is(err, ended)
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }
