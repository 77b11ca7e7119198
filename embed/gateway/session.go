package gateway

import (
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// open opens a session for a client.
func (g *Gateway) open(timeout time.Duration, who []tree.Identity) (*engine.Session, error) {
	return g.node.Engine.OpenRemote(g.ctx, timeout, who...)
}

// resume attaches a client to its session; who had it before is told that it has moved. The error is engine.ErrSessionExpired for whatever
// the client is told "expired" of.
func (g *Gateway) resume(id tree.SessionID, password []byte, timeout time.Duration, who []tree.Identity) (*engine.Session, error) {
	if len(password) != 16 {
		return nil, engine.ErrSessionExpired
	}
	return g.node.Engine.Resume(g.ctx, id, [16]byte(password), timeout, who...)
}
