package embed

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/engine"
)

// A Watch is armed when Session.Watch returns: every matching change after Zxid is delivered once, in zxid order, and is
// in the channel before a read of this node shows it. Or the watch ends, and Err says why. It costs little at rest.
type Watch struct{ w *engine.Watch }

// Watch arms a watch on a znode, which need not exist. ctx bounds the call, not the watch, which lasts until it has
// fired (WatchOnce), until Close, or until its session ends. A watch holds 64 events for a slow consumer; one more ends
// it with ErrWatchOverflow.
//
// A node that was away so long that it got the state of another member does not know the changes in between. A watch of
// what certainly did not change goes on. Any other WatchOnce gets one event, of what somebody who looks again is told first;
// every other watch ends with ErrWatchGap, a *GapError, and the znodes are to be read anew. Of a watch on several shards one gap
// is enough: it ends on all. A znode that was and is missing counts as
// changed if children of the nearest one above it came or went: it may have been among them, and a WatchOnce says so with a
// NodeCreated.
//
// ExampleSession_Watch_follow keeps up with a znode over gaps.
//
// A watch needs no permission, but is told only of znodes that the session may read at the time; what it may not be told
// uses a WatchOnce up, which then ends with ErrNoAuth. Errors: ErrInvalidPath, ErrInvalidMode and those of an ended session.
func (s *Session) Watch(ctx context.Context, path string, mode WatchMode) (*Watch, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, opError("watch", path, err)
	}
	if mode > WatchRecursive { // package watch has more, for clients of the gateway
		return nil, opError("watch", path, fmt.Errorf("%w: %d is none of a watch", ErrInvalidMode, mode))
	}
	in := s.in()
	w, err := in.Session.Watch(in.Root.In(path), mode, string(in.Root))
	if err != nil {
		return nil, opError("watch", path, err)
	}
	return &Watch{w}, nil
}

// Events is the stream. It is closed at the watch's end, and by then Err is set; events that were queued before stay
// readable.
func (w *Watch) Events() <-chan Event { return w.w.Events() }

// Zxid is where the watch was armed: reads showed this much when Session.Watch returned. It is zero for one that is on several
// shards.
func (w *Watch) Zxid() Zxid { return w.w.Zxid() }

// Err says why the watch ended: nil while it has not, after Close and after a WatchOnce fired; else ErrWatchOverflow,
// ErrWatchGap, ErrNoAuth or the error of its session.
func (w *Watch) Err() error { return w.w.Err() }

// Close ends the watch. It is idempotent and always returns nil.
func (w *Watch) Close() error {
	w.w.Close()
	return nil
}
