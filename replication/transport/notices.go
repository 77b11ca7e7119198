package transport

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// noticeEvery is how often the same thing about the same peer may be logged.
	noticeEvery = 10 * time.Second
	// noticesMax bounds what is remembered of the notices given. Strangers can be many; when it is full all
	// is forgotten, which costs a few repeated lines.
	noticesMax = 1024
)

// notices log at a limited rate: peers decide how often things happen here.
type notices struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		given map[notice]given
	}
}

// A notice is what may be logged once in a while: an event and whom it is about.
type notice struct {
	event string
	peer  uint64 // zero if not known
	host  string // of a stranger
}

// given says when a notice was logged and how often it was held back since.
type given struct {
	at   time.Time
	held int
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
		args = append(args, "member", k.peer)
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
	if known && now.Sub(g.at) < noticeEvery {
		g.held++
		n.mu.given[k] = g
		return 0, false
	}
	if len(n.mu.given) >= noticesMax {
		clear(n.mu.given)
	}
	n.mu.given[k] = given{at: now}
	return g.held, true
}
