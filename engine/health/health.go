package health

import (
	"fmt"
	"strings"
	"time"
)

// Health says whether a node serves now. It is known without asking anybody.
type Health struct {
	// Ready: the ensemble has registered the member, and no shard has been without a leader that this
	// member is connected with for longer than an election takes. The disk has room. The backup is
	// loaded that the ensemble begins with, if there is one.
	Ready   bool
	Since   time.Time // Ready is as it is since then; of a node that never served, its start
	Waiting string    // what the node lacks, in words; empty if Ready
	Slow    string    // that the disk was slow within the last minute, in words
	Err     error     // why it is over: that of a failed node with the cause, or of a closed one
}

// Health returns what the node knows. It never waits.
func (w *Watcher) Health() Health {
	s, lack := w.serving.Load(), w.lack.Load()
	lacking := lack != nil && lack.cause != nil
	h := Health{Ready: s.ready && !lacking, Since: s.since, Slow: w.Slow.Disk(time.Now())}
	if lack != nil && s.ready && (lacking || lack.since.After(s.since)) {
		h.Since = lack.since
	}
	if at, over, cause := w.Node.Finished(); over != nil {
		if h.Ready {
			h.Ready, h.Since = false, at
		}
		h.Err = over
		if cause != nil {
			h.Err = fmt.Errorf("%w: %w", over, cause)
		}
		h.Waiting = h.Err.Error()
		return h
	}
	if lacking {
		h.Waiting = "the disk: " + lack.cause.Error()
	} else if !h.Ready {
		lacks, _ := w.List()
		h.Waiting = strings.Join(lacks, "; ")
	}
	return h
}
