package watch

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/tree"
)

// bufferDefault bounds the memory one slow watcher can hold: 64 events are 2 KiB. A watcher that lags
// by more is told so (ErrOverflow); a larger buffer only postpones the same answer.
const bufferDefault = 64

// A Stream is one watch and the queue of its events.
//
// A watch at rest is small because it has no channel until somebody asks for it or an event comes,
// whichever is first.
//
// Invariants:
//  1. events are in zxid order, those of one transaction in the order of its changes, all later than zxid;
//  2. a live stream is in the registry's list of its path and mode, an ended one in none;
//  3. an ended stream gets no event, and its error does not change.
type Stream struct {
	// Immutable after Add.
	registry *Registry
	path     string
	zxid     tree.Zxid
	mode     Mode
	who      Watcher
	joint    *Joint // that the stream is a part of, or nil

	// Guarded by the registry's lock, except that events does not change once state says opened, and
	// err not once it says ended.
	state  atomic.Uint32
	events chan Event
	err    error
	next   *Stream // in the list of the path
	prev   *Stream
}

// The bits of Stream.state. They are set under the registry's lock and never cleared.
const (
	opened uint32 = 1 << iota // the channel is there
	ended                     // the stream has ended
)

// Events returns the channel of the events, always the same one. It is closed when the stream ends;
// what was queued before stays readable.
func (s *Stream) Events() <-chan Event {
	if s.state.Load()&opened == 0 {
		s.registry.mu.Lock()
		s.openLocked(s.buffer())
		s.registry.mu.Unlock()
	}
	return s.events
}

// Zxid returns the transaction the watch was armed at: every later change it matches is delivered, and
// reads made after Add returned show this one at least.
func (s *Stream) Zxid() tree.Zxid { return s.zxid }

// Err says why the stream ended, and is set before Events is closed. It is nil while the stream is live,
// after Close, and after the event of a Once watch.
func (s *Stream) Err() error {
	if !s.Ended() {
		return nil
	}
	return s.err
}

// Ended reports whether the stream has ended, for whatever reason.
func (s *Stream) Ended() bool { return s.state.Load()&ended != 0 }

// Close ends the stream without an error. It does nothing to a stream that has ended.
func (s *Stream) Close() { s.End(nil) }

// End ends the stream with an error. It does nothing to a stream that has ended.
func (s *Stream) End(err error) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.registry.endLocked(s, err)
}

// buffer is the number of events that may wait, where Add was not asked for another.
func (s *Stream) buffer() int {
	if s.mode == Once {
		return 1
	}
	return bufferDefault
}

// openLocked makes the channel if there is none yet.
func (s *Stream) openLocked(buffer int) {
	if s.events != nil {
		return
	}
	s.events = make(chan Event, buffer)
	if s.Ended() {
		close(s.events)
	}
	s.state.Or(opened)
}

// queueLocked adds an event and reports whether it fitted. It is called while the stream is live.
func (s *Stream) queueLocked(e Event) bool {
	e.Path = below(s.who.Root, e.Path)
	if s.joint != nil {
		return s.joint.offer(e)
	}
	s.openLocked(s.buffer())
	select {
	case s.events <- e:
		return true
	default:
		return false
	}
}

// below is a path as somebody sees it whose root is another one.
func below(root, path string) string {
	if root == "" || root == "/" {
		return path
	}
	if path == root {
		return "/"
	}
	return path[len(root):]
}

// finishLocked marks a live stream that is in no list as ended.
func (s *Stream) finishLocked(err error) {
	s.err = err
	s.state.Or(ended)
	if s.events != nil {
		close(s.events)
	}
	if s.joint != nil {
		s.joint.finish(err)
	}
}
