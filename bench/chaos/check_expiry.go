//go:build unix

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// findEarlyExpiry checks that no session expired before its timeout of silence. The end of a session has a zxid, that of the
// removal of its marker. Every acknowledged write of its process with a smaller one was issued before the silence began; and
// whoever saw the removal saw it after the silence was over. When somebody's clock jumps nothing can be said.
func findEarlyExpiry(p *past) (found []string) {
	type process struct {
		member embed.MemberID
		run    int
	}
	writes := make(map[process][]*op)
	for i := range p.Ops {
		if o := &p.Ops[i]; o.wrote() != 0 {
			k := process{o.Member, o.Run}
			writes[k] = append(writes[k], o)
		}
	}
	gone := make(map[string]removal)
	for _, r := range p.Removals {
		if first, ok := gone[r.Path]; !ok || r.At < first.At {
			gone[r.Path] = r
		}
	}
	for _, l := range p.Lives {
		r, ok := gone[l.Marker]
		if !ok || !strings.Contains(l.Why, embed.ErrSessionExpired.Error()) {
			continue
		}
		var newest time.Duration
		for _, o := range writes[process{l.Member, l.Run}] {
			if o.wrote() < r.Zxid {
				newest = max(newest, o.Begin)
			}
		}
		if r.At-newest < l.Timeout && !p.jumped(r.At-2*l.Timeout, r.At) {
			found = append(found, fmt.Sprintf("session %s had expired by %.6f (zxid %d), though its process wrote at %.6f and the timeout is %v", l.Name, r.At.Seconds(), r.Zxid, newest.Seconds(), l.Timeout))
		}
	}
	return found
}

func (p *past) jumped(from, to time.Duration) bool {
	for _, at := range p.Jumps {
		if from <= at && at <= to {
			return true
		}
	}
	return false
}
