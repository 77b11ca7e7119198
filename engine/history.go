package engine

import (
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// Zxids, and with them fencing tokens and ids of sessions, grow over all histories of an ensemble,
// though a forced recovery or a backup knows only a part of what was given. Each new history
// therefore begins a second after the Unix time in microseconds. No shard applies a million
// transactions a second, so at any time all zxids that were ever given are below the clock. The clocks
// of members must be about right, and nothing else has to be known of the past.
//
// A clock that was wrong leaves zxids ahead of the ones that are right. What follows begins ahead of
// the clock, too, and not just above the newest zxid: of two histories after one past, the later one
// has the larger zxids.
const (
	second   = 1_000_000
	clockMax = 1 << 58
	leadMax  = 1 << 62   // no sum with it overflows
	baseMask = 1<<12 - 1 // in hex, people see where a history begins
)

// above returns the zxid after which those of a new history begin. Newest is the largest known of
// the past, and made is when it was the newest.
func above(newest tree.Zxid, made, wall time.Time) tree.Zxid {
	now := max(zxidAt(made), zxidAt(wall))
	return (now + lead(newest, zxidAt(made)) + baseMask) &^ baseMask
}

// lead returns how far a new history begins ahead of the clock. It is a second, or doubled until it
// is more than the past was ahead at a time. By the doubling, histories that follow from one another
// are all as far ahead, unless one lasts less than the half second that is left above the newest.
func lead(newest, at tree.Zxid) tree.Zxid {
	lead := tree.Zxid(second)
	for lead < leadMax && at+lead < newest+second/2 {
		lead *= 2
	}
	return lead
}

// zxidAt returns the zxid of a time.
func zxidAt(t time.Time) tree.Zxid { return tree.Zxid(min(max(t.UnixMicro(), 0), clockMax)) }
