package watch

import (
	"math"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/tree"
)

// A Registry holds the watches of one shard on one node. It is safe for concurrent use; only the
// one goroutine that applies calls Deliver and Install.
type Registry struct {
	mu rank.Mutex[rank.Registry] // guards everything below and the fields that Stream names

	// zxid is the newest transaction matched. Readers see it whenever mu is free.
	zxid tree.Zxid
	// exact and recursive hold a list of streams for each watched path.
	exact     lists
	recursive lists
	depths    depths // of the paths in recursive
	// n is the number of live streams, and peak the largest n since the lists were made.
	n, peak int
	counts  Figures // of streams, without their number
	// clients holds the watches of remote clients, which are not streams.
	clients tables
	// closed is the reason why no watch can be added. It counts once isClosed is set.
	closed   error
	isClosed bool
	// publisher has the values of the transaction that is being delivered; else nil.
	publisher Publisher
	reaching  reaching
}

// peakKept is the most watches that the lists may once have held and still be kept when the last
// watch ends. A map never gives back its room, so larger lists are made anew.
const peakKept = 1024

// NewRegistry returns a registry that has no watches and has matched no transaction.
func NewRegistry() *Registry {
	r := &Registry{exact: make(lists), recursive: make(lists)}
	r.mu.Ordered()
	return r
}

// A Watcher is the receiver of the events of one or more watches. A nil Watcher, or the zero value,
// may read everything.
type Watcher struct {
	// MayRead reports whether the watcher may read a znode with an ACL, and so get events about it.
	// A nil MayRead allows all.
	MayRead func([]tree.ACL) bool
	// Root is the path that the watcher knows as "/". It is cut off the paths of events. Empty or
	// "/" means the root. The watched path is at Root or below it.
	Root string
}

func (w *Watcher) mayRead(acl []tree.ACL) bool { return w == nil || w.MayRead == nil || w.MayRead(acl) }

// Add registers a watch on a canonical path. The watch is armed at the newest transaction matched,
// which readers see by the time Add returns. After the registry's Close, the returned stream has
// already ended.
func (r *Registry) Add(path string, mode Mode, o Options, who *Watcher) *Stream {
	s := &Stream{registry: r, path: path, mode: mode, who: who}
	if o.Values {
		s.state.Or(values)
	}
	if mode != Once && o.Buffer > 0 { // no other call knows it
		s.openLocked(o.Buffer)
	}
	r.add(s)
	return s
}

// add arms a stream.
func (r *Registry) add(s *Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.zxid = r.zxid
	if r.isClosed {
		s.finishLocked(r.closed)
		return
	}
	r.addLocked(s)
}

// A Publisher makes a transaction visible to readers. The registry calls its methods under the
// registry's lock; they must not call the registry.
type Publisher interface {
	// Announce comes before the first event. From its return until Publish, readers must wait if
	// they would see the state before the transaction.
	Announce()
	// Publish makes the transaction visible.
	Publish()
	// Newest returns a znode as the transaction leaves it, or false if it does not exist.
	Newest(path string) (tree.Found, bool)
}

// Deliver matches the changes of transaction z, queues events into the streams, and publishes the
// transaction (unless p is nil). So its events are there before a read shows the change, and
// whoever has received one of them reads the change. Transactions come in order. After a load, a
// Deliver without changes tells the registry which transaction the tree shows.
//
// A SetACL has no event. But a watcher that may not read a znode is not told of its changes. So a
// SetACL that takes from a watcher the permission to read a znode that its watch sees ends the watch:
// a Once watch with tree.ErrNoAuth, any other with a *GapError. One that gives the permission ends
// the latter too, since the watcher has not seen what the znode became meanwhile. A znode that is
// created where its watcher may not read it ends the watches of that path alike, and none from above.
// The watcher looks again, and reads what it may read now. That tells it nothing that reads would not.
func (r *Registry) Deliver(z tree.Zxid, changes []tree.Change, p Publisher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.reaching.tellUpTo(z) }()
	if p != nil {
		defer p.Publish() // even if a panic is about to fail the node: nobody may wait for ever
		r.publisher = p
		if r.n > 0 || r.clients.n > 0 {
			p.Announce()
		}
	}
	if r.n > 0 {
		for _, c := range changes {
			r.matchLocked(z, c)
		}
	}
	if r.clients.n > 0 {
		for _, c := range changes {
			r.clients.match(z, c)
		}
	}
	r.zxid, r.publisher = z, nil
}

// Install carries the watches over when the whole tree is replaced by one as of transaction z.
// touched reports whether anything that a watch sees may have changed in between. If so, it names
// the event that the watcher would notice first, and the ACL of the event's znode. The event is zero
// if only who may read the znode may have changed.
//
// An untouched watch goes on. A touched Once watch gets that event, if there is one and the watcher
// may read the znode, and ends. Without an event it ends only if the watcher may not. Any other
// touched watch ends with a *GapError. A Client ends likewise when one of its Persistent or Recursive
// watches is touched; its Data and Children watches are treated as Once watches. p (unless nil)
// publishes the new tree, as in Deliver.
//
// touched runs under the registry's lock and must not call the registry. Install calls it in no
// particular order.
func (r *Registry) Install(z tree.Zxid, touched func(path string, mode Mode) (EventType, []tree.ACL, bool), p Publisher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.reaching.tellUpTo(z)
	if p != nil {
		defer p.Publish()
		p.Announce()
	}
	gap := &GapError{Zxid: z}
	r.eachLocked(func(s *Stream) {
		t, acl, yes := touched(s.path, s.mode)
		switch {
		case !yes:
		case s.mode != Once:
			r.endLocked(s, gap)
		case t == 0 && s.who.mayRead(acl):
		default:
			r.tellLocked(s, Event{Type: t, Path: s.path, Zxid: z}, s.who.mayRead(acl))
		}
	})
	r.clients.install(z, touched)
	r.zxid = z
}

// Wait waits until the registry's lock is free. Then the transaction is published that it delivered
// or installed when Wait was called.
func (r *Registry) Wait() {
	r.mu.Lock()
	defer r.mu.Unlock()
}

// EndAll ends all streams, and all Clients that have watches, with an error. New watches may be
// added afterwards.
func (r *Registry) EndAll(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endAllLocked(err)
}

// Close ends all streams, and all Clients that have watches, with an error. A stream that is added
// later ends at once with the same error, and so does a Client that arms a watch. Only the first
// call has an effect.
func (r *Registry) Close(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return
	}
	r.closed, r.isClosed = err, true
	r.reaching.tellUpTo(math.MaxUint64)
	r.endAllLocked(err)
}

func (r *Registry) endAllLocked(err error) {
	r.eachLocked(func(s *Stream) { r.endLocked(s, err) })
	r.clients.each(func(_ table, m *mark) { m.part.client.end(err) })
}

// Len returns the number of live streams.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *Registry) matchLocked(z tree.Zxid, c tree.Change) {
	if c.Type == tree.ACLChanged {
		r.turnLocked(z, c)
		return
	}
	e := eventOf(z, c)
	r.tellListLocked(r.exact[c.Path], e, c.ACL)
	if c.Type != tree.DataChanged && c.Path != "/" {
		parent := tree.Parent(c.Path)
		r.tellListLocked(r.exact[parent], Event{Type: NodeChildrenChanged, Path: parent, Zxid: z}, c.ParentACL)
	}
	for path := range r.depths.upTo(c.Path) {
		r.tellListLocked(r.recursive[path], e, c.ACL)
	}
}

// tellListLocked queues an event about a znode with an ACL for each stream of a list. A watcher
// that may not read the znode gets no event. As in ZooKeeper this uses up a Once watch, but here
// the watch ends with an error.
func (r *Registry) tellListLocked(s *Stream, e Event, acl []tree.ACL) {
	if s == nil {
		return
	}
	who, may := s.who, s.who.mayRead(acl)
	for s != nil {
		next := s.next    // telling may end s and unlink it
		if s.who != who { // ask once for a row of watches that share a watcher
			who, may = s.who, s.who.mayRead(acl)
		}
		r.tellLocked(s, e, may)
		s = next
	}
}

// turnLocked ends the watches whose watchers a SetACL gives or takes the permission to read the
// znode.
func (r *Registry) turnLocked(z tree.Zxid, c tree.Change) {
	r.turnListLocked(z, c, r.exact[c.Path])
	for path := range r.depths.upTo(c.Path) {
		r.turnListLocked(z, c, r.recursive[path])
	}
}

func (r *Registry) turnListLocked(z tree.Zxid, c tree.Change, s *Stream) {
	var who *Watcher
	var lost, gained bool
	for first := true; s != nil; first = false {
		next := s.next             // ending s unlinks it
		if first || s.who != who { // ask once for a row of watches that share a watcher
			who = s.who
			lost, gained = turns(c, who.mayRead)
		}
		switch {
		case lost && s.mode == Once:
			r.endLocked(s, tree.ErrNoAuth)
		case (lost || gained) && s.mode != Once:
			r.endLocked(s, &GapError{Zxid: z})
		}
		s = next
	}
}

// turns reports whether a SetACL takes or gives the permission to read.
func turns(c tree.Change, mayRead func([]tree.ACL) bool) (lost, gained bool) {
	was, may := mayRead(c.FormerACL), mayRead(c.ACL)
	return was && !may, may && !was
}

// valuedLocked returns the event with the znode as the transaction leaves it, if the watcher may
// read that. A later operation of the same transaction may have hidden the znode, or created a
// hidden one in its place. No shard knows all children of the root.
func (r *Registry) valuedLocked(e Event, mayRead func([]tree.ACL) bool) Event {
	if e.Type == NodeDeleted || e.Type == NodeChildrenChanged && e.Path == "/" || r.publisher == nil {
		return e
	}
	if f, ok := r.publisher.Newest(e.Path); ok && mayRead(f.ACL()) {
		e.found = f
	}
	return e
}

func (r *Registry) tellLocked(s *Stream, e Event, may bool) {
	if s.state.Load()&values != 0 {
		e = r.valuedLocked(e, s.who.mayRead)
	}
	switch {
	case !may && s.mode == Once:
		r.endLocked(s, tree.ErrNoAuth)
	case !may && e.hides(s.path):
		r.endLocked(s, &GapError{Zxid: e.Zxid})
	case !may:
	case !s.tellLocked(e):
		r.endLocked(s, ErrOverflow)
	default:
		r.counts.Events++
		if s.mode == Once {
			r.endLocked(s, nil)
		}
	}
}

func (r *Registry) addLocked(s *Stream) {
	r.n++
	r.peak = max(r.peak, r.n)
	if s.mode != Recursive {
		r.exact.push(s)
		return
	}
	if r.recursive.push(s) {
		r.depths.add(s.path)
	}
}

func (r *Registry) endLocked(s *Stream, err error) {
	if s.Ended() {
		return
	}
	r.n--
	if s.mode != Recursive {
		r.exact.remove(s)
	} else if r.recursive.remove(s) {
		r.depths.remove(s.path)
	}
	if r.n == 0 && r.peak > peakKept {
		r.exact, r.recursive, r.peak = make(lists), make(lists), 0
	}
	r.noteEndLocked(err)
	s.finishLocked(err)
}

// eachLocked calls fn for every stream. fn may end the stream.
func (r *Registry) eachLocked(fn func(*Stream)) {
	for _, l := range []lists{r.exact, r.recursive} {
		for _, s := range l {
			for s != nil {
				next := s.next
				fn(s)
				s = next
			}
		}
	}
}
