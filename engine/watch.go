package engine

import (
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A Watch is a stream of events that ends with its session.
type Watch struct {
	session *Session
	stream  stream

	next, prev *Watch // in the session's watches; guarded by the keeper's mu
}

// A stream is a watch on one shard or on several.
type stream interface {
	Events() <-chan watch.Event
	Zxid() tree.Zxid
	Err() error
	Ended() bool
	End(error)
}

// Watch arms a watch, which ends with the session. Its events have paths below root.
func (s *Session) Watch(path string, mode watch.Mode, root string) (*Watch, error) {
	if err := s.live(); err != nil {
		return nil, err
	}
	// Not with the keeper's mu: a shard that just tells its watches, or whose watches look at a snapshot, is waited for.
	w := &Watch{session: s, stream: s.engine.watch(path, mode, s.watcherBelow(root))}
	over, err := s.keep(w)
	if err != nil {
		over = append(over, w)
	}
	for _, w := range over {
		w.stream.End(nil) // on all its shards
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// watcherBelow is who is told by the session's watches with a root. They share one, and mostly have the same root.
func (s *Session) watcherBelow(root string) *watch.Watcher {
	who := s.watcher.Load()
	if who == nil || who.Root != root {
		who = &watch.Watcher{MayRead: s.mayRead, Root: root}
		s.watcher.Store(who)
	}
	return who
}

// keep notes a watch, which ends with the session, or says that it has ended. Watches that have ended by themselves are forgotten
// and returned when there may be as many of them as live ones: nobody has to close a watch that has fired.
func (s *Session) keep(w *Watch) (over []*Watch, err error) {
	k := s.engine.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.end != nil {
		return nil, s.end
	}
	if s.watches.n >= s.watches.sweepAt {
		over = s.watches.sweep()
	}
	s.watches.add(w)
	return over, nil
}

// Events is the stream; it is closed at the watch's end, and then Err is set.
func (w *Watch) Events() <-chan watch.Event { return w.stream.Events() }

// Zxid is where the watch was armed: every later change is delivered. Zero if it is on several shards.
func (w *Watch) Zxid() tree.Zxid { return w.stream.Zxid() }

// Err says why the watch ended; nil while it has not, after Close and after a once-watch fired.
func (w *Watch) Err() error { return w.stream.Err() }

// Close ends the watch.
func (w *Watch) Close() {
	w.stream.End(nil)
	k := w.session.engine.keeper
	k.mu.Lock()
	w.session.watches.remove(w)
	k.mu.Unlock()
}

// watches are those of a session, linked through next and prev: a map of them took 40 bytes more for each. They are guarded by
// the keeper's mu.
type watches struct {
	first   *Watch
	n       int
	sweepAt int // number of watches at which ended ones are forgotten
}

func (l *watches) add(w *Watch) {
	if w.next = l.first; w.next != nil {
		w.next.prev = w
	}
	l.first = w
	l.n++
}

// remove does nothing to a watch that was removed before.
func (l *watches) remove(w *Watch) {
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case l.first == w:
		l.first = w.next
	default:
		return
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
	l.n--
}

// sweep removes those that have ended.
func (l *watches) sweep() (over []*Watch) {
	for w := l.first; w != nil; {
		next := w.next
		if w.stream.Ended() {
			l.remove(w)
			over = append(over, w)
		}
		w = next
	}
	l.sweepAt = max(2*l.n, 64)
	return over
}

// endAll ends all of them with an error, and removes them: none keeps the others from being collected.
func (l *watches) endAll(why error) {
	for w := l.first; w != nil; {
		next := w.next
		w.next, w.prev = nil, nil
		w.stream.End(why)
		w = next
	}
	*l = watches{}
}
