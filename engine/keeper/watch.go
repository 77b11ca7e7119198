package keeper

import (
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A Watch is a stream of events that ends with its session.
type Watch struct {
	session *Session
	stream  Stream

	next, prev *Watch // in the session's watches; guarded by the keeper's mu
}

// A Stream is a watch on one shard or on several.
type Stream interface {
	Events() <-chan watch.Event
	Zxid() tree.Zxid
	Err() error
	Ended() bool
	End(error)
}

// AddWatch takes charge of a watch, which ends with the session, or returns why that has ended; then the watch has ended too. Watches that have ended by themselves are forgotten
// and returned when there may be as many of them as live ones: nobody has to close a watch that has fired.
func (s *Session) AddWatch(st Stream) (*Watch, error) {
	w := &Watch{session: s, stream: st}
	over, err := s.note(w)
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

// note returns the watches that were forgotten for w, or why the session has ended.
func (s *Session) note(w *Watch) (over []*Watch, err error) {
	k := s.keeper
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
	k := w.session.keeper
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
