package engine

import (
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// Zxids, and with them fencing tokens and ids of sessions, grow over all histories of an ensemble,
// though a forced recovery or a backup knows only a part of what was given. Each new history
// therefore begins at the Unix time in microseconds. No shard applies a million transactions a
// second, so at any time all zxids that were ever given are below the clock. The clocks of members
// must be about right, and nothing else has to be known of the past.
const (
	second   = 1_000_000
	clockMax = 1 << 60
	baseMask = 1<<12 - 1 // in hex, people see where a history begins
	// aheadMax is how far zxids may be ahead of a clock that is about right: by the clocks of other
	// members, and by histories that followed one another within seconds.
	aheadMax = 60 * 60 * second
	// zxidStep is what a new history leaves free above zxids that are further ahead.
	zxidStep = 1 << 32
)

// above returns the zxid after which those of a new history begin. Newest is the largest known of
// the past, and made is when it was the newest. If zxids are far ahead of the clock, which then was
// wrong, the time is added to them.
func above(newest tree.Zxid, made, wall time.Time) tree.Zxid {
	now := max(zxidAt(made), zxidAt(wall)) + second
	base := (newest/zxidStep+2)*zxidStep + now
	if newest < zxidAt(made)+aheadMax {
		base = max(now, newest+second)
	}
	return (base + baseMask) &^ baseMask
}

// zxidAt returns the zxid of a time.
func zxidAt(t time.Time) tree.Zxid { return tree.Zxid(min(max(t.UnixMicro(), 0), clockMax)) }
