package campaign

import (
	"context"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	mortalsPath = "/mortals" // the parent of TTL znodes
	// A TTL is from ttlMin to ttlMax. Where time is virtual, it is up to ttlMost.
	ttlMin, ttlMax, ttlMost = 500 * time.Millisecond, 20 * time.Second, 3 * 24 * time.Hour
	// mortalsAmong is how many of its newest TTL znodes a client looks at.
	mortalsAmong = 60
	// reapEvery is embed.Config.ContainerCheckInterval.
	reapEvery = time.Second
)

// A mortalClient creates TTL znodes and looks whether they are gone: at some of those with a short
// TTL as soon as they must be, at others at any time.
type mortalClient struct{ paths []string }

func (k *mortalClient) step(ctx context.Context, c *client) {
	id := c.next()
	q := Request{Call: callCreate, Path: c.area() + mortalsPath + "/" + id, Data: id, Mode: int(embed.TTL), TTL: c.ttl()}
	made := c.do(q).Outcome == applied
	if made {
		k.paths = append(k.paths[max(0, len(k.paths)-mortalsAmong):], q.Path)
	}
	switch {
	case made && q.TTL < long && c.rng.IntN(2) == 0:
		pause(ctx, q.TTL+reapRoom+tick)
		c.do(Request{Call: callSyncGet, Path: q.Path})
	case len(k.paths) > 0:
		c.do(Request{Call: callSyncGet, Path: k.paths[c.rng.IntN(len(k.paths))]})
	}
}

// ttl returns a random TTL. Each tenth of the orders of magnitude is as likely.
func (c *client) ttl() time.Duration {
	most := ttlMax
	if c.w.virtual {
		most = ttlMost
	}
	span := math.Log(float64(most) / float64(ttlMin))
	return time.Duration(float64(ttlMin) * math.Exp(span*c.rng.Float64())).Truncate(time.Millisecond)
}
