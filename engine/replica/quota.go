package replica

import (
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/internal/pace"
)

const (
	// quotaNoticePause is the first pause before a subtree is logged again. It doubles while the
	// subtree grows beyond its limits, up to an hour.
	quotaNoticePause = time.Minute
	// quotaNoticesMax limits the subtrees that are logged at a time. The place of one that has not
	// grown for a minute is free for another. All transactions are counted.
	quotaNoticesMax = 100
)

// softQuotas counts and logs the transactions that leave subtrees over their soft limits. Every
// member does that for every transaction that it applies. The apply goroutine owns all fields but
// count.
type softQuotas struct {
	log   *slog.Logger
	count atomic.Uint64

	logged map[string]*quotaNotice
}

// A quotaNotice says when a subtree was over its limits last, and when the log may say so.
type quotaNotice struct {
	at   time.Time
	pace pace.Pace
}

// note counts a transaction that left some subtrees over their soft limits, and logs the subtrees.
func (q *softQuotas) note(subtrees []string, now time.Time) {
	q.count.Add(1)
	for _, path := range subtrees {
		n := q.notice(path, now)
		if n == nil {
			continue
		}
		n.at = now
		if held, due := n.pace.Due(now); due {
			q.log.Warn("a subtree is over its soft quota", "path", path, "repeated", held)
		}
	}
}

// notice returns the notice of a subtree. It returns nil if there is no room for one more.
func (q *softQuotas) notice(path string, now time.Time) *quotaNotice {
	if q.logged == nil {
		q.logged = make(map[string]*quotaNotice)
	}
	if q.logged[path] == nil && len(q.logged) >= quotaNoticesMax {
		maps.DeleteFunc(q.logged, func(_ string, n *quotaNotice) bool { return now.Sub(n.at) >= quotaNoticePause })
	}
	if q.logged[path] == nil && len(q.logged) < quotaNoticesMax {
		q.logged[path] = &quotaNotice{pace: pace.Pace{First: quotaNoticePause}}
	}
	return q.logged[path]
}
