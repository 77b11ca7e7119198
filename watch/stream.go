package watch

import (
	"sync/atomic"

	"github.com/vivarium-go/vivarium/tree"
)

// bufferDefault bounds the memory one slow watcher can hold: 64 events are 2 KiB, allocated when the
// watch is added. A watcher that lags by more is told so (ErrOverflow); a larger buffer only postpones
// the same answer.
const bufferDefault = 64

// A Stream is one watch and the queue of its events.
//
// Invariants:
//  1. events are in zxid order, those of one transaction in the order of its changes, all later than zxid;
//  2. a live stream is in the registry's list of its path and mode, an ended one in none;
//  3. events is closed when ended is set, and err does not change after that.
type Stream struct {
	// Immutable after Add.
	registry *Registry
	path     string
	zxid     tree.Zxid
	events   chan Event // sent to and closed under the registry's lock
	mode     Mode

	// Written under the registry's lock. err is read without it once ended is set.
	ended atomic.Bool
	err   error
	next  *Stream // in the list of the path
	prev  *Stream
}

// Events returns the channel of the events, which is closed when the stream ends; what was queued
// before stays readable.
func (s *Stream) Events() <-chan Event { return s.events }

// Zxid returns the transaction the watch was armed at: every later change it matches is delivered, and
// reads made after Add returned show this one at least.
func (s *Stream) Zxid() tree.Zxid { return s.zxid }

// Err says why the stream ended: nil while it is live, after Close, and after the event of a Once watch.
func (s *Stream) Err() error {
	if !s.ended.Load() {
		return nil
	}
	return s.err
}

// Close ends the stream without an error. It does nothing to a stream that has ended.
func (s *Stream) Close() { s.End(nil) }

// End ends the stream with an error. It does nothing to a stream that has ended.
func (s *Stream) End(err error) {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.registry.endLocked(s, err)
}

// queue adds an event and reports whether it fitted. The registry's lock is held.
func (s *Stream) queue(e Event) bool {
	select {
	case s.events <- e:
		return true
	default:
		return false
	}
}

// finish marks the stream as ended. The registry's lock is held and no list has the stream.
func (s *Stream) finish(err error) {
	s.err = err
	s.ended.Store(true)
	close(s.events)
}
