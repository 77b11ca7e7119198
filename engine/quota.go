package engine

import (
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// quotaNoticePause is how long nothing more is logged of a subtree that is over a soft limit.
	quotaNoticePause = time.Minute
	// quotaNoticesMax bounds the subtrees that are remembered for it.
	quotaNoticesMax = 1_000
)

// softQuotas counts and logs what goes over soft limits. Every member does, of every transaction it applies.
type softQuotas struct {
	log   *slog.Logger
	count atomic.Uint64

	logged map[string]time.Time // owned by the apply goroutine
}

// over notes a transaction that left subtrees over their soft limits.
func (q *softQuotas) over(subtrees []string, now time.Time) {
	if len(subtrees) == 0 {
		return
	}
	q.count.Add(1)
	if q.logged == nil || len(q.logged) >= quotaNoticesMax {
		q.logged = make(map[string]time.Time)
	}
	for _, path := range subtrees {
		if last, ok := q.logged[path]; !ok || now.Sub(last) >= quotaNoticePause {
			q.logged[path] = now
			q.log.Warn("a subtree is over its soft quota", "path", path)
		}
	}
}
