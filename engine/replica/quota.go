package replica

import (
	"log/slog"
	"maps"
	"sync/atomic"
	"time"
)

const (
	// quotaNoticePause is how long a subtree that was logged is not logged again.
	quotaNoticePause = time.Minute
	// quotaNoticesMax limits the subtrees that are logged within a pause. All transactions are
	// counted.
	quotaNoticesMax = 100
)

// softQuotas counts and logs the transactions that leave subtrees over their soft limits. Every
// member does that for every transaction that it applies. The apply goroutine owns all fields but
// count.
type softQuotas struct {
	log   *slog.Logger
	count atomic.Uint64

	logged map[string]time.Time // when, within the last pause
}

// note counts a transaction that left some subtrees over their soft limits, and logs the subtrees.
func (q *softQuotas) note(subtrees []string, now time.Time) {
	q.count.Add(1)
	for _, path := range subtrees {
		if at, logged := q.logged[path]; logged && now.Sub(at) < quotaNoticePause {
			continue
		}
		if q.hasRoom(now) {
			q.logged[path] = now
			q.log.Warn("a subtree is over its soft quota", "path", path)
		}
	}
}

// hasRoom reports whether one more subtree may be logged within the pause.
func (q *softQuotas) hasRoom(now time.Time) bool {
	if q.logged == nil {
		q.logged = make(map[string]time.Time)
	}
	if len(q.logged) >= quotaNoticesMax {
		maps.DeleteFunc(q.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= quotaNoticePause })
	}
	return len(q.logged) < quotaNoticesMax
}
