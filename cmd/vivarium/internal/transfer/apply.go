package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// ErrExists says that the target has znodes which this copy has not created.
var ErrExists = errors.New("it exists at the target already")

var (
	errOthers = errors.New("deleted at the source, but the target has other children below it")
	errGone   = errors.New("the source does not have it any more; the target keeps what was copied")
)

// vanishedMax is how often a znode is tried again whose parent vanishes from the target.
const vanishedMax = 3

// apply makes a znode at the target what it is at the source. It reports whether the source has
// it. A znode that a server does not show or take is noted, and no error.
func (c *copier) apply(ctx context.Context, name string) (present bool, err error) {
	if reserved(c.to.at(name)) {
		return false, c.settled(name, &blockedError{errNoPlace})
	}
	for range vanishedMax {
		var born int64 // of the parent as it is known now
		if name != "" {
			born = c.known.born(parent(name))
		}
		present, err = c.applyOnce(ctx, name)
		if !errors.Is(err, errAbsent) {
			return present, c.settled(name, err)
		}
		// The parent is not at the target: it comes late, or was removed there.
		if name == "" {
			return false, fmt.Errorf("%s: its parent must exist at the target", c.to.at(name))
		}
		if c.known.forgetIf(parent(name), born) {
			c.news.all() // other children of it have gone, too
		}
		if up, err := c.apply(ctx, parent(name)); err != nil || !up {
			return false, err
		}
	}
	vanishes := errors.New("its parent vanishes from the target again and again")
	return false, c.settled(name, &blockedError{vanishes})
}

// applyOnce applies a znode whose parent is at the target. Otherwise the error is errAbsent.
func (c *copier) applyOnce(ctx context.Context, name string) (present bool, err error) {
	lock := &c.locks[maphash.String(c.seed, name)%uint64(len(c.locks))]
	lock.Lock()
	defer lock.Unlock()
	z, err := c.from.read(ctx, name)
	switch {
	case errors.Is(err, errAbsent), err == nil && z.ephemeral:
		return false, c.remove(ctx, name)
	case name == "" && c.cfg.RootStays && (err == nil || errors.Is(err, errHidden)):
		c.known.put(name, z.stamp)
		return true, nil
	case err != nil:
		return false, err
	}
	err = c.write(ctx, name, &z)
	return err == nil, err
}

// settled notes why a znode is not copied, or that it is. It returns the errors that end the copy.
func (c *copier) settled(name string, err error) error {
	var b *blockedError
	if err != nil && !errors.As(err, &b) {
		return fmt.Errorf("%s: %w", c.from.at(name), err)
	}
	c.note(name, err)
	return nil
}

// write creates or changes a znode at the target. errAbsent says that the parent is missing.
func (c *copier) write(ctx context.Context, name string, z *znode) error {
	have, ok := c.known.get(name)
	if ok {
		err := c.change(ctx, name, have, z)
		if !errors.Is(err, errAbsent) {
			return err
		}
		c.known.forget(name)
		c.news.all() // what was below it has gone, too
	} else if c.cfg.Overwrite {
		err := c.adopt(ctx, name, z)
		if !errors.Is(err, errAbsent) {
			return err
		}
	}
	return c.create(ctx, name, z)
}

func (c *copier) create(ctx context.Context, name string, z *znode) error {
	o := wire.Operation{Op: wire.OpCreate, Path: c.to.at(name), Data: z.data, ACL: z.acl}
	_, again, err := c.to.do(ctx, o)
	if client.CodeOf(err) == wire.NodeExists {
		return c.adoptOwn(ctx, name, z, again)
	}
	if err != nil {
		return blocked(err)
	}
	c.known.put(name, z.stamp)
	c.counts.created.Add(1)
	return nil
}

// adoptOwn takes a znode that a create has found at the target. If the create was sent again, it
// may be the one that was created. Otherwise it belongs to someone else.
func (c *copier) adoptOwn(ctx context.Context, name string, z *znode, again bool) error {
	if again {
		there, err := c.to.read(ctx, name)
		hidden := errors.Is(err, errHidden) && bytes.Equal(there.data, z.data)
		if hidden || err == nil && same(&there, z) {
			c.known.put(name, z.stamp)
			c.counts.created.Add(1)
			return nil
		}
	}
	if c.cfg.Overwrite {
		return c.adopt(ctx, name, z)
	}
	return fmt.Errorf("%s: %w", c.to.at(name), ErrExists)
}

func same(a, b *znode) bool {
	return bytes.Equal(a.data, b.data) && (a.data == nil) == (b.data == nil) &&
		slices.Equal(a.acl, b.acl)
}

// adopt gives a znode that the target has already the data and ACL of the source's.
func (c *copier) adopt(ctx context.Context, name string, z *znode) error {
	there, err := c.to.read(ctx, name)
	switch {
	case err != nil && !errors.Is(err, errHidden):
		return err
	case there.ephemeral:
		return &blockedError{errors.New("the target has an ephemeral there")}
	case err == nil && same(&there, z):
		c.known.put(name, z.stamp)
		return nil
	}
	return c.change(ctx, name, stamp{}, z)
}

// change changes what differs from the stamp of what was copied. The ACL comes first, so that new
// data is never under an old ACL that lets more clients read it.
func (c *copier) change(ctx context.Context, name string, have stamp, z *znode) error {
	var err error
	acl := wire.Operation{Op: wire.OpSetACL, Path: c.to.at(name), ACL: z.acl, Version: -1}
	data := wire.Operation{Op: wire.OpSetData, Path: c.to.at(name), Data: z.data, Version: -1}
	if have.czxid != z.czxid || have.aversion != z.aversion {
		_, _, err = c.to.do(ctx, acl)
	}
	if err == nil && (have.czxid != z.czxid || have.mzxid != z.mzxid) {
		_, _, err = c.to.do(ctx, data)
	}
	if err != nil {
		return blocked(err)
	}
	if have != z.stamp {
		c.counts.changed.Add(1)
	}
	c.known.put(name, z.stamp)
	return nil
}

// remove deletes what this copy has created at a name and below it, or made like the source's. With
// Prune it also deletes what else is there, at the first walk. It does not delete the whole subtree:
// a source without it may be a server that has lost its data.
func (c *copier) remove(ctx context.Context, name string) error {
	if name == "" {
		return errGone
	}
	if c.pruning.Load() {
		return c.prune(ctx, name)
	}
	if _, ok := c.known.get(name); !ok {
		return nil
	}
	for _, child := range c.known.children(name) {
		if err := c.remove(ctx, child); err != nil {
			return err
		}
	}
	return c.delete(ctx, name)
}

// delete deletes a znode. One that has children which are not of this copy stays.
func (c *copier) delete(ctx context.Context, name string) error {
	_, _, err := c.to.do(ctx, wire.Operation{Op: wire.OpDelete, Path: c.to.at(name), Version: -1})
	switch client.CodeOf(err) {
	case wire.NoNode:
	case wire.NotEmpty:
		if _, ok := c.known.get(name); ok {
			c.known.put(name, stamp{}) // still ours: its data and ACL are written when it comes back
		}
		return &blockedError{errOthers}
	default:
		if err != nil {
			return blocked(err)
		}
		c.counts.deleted.Add(1)
	}
	c.known.forget(name)
	return nil
}

// prune deletes a subtree of the target. Ephemerals stay, and with them what is above them.
func (c *copier) prune(ctx context.Context, name string) error {
	names, stat, err := c.to.list(ctx, name)
	switch {
	case errors.Is(err, errAbsent):
		c.known.forget(name)
		return nil
	case err != nil:
		return err
	case stat.EphemeralOwner != 0:
		return &blockedError{errors.New("the target has an ephemeral there")}
	}
	var kept error
	for _, child := range names {
		var b *blockedError
		switch err := c.prune(ctx, child); {
		case errors.As(err, &b):
			kept = err
		case err != nil:
			return err
		}
	}
	if kept != nil {
		return kept
	}
	return c.delete(ctx, name)
}
