package watch

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/tree"
)

// bufferDefault bounds the memory that one slow watcher can hold: 64 events are 2 KiB. A watcher
// that lags further gets ErrOverflow. A larger buffer would only postpone the same answer.
const bufferDefault = 64

// A Stream is one watch and the queue of its events.
//
// A watch at rest is small because it has no channel. A channel takes all its room at once, 2 KiB.
// With 100,000 watches of one znode, the first change took 1.2 s while it made their channels. So
// events wait in a slice until the watcher first calls Events, which makes the channel.
//
// Invariants:
//  1. events are in zxid order, those of one transaction in the order of its changes, and all are
//     later than zxid;
//  2. a live stream is in the registry's list of its path and mode; an ended one is in no list;
//  3. an ended stream gets no event, and its error does not change.
type Stream struct {
	// Immutable after Add.
	registry *Registry
	path     string
	zxid     tree.Zxid
	who      *Watcher
	mode     Mode

	// Guarded by the registry's lock, with two exceptions: events no longer changes once state has
	// the opened bit, nor do extra and its err once state has the failed bit.
	state  atomic.Uint32
	events chan Event
	extra  *extra  // nil for most streams
	next   *Stream // in the list of the path
	prev   *Stream
}

// extra holds what few streams have, and only for a short time.
type extra struct {
	early   []Event  // the events, before there is a channel
	joint   *Joint   // the watch that the stream is a part of; it then has the events
	backlog *Backlog // of the channel; nil if its events are few and small
	err     error
}

// The bits of Stream.state. They are set under the registry's lock and never cleared.
const (
	opened uint32 = 1 << iota // the channel exists
	ended                     // the stream has ended
	failed                    // the stream has ended with an error
	values                    // its events have Data and Stat
)

// Events returns the channel of the events; it is always the same channel. The channel is closed
// when the stream ends. Events that were queued before stay readable.
func (s *Stream) Events() <-chan Event {
	if s.state.Load()&opened == 0 {
		s.registry.mu.Lock()
		s.openLocked(s.buffer())
		s.registry.mu.Unlock()
	}
	return s.events
}

// Zxid returns the transaction at which the watch was armed. The watch gets an event for every
// later change that it matches. Reads after Add show at least this transaction.
func (s *Stream) Zxid() tree.Zxid { return s.zxid }

// Err returns why the stream ended. It is set before the Events channel is closed. It is nil while
// the stream is live, after Close, and after the event of a Once watch.
func (s *Stream) Err() error {
	if s.state.Load()&failed == 0 {
		return nil
	}
	return s.extra.err
}

// Ended reports whether the stream has ended, for any reason.
func (s *Stream) Ended() bool { return s.state.Load()&ended != 0 }

// Close ends the stream without an error. On an ended stream it does nothing.
func (s *Stream) Close() { s.End(nil) }

// End ends the stream with an error. On an ended stream it does nothing.
func (s *Stream) End(err error) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.registry.endLocked(s, err)
}

// Options are the settings of one watch. The zero value is usable.
type Options struct {
	// Buffer is how many events may wait to be received; zero or less means 64. They take at most
	// WaitingMax bytes. A Once watch always has room for one.
	Buffer int
	// Values says that events have Data and Stat. An event that waits keeps its data in memory.
	Values bool
}

// buffer returns the number of events that may wait if the caller of Add gave none.
func (s *Stream) buffer() int { return Options{}.buffer(s.mode) }

func (o Options) buffer(mode Mode) int {
	switch {
	case mode == Once:
		return 1
	case o.Buffer > 0:
		return o.Buffer
	}
	return bufferDefault
}

// ensureExtraLocked returns the stream's extra and creates it if there is none.
func (s *Stream) ensureExtraLocked() *extra {
	if s.extra == nil {
		s.extra = new(extra)
	}
	return s.extra
}

// openLocked makes the channel, unless there is one, and moves the waiting events into it.
func (s *Stream) openLocked(buffer int) {
	if s.events != nil {
		return
	}
	s.events = make(chan Event, buffer)
	if s.state.Load()&values != 0 || buffer > bufferDefault {
		s.ensureExtraLocked().backlog = new(Backlog)
	}
	if x := s.extra; x != nil {
		for _, e := range x.early {
			s.sendLocked(e) // has room: no more than buffer events wait
		}
		x.early = nil
	}
	if s.Ended() {
		close(s.events)
	}
	s.state.Or(opened)
}

// tellLocked queues an event and reports whether there was room. The stream must be live.
func (s *Stream) tellLocked(e Event) bool {
	if s.who != nil {
		e.Path = below(s.who.Root, e.Path)
	}
	if s.events == nil {
		return s.tellEarlyLocked(e)
	}
	return s.sendLocked(e)
}

// sendLocked sends an event to the channel, if it has room.
func (s *Stream) sendLocked(e Event) bool {
	if x := s.extra; x != nil && x.backlog != nil && !x.backlog.Add(e, len(s.events)) {
		return false
	}
	select {
	case s.events <- e:
		return true
	default:
		return false
	}
}

// tellEarlyLocked queues an event for a stream that has no channel of its own.
func (s *Stream) tellEarlyLocked(e Event) bool {
	x := s.ensureExtraLocked()
	switch {
	case x.joint != nil:
		return x.joint.offer(e)
	case len(x.early) == s.buffer():
		return false
	case len(x.early) > 0 && s.state.Load()&values != 0 && Weight(x.early...)+Weight(e) > WaitingMax:
		return false
	}
	x.early = append(x.early, e)
	return true
}

// below returns a path as a watcher with that root sees it.
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
