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
// tree has many addresses. So it makes an ephemeral at the target, below the root of the subtree or
// beside it if that is absent, and asks the source for it.
func (c *copier) apart(ctx context.Context, absent bool) error {
	if !Within(c.from.Path, c.to.Path) && !Within(c.to.Path, c.from.Path) {
		return nil
	}
	path := c.to.at("/vivarium-copy-" + rand.Text())
	if absent {
		path = c.to.at("-vivarium-copy-" + rand.Text())
	}
	found, err := c.shows(ctx, path)
	switch {
	case err != nil:
		return fmt.Errorf("whether source and target are one tree: %w", err)
	case found:
		return fmt.Errorf("%s and %s: %w", c.from.Path, c.to.Path, ErrOneTree)
	}
	return nil
}

// shows makes an ephemeral at the target, and reports whether the source shows it. Nobody else knows
// its name, so what is deleted is what was made.
func (c *copier) shows(ctx context.Context, path string) (found bool, err error) {
	anyone := []wire.ACL{{Perms: wire.PermRead | wire.PermDelete, Scheme: "world", ID: "anyone"}}
	made := wire.Operation{Op: wire.OpCreate, Path: path, ACL: anyone, Flags: wire.FlagsEphemeral}
	_, again, err := c.to.do(ctx, made)
	switch {
	case client.CodeOf(err) == wire.NoNode:
		return false, fmt.Errorf("%s: its parent must exist at the target", c.to.Path)
	case err != nil && (!again || client.CodeOf(err) != wire.NodeExists):
		return false, fmt.Errorf("target: %w", err)
	}
	defer func() {
		_, _, e := c.to.do(ctx, wire.Operation{Op: wire.OpDelete, Path: path, Version: -1})
		if e != nil && client.CodeOf(e) != wire.NoNode && err == nil {
			err = fmt.Errorf("target: %w", e)
		}
	}()
	for _, op := range []wire.Op{wire.OpSync, wire.OpExists} {
		if _, _, err = c.from.do(ctx, wire.Operation{Op: op, Path: path}); err != nil {
			break
		}
	}
	if client.CodeOf(err) == wire.NoNode {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("source: %w", err)
	}
	return true, nil
}
