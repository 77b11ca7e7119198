package transport

import (
	"context"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

const (
	// noticePauseMin and noticePauseMax are the pauses before the same is logged again about the same peer,
	// doubling for as long as it goes on happening.
	noticePauseMin = 10 * time.Second
	noticePauseMax = 10 * time.Minute
	// noticesMax bounds what is remembered of the notices given. Strangers can be many; when it is full all
	// is forgotten, which costs a few repeated lines.
	noticesMax = 1024
)

// notices log at a limited rate: peers decide how often things happen here.
type notices struct {
	log *slog.Logger

	mu struct {
		rank.Mutex[rank.Notices]
		given map[notice]given
	}
}

// A notice is what may be logged once in a while: an event and whom it is about.
type notice struct {
	event string
	peer  uint64 // zero if not known
	host  string // of a stranger
	kind  error  // of a refusal: each is logged, whatever else was just wrong
}

// given says when a notice was logged, how long it pauses and how often it was held back since.
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

// give logs a notice unless it was just given.
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

// due says whether a notice may be logged now, and how many were held back since it last was.
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
