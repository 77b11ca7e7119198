package embed

import (
	"context"
	"slices"
)

// An Opener opens sessions. A *Node is one. In a process that is no member, a client.Client of
// package embed/client is. What must outlive a session takes an Opener and opens one session after
// the other: lock.Do, election.Run, election.NewLatch, election.Balance. NewSession may be called by
// any number of goroutines. Its errors are those of Node.NewSession.
type Opener interface {
	NewSession(ctx context.Context, o SessionOptions) (*Session, error)
}

// OpenerWith returns an Opener that opens the sessions of another one with the given options.
//
//	tenant := embed.OpenerWith(node, embed.SessionOptions{Timeout: 4 * time.Second, Root: "/tenant"})
//	err := election.Run(ctx, tenant, "/scheduler", nil, schedule)
//
// If a call of NewSession has options too, its Timeout replaces the given one unless it is zero, its
// Root is below the given one, and its Auth is added. Wrong options are an error of NewSession.
func OpenerWith(from Opener, o SessionOptions) Opener {
	o.Auth = slices.Clone(o.Auth)
	return openerWith{from, o}
}

type openerWith struct {
	from    Opener
	options SessionOptions
}

// NewSession implements Opener.
func (w openerWith) NewSession(ctx context.Context, o SessionOptions) (*Session, error) {
	above, err := w.options.root()
	if err != nil {
		return nil, opError("new session", w.options.Root, err)
	}
	below, err := o.root()
	if err != nil {
		return nil, opError("new session", o.Root, err)
	}
	return w.from.NewSession(ctx, SessionOptions{
		Timeout: or(o.Timeout, w.options.Timeout),
		Root:    string(above) + string(below),
		Auth:    slices.Concat(w.options.Auth, o.Auth),
	})
}
