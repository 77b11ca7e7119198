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
// A watch at rest is small because it has no channel, and one that is told something has none until
// somebody asks for it: a channel takes all its room at once, 2 KiB. With 100,000 watches of one znode the first
// change took 1.2 s while it made them; now the events wait in slices, and who asks for a channel has it made.
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
	who      *Watcher
	mode     Mode

	// Guarded by the registry's lock, except that events does not change once state says opened, nor extra and its err once
	// it says failed.
	state  atomic.Uint32
	events chan Event
	extra  *extra  // nil is none of it
	next   *Stream // in the list of the path
	prev   *Stream
}

// extra is what few streams have, and those not for long.
type extra struct {
	early []Event // before there is a channel
	joint *Joint  // that the stream is a part of, and that has the events then
	err   error
}

// The bits of Stream.state. They are set under the registry's lock and never cleared.
const (
	opened uint32 = 1 << iota // the channel is there
	ended                     // the stream has ended
	failed                    // it has ended with an error
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
	if s.state.Load()&failed == 0 {
		return nil
	}
	return s.extra.err
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

// ensureExtraLocked returns the stream's extra, which there is from now on.
func (s *Stream) ensureExtraLocked() *extra {
	if s.extra == nil {
		s.extra = new(extra)
	}
	return s.extra
}

// openLocked makes the channel if there is none yet, with the events that wait.
func (s *Stream) openLocked(buffer int) {
	if s.events != nil {
		return
	}
	s.events = make(chan Event, buffer)
	if x := s.extra; x != nil {
		for _, e := range x.early {
			s.events <- e // has room: there are no more of them than buffer
		}
		x.early = nil
	}
	if s.Ended() {
		close(s.events)
	}
	s.state.Or(opened)
}

// tellLocked adds an event and reports whether it fitted. It is called while the stream is live.
func (s *Stream) tellLocked(e Event) bool {
	if s.who != nil {
		e.Path = below(s.who.Root, e.Path)
	}
	if s.events == nil {
		return s.tellEarlyLocked(e)
	}
	select {
	case s.events <- e:
		return true
	default:
		return false
	}
}

// tellEarlyLocked is tellLocked without a channel.
func (s *Stream) tellEarlyLocked(e Event) bool {
	x := s.ensureExtraLocked()
	switch {
	case x.joint != nil:
		return x.joint.offer(e)
	case len(x.early) == s.buffer():
		return false
	}
	x.early = append(x.early, e)
	return true
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
	bits := ended
	if err != nil {
		s.ensureExtraLocked().err = err
		bits |= failed
	}
	s.state.Or(bits)
	if s.events != nil {
		close(s.events)
	}
	if s.extra != nil && s.extra.joint != nil {
		s.extra.joint.finish(err)
	}
}
