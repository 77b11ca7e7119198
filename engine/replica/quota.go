package replica

import (
	"log/slog"
	"maps"
	"sync/atomic"
	"time"
)

const (
	// quotaNoticePause is how long nothing more is logged of a subtree that is over a soft limit.
	quotaNoticePause = time.Minute
	// quotaNoticesMax bounds the subtrees that are logged within that time; all are counted.
	quotaNoticesMax = 100
)

// softQuotas counts and logs what goes over soft limits. Every member does, of every transaction it applies. All but count
// is owned by the apply goroutine.
type softQuotas struct {
	log   *slog.Logger
	count atomic.Uint64

	logged map[string]time.Time // within the last pause
	due    []string             // to be logged
}

// over notes a transaction that left some subtrees over their soft limits. It is called with the machine's mu held, so it does
// not log: tell does.
func (q *softQuotas) note(subtrees []string, now time.Time) {
	q.count.Add(1)
	for _, path := range subtrees {
		if at, logged := q.logged[path]; logged && now.Sub(at) < quotaNoticePause {
			continue
		}
		if q.hasRoom(now) {
			q.logged[path] = now
			q.due = append(q.due, path)
		}
	}
}

// room reports whether one more subtree may be logged.
func (q *softQuotas) hasRoom(now time.Time) bool {
	if q.logged == nil {
		q.logged = make(map[string]time.Time)
	}
	if len(q.logged) >= quotaNoticesMax {
		maps.DeleteFunc(q.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= quotaNoticePause })
	}
	return len(q.logged) < quotaNoticesMax
}

// tell logs what is due. No lock is held: a logger may ask the node.
func (q *softQuotas) logDue() {
	for _, path := range q.due {
		q.log.Warn("a subtree is over its soft quota", "path", path)
	}
	q.due = nil
}
