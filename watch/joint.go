package watch

import (
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/tree"
)

// A Joint is one watch on several registries. It is for a znode that is on several shards, or that
// has znodes of several shards below it. Events of one registry come in the order of that registry;
// events of different registries have no order. The Joint ends when one of its parts ends.
//
// The other parts then stay in their registries until their next event or until Close, and deliver
// nothing.
type Joint struct {
	parts  []*Stream
	events chan Event
	once   bool

	mu      rank.Mutex[rank.Joint]
	backlog Backlog
	ended   bool
	err     error
}

// Join registers a watch on each of several registries in turn. On each it is armed at the newest
// transaction matched.
func Join(registries []*Registry, path string, mode Mode, o Options, who *Watcher) *Joint {
	j := &Joint{events: make(chan Event, o.buffer(mode)), once: mode == Once}
	for _, r := range registries {
		s := &Stream{registry: r, path: path, mode: mode, who: who, extra: &extra{joint: j}}
		if o.Values {
			s.state.Or(values)
		}
		r.add(s)
		j.parts = append(j.parts, s)
	}
	return j
}

// Events returns the channel of the events. The channel is closed when the watch ends. Events that
// were queued before stay readable.
func (j *Joint) Events() <-chan Event { return j.events }

// Zxid returns zero: the zxids of several shards cannot be compared.
func (j *Joint) Zxid() tree.Zxid { return 0 }

// Err returns why the watch ended; see Stream.Err.
func (j *Joint) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Ended reports whether the watch has ended, for any reason.
func (j *Joint) Ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended
}

// Close ends the watch without an error.
func (j *Joint) Close() { j.End(nil) }

// End ends the watch with an error and removes its parts from their registries. If the watch has
// ended, it only removes the parts.
func (j *Joint) End(err error) {
	j.finish(err)
	for _, s := range j.parts {
		s.End(nil)
	}
}

// offer queues an event and reports whether there was room. The event ends a Once watch, because
// another part may have an event too before it is ended.
func (j *Joint) offer(e Event) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended || !j.backlog.Add(e, len(j.events)) {
		return false
	}
	select {
	case j.events <- e:
		if j.once {
			j.endLocked(nil)
		}
		return true
	default:
		return false
	}
}

// finish records that a part has ended, which ends the watch.
func (j *Joint) finish(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endLocked(err)
}

func (j *Joint) endLocked(err error) {
	if !j.ended {
		j.ended, j.err = true, err
		close(j.events)
	}
}
