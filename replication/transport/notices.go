package transport

import (
	"context"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// noticesMax bounds how many notices are remembered. Unknown peers can be many. When the table is
// full it is emptied, which costs a few repeated lines.
const noticesMax = 1024

// notices log at a limited rate, because peers decide how often things happen here.
type notices struct {
	log *slog.Logger

	mu struct {
		rank.Mutex[rank.Notices]
		given map[notice]*pace.Pace
	}
}

// A notice is an event about a peer. Each is logged only once in a while.
type notice struct {
	event string
	peer  uint64 // zero if not known
	host  string // of an unknown peer
	kind  error  // of a refusal; each kind is logged even if another was just logged
}

func newNotices(log *slog.Logger) *notices {
	n := &notices{log: log}
	n.mu.given = make(map[notice]*pace.Pace)
	return n
}

// give logs a notice unless it was logged a short time ago.
func (n *notices) give(level slog.Level, k notice, args ...any) {
	held, ok := n.due(k, time.Now())
	if !ok {
		return
	}
	if k.peer != 0 {
		args = append(args, "peer", k.peer)
	}
	if held > 0 {
		args = append(args, "repeated", held)
	}
	n.log.Log(context.Background(), level, k.event, args...)
}

// due reports whether a notice may be logged now, and how often it was held back since the last
// time.
func (n *notices) due(k notice, now time.Time) (held int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.mu.given[k]
	if p == nil {
		if len(n.mu.given) >= noticesMax {
			clear(n.mu.given)
		}
		p = new(pace.Pace)
		n.mu.given[k] = p
	}
	return p.Due(now)
}
