package lock

import (
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
// before you act.
//
// Who waits for a semaphore is blocked only if all who have permits are. So Cycles may miss a
// deadlock there, when several permits are wanted at once. A candidate of an election waits for the
// leader, but it has no session's locks by waiting: it takes part only by what it holds.
func Cycles(queues []Queue) []Cycle {
	certain := newWaitGraph(queues, false).cycles()
	known := make(map[string]bool)
	for _, c := range certain {
		for _, l := range c.Links {
			known[l.Waits.Path] = true
		}
	}
	all := certain
	for _, c := range newWaitGraph(queues, true).cycles() {
		if !slices.ContainsFunc(c.Links, func(l Link) bool { return known[l.Waits.Path] }) {
			c.Certain = false
			all = append(all, c)
		}
	}
	return all
}

// A waitGraph says who waits for whom. Its vertices are callers that wait.
type waitGraph struct {
	callers []*waiting
	owners  map[string][]*waiting // by the path of a contender: who may have to go on before it can go
}

// A waiting is one call of a lock that waits: one contender, or several of a Multi.
type waiting struct {
	waits []wait
	queue string // the path of the first
	stuck bool

	// For the search of cycles.
	order, low int
	open       bool
}

// A wait is a place in a queue. All of each must go, and one of any, if there are any.
type wait struct {
	contender Contender
	each, any []Contender
}

// A waitingKey names a waiting: the contenders that one transaction of a session created.
type waitingKey struct {
	session embed.SessionID
	born    birth
}

// newWaitGraph returns the graph of queues. With guess, a contender of which no caller says that it
// holds it may belong to any caller of its session that does not say what it holds.
func newWaitGraph(queues []Queue, guess bool) *waitGraph {
	g := &waitGraph{owners: make(map[string][]*waiting)}
	byKey, silent := make(map[waitingKey]*waiting), make(map[embed.SessionID][]*waiting)
	for _, q := range queues {
		for _, wait := range waitsOf(q) {
			c := wait.contender
			if c.Session == 0 {
				continue // nobody waits any more
			}
			key := waitingKey{c.Session, c.born}
			if byKey[key] == nil {
				byKey[key] = &waiting{queue: q.Path, stuck: true}
				g.callers = append(g.callers, byKey[key])
				if len(c.Holding) == 0 && q.Kind != KindElection {
					silent[c.Session] = append(silent[c.Session], byKey[key])
				}
			}
			w := byKey[key]
			w.waits = append(w.waits, wait)
			for _, path := range c.Holding {
				g.own(path, w)
			}
		}
	}
	for _, q := range queues {
		for _, c := range slices.Concat(q.Holders, q.Waiters) {
			if w := byKey[waitingKey{c.Session, c.born}]; w != nil && c.Session != 0 {
				g.own(c.Path, w) // it waits there, or elsewhere as a Multi
			}
		}
		for _, c := range q.Holders {
			if guess && len(g.owners[c.Path]) == 0 && c.Session != 0 {
				g.owners[c.Path] = elsewhere(silent[c.Session], q.Path)
			}
		}
	}
	return g
}

// elsewhere returns those that do not wait for a queue. In the same queue, most are other
// goroutines than the holder.
func elsewhere(list []*waiting, path string) (others []*waiting) {
	for _, w := range list {
		if w.queue != path {
			others = append(others, w)
		}
	}
	return others
}

func (g *waitGraph) own(path string, w *waiting) {
	if !slices.Contains(g.owners[path], w) {
		g.owners[path] = append(g.owners[path], w)
	}
}

// waitsOf returns for whom each waiter of a queue waits: for those that must go right before it
// can, because they wait for the others themselves.
func waitsOf(q Queue) []wait {
	waits := make([]wait, 0, len(q.Waiters))
	var writer, readers []Contender // the last writer ahead, and the readers behind it
	for i, c := range slices.Concat(q.Holders, q.Waiters) {
		_, name := queue.Split(c.Path)
		w := wait{contender: c}
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

// settle finds the callers that can never go on unless somebody gives up. All others can, if those
// that wait for nobody do.
func (g *waitGraph) settle() {
	for changed := true; changed; {
		changed = false
		for _, w := range g.callers {
			if w.stuck && !slices.ContainsFunc(w.waits, g.blocks) {
				w.stuck, changed = false, true
			}
		}
	}
}

// blocks reports whether a wait never ends.
func (g *waitGraph) blocks(w wait) bool {
	for _, c := range w.each {
		if g.blocker(c) != nil {
			return true
		}
	}
	return len(w.any) > 0 && !slices.ContainsFunc(w.any, func(c Contender) bool { return g.blocker(c) == nil })
}

// blocker returns a stuck caller that a contender belongs to, or nil.
func (g *waitGraph) blocker(c Contender) *waiting {
	for _, w := range g.owners[c.Path] {
		if w.stuck {
			return w
		}
	}
	return nil
}

// An edge says that a caller is stuck because of another.
type edge struct {
	link Link
	to   *waiting
}

// edges returns why a caller is stuck.
func (g *waitGraph) edges(w *waiting) (out []edge) {
	for _, wait := range w.waits {
		if !g.blocks(wait) {
			continue
		}
		for _, c := range slices.Concat(wait.each, wait.any) {
			for _, owner := range g.owners[c.Path] {
				if owner.stuck {
					out = append(out, edge{Link{wait.contender, c}, owner})
				}
			}
		}
	}
	return out
}

// cycles returns one cycle of each set of callers that all wait for one another, by Tarjan's
// algorithm for strongly connected components.
func (g *waitGraph) cycles() (all []Cycle) {
	g.settle()
	var path []*waiting // whose components are not complete
	next := 0
	var visit func(w *waiting)
	visit = func(w *waiting) {
		next++
		w.order, w.low, w.open = next, next, true
		path = append(path, w)
		for _, e := range g.edges(w) {
			if e.to.order == 0 {
				visit(e.to)
				w.low = min(w.low, e.to.low)
			} else if e.to.open {
				w.low = min(w.low, e.to.order)
			}
		}
		if w.low != w.order {
			return
		}
		first := slices.Index(path, w)
		component := path[first:]
		if links := g.shortest(component); links != nil {
			all = append(all, Cycle{Links: links, Certain: true})
		}
		for _, member := range component {
			member.open = false
		}
		path = path[:first]
	}
	for _, w := range g.callers {
		if w.stuck && w.order == 0 {
			visit(w)
		}
	}
	return all
}

// shortest returns a shortest cycle through the first caller of a component, or nil if the
// component has none.
func (g *waitGraph) shortest(component []*waiting) []Link {
	start := component[0]
	from := map[*waiting]edge{} // how each was reached; the edge's to is where it came from
	for queued := []*waiting{start}; len(queued) > 0; queued = queued[1:] {
		at := queued[0]
		for _, e := range g.edges(at) {
			if e.to == start {
				links := []Link{e.link}
				for at != start {
					links, at = append(links, from[at].link), from[at].to
				}
				slices.Reverse(links)
				return links
			}
			if _, seen := from[e.to]; !seen && e.to.open { // open: of the component
				from[e.to] = edge{e.link, at}
				queued = append(queued, e.to)
			}
		}
	}
	return nil
}
