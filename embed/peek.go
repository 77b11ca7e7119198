package embed

import (
	"context"
	"iter"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A Peek reads a node's own replica, as it is now, without a session. It needs no quorum. What it
// shows was true once, but may be stale by any amount: the node may be cut off, or may have just
// started. Two reads never go back in time, except across a restart. Use a Session and Sync for
// anything that must be current, and never decide from a Peek who may do something.
//
// A Peek lasts as long as its node, and costs nothing to keep. Its methods may be called by any
// number of goroutines. The zero Peek is closed: ErrClosed.
type Peek struct {
	peek *engine.Peek // nil: err
	err  error
}

// Peek returns a view of this node's own replica that is possibly stale. It is for what a service
// reads before there is a quorum, such as its own configuration at the start:
//
//	node, err := embed.Start(cfg)
//	...
//	data, _, err := node.Peek().Get("/service/config")
//
// Start has loaded what the directory knows to be committed. Then Peek works even if no other member
// is up. Status tells which zxid it shows. Without credentials it reads what anyone may read. Paths
// are those of the whole tree.
//
// Errors of its methods: ErrJoining while the node has loaded no state, because it is new to its
// ensemble, or while the ensemble is loaded from a backup; ErrAuthFailed for the credentials; ErrClosed and ErrFailed; ErrInvalidPath, ErrNoNode,
// ErrNoAuth (Read).
func (n *Node) Peek(auth ...Auth) Peek {
	who, err := n.identities(auth)
	if err != nil {
		return Peek{err: err}
	}
	p := n.in().Engine.Peek(who...)
	return Peek{peek: &p}
}

// may returns why nothing can be read at a path.
func (p Peek) may(path string) error {
	switch {
	case p.err != nil:
		return p.err
	case p.peek == nil:
		return ErrClosed
	}
	return tree.ValidatePath(path)
}

// Get returns the data and Stat of a znode. The data belongs to the caller. It is nil if it was set
// to nil.
func (p Peek) Get(path string) ([]byte, Stat, error) {
	if err := p.may(path); err != nil {
		return nil, Stat{}, opError("peek", path, err)
	}
	data, stat, err := p.peek.Get(path)
	return data, stat, opError("peek", path, err)
}

// Exists returns the Stat of a znode, and whether the znode exists.
func (p Peek) Exists(path string) (Stat, bool, error) {
	if err := p.may(path); err != nil {
		return Stat{}, false, opError("peek", path, err)
	}
	stat, ok, err := p.peek.Exists(path)
	return stat, ok, opError("peek", path, err)
}

// Children returns the sorted names of a znode's children and the znode's Stat, as
// Session.Children does.
func (p Peek) Children(path string) ([]string, Stat, error) {
	if err := p.may(path); err != nil {
		return nil, Stat{}, opError("peek", path, err)
	}
	names, stat, err := p.peek.Children(path)
	return names, stat, opError("peek", path, err)
}

// Walk yields a znode and all below it, as they were at one zxid; see Session.Walk.
func (p Peek) Walk(ctx context.Context, path string) iter.Seq2[Znode, error] {
	return walk("peek", path, func(fn func(Zxid, string, tree.Found) bool) (Zxid, error) {
		if err := p.may(path); err != nil {
			return 0, err
		}
		return p.peek.Walk(ctx, path, fn)
	})
}
