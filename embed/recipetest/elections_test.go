package recipetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

const (
	// candidates is how many callers stand for the elections, each in one way.
	candidates = 12
	// priorities is the bound of the candidates' priorities.
	priorities = 3
)

// Callers on all members stand for elections in every way, with and without priorities. They
// withdraw, are elected, proclaim, resign, queue again, transfer leaderships, give up and lose
// sessions. Meanwhile members are cut off, killed and started again, and others observe. The model
// checks every leadership and everything that an observer sees.
func TestElections(t *testing.T) { schedules(t, playElections) }

func playElections(t *testing.T, seed uint64) {
	// Callers that campaign with sessions of their own get short ones, which do not block others
	// for long.
	s := newSchedule(t, seed, electionKinds, nil, func(c *embed.Config) { c.MaxSessionTimeout = 2 * shortTimeout })
	var callers []func()
	for j := range candidates {
		c := &candidate{caller: s.caller(j, elections, fmt.Sprintf("candidate %d", j)), paths: elections.paths()}
		if j%3 > 0 {
			c.paths = elections.hot
		}
		callers = append(callers, c.run)
	}
	for i, id := range s.ens.Members() {
		b := &balancer{caller: s.caller(candidates+i, balanced, fmt.Sprintf("balancer %d", id))}
		b.member = id
		callers = append(callers, b.run)
	}
	end := s.observe()
	s.play(callers)
	end()
	s.left(func(*kind) bool { return true })
	s.tell("%d sights", s.model.sights)
}

var electionKinds = []*kind{elections, balanced}

var elections = &kind{
	name:   "leadership",
	hot:    []string{"/election/a"},
	cold:   []string{"/election/b"},
	all:    campaign,
	queued: children,
}

// balanced are the elections of a Balance.
var balanced = &kind{
	name:   "balanced leadership",
	cold:   []string{balancedDir + "/a", balancedDir + "/b", balancedDir + "/c", balancedDir + "/d"},
	all:    campaign,
	queued: children,
}

const balancedDir = "/balanced"

// campaign leads when nobody else wants to.
func campaign(ctx context.Context, s *embed.Session, path string, _ bool) (held, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	l, err := election.New(s, path).Campaign(ctx, []byte("in the end"))
	return leadership{l}, err
}

// children returns the znodes right below a path, in no order.
func children(ctx context.Context, s *embed.Session, path string) (znodes []string) {
	names, _, _ := s.Children(ctx, path) // without the path there are none
	for _, name := range names {
		znodes = append(znodes, path+"/"+name)
	}
	return znodes
}

// A leadership is what is held of an election.
type leadership struct{ *election.Leadership }

func (l leadership) Release() error           { return l.Resign() }
func (l leadership) Revoked() <-chan struct{} { return nil } // nobody can ask it to resign

// A served is a leadership of which only the context is known.
type served struct{ ctx context.Context }

func (t served) Err() error               { return t.ctx.Err() }
func (t served) Context() context.Context { return t.ctx }
func (t served) Done() <-chan struct{}    { return t.ctx.Done() }

// A candidate is a caller that stands for elections.
type candidate struct {
	caller
	paths []string
}

func (c *candidate) run() {
	for c.last.Err() == nil {
		s := c.session()
		if s == nil {
			continue
		}
		switch path := pick(c.rng, c.paths...); c.rng.IntN(8) {
		case 0:
			c.latch(s, path)
		case 1:
			c.forever(s, path)
		default:
			c.stand(s, path)
		}
	}
}

// elected returns the grant of a candidate that is elected. It publishes value, and note belongs to
// it alone.
func (c *caller) elected(path, value, note string) *grant {
	return &grant{kind: c.kind.name, who: note, note: note, value: value, paths: []string{path}, mode: alone}
}

// published returns the nth value that a leader proclaims.
func published(value string, n int) []byte { return fmt.Appendf(nil, "%s #%d", value, n) }

// useLeadership records a leadership in the model, and uses it.
func (c *caller) useLeadership(s *embed.Session, l *election.Leadership, g *grant) *holder {
	g.gets(leadership{l})
	c.model.granted(g)
	h := c.holder(s, leadership{l}, g)
	for n := range 1 + c.rng.IntN(2) {
		h.use()
		h.proclaim(l, n+1)
	}
	return h
}

// proclaim proclaims the nth value.
func (h *holder) proclaim(l *election.Leadership, n int) {
	ended := l.Err()
	err := l.Proclaim(h.ctx, published(h.grant.value, n))
	switch {
	case err == nil && ended != nil:
		h.t.Errorf("%v had ended and proclaims", h.grant)
	case err == nil, errors.Is(err, embed.ErrNotHeld), l.Err() != nil && errors.Is(err, l.Err()):
	default:
		h.expect(err)
	}
}

// ended checks what has become of a leadership that its leader has not given up.
func (h *holder) ended(given bool) {
	err := h.hold.Err()
	if err == nil {
		return
	}
	h.model.lost(h.grant)
	if errors.Is(err, embed.ErrReleased) && !given {
		h.t.Errorf("nobody has given up %v: %v", h.grant, err)
	}
}

// makeRoom makes a leader resign or transfer its leadership.
func (h *holder) makeRoom(l *election.Leadership) {
	if h.rng.IntN(2) == 0 && h.transfer(l) {
		h.drain()
		return
	}
	if h.rng.IntN(2) == 0 {
		h.submit() // it may be in flight when the leadership ends
	}
	h.release()
	if h.rng.IntN(2) == 0 {
		h.submit()
	}
	h.drain()
}

// transfer transfers a leadership to another candidate, and reports whether the leadership is over.
func (h *holder) transfer(l *election.Leadership) bool {
	path := h.grant.paths[0]
	all, _ := election.New(h.session, path).Candidates(h.ctx) // without the list there is nobody
	all = slices.DeleteFunc(all, func(s election.Standing) bool { return s.Path == l.Path() })
	if len(all) == 0 {
		return false
	}
	to := pick(h.rng, all...)
	h.model.offered(path, string(to.Value))
	ctx, cancel := h.patience()
	defer cancel()
	// A candidate that cannot answer has not much time.
	ctx, cancel = context.WithTimeout(ctx, time.Second)
	defer cancel()
	before := l.Err()
	err := l.Transfer(ctx, to.Path)
	ended := l.Err()
	h.model.notef("%v is transferred to %q: %v (%v)", h.grant, to.Value, err, ended)
	switch {
	case err == nil && ended == nil:
		h.t.Errorf("%v was transferred and goes on", h.grant)
	case err == nil:
		h.model.moved(h.grant, string(to.Value))
	// No quorum has told in time whether the candidate accepted.
	case ended != nil && errors.Is(err, embed.ErrUnknownOutcome):
	default:
		h.refuse(err)
		if !errors.Is(err, election.ErrNotTransferred) && !(before != nil && errors.Is(err, before)) && !h.mayRefuse(ctx, h.session, h.grant.paths, err) {
			h.t.Errorf("%v was not transferred: %v (it was %v before, is %v now)", h.grant, err, before, ended)
		}
	}
	if ended == nil {
		return false
	}
	h.model.released(h.grant, err)
	return true
}

// A candidacy is a call of a candidate, from Enter until it no longer leads.
type candidacy struct {
	*candidate
	session   *embed.Session
	ctx       context.Context
	path      string
	priority  int
	grant     *grant // which it has when it is elected
	turns     int
	withdrawn atomic.Bool
}

// stand stands for an election, and leads if it is elected.
func (c *candidate) stand(s *embed.Session, path string) {
	value := c.begin(s)
	ctx, cancel := c.patience()
	defer cancel()
	tooLate := s.Err()
	n := &candidacy{candidate: c, session: s, ctx: ctx, path: path, grant: c.elected(path, value, value)}
	l, err := n.campaign()
	if err != nil {
		n.failed(err)
		return
	}
	if tooLate != nil {
		c.t.Errorf("%v leads by a session that had ended: %v", n.grant, tooLate)
	}
	for l != nil {
		l = n.lead(l)
	}
}

// campaign enters and waits.
func (n *candidacy) campaign() (*election.Leadership, error) {
	e, value := election.New(n.session, n.path), []byte(n.grant.value)
	if n.rng.IntN(4) == 0 {
		n.grant.saw = n.model.standing(n.path, 0)
		return e.Campaign(n.ctx, value)
	}
	n.priority = n.rng.IntN(priorities)
	n.grant.saw = n.model.standing(n.path, n.priority)
	entered, err := e.Enter(n.ctx, value, election.Options{Priority: n.priority})
	if err != nil {
		return nil, err
	}
	return n.wait(entered)
}

// wait waits to be elected. Or it withdraws the candidate after some events, which may be when it
// is elected.
func (n *candidacy) wait(entered *election.Candidate) (*election.Leadership, error) {
	n.model.stands(n.path, n.grant.note, n.priority)
	defer n.model.standsNoMore(n.path, n.grant.note)
	n.before(entered)
	if n.rng.IntN(6) > 0 {
		return entered.Wait(n.ctx)
	}
	happened, waited := make(chan struct{}), make(chan struct{})
	n.model.after(1+n.rng.IntN(candidates), func() { close(happened) })
	var other sync.WaitGroup
	other.Go(func() {
		select {
		case <-happened:
			n.withdrawn.Store(true)
			_ = entered.Withdraw() // the node retries
		case <-waited:
		}
	})
	l, err := entered.Wait(n.ctx)
	close(waited)
	other.Wait()
	return l, err
}

// before checks that no candidate ahead of an entered one has a lower priority, except the first,
// which leads or is about to.
func (n *candidacy) before(entered *election.Candidate) {
	path := entered.Path()
	all, _ := election.New(n.session, n.path).Candidates(n.ctx)
	for i, other := range all[:max(0, slices.IndexFunc(all, func(s election.Standing) bool { return s.Path == path }))] {
		if i > 0 && other.Priority < n.priority {
			n.t.Errorf("%v has priority %d and waits behind %s, which has %d", n.grant.note, n.priority, other.Path, other.Priority)
		}
	}
}

// failed checks that a call may end with an error.
func (n *candidacy) failed(err error) {
	n.refuse(err)
	n.model.notef("%v: %v (session: %v)", n.grant.note, err, n.session.Err())
	if !(n.withdrawn.Load() && errors.Is(err, embed.ErrReleased)) && !n.mayRefuse(n.ctx, n.session, n.grant.paths, err) {
		n.t.Errorf("%v ended with %v (session: %v)", n.grant.note, err, n.session.Err())
	}
}

// lead leads for a while. If it queues again and is elected, it returns the new leadership.
func (n *candidacy) lead(l *election.Leadership) *election.Leadership {
	h := n.useLeadership(n.session, l, n.grant)
	h.ended(n.withdrawn.Load())
	if n.rng.IntN(3) > 0 {
		h.makeRoom(l)
		return nil
	}
	defer h.drain()
	return n.requeue(l)
}

// requeue queues again, behind all who wait.
func (n *candidacy) requeue(l *election.Leadership) *election.Leadership {
	was := n.grant
	n.turns++
	n.grant = n.elected(n.path, was.value, fmt.Sprintf("%s, again %d", was.value, n.turns))
	n.grant.saw = n.model.standing(n.path, n.priority)
	lost := l.Err()
	entered, err := l.Requeue(n.ctx)
	n.model.released(was, err)
	if err == nil && lost != nil {
		n.t.Errorf("%v was lost and queues again: %v", was, lost)
	}
	if err == nil {
		l, err = n.wait(entered)
	} else if now := l.Err(); errors.Is(err, now) || errors.Is(err, embed.ErrNotHeld) {
		return nil // it was lost
	}
	if err != nil {
		n.failed(err)
		return nil
	}
	return l
}

// interest returns a context that ends with the schedule, or after some events.
func (c *caller) interest() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(c.last)
	c.model.after(1+c.rng.IntN(8*candidates), cancel)
	return ctx, cancel
}

// latch leads with a Latch whenever it is elected, and stops after a while.
func (c *candidate) latch(s *embed.Session, path string) {
	value := "latch of " + c.begin(s)
	ctx, cancel := c.interest()
	defer cancel()
	l := election.NewLatch(c.node(c.member), path, []byte(value), election.Options{Priority: c.rng.IntN(priorities)})
	turns := 0
	for leads := range l.Changes(ctx) {
		if leads == nil {
			continue
		}
		turns++
		h := c.useLeadership(s, leads, c.elected(path, value, fmt.Sprintf("%s, leadership %d", value, turns)))
		h.ended(false)
		if turns == 3 {
			defer h.drain()
			break // Close does the rest
		}
		h.makeRoom(leads)
	}
	_ = l.Close()
	if err := l.Err(); l.IsLeader() || !errors.Is(err, embed.ErrReleased) && !gone(err) {
		c.t.Errorf("%s is closed; it leads: %v, its end: %v", value, l.IsLeader(), err)
	}
}

// gone reports whether an error says that a node has ended.
func gone(err error) bool { return errors.Is(err, embed.ErrClosed) || errors.Is(err, embed.ErrFailed) }

var errEnough = errors.New("enough")

// forever leads with Run.
func (c *candidate) forever(s *embed.Session, path string) {
	value := "run of " + c.begin(s)
	ctx, cancel := c.interest()
	defer cancel()
	err := election.Run(ctx, c.node(c.member), path, []byte(value), func(ctx context.Context, t lock.Token) error {
		c.serve(ctx, path, value, t)
		return pick(c.rng, nil, errEnough)
	})
	c.refuse(err)
	if !errors.Is(err, errEnough) && !(ctx.Err() != nil && errors.Is(err, ctx.Err())) && !gone(err) {
		c.t.Errorf("%s ended with %v", value, err)
	}
}

// serve leads for a while.
func (c *caller) serve(ctx context.Context, path, value string, t lock.Token) {
	g := c.elected(path, value, fmt.Sprintf("%s, leadership of %v", value, t))
	g.hold, g.token = served{ctx}, t
	c.model.granted(g)
	happened := make(chan struct{})
	c.model.after(candidates, func() { close(happened) })
	select {
	case <-happened:
	case <-ctx.Done():
		c.model.lost(g)
	}
}

// A balancer is a process that shares elections with others.
type balancer struct{ caller }

func (b *balancer) run() {
	var names []string
	for _, path := range b.kind.paths() {
		names = append(names, strings.TrimPrefix(path, balancedDir+"/"))
	}
	for b.last.Err() == nil {
		b.calls.Add(1)
		value := fmt.Sprintf("%s, call %d", b.name, b.calls.Load())
		err := election.Balance(b.last, b.node(b.member), balancedDir, names, []byte(value), func(ctx context.Context, name string, t lock.Token) error {
			b.serve(ctx, balancedDir+"/"+name, value, t)
			return nil
		})
		b.refuse(err)
		if !(b.last.Err() != nil && errors.Is(err, b.last.Err())) && !gone(err) {
			b.t.Errorf("%s ended with %v", value, err)
		}
		b.pass(1, 10*time.Millisecond)
	}
}

// An observer follows an election from one member.
type observer struct {
	*schedule
	path   string
	member embed.MemberID
	newest atomic.Pointer[election.Leader]
}

// observe starts observers of all elections on all members. The function that it returns checks
// that all of them see the newest leader, and stops them.
func (s *schedule) observe() (end func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var all []*observer
	var observers sync.WaitGroup
	for _, k := range s.kinds {
		for _, path := range k.paths() {
			for _, id := range s.ens.Members() {
				o := &observer{schedule: s, path: path, member: id}
				all = append(all, o)
				observers.Go(func() {
					for ctx.Err() == nil {
						o.follow(ctx)
					}
				})
			}
		}
	}
	return func() {
		s.seen(all)
		cancel()
		observers.Wait()
	}
}

// follow observes the election until that ends.
func (o *observer) follow(ctx context.Context) {
	s, err := o.node(o.member).NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		o.pass(1, 10*time.Millisecond)
		return
	}
	defer s.Close()
	var last election.Leader
	for l, err := range election.New(s, o.path).Observe(ctx) {
		if err != nil {
			if ctx.Err() == nil && s.Err() == nil {
				o.t.Errorf("an observer of %s on member %d: %v", o.path, o.member, err)
			}
			return
		}
		o.model.sighted(o.path, last, l)
		o.newest.Store(&l)
		last = l
	}
}

// seen makes somebody lead in each election, and waits until every observer of it knows.
func (s *schedule) seen(all []*observer) {
	ctx, cancel := context.WithTimeout(s.ctx, 3*patient)
	defer cancel()
	value := published("the last", 1)
	for _, k := range s.kinds {
		for _, path := range k.paths() {
			var l *election.Leadership
			s.ens.Until("observers to see the newest leader", func() bool {
				// Sessions are short, so a busy machine may lose one.
				if l == nil || l.Err() != nil {
					l = s.proclaims(ctx, path, value)
				}
				return l != nil && !slices.ContainsFunc(all, func(o *observer) bool {
					n := o.newest.Load()
					return o.path == path && (n == nil || n.Token != l.Token() || string(n.Value) != string(value))
				})
			})
			s.ens.Until("the last leader to resign", func() bool { return l.Resign() == nil })
		}
	}
}

// proclaims makes somebody lead and proclaim a value. It returns nil if the session for that was
// lost.
func (s *schedule) proclaims(ctx context.Context, path string, value []byte) *election.Leadership {
	session := s.ens.Session(1, embed.SessionOptions{})
	l, err := election.New(session, path).Campaign(ctx, []byte("the last"))
	if err == nil {
		err = l.Proclaim(ctx, value)
	}
	if err == nil {
		return l
	}
	if session.Err() == nil && (l == nil || l.Err() == nil) {
		s.t.Fatal(err)
	}
	_ = session.Close() // the node retries
	return nil
}
