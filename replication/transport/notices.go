package transport

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// noticesMax bounds how many notices are remembered. Unknown peers can be many.
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
		p = n.paceLocked(k, now)
	}
	return p.Due(now)
}

// paceLocked returns the pace of a notice that is not among those given. If these are too many, although
// those of events that are over are forgotten, all further ones of an event and a kind have one.
func (n *notices) paceLocked(k notice, now time.Time) *pace.Pace {
	if len(n.mu.given) >= noticesMax {
		maps.DeleteFunc(n.mu.given, func(_ notice, p *pace.Pace) bool { return p.IsOver(now) })
	}
	if len(n.mu.given) >= noticesMax {
		k.peer, k.host = 0, ""
	}
	if n.mu.given[k] == nil {
		n.mu.given[k] = new(pace.Pace)
	}
	return n.mu.given[k]
}
