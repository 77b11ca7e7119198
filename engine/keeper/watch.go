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

// AddWatch returns a watch that ends with the session. If the session has ended, AddWatch ends the
// stream and returns why. Nobody has to close a watch that has fired: when there may be as many
// ended watches as live ones, the session forgets the ended ones.
func (s *Session) AddWatch(st Stream) (*Watch, error) {
	w := &Watch{session: s, stream: st}
	ended, err := s.note(w)
	if err != nil {
		ended = append(ended, w)
	}
	for _, w := range ended {
		w.stream.End(nil) // on all its shards
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// note adds w to the session's watches. It returns the ended watches that it removed, or why the
// session has ended.
func (s *Session) note(w *Watch) (ended []*Watch, err error) {
	k := s.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.end != nil {
		return nil, s.end
	}
	if s.watches.n >= s.watches.sweepAt {
		ended = s.watches.sweep()
	}
	s.watches.add(w)
	return ended, nil
}

// Events returns the stream of events. It is closed when the watch ends, and then Err is set.
func (w *Watch) Events() <-chan watch.Event { return w.stream.Events() }

// Zxid returns where the watch was armed: every later change is delivered. It is zero for a watch
// on several shards.
func (w *Watch) Zxid() tree.Zxid { return w.stream.Zxid() }

// Err returns why the watch ended. It is nil while the watch lives, after Close, and after a
// once-watch has fired.
func (w *Watch) Err() error { return w.stream.Err() }

// Close ends the watch.
func (w *Watch) Close() {
	w.stream.End(nil)
	k := w.session.keeper
	k.mu.Lock()
	w.session.watches.remove(w)
	k.mu.Unlock()
}

// watches are the watches of a session, linked through next and prev: a map took 40 bytes more for
// each. They are guarded by the keeper's mu.
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

// remove does nothing if the watch was removed before.
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

// sweep removes and returns the watches that have ended.
func (l *watches) sweep() (ended []*Watch) {
	for w := l.first; w != nil; {
		next := w.next
		if w.stream.Ended() {
			l.remove(w)
			ended = append(ended, w)
		}
		w = next
	}
	l.sweepAt = max(2*l.n, 64)
	return ended
}

// endAll ends all watches with an error and removes them. It unlinks each, so that none keeps the
// others from being collected.
func (l *watches) endAll(why error) {
	for w := l.first; w != nil; {
		next := w.next
		w.next, w.prev = nil, nil
		w.stream.End(why)
		w = next
	}
	*l = watches{}
}
