package forest

import (
	"context"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Peek reads this node's replicas without a session, and so without a quorum. What it shows may be
// stale, and may be older than what a session of this node has shown. Its methods are safe for
// concurrent use.
type Peek struct {
	reader Reader
	node   Node
}

// A Node is what a Peek needs from above it.
type Node interface {
	// Joined returns this member's id, or why the node has none.
	Joined() (session.MemberID, error)
	// NotLoaded is the error of a read on a shard that has no state yet.
	NotLoaded(replication.ShardID) error
	// Hides returns why nothing can be read now that was read a moment ago, or nil.
	Hides() error
}

// NewPeek returns a Peek with the given identities.
func NewPeek(f Forest, n Node, who []tree.Identity) Peek { return Peek{Reader{Forest: f, Who: who}, n} }

// ready returns why a path cannot be read: the node is over, or the shard has yet to load a state. A
// shard has a state once it has applied a Register of this member, of this start or an earlier one.
// Before that an empty tree could pass for one without the znode.
func (p Peek) ready(path string) error {
	self, err := p.node.Joined()
	if err != nil {
		return err
	}
	f := p.reader.Forest
	for _, r := range f {
		if r != f.At(path) && !f.Reaches(path) {
			continue
		}
		if _, known := r.Origin(self); !known {
			return p.node.NotLoaded(r.Shard)
		}
	}
	return nil
}

// over returns the error of a read that has just returned err. A node that ends drops its trees only
// when it is over, and the ensemble may begin to load a backup at any time. So it must be called
// after the read.
func (p Peek) over(err error) error {
	if hides := p.node.Hides(); hides != nil {
		return hides
	}
	return err
}

// Get is Session.Get.
func (p Peek) Get(path string) ([]byte, tree.Stat, error) {
	if err := p.ready(path); err != nil {
		return nil, tree.Stat{}, err
	}
	data, stat, err := p.reader.Get(path)
	return data, stat, p.over(err)
}

// Exists is Session.Exists.
func (p Peek) Exists(path string) (tree.Stat, bool, error) {
	if err := p.ready(path); err != nil {
		return tree.Stat{}, false, err
	}
	stat, ok, err := p.reader.Exists(path)
	return stat, ok, p.over(err)
}

// ACL is Session.ACL.
func (p Peek) ACL(path string) ([]tree.ACL, tree.Stat, error) {
	if err := p.ready(path); err != nil {
		return nil, tree.Stat{}, err
	}
	acl, stat, err := p.reader.ACL(path)
	return acl, stat, p.over(err)
}

// Children is Session.Children.
func (p Peek) Children(path string) ([]string, tree.Stat, error) {
	if err := p.ready(path); err != nil {
		return nil, tree.Stat{}, err
	}
	names, stat, err := p.reader.Children(path)
	return names, stat, p.over(err)
}

// Descendants is Session.Descendants.
func (p Peek) Descendants(path string) (int, error) {
	if err := p.ready(path); err != nil {
		return 0, err
	}
	n, err := p.reader.Descendants(path)
	return n, p.over(err)
}

// Page is Session.Page.
func (p Peek) Page(path, after string, n int) ([]string, error) {
	if err := p.ready(path); err != nil {
		return nil, err
	}
	names, err := p.reader.Page(path, after, n)
	return names, p.over(err)
}

// Zxid returns a zxid of the path's shard that reads show. It is zero for a path that is on all
// shards, whose zxids do not compare.
func (p Peek) Zxid(path string) tree.Zxid {
	if p.reader.Spans(path) {
		return 0
	}
	return p.reader.At(path).Visible()
}

// Walk is Session.Walk.
func (p Peek) Walk(ctx context.Context, path string, fn func(z tree.Zxid, path string, f tree.Found) bool) (tree.Zxid, error) {
	if err := p.ready(path); err != nil {
		return 0, err
	}
	z, err := p.reader.Walk(ctx, path, 0, fn)
	return z, p.over(err)
}
