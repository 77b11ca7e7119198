package campaign

import "context"

// peekAmong is how many of the newest sessions peekStep chooses from.
const peekAmong = 60

// peekStep looks for a marker of some session, which may be alive, ending or over.
func peekStep(_ context.Context, c *client) {
	if marker := c.w.h.marker(c.rng); marker != "" {
		c.do(Request{Call: callSyncGet, Path: marker, Within: c.within()})
	}
}
