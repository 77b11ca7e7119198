package campaign

import (
	"fmt"
	"time"
)

// findEarlyEnds checks that nothing of a live session ends on any shard. Once a marker is known to
// be gone, nothing more may be acknowledged to its session. This holds in the marker's area and in
// the home shard's area, where sessions end first.
func findEarlyEnds(p *past) (found []string) {
	type loss struct {
		marker string
		at     time.Duration // when it was known
	}
	gone := make(map[string]time.Duration) // by marker
	note := func(marker string, at time.Duration) {
		if first, ok := gone[marker]; !ok || at < first {
			gone[marker] = at
		}
	}
	for _, r := range p.Removals {
		note(r.Path, r.At)
	}
	for i := range p.Ops {
		if o := &p.Ops[i]; o.Call == callSyncGet && o.Outcome == noNode {
			note(o.Path, o.End)
		}
	}
	losses := make(map[string][]loss) // by session
	homes := make(map[string]string)  // areas
	for _, l := range p.Lives {
		for _, marker := range l.Markers {
			if at, ok := gone[marker]; ok {
				losses[l.Name] = append(losses[l.Name], loss{marker, at})
				homes[l.Name] = areaOf(l.home())
			}
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.wrote() == 0 {
			continue
		}
		for _, l := range losses[o.Session] {
			if at := areaOf(o.Path); o.Begin > l.at && (at == homes[o.Session] || at == areaOf(l.marker)) {
				found = append(found, fmt.Sprintf("%s was gone at %.6f, but its session was still alive: %v", l.marker, l.at.Seconds(), o))
			}
		}
	}
	return found
}

// findLeftovers checks that nothing of a session is left on any shard once its owner knows that it
// is closed.
func findLeftovers(p *past) (found []string) {
	closed := make(map[string]time.Duration) // by marker
	for _, l := range p.Lives {
		if l.Closed == 0 {
			continue
		}
		for _, marker := range l.Markers {
			closed[marker] = l.Closed
		}
	}
	for i := range p.Ops {
		o := &p.Ops[i]
		if at, ok := closed[o.Path]; ok && o.Call == callSyncGet && o.Outcome == applied && o.Begin > at {
			found = append(found, fmt.Sprintf("left over, although its session was closed at %.6f: %v", at.Seconds(), o))
		}
	}
	return found
}
