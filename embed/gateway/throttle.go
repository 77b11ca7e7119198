package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// heldUpMax is how long a new session may be held up. A client that waits much longer gives up, and
// then its session is opened for nobody.
const heldUpMax = time.Second

// A throttle is a bucket of tokens, one for each new session. It holds those of one second.
//
// After an election or a restart, thousands of clients may come at once. Each new session is an entry
// of the log, and so is the end of each session whose client has given up. Without a bound that work
// can outlast the clients' patience, and they come again. Those who have a session come first.
type throttle struct {
	perSecond float64 // negative: no bound

	mu     rank.Mutex[rank.Throttle]
	tokens float64 // at the time of at; below zero, they are promised to those that wait
	at     time.Time
}

// open fills the bucket.
func (t *throttle) open(perSecond int, now time.Time) {
	t.perSecond, t.tokens, t.at = float64(perSecond), float64(perSecond), now
}

// take takes a token, and returns how long to wait before it is used. It returns false, and takes
// none, if that is more than heldUpMax.
func (t *throttle) take(now time.Time) (wait time.Duration, ok bool) {
	if t.perSecond < 0 {
		return 0, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if since := now.Sub(t.at); since > 0 {
		t.tokens, t.at = min(t.tokens+since.Seconds()*t.perSecond, t.perSecond), now
	}
	left := t.tokens - 1
	if left < 0 {
		wait = time.Duration(-left / t.perSecond * float64(time.Second))
	}
	if wait > heldUpMax {
		return 0, false
	}
	t.tokens = left
	return wait, true
}

var errThrottled = errors.New("too many new sessions at once: see gateway.Config.Handshakes")

// holdUp waits until a new session may be opened. First it waits for a leader: otherwise those that
// come while nobody leads would all be opened at once when somebody does.
func (g *Gateway) holdUp(ctx context.Context) error {
	if err := g.awaitLeader(ctx); err != nil {
		return err
	}
	wait, ok := g.throttle.take(time.Now())
	if !ok {
		g.meters.turnedAway.Inc()
		return errThrottled
	}
	if wait == 0 {
		return nil
	}
	g.meters.heldUp.Inc()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitLeader waits until this member knows a leader.
func (g *Gateway) awaitLeader(ctx context.Context) error {
	if g.serving() {
		return nil
	}
	tick := time.NewTicker(g.node.Config.Tick)
	defer tick.Stop()
	for !g.serving() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
