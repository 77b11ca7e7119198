package campaign

import (
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// findEarlyExpiry checks that the ensemble expired no session before its timeout of silence. The
// expiry has a zxid: the zxid at which the session's marker on the home shard was removed. Every
// acknowledged write of its process there with a smaller zxid was issued before the silence began.
// Every reader saw the expiry in the log after the silence was over.
//
// A remote session is alone: its process's node speaks for its own sessions only, and the client for
// each of its own by itself. So only the session's own writes count, and they do not count for others.
//
// A session whose own node gave it up, because the node heard of none of the session's writes in
// time, is closed and not expired. The sessions of a process that died end when the next process
// starts, and their owner cannot report an expiry. While a clock jumps, the check cannot decide.
// Nor can it if sessions ended in portions: a session that is due stays due while those before it
// end, and meanwhile its process may write again.
func findEarlyExpiry(p *past) (found []string) {
	if p.Portions {
		return nil
	}
	remote := make(map[string]bool)
	for _, l := range p.Lives {
		remote[l.Name] = l.Remote
	}
	type witness struct {
		member embed.MemberID
		run    int
		remote string
	}
	witnessOf := func(member embed.MemberID, run int, session string) witness {
		if remote[session] {
			return witness{remote: session}
		}
		return witness{member: member, run: run}
	}
	writes := make(map[witness][]*op)
	for i := range p.Ops {
		if o := &p.Ops[i]; o.wrote() != 0 {
			k := witnessOf(o.Member, o.Run, o.Session)
			writes[k] = append(writes[k], o)
		}
	}
	gone := make(map[string]embed.Zxid)
	for _, r := range p.Removals {
		gone[r.Path] = r.Zxid
	}
	first := make(map[embed.SessionID]time.Duration)
	for _, x := range p.Expiries {
		if at, ok := first[x.ID]; !ok || x.At < at {
			first[x.ID] = x.At
		}
	}
	for _, l := range p.Lives {
		home := l.home()
		zxid, seen := gone[home]
		at, expired := first[l.ID]
		if !seen || !expired || !strings.Contains(l.Why, embed.ErrSessionExpired.Error()) {
			continue
		}
		var newest time.Duration
		for _, o := range writes[witnessOf(l.Member, l.Run, l.Name)] {
			if o.wrote() < zxid && areaOf(o.Path) == areaOf(home) {
				newest = max(newest, o.Begin)
			}
		}
		if at-newest < l.Timeout-Blur && !p.jumped(at-2*l.Timeout, at) {
			found = append(found, fmt.Sprintf("session %s had expired by %.6f (zxid %d), although its process wrote at %.6f and the timeout is %v", l.Name, at.Seconds(), zxid, newest.Seconds(), l.Timeout))
		}
	}
	return found
}

// jumped reports whether a clock was set ahead during a time.
func (p *past) jumped(from, to time.Duration) bool {
	for _, j := range p.Jumps {
		if from <= j.At && j.At <= to {
			return true
		}
	}
	return false
}
