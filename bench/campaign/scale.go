package campaign

import (
	"context"
	"time"
)

// ScaleMax is the greatest scale, at which a tick is a minute. A node takes no longer one.
const ScaleMax = int(time.Minute / tick)

// scale is Settings.Scale. Only Run sets it, before anything else begins.
//
// All durations and times of this package are in the campaign's own time, from requests to the
// history. The functions below are the way from there to the clock that members live by. Ground.Now
// is the way back.
var scale time.Duration = 1

// stretch returns how long d is on the members' clock.
func stretch(d time.Duration) time.Duration { return scale * d }

// limit is context.WithTimeout.
func limit(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, stretch(d))
}

// after is time.After.
func after(d time.Duration) <-chan time.Time { return time.After(stretch(d)) }
