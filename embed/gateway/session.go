package gateway

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A session is what a connection serves: one of the ensemble, which is an *engine.Session, or a
// reading in read-only mode. Both can do what is listed here. Only the first can do what needs a
// quorum.
type session interface {
	source
	ID() tree.SessionID
	Timeout() time.Duration
	CurrentState() embed.State
	OnStateChange(notify func())
	Heard()
	Busy(is bool)
	Ephemerals(ctx context.Context, prefix string) ([]string, error)
	SetIdentities(ctx context.Context, who ...tree.Identity) error
	Close() error
	Err() error
}

// handshakeContext returns a context for a handshake. The context ends with the connection, when nobody
// has led for as long as an election takes, or when the read-only mode begins. Then a client with several servers
// tries the next one. ZooKeeper does not make it wait at all.
func (g *Gateway) handshakeContext(over <-chan struct{}) (context.Context, context.CancelFunc) {
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
			case <-over:
				return
			}
			if g.serving() {
				since = time.Now()
			} else if g.readOnly.on() {
				return
			}
		}
	})
	return ctx, cancel
}

// open opens a session for a client.
func (g *Gateway) open(ctx context.Context, timeout time.Duration, who []tree.Identity) (*engine.Session, error) {
	return g.node.Engine.OpenRemote(ctx, timeout, who...)
}

// reattach attaches a client's session to this member. The member that had the session ends the
// former connection. If the client is to be told "expired", the error is engine.ErrSessionExpired.
func (g *Gateway) reattach(ctx context.Context, id tree.SessionID, password []byte, timeout time.Duration, who []tree.Identity) (*engine.Session, error) {
	if len(password) != 16 {
		return nil, engine.ErrSessionExpired
	}
	return g.node.Engine.Reattach(ctx, id, [16]byte(password), timeout, who...)
}
