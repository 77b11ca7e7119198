package backup

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
)

// A Target is what an import writes to. Session returns one. Its methods are called one at a time.
// Their errors match those of package embed: ErrNoNode, ErrNodeExists, ErrNotEmpty, ErrBadVersion.
type Target interface {
	// Root returns the path in the whole tree of what the target calls "/".
	Root() string
	// Sync makes later reads show everything that was acknowledged before.
	Sync(ctx context.Context, path string) error
	// Get returns the data, the ACL and the owner of a znode, and what Delete needs to know it again.
	Get(ctx context.Context, path string) (Znode, error)
	// Children returns the names of a znode's children.
	Children(ctx context.Context, path string) ([]string, error)
	// Create creates the znodes in one transaction, which are all below one child of the root. An
	// error that matches embed.ErrNodeExists says that none was created, because one exists.
	Create(ctx context.Context, znodes []Znode) error
	// Overwrite sets the ACL of a znode, and then the data: new data is never under an old ACL, which
	// may let more clients read it.
	Overwrite(ctx context.Context, z Znode) error
	// Delete deletes znodes as Get has returned them, without their data and ACL, in one
	// transaction. They are all below one child of the root, and children come first. If one was
	// written to since, or created anew, the error matches embed.ErrBadVersion. Errors that match
	// that, embed.ErrNoNode or embed.ErrNotEmpty say that none was deleted.
	Delete(ctx context.Context, znodes []Znode) error
}

// Session returns the tree as a session sees it: a path of a backup is below the session's Root. To
// create znodes with any ACL, the session needs the permissions to do so; the superuser has them.
func Session(s *embed.Session) Target { return target{s} }

type target struct{ s *embed.Session }

func (t target) Root() string { return t.s.Root() }

func (t target) Sync(ctx context.Context, path string) error {
	_, err := t.s.Sync(ctx, path)
	return err
}

func (t target) Get(ctx context.Context, path string) (Znode, error) {
	data, stat, err := t.s.Get(ctx, path)
	if err != nil {
		return Znode{}, err
	}
	acl, _, err := t.s.ACL(ctx, path)
	return Znode{Path: path, Data: data, ACL: acl, Owner: stat.EphemeralOwner, Mzxid: stat.Mzxid}, err
}

func (t target) Children(ctx context.Context, path string) ([]string, error) {
	names, _, err := t.s.Children(ctx, path)
	return names, err
}

func (t target) Create(ctx context.Context, znodes []Znode) error {
	ops := make([]embed.Op, len(znodes))
	for i, z := range znodes {
		ops[i] = embed.OpCreateWith(z.Path, z.Data, embed.CreateOptions{Mode: z.Mode, ACL: z.ACL, TTL: z.TTL})
	}
	_, err := t.s.Multi(ctx, ops...)
	return err
}

func (t target) Overwrite(ctx context.Context, z Znode) error {
	if _, err := t.s.SetACL(ctx, z.Path, z.ACL, embed.AnyVersion); err != nil {
		return err
	}
	_, err := t.s.Set(ctx, z.Path, z.Data, embed.AnyVersion)
	return err
}

// Delete checks the Mzxid. No two znodes have the same one at the same path, while a version begins
// again at zero in each new znode.
func (t target) Delete(ctx context.Context, znodes []Znode) error {
	ops := make([]embed.Op, 0, 2*len(znodes))
	for _, z := range znodes {
		ops = append(ops, embed.OpCheckMzxid(z.Path, z.Mzxid), embed.OpDelete(z.Path, embed.AnyVersion))
	}
	_, err := t.s.Multi(ctx, ops...)
	return err
}
