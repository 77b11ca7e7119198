package transport

import (
	"context"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

const (
	// noticePauseMin and noticePauseMax bound the pause before the same event is logged again about
	// the same peer. The pause doubles while the event repeats.
	noticePauseMin = 10 * time.Second
	noticePauseMax = 10 * time.Minute
	// noticesMax bounds how many notices are remembered. Unknown peers can be many. When the table
	// is full it is emptied, which costs a few repeated lines.
	noticesMax = 1024
)

// notices log at a limited rate, because peers decide how often things happen here.
type notices struct {
	log *slog.Logger

	mu struct {
		rank.Mutex[rank.Notices]
		given map[notice]given
	}
}

// A notice is an event about a peer. Each is logged only once in a while.
type notice struct {
	event string
	peer  uint64 // zero if not known
	host  string // of an unknown peer
	kind  error  // of a refusal; each kind is logged even if another was just logged
}

// given says when a notice was logged, how long it pauses, and how often it was held back since.
type given struct {
	at    time.Time
	pause time.Duration
	held  int
}

func newNotices(log *slog.Logger) *notices {
	n := &notices{log: log}
	n.mu.given = make(map[notice]given)
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
	g, known := n.mu.given[k]
	if known && now.Sub(g.at) < g.pause {
		g.held++
		n.mu.given[k] = g
		return 0, false
	}
	if !known && len(n.mu.given) >= noticesMax {
		clear(n.mu.given)
	}
	pause := noticePauseMin
	if g.held > 0 {
		pause = min(2*g.pause, noticePauseMax)
	}
	n.mu.given[k] = given{at: now, pause: pause}
	return g.held, true
}
