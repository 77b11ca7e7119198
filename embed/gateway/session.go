package gateway

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// handshakeContext returns a context for a handshake. It ends when nobody has led for as long as an election takes:
// a client that has several servers is to try the next one, and ZooKeeper does not let it wait at all.
func (g *Gateway) handshakeContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(g.ctx)
	g.goroutines.Go(func() {
		defer cancel()
		tick := time.NewTicker(g.node.Config.Tick)
		defer tick.Stop()
		for since := time.Now(); time.Since(since) < engine.LongestElection(g.node.Config.Tick); {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if g.serving() {
				since = time.Now()
			}
		}
	})
	return ctx, cancel
}

// open opens a session for a client.
func (g *Gateway) open(ctx context.Context, timeout time.Duration, who []tree.Identity) (*engine.Session, error) {
	return g.node.Engine.OpenRemote(ctx, timeout, who...)
}

// resume attaches a client to its session; who had it before is told that it has moved. The error is engine.ErrSessionExpired for whatever
// the client is told "expired" of.
func (g *Gateway) resume(ctx context.Context, id tree.SessionID, password []byte, timeout time.Duration, who []tree.Identity) (*engine.Session, error) {
	if len(password) != 16 {
		return nil, engine.ErrSessionExpired
	}
	return g.node.Engine.Resume(ctx, id, [16]byte(password), timeout, who...)
}
