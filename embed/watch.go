package embed

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/watch"
)

// A Watch delivers the changes that it matches. It is armed when Session.Watch returns. From then
// on it delivers every matching change after Zxid once, in zxid order. A change is in the channel
// before a read of this node shows it, and whoever has received it reads at least that state of the
// znode on this node. If a watch cannot keep this promise it ends, and Err says why. It costs
// little at rest.
type Watch struct{ w inside.Watch }

// Watch arms a watch on a znode, which need not exist. ctx bounds the call, not the watch. The
// watch lasts until it has fired (WatchOnce), until Close, or until its session ends. It holds 64
// events for a slow consumer, and 32 MiB; one more ends it with ErrWatchOverflow.
//
// If a node was away for so long that it gets the state of another member, it does not know the
// changes in between. A watch on znodes that certainly did not change goes on. Any other WatchOnce
// gets one event, which tells what somebody who looks again would see first. Every other watch ends
// with ErrWatchGap, a *GapError: read its znodes again. A watch on several shards ends if one of
// them has a gap. A znode that was missing before and after the gap may have existed in between. It
// counts as changed if children of the nearest existing znode above it came or went, and a
// WatchOnce reports that as NodeCreated.
//
// ExampleSession_Watch_follow keeps up with a znode across gaps.
//
// Watch needs no permission. But a watch is told only of znodes that its session may read at that
// time. It does not fall silent: when a SetACL takes from the session the permission to read a znode
// that the watch sees, a WatchOnce ends with ErrNoAuth and every other watch with ErrWatchGap. The
// latter also ends when a SetACL gives the permission. Read again: what may be read now is what the
// next watch goes on from. A znode that is created where the session may not read it ends the watches
// of its own path alike; a WatchRecursive from above goes on.
//
// A watch of a znode that the session may not read is told nothing, until a SetACL gives the
// permission. A WatchOnce ends with ErrNoAuth when the znode changes, and a client's ends at once.
// Errors: ErrInvalidPath, ErrInvalidMode and those of an ended session.
func (s *Session) Watch(ctx context.Context, path string, mode WatchMode) (*Watch, error) {
	return s.WatchWith(ctx, path, mode, WatchOptions{})
}

// BufferMax is the largest WatchOptions.Buffer.
const BufferMax = 1 << 20

// WatchOptions are the settings of one watch. The zero value is usable.
type WatchOptions struct {
	// Buffer is how many events may wait for a slow consumer, up to BufferMax. Zero means 64.
	// A WatchOnce always has room for its event. The room is taken at once: 48 bytes for each event.
	// However large it is, the events that wait take at most 32 MiB with their paths and data.
	Buffer int
	// Values says that Event.Data and Event.Stat show the znode as each transaction left it, if the
	// session may read it then. So no change of data is missed, even if the next one follows at
	// once. An event that waits keeps its data in memory, see Buffer.
	Values bool
}

// WatchWith is Watch with all options of a watch. Other errors: ErrInvalidArgument if Buffer is out
// of range.
func (s *Session) WatchWith(ctx context.Context, path string, mode WatchMode, o WatchOptions) (*Watch, error) {
	if err := s.read(ctx, path); err != nil {
		return nil, opError("watch", path, err)
	}
	if o.Buffer < 0 || o.Buffer > BufferMax {
		return nil, opError("watch", path, fmt.Errorf("%w: WatchOptions.Buffer is %d, not 0 to %d", ErrInvalidArgument, o.Buffer, BufferMax))
	}
	if mode > WatchRecursive { // package watch has more modes, for clients of the gateway
		return nil, opError("watch", path, fmt.Errorf("%w: %d is not a mode of a watch", ErrInvalidMode, mode))
	}
	in := s.in()
	w, err := in.Session.Watch(ctx, in.Root.In(path), mode, watch.Options(o), string(in.Root))
	if err != nil {
		return nil, opError("watch", path, err)
	}
	return &Watch{w}, nil
}

// Events returns the stream of events. It is closed when the watch ends; by then Err is set. Events
// that were queued before stay readable.
func (w *Watch) Events() <-chan Event { return w.w.Events() }

// Zxid returns where the watch was armed: reads showed this zxid when Session.Watch returned. It is
// zero for a watch on several shards.
func (w *Watch) Zxid() Zxid { return w.w.Zxid() }

// Err returns why the watch ended. It is nil while the watch lasts, after Close, and after a
// WatchOnce has fired. Otherwise it is ErrWatchOverflow, ErrWatchGap, ErrNoAuth or the error of the
// session.
func (w *Watch) Err() error { return w.w.Err() }

// Close ends the watch. It is idempotent and always returns nil.
func (w *Watch) Close() error {
	w.w.Close()
	return nil
}
