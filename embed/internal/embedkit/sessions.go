package embedkit

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// LivesAWhile is the timeout of a session that must expire once its member is gone, but not
// earlier. It has to outlive the setup of a test, on a machine where an election or some commits
// take seconds.
const LivesAWhile = 4 * time.Second

// Every calls fn at intervals until the context ends.
func Every(ctx context.Context, interval time.Duration, fn func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fn()
		case <-ctx.Done():
			return
		}
	}
}

// Drain reads all events that a watch has.
func Drain(w *embed.Watch) (told []embed.Event, over bool) {
	for {
		select {
		case e, ok := <-w.Events():
			if !ok {
				return told, true
			}
			told = append(told, e)
		default:
			return told, false
		}
	}
}

// Walk collects a Walk.
func Walk(ctx context.Context, s *embed.Session, path string) (all []embed.Znode, last error) {
	for z, err := range s.Walk(ctx, path) {
		if last = err; err == nil {
			all = append(all, z)
		}
	}
	return all, last
}

// WatchBuffer is how many events a watch holds for a slow consumer, as documented by Session.Watch.
const WatchBuffer = 64
