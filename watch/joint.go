package watch

import (
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/tree"
)

// A Joint is one watch on several registries: of a znode that is on several shards, or above znodes of several. Events of one
// registry come in its order; there is none among registries. It ends with the first of its parts.
//
// Parts that are left then stay in their registries until their next event or until Close, and deliver nothing.
type Joint struct {
	parts  []*Stream
	events chan Event
	once   bool

	mu    rank.Mutex[rank.Joint]
	ended bool
	err   error
}

// Join registers a watch on several registries, one after the other. On each it is armed at the newest transaction matched.
func Join(registries []*Registry, path string, mode Mode, who *Watcher) *Joint {
	j := &Joint{events: make(chan Event, (&Stream{mode: mode}).buffer()), once: mode == Once}
	for _, r := range registries {
		s := &Stream{registry: r, path: path, mode: mode, who: who, extra: &extra{joint: j}}
		r.add(s)
		j.parts = append(j.parts, s)
	}
	return j
}

// Events returns the channel of the events. It is closed when the watch ends; what was queued before stays readable.
func (j *Joint) Events() <-chan Event { return j.events }

// Zxid returns zero: zxids of several shards do not compare.
func (j *Joint) Zxid() tree.Zxid { return 0 }

// Err says why the watch ended; as Stream.Err.
func (j *Joint) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// Ended reports whether the watch has ended, for whatever reason.
func (j *Joint) Ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended
}

// Close ends the watch without an error.
func (j *Joint) Close() { j.End(nil) }

// End ends the watch with an error. It does nothing to one that has ended but take its parts out of their registries.
func (j *Joint) End(err error) {
	j.finish(err)
	for _, s := range j.parts {
		s.End(nil)
	}
}

// offer adds an event and reports whether it fitted. A Once watch is over with it: another part may have one too before this one ends.
func (j *Joint) offer(e Event) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
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

// finish is told that a part has ended.
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
