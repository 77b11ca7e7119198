package inside

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A Backend is what a session does in the ensemble. A member's is an engine.Session. That of
// package embed/client is behind a connection. Its paths are of the whole tree. The methods of
// embed.Session with these names say what they do.
type Backend interface {
	ID() tree.SessionID
	Timeout() time.Duration
	State() (session.State, <-chan struct{})
	Context() context.Context
	Done() <-chan struct{}
	Err() error
	Close() error

	// NewTerms returns the terms of a transaction that has none yet.
	NewTerms() Terms
	// Do submits a transaction and waits for it. terms may be nil.
	Do(ctx context.Context, ops []tree.Op, terms Terms) ([]tree.Result, error)
	// Submit is Do without waiting. The operations' data may be reused once it returns.
	Submit(ctx context.Context, ops []tree.Op, terms Terms) Pending
	// Claim is Submit for a transaction that creates ephemerals.
	Claim(ctx context.Context, ops []tree.Op, terms Terms) Claim

	Get(ctx context.Context, path string) ([]byte, tree.Stat, error)
	Exists(ctx context.Context, path string) (tree.Stat, bool, error)
	Children(ctx context.Context, path string) ([]string, tree.Stat, error)
	Page(ctx context.Context, path, after string, n int) ([]string, error)
	Walk(ctx context.Context, path string, depth int, fn func(at tree.Zxid, path string, f tree.Found) bool) (tree.Zxid, error)
	ACL(ctx context.Context, path string) ([]tree.ACL, tree.Stat, error)
	Descendants(ctx context.Context, path string) (int, error)
	Ephemerals(ctx context.Context, prefix string) ([]string, error)
	Before(ctx context.Context, path string, match ...string) (name string, ok bool, err error)
	Member(ctx context.Context, id tree.SessionID) (engine.MemberID, error)
	Sync(ctx context.Context, path string) (tree.Zxid, error)
	Await(ctx context.Context, path string, z tree.Zxid) error
	Watch(ctx context.Context, path string, mode watch.Mode, o watch.Options, root string) (Watch, error)
	// Follow is a persistent Watch, a Get and a Sync, in this order and without a pause. So the events
	// go on from what Get has shown, and that is no later than Since.
	Follow(ctx context.Context, path string, o watch.Options, root string) (Followed, error)

	// Queued counts the callers that wait behind one another for a claim that is held again and
	// again.
	Queued() *meter.Gauge
	// Log returns the log of the session's node or client, for what no call can tell.
	Log() *slog.Logger
}

// Followed is where a Follow begins.
type Followed struct {
	Watch Watch
	Data  []byte
	Stat  tree.Stat
	Err   error     // of the Get: tree.ErrNoNode or tree.ErrNoAuth
	Since tree.Zxid // of the Sync: all events up to here are in Watch
}

// Checked returns f, or closes its watch and returns why there is none.
func (f Followed) Checked(synced error) (Followed, error) {
	err := f.Err
	if errors.Is(err, tree.ErrNoNode) || errors.Is(err, tree.ErrNoAuth) {
		err = nil
	}
	if err = cmp.Or(err, synced); err != nil {
		f.Watch.Close()
		return Followed{}, err
	}
	return f, nil
}

// Terms say how a transaction depends on claims.
type Terms interface {
	// Guard returns the operations that refuse the transaction unless the tenure lasts.
	Guard(*engine.Tenure) ([]tree.Op, error)
	// Release returns the operations that give a claim up, whose tenure ends now.
	Release(Claim) ([]tree.Op, error)
	// Set says whether a claim of the transaction takes the place of something lost, and what the
	// claim is for.
	Set(inherits bool, kind engine.ClaimKind)
	// Undo is called if the transaction is not sent.
	Undo()
}

// A Pending is a submitted transaction: see engine.Pending.
type Pending interface {
	Done() <-chan struct{}
	Result() ([]tree.Result, error)
}

// A Claim is the ephemerals of a transaction: see engine.Claim.
type Claim interface {
	Created(ctx context.Context) ([]tree.Result, error)
	Hold(again bool) (*engine.Tenure, error)
	Flush() error
	Done() <-chan struct{}
	Err() error
	Release() error
}

// A Watch is a stream of events: see engine.Watch.
type Watch interface {
	Events() <-chan watch.Event
	Zxid() tree.Zxid
	Err() error
	Close()
}
