package lock

import (
	"context"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Cycle is a deadlock: callers that wait for one another. It lasts until one of them gives up or
// somebody Evicts a contender. Nothing does so by itself.
type Cycle struct {
	// Links are the callers, each with a contender that it waits for. That one belongs to the next
	// link's caller, and the last one's to the first.
	Links []Link
	// Certain is false if a caller did not tell what it holds; see Contender.Holding. Then its
	// session holds one lock and waits for another, but perhaps two of its goroutines do.
	Certain bool
}

// A Link is one step of a Cycle.
type Link struct {
	Waits  Contender
	Behind Contender
}

// Cycles returns the deadlocks among queues, the certain ones first. Give it all queues of a Survey
// at once. It returns one Cycle for callers that are in several together. It is right about the
// moment of the Survey, which may show different parts of the tree at different moments. Ask twice
// before you act. Its time and memory grow with the number of contenders and of what they hold. The
// only error is the ctx's.
//
// Who waits for a semaphore is blocked only if all who have permits are. So Cycles may miss a
// deadlock there, when several permits are wanted at once. A candidate of an election waits for the
// leader, but it has no session's locks by waiting: it takes part only by what it holds.
func Cycles(ctx context.Context, queues []Queue) ([]Cycle, error) {
	all, err := newWaitGraph(queues, false).cycles(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	for _, c := range all {
		for _, l := range c.Links {
			known[l.Waits.Path] = true
		}
	}
	guessed, err := newWaitGraph(queues, true).cycles(ctx)
	for _, c := range guessed {
		if !slices.ContainsFunc(c.Links, func(l Link) bool { return known[l.Waits.Path] }) {
			c.Certain = false
			all = append(all, c)
		}
	}
	return all, err
}

// A waitGraph says who waits for whom. Its vertices are the callers that wait, and what lies between
// them: the contenders that are waited for, and groups of callers. So it has no edge from each
// caller to each other, but a number that grows with the contenders.
type waitGraph struct {
	callers    []*vertex
	contenders map[string]*vertex // by path
}

// A vertex is a caller if it has waits. Otherwise it is stuck as long as one of its owners is: those
// who may have to go on before a contender can go.
type vertex struct {
	waits  []*wait // one, or several of a Multi
	queue  string  // the path of the first
	owners []*vertex

	above  []*vertex // whose owner it is
	behind []place   // who waits for it
	stuck  bool
	left   int // how many of the waits, or of the owners, are stuck

	// For the search of cycles.
	order, low int
	open       bool
}

// own says that a vertex is stuck if an owner is.
func (v *vertex) own(owner *vertex) {
	v.owners, owner.above = append(v.owners, owner), append(owner.above, v)
}

// A wait is a place in a queue. All of each must go, and one of any, if there are any.
type wait struct {
	contender Contender
	each, any []Contender

	caller *vertex
	ahead  []*vertex // of each, then of any
	stuck  int       // how many of each are stuck
	free   bool      // one of any is not, or there are none
}

// blocks reports whether the wait never ends.
func (w *wait) blocks() bool { return w.stuck > 0 || !w.free }

// A place says in which list of a wait a vertex is.
type place struct {
	wait *wait
	any  bool
}

// A waitingKey names a caller that waits: the contenders that one transaction of a session created.
type waitingKey struct {
	session embed.SessionID
	born    birth
}

// newWaitGraph returns the graph of queues. With guess, a contender of which no caller says that it
// holds it may belong to any caller of its session that does not say what it holds.
func newWaitGraph(queues []Queue, guess bool) *waitGraph {
	g := &waitGraph{contenders: make(map[string]*vertex)}
	byKey, silent := make(map[waitingKey]*vertex), make(map[embed.SessionID]*group)
	for _, q := range queues {
		for _, wait := range waitsOf(q) {
			c := wait.contender
			if c.Session == 0 {
				continue // nobody waits any more
			}
			key := waitingKey{c.Session, c.born}
			if byKey[key] == nil {
				byKey[key] = &vertex{queue: q.Path}
				g.callers = append(g.callers, byKey[key])
				if len(c.Holding) == 0 && q.Kind != KindElection {
					if silent[c.Session] == nil {
						silent[c.Session] = new(group)
					}
					silent[c.Session].add(byKey[key])
				}
			}
			w := byKey[key]
			wait.caller, w.waits = w, append(w.waits, wait)
			for _, path := range c.Holding {
				g.at(path).own(w)
			}
		}
	}
	for _, q := range queues {
		for _, c := range slices.Concat(q.Holders, q.Waiters) {
			if w := byKey[waitingKey{c.Session, c.born}]; w != nil && c.Session != 0 {
				g.at(c.Path).own(w) // it waits there, or elsewhere as a Multi
			}
		}
		for _, c := range q.Holders {
			if others := silent[c.Session]; guess && others != nil && len(g.at(c.Path).owners) == 0 {
				others.elsewhere(g.at(c.Path), q.Path)
			}
		}
	}
	for _, w := range g.callers {
		for _, wait := range w.waits {
			g.link(wait)
		}
	}
	return g
}

// at returns the vertex of a contender.
func (g *waitGraph) at(path string) *vertex {
	if g.contenders[path] == nil {
		g.contenders[path] = new(vertex)
	}
	return g.contenders[path]
}

// link connects a wait with the vertices that it waits for.
func (g *waitGraph) link(w *wait) {
	for i, c := range slices.Concat(w.each, w.any) {
		v := g.at(c.Path)
		w.ahead = append(w.ahead, v)
		v.behind = append(v.behind, place{w, i >= len(w.each)})
	}
	w.stuck, w.free = len(w.each), len(w.any) == 0
}

// A group is the callers of a session that do not say what they hold, in the order of the queues.
type group struct {
	all    []*vertex
	firsts map[string]int // by queue, the index of its first caller
	counts map[string]int // by queue
	// before[i] is stuck if one of the first i callers is, after[i] if one of the others is.
	before, after []*vertex
}

func (s *group) add(w *vertex) {
	if s.counts == nil {
		s.firsts, s.counts = make(map[string]int), make(map[string]int)
	}
	if s.counts[w.queue] == 0 {
		s.firsts[w.queue] = len(s.all)
	}
	s.counts[w.queue]++
	s.all = append(s.all, w)
}

// elsewhere makes those the owners of a contender that do not wait for its queue. In the same queue,
// most are other goroutines than the holder.
func (s *group) elsewhere(v *vertex, queue string) {
	n := len(s.all)
	if s.before == nil {
		s.before, s.after = make([]*vertex, n+1), make([]*vertex, n+1)
		s.before[0], s.after[n] = new(vertex), new(vertex)
		for i, w := range s.all {
			s.before[i+1] = new(vertex)
			s.before[i+1].own(s.before[i])
			s.before[i+1].own(w)
		}
		for i := n - 1; i >= 0; i-- {
			s.after[i] = new(vertex)
			s.after[i].own(s.all[i])
			s.after[i].own(s.after[i+1])
		}
	}
	first := s.firsts[queue] // zero if nobody waits there
	v.own(s.before[first])
	v.own(s.after[first+s.counts[queue]])
}

// waitsOf returns for whom each waiter of a queue waits: for those that must go right before it
// can, because they wait for the others themselves.
func waitsOf(q Queue) []*wait {
	waits := make([]*wait, 0, len(q.Waiters))
	var writer, readers []Contender // the last writer ahead, and the readers behind it
	for i, c := range slices.Concat(q.Holders, q.Waiters) {
		_, name := queue.Split(c.Path)
		w := &wait{contender: c}
		switch {
		case q.Kind == KindSemaphore && writer == nil:
			w.any = q.Holders
		case q.Kind == KindSemaphore || isReader(name):
			w.each = writer // readers do not wait for one another
		default:
			w.each = slices.Concat(others(c, name, readers), writer)
		}
		waiter := i >= len(q.Holders)
		if waiter {
			waits = append(waits, w)
		}
		switch {
		case waiter && c.Session == 0: // it has gone: those behind it wait for those ahead of it
		case q.Kind == KindSemaphore && !waiter: // the first waiter waits for any of them
		case isReader(name):
			readers = append(readers, c)
		default:
			writer, readers = []Contender{c}, nil
		}
	}
	return waits
}

// others returns the readers for whom a writer waits: not for its own if it is upgrading.
func others(c Contender, name string, readers []Contender) []Contender {
	if !queue.IsUpgrading(name) {
		return readers
	}
	return slices.DeleteFunc(slices.Clone(readers), func(r Contender) bool { return r.Session == c.Session })
}

// vertices yields all vertices, the callers first and those between them as they are reached.
func (g *waitGraph) vertices() []*vertex {
	seen := make(map[*vertex]bool, 2*len(g.callers))
	var all []*vertex
	add := func(v *vertex) {
		if !seen[v] {
			seen[v], all = true, append(all, v)
		}
	}
	for _, w := range g.callers {
		add(w)
	}
	for i := 0; i < len(all); i++ {
		for _, wait := range all[i].waits {
			for _, v := range wait.ahead {
				add(v)
			}
		}
		for _, v := range all[i].owners {
			add(v)
		}
	}
	return all
}

// settle finds the vertices that can never go on unless somebody gives up. All others can, if those
// that wait for nobody do.
func (g *waitGraph) settle(ctx context.Context) error {
	var free []*vertex // that are found not to be stuck
	release := func(v *vertex) {
		if v.left--; v.left == 0 {
			free = append(free, v)
		}
	}
	for _, v := range g.vertices() {
		v.stuck, v.left = true, 1
		for _, wait := range v.waits {
			if wait.blocks() {
				v.left++
			}
		}
		v.left += len(v.owners)
		release(v)
	}
	for ; len(free) > 0; free = free[1:] {
		if err := ctx.Err(); err != nil {
			return err
		}
		v := free[0]
		v.stuck = false
		for _, p := range v.behind {
			blocked := p.wait.blocks()
			if p.any {
				p.wait.free = true
			} else {
				p.wait.stuck--
			}
			if blocked && !p.wait.blocks() {
				release(p.wait.caller)
			}
		}
		for _, u := range v.above {
			if u.stuck { // else it is not reached from a caller
				release(u)
			}
		}
	}
	return nil
}

// An edge says that a vertex is stuck because of another. From a caller it has a link.
type edge struct {
	link Link
	to   *vertex
}

// edges returns why a vertex is stuck.
func (v *vertex) edges() (out []edge) {
	for _, wait := range v.waits {
		if !wait.blocks() {
			continue
		}
		for i, c := range slices.Concat(wait.each, wait.any) {
			if to := wait.ahead[i]; to.stuck {
				out = append(out, edge{Link{wait.contender, c}, to})
			}
		}
	}
	for _, owner := range v.owners {
		if owner.stuck {
			out = append(out, edge{to: owner})
		}
	}
	return out
}

// A visit is a vertex whose edges are being followed.
type visit struct {
	at    *vertex
	edges []edge // that are left
}

// A search finds the sets of vertices that all wait for one another, by Tarjan's algorithm for
// strongly connected components.
type search struct {
	next   int
	path   []*vertex // whose components are not complete
	visits []visit   // the stack of the search
	cycles []Cycle
}

// cycles returns one cycle of each set of callers that all wait for one another.
func (g *waitGraph) cycles(ctx context.Context) ([]Cycle, error) {
	if err := g.settle(ctx); err != nil {
		return nil, err
	}
	var s search
	for _, w := range g.callers {
		if w.stuck && w.order == 0 {
			s.begin(w)
		}
		for len(s.visits) > 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			s.step()
		}
	}
	return s.cycles, nil
}

func (s *search) begin(v *vertex) {
	s.next++
	v.order, v.low, v.open = s.next, s.next, true
	s.path = append(s.path, v)
	s.visits = append(s.visits, visit{v, v.edges()})
}

// step follows one edge of the newest visit, or ends the visit.
func (s *search) step() {
	top := &s.visits[len(s.visits)-1]
	v := top.at
	if len(top.edges) > 0 {
		to := top.edges[0].to
		top.edges = top.edges[1:]
		if to.order == 0 {
			s.begin(to)
		} else if to.open {
			v.low = min(v.low, to.order)
		}
		return
	}
	s.visits = s.visits[:len(s.visits)-1]
	if len(s.visits) > 0 {
		above := s.visits[len(s.visits)-1].at
		above.low = min(above.low, v.low)
	}
	if v.low == v.order {
		s.complete(v)
	}
}

// complete ends the component whose first vertex is v.
func (s *search) complete(v *vertex) {
	first := len(s.path) - 1
	for s.path[first] != v {
		first--
	}
	component := s.path[first:]
	if i := slices.IndexFunc(component, func(v *vertex) bool { return len(v.waits) > 0 }); i >= 0 {
		if links := shortest(component[i]); links != nil {
			s.cycles = append(s.cycles, Cycle{Links: links, Certain: true})
		}
	}
	for _, member := range component {
		member.open, member.low = false, 0
	}
	s.path = s.path[:first]
}

// shortest returns a shortest cycle through a caller of the component that is complete, or nil if
// there is none. It goes from caller to caller, and through all that is between them at once. No
// edge leads from the component to another open vertex.
func shortest(start *vertex) []Link {
	from := make(map[*vertex]edge) // how each was reached; the edge's to is the caller it came from
	for queued := []*vertex{start}; len(queued) > 0; queued = queued[1:] {
		at := queued[0]
		for _, e := range at.edges() {
			for between := []*vertex{e.to}; len(between) > 0; {
				v := between[len(between)-1]
				between = between[:len(between)-1]
				if v == start {
					links := []Link{e.link}
					for at != start {
						links, at = append(links, from[at].link), from[at].to
					}
					slices.Reverse(links)
					return links
				}
				if _, seen := from[v]; seen || !v.open {
					continue
				}
				from[v] = edge{e.link, at}
				if len(v.waits) > 0 {
					queued = append(queued, v)
					continue
				}
				for _, owner := range slices.Backward(v.owners) {
					if owner.stuck {
						between = append(between, owner)
					}
				}
			}
		}
	}
	return nil
}
