package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// ErrOneTree says that source and target are one within the other, in the same tree. Each copied
// znode would have to be copied again, or what is copied would be deleted.
var ErrOneTree = errors.New("source and target are in one tree, one within the other")

// Within reports whether a path is at or below another one.
func Within(path, at string) bool {
	return at == "/" || path == at || strings.HasPrefix(path, at+"/")
}

// apart returns ErrOneTree unless the paths of both sides are apart, or are those of two trees. One
// tree has many addresses. So it makes a znode at the target, and asks the source for it. absent
// says that the target does not have the root of the subtree.
func (c *copier) apart(ctx context.Context, absent bool) error {
	if !Within(c.from.Path, c.to.Path) && !Within(c.to.Path, c.from.Path) {
		return nil
	}
	path := c.to.Path
	if !absent {
		path = c.to.at("/vivarium-copy-" + rand.Text())
	}
	mark := rand.Text()
	found, err := c.shows(ctx, path, mark)
	switch {
	case err != nil:
		return fmt.Errorf("whether source and target are one tree: %w", err)
	case found:
		return fmt.Errorf("%s and %s: %w", c.from.Path, c.to.Path, ErrOneTree)
	}
	return nil
}

// shows makes an ephemeral with a mark at the target, and reports whether the source shows it.
func (c *copier) shows(ctx context.Context, path, mark string) (found bool, err error) {
	anyone := []wire.ACL{{Perms: wire.PermRead | wire.PermDelete, Scheme: "world", ID: "anyone"}}
	o := wire.Operation{Op: wire.OpCreate, Path: path, Data: []byte(mark), ACL: anyone, Flags: wire.FlagsEphemeral}
	_, again, err := c.to.do(ctx, o)
	switch {
	case client.CodeOf(err) == wire.NoNode:
		return false, fmt.Errorf("%s: its parent must exist at the target", path)
	case again && client.CodeOf(err) == wire.NodeExists:
	case err != nil:
		return false, fmt.Errorf("target: %w", err)
	}
	defer func() {
		_, _, e := c.to.do(ctx, wire.Operation{Op: wire.OpDelete, Path: path, Version: -1})
		if e != nil && client.CodeOf(e) != wire.NoNode && err == nil {
			err = fmt.Errorf("target: %w", e)
		}
	}()
	if _, _, err = c.from.do(ctx, wire.Operation{Op: wire.OpSync, Path: path}); err != nil {
		return false, fmt.Errorf("source: sync: %w", err)
	}
	r, _, err := c.from.do(ctx, wire.Operation{Op: wire.OpGetData, Path: path})
	switch client.CodeOf(err) {
	case wire.NoNode, wire.NoAuth: // anyone may read the one that was made
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("source: %w", err)
	}
	return string(r.Data) == mark, nil
}
