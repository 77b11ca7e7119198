package engine

import (
	"log/slog"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/internal/meter"
)

// newsMax bounds the lines that wait for a slow log. Lines beyond it are only counted. A node must
// not wait for its log, and 100,000 sessions may expire at once.
const newsMax = 64

// news has lines for reportLoop to log. It is for callers that must not wait for a log, because
// they hold locks or apply entries.
type news struct {
	lines  chan line     // capacity newsMax
	left   atomic.Int64  // lines that were dropped and not reported yet
	lost   meter.Counter // lines that were dropped
	leader chan struct{} // capacity 1; a leader has changed
}

// A line is one line of the log.
type line struct {
	level   slog.Level
	message string
	args    []any
}

func newNews() news {
	return news{lines: make(chan line, newsMax), leader: make(chan struct{}, 1)}
}

// tell queues a line for the log. It does not block.
func (n *news) tell(level slog.Level, message string, args ...any) {
	select {
	case n.lines <- line{level, message, args}:
	default:
		n.left.Add(1)
		n.lost.Inc()
	}
}

// leaderChanged wakes reportLoop to look at the leaders. It does not block.
func (n *news) leaderChanged() {
	select {
	case n.leader <- struct{}{}:
	default:
	}
}
