package gateway

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A session is what a connection asks of the session it is attached to. Once it is resumed elsewhere, this attachment has ended.
type session interface {
	ID() tree.SessionID
	Timeout() time.Duration
	Password() [16]byte
	Heard()                                                   // the client has said something
	Identify(ctx context.Context, who ...tree.Identity) error // it is these from here on, for what is submitted after
	State() (now embed.State, changed <-chan struct{})
	Close() error

	Submit(ctx context.Context, ops []tree.Op) engine.Pending
	Get(path string) ([]byte, tree.Stat, error)
	Exists(path string) (tree.Stat, bool, error)
	ACL(path string) ([]tree.ACL, tree.Stat, error)
	Children(path string) ([]string, tree.Stat, error)
	Descendants(path string) (int, error)
	Ephemerals(ctx context.Context, prefix string) ([]string, error)
	Sync(ctx context.Context, path string) (tree.Zxid, error)
}

// open opens a session for a client.
//
// Until the engine has OpenRemote and Resume it is one of this process, which nobody can resume: see stopgap.go, which goes then.
func (g *Gateway) open(timeout time.Duration, who []tree.Identity) (session, error) {
	return openStopgap(g.ctx, g.node.Engine, timeout, who)
}

// resume attaches a client to its session. The error is engine.ErrSessionExpired for whatever the client is told "expired" of.
func (g *Gateway) resume(id tree.SessionID, password []byte, timeout time.Duration, who []tree.Identity) (session, error) {
	return nil, engine.ErrSessionExpired
}
