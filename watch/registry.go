package watch

import (
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/tree"
)

// A Registry holds the watches of one shard on one node. Safe for concurrent use; Deliver and Install
// are called by the one goroutine that applies.
type Registry struct {
	mu rank.Mutex[rank.Registry] // guards everything below and what Stream says

	// zxid is the newest transaction matched. It is visible to readers whenever mu is free.
	zxid tree.Zxid
	// exact and recursive hold a list of streams for each watched path.
	exact     lists
	recursive lists
	depths    depths // of recursive
	// n counts the live streams, and peak the most there were since the lists were made.
	n, peak int
	// clients are the watches that are no streams.
	clients tables
	// closed is why no watch can be added any more, once isClosed is set.
	closed   error
	isClosed bool
}

// peakKept is how many watches the lists may once have held and still be kept when the last watch ends.
// A map never gives back the room of what it held, so larger ones are made anew.
const peakKept = 1024

// NewRegistry returns a registry without watches that has matched nothing.
func NewRegistry() *Registry {
	r := &Registry{exact: make(lists), recursive: make(lists)}
	r.mu.Ordered()
	return r
}

// A Watcher is who is told; the watches of one share it. Nil, and the zero value, is somebody who may know everything.
type Watcher struct {
	// MayRead says whether the watcher may read a znode with an ACL, and so be told of it; nil means all.
	MayRead func([]tree.ACL) bool
	// Root is what the watcher knows as "/": it is taken off the paths of events. Empty or "/" means the root. The path
	// watched is at or below it.
	Root string
}

func (w *Watcher) mayRead(acl []tree.ACL) bool { return w == nil || w.MayRead == nil || w.MayRead(acl) }

// Add registers a watch on a canonical path. It is armed at the newest transaction matched, which
// readers see by the time Add returns. buffer is the number of events that may wait to be received;
// zero and less mean 64. A Once watch needs one and has one. After the registry's Close the stream
// returned has ended.
func (r *Registry) Add(path string, mode Mode, buffer int, who *Watcher) *Stream {
	s := &Stream{registry: r, path: path, mode: mode, who: who}
	if mode != Once && buffer > 0 { // only this call knows it
		s.openLocked(buffer)
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

// Deliver matches the changes of transaction z, queues events into the streams, and then calls publish
// (unless nil), which makes the transaction visible to readers. Transactions come in order. publish runs
// under the registry's lock and must not call the registry. After a load, a Deliver without changes
// tells the registry where the tree stands.
func (r *Registry) Deliver(z tree.Zxid, changes []tree.Change, publish func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	r.zxid = z
	if publish != nil {
		publish()
	}
}

// Install carries the watches over the replacement of the whole tree by one as of transaction z. touched
// says whether anything a watch sees may have changed in between, and by which event of a znode with which
// ACL its watcher would notice first. An untouched watch goes on; a touched Once watch gets that event, if
// the watcher may read the znode, and ends; any other touched watch ends with a *GapError. So does the Client
// of a touched Persistent or Recursive watch, and its Data and Children watches are as Once ones. Then publish
// (unless nil) makes the new tree visible.
//
// Both functions run under the registry's lock and must not call the registry. touched is asked in no
// particular order.
func (r *Registry) Install(z tree.Zxid, touched func(path string, mode Mode) (EventType, []tree.ACL, bool), publish func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gap := &GapError{Zxid: z}
	r.eachLocked(func(s *Stream) {
		t, acl, yes := touched(s.path, s.mode)
		switch {
		case !yes:
		case s.mode != Once:
			r.endLocked(s, gap)
		default:
			r.tellLocked(s, Event{Type: t, Path: s.path, Zxid: z}, s.who.mayRead(acl))
		}
	})
	r.clients.install(z, touched)
	r.zxid = z
	if publish != nil {
		publish()
	}
}

// EndAll ends all watches with an error, and the Clients that have some. Others may be added afterwards.
func (r *Registry) EndAll(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endAllLocked(err)
}

// Close ends all watches with an error, and the Clients that have some, and so every watch or Client with one that is
// added afterwards. Only the first call has an effect.
func (r *Registry) Close(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed {
		return
	}
	r.closed, r.isClosed = err, true
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

// tellListLocked queues an event about a znode with an ACL. A watcher that may not read the znode is not told; as in
// ZooKeeper that uses a Once watch up, but here it ends with an error.
func (r *Registry) tellListLocked(s *Stream, e Event, acl []tree.ACL) {
	if s == nil {
		return
	}
	who, may := s.who, s.who.mayRead(acl)
	for s != nil {
		next := s.next    // telling may end s and unlink it
		if s.who != who { // asked once for all watches in a row that one watcher armed
			who, may = s.who, s.who.mayRead(acl)
		}
		r.tellLocked(s, e, may)
		s = next
	}
}

func (r *Registry) tellLocked(s *Stream, e Event, may bool) {
	switch {
	case !may && s.mode == Once:
		r.endLocked(s, tree.ErrNoAuth)
	case !may:
	case !s.tellLocked(e):
		r.endLocked(s, ErrOverflow)
	case s.mode == Once:
		r.endLocked(s, nil)
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
	s.finishLocked(err)
}

// eachLocked calls fn for every stream; fn may end it.
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
