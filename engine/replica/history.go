package replica

import (
	"math"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// Zxids, and with them fencing tokens and ids of sessions, grow over all histories of an ensemble,
// though a forced recovery or a backup knows only a part of what was given. Each new history
// therefore begins ahead of the Unix time in microseconds, by its lead. No shard applies a million
// transactions a second, so the clock catches up with the zxids, and never the other way round: what
// was once ahead of the clock by a lead is never ahead by more. So nothing has to be known of the
// past but its lead. Every shard keeps the largest that any command has shown, and so do backups. It
// is the same for all that follow from one past, however much of the past each of them knows. Of two
// of them, the later one has the larger zxids.
//
// The clocks of members must be about right. One that was wrong, whenever that was, makes the lead
// larger as soon as a command comes from a member whose clock is right.
const (
	second   = 1_000_000
	clockMax = 1 << 58
	leadMax  = 3 << 61   // no sum with it overflows
	baseMask = 1<<12 - 1 // in hex, people see where a history begins
	zxidMax  = math.MaxInt64 - 2*baseMask
)

// Above returns the zxid after which those of a new history begin, by the wall clock. Newest and lead
// are the largest that are known of any shard of the past. The lead is at least a second.
//
// If newest is further ahead of the clock, a clock of the past was wrong and nobody has noticed. Then
// the lead is doubled until it suffices: histories that follow soon from one past most likely double
// it alike. What clocks differ by between healthy members is no reason to.
func Above(newest, lead tree.Zxid, wall time.Time) tree.Zxid {
	at, newest, lead := ZxidAt(wall), min(newest, zxidMax), min(max(lead, second), leadMax)
	if newest >= at+lead+second {
		for lead < leadMax && newest+second/2 > at+lead {
			lead = min(2*lead, leadMax)
		}
	}
	return (max(at+lead, newest+1) + baseMask) &^ baseMask
}

// ZxidAt returns the zxid of a time.
func ZxidAt(t time.Time) tree.Zxid { return tree.Zxid(min(max(t.UnixMicro(), 0), clockMax)) }

// noteLead notes how far the newest zxid is ahead of the wall clock of the member that proposed a
// command. mu is held.
func (r *Replica) noteLead(c *command.Command) {
	if at := ZxidAt(time.UnixMilli(c.Wall)); c.Wall > 0 && r.mu.Zxid > at {
		r.mu.Lead = max(r.mu.Lead, r.mu.Zxid-at)
	}
}

// Given returns the newest zxid and the largest lead of the shard.
func (r *Replica) Given() (newest, lead tree.Zxid) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.Zxid, r.mu.Lead
}
