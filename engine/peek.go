package engine

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A Peek reads this node's replicas without a session, and so without a quorum. What it shows may be
// stale, and may be older than what a session of this node has shown. Its methods are safe for
// concurrent use.
type Peek struct{ reader reader }

// Peek returns a Peek with the given identities.
func (e *Engine) Peek(who ...tree.Identity) Peek { return Peek{reader{engine: e, who: who}} }

// ready returns why a path cannot be read: the node is over, or the shard has yet to load a state. A
// shard has a state once it has applied a Register of this member, of this start or an earlier one.
// Before that an empty tree could pass for one without the znode.
func (p Peek) ready(path string) error {
	e := p.reader.engine
	if err := e.over(); err != nil {
		return err
	}
	self := e.roster.Self()
	if self == 0 {
		return fmt.Errorf("%w: %s", ErrJoining, e.Joining())
	}
	for _, r := range e.shards {
		if r != e.at(path) && !e.reaches(path) {
			continue
		}
		if _, known := r.Origin(session.MemberID(self)); !known {
			return fmt.Errorf("%w: no state was loaded yet%s", ErrJoining, e.onShards([]ShardID{r.Shard}))
		}
	}
	return nil
}

// over returns the error of a read that has just returned err. A node that ends drops its trees only
// when it is over, and the ensemble may begin to load a backup at any time. So it must be called
// after the read.
func (p Peek) over(err error) error {
	e := p.reader.engine
	if over := e.over(); over != nil {
		return over
	}
	if e.seeding.Pending() {
		return fmt.Errorf("%w: the backup that the ensemble begins with is not loaded yet", ErrJoining)
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
	if p.reader.engine.spans(path) {
		return 0
	}
	return p.reader.engine.at(path).Visible()
}

// Walk is Session.Walk.
func (p Peek) Walk(ctx context.Context, path string, fn func(z tree.Zxid, path string, f tree.Found) bool) (tree.Zxid, error) {
	if err := p.ready(path); err != nil {
		return 0, err
	}
	z, err := p.reader.walk(ctx, path, 0, fn)
	return z, p.over(err)
}
