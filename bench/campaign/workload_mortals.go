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

// A mortalClient creates TTL znodes and looks whether they are gone.
type mortalClient struct{ paths []string }

func (k *mortalClient) step(_ context.Context, c *client) {
	id := c.next()
	q := Request{Call: callCreate, Path: c.area() + mortalsPath + "/" + id, Data: id, Mode: int(embed.TTL), TTL: c.ttl()}
	if r := c.do(q); r.Outcome == applied {
		k.paths = append(k.paths[max(0, len(k.paths)-mortalsAmong):], q.Path)
	}
	if len(k.paths) > 0 {
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
