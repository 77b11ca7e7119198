package main

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// A remote is a tree as a server shows it, for an import.
type remote struct{ zk *client.Client }

// call sends one operation.
func (r remote) call(ctx context.Context, o wire.Operation) (wire.Reply, error) {
	reply, err := r.zk.Call(ctx, wire.Request{Operation: o})
	return reply, inEmbed(err, o.Path)
}

// errorsOf are the codes that an import must recognize.
var errorsOf = map[wire.Code]error{
	wire.NoNode: embed.ErrNoNode, wire.NodeExists: embed.ErrNodeExists, wire.NotEmpty: embed.ErrNotEmpty, wire.BadVersion: embed.ErrBadVersion,
}

// inEmbed returns an error of package embed for a code that has one.
func inEmbed(err error, path string) error {
	if known := errorsOf[client.CodeOf(err)]; known != nil {
		return fmt.Errorf("%s: %w", path, known)
	}
	return err
}

// transaction sends several operations. It returns the error of the first one that failed.
func (r remote) transaction(ctx context.Context, ops []wire.Operation) error {
	reply, err := r.zk.Call(ctx, wire.Request{Operation: wire.Operation{Op: wire.OpMulti}, Ops: ops})
	if err != nil {
		return err
	}
	for i, result := range reply.Results {
		// OK comes before the one that failed, RuntimeInconsistency after it.
		if result.Err != wire.OK && result.Err != wire.RuntimeInconsistency {
			return inEmbed(&client.Error{Code: result.Err, Path: ops[i].Path}, ops[i].Path)
		}
	}
	return nil
}

func (r remote) Root() string { return r.zk.Root() }

func (r remote) Sync(ctx context.Context, path string) error {
	_, err := r.call(ctx, wire.Operation{Op: wire.OpSync, Path: path})
	return err
}

func (r remote) Get(ctx context.Context, path string) (backup.Znode, error) {
	data, err := r.call(ctx, wire.Operation{Op: wire.OpGetData, Path: path})
	if err != nil {
		return backup.Znode{}, err
	}
	acl, err := r.call(ctx, wire.Operation{Op: wire.OpGetACL, Path: path})
	z := backup.Znode{Path: path, Data: data.Data, Owner: ownerOf(data.Stat.EphemeralOwner), Mzxid: embed.Zxid(data.Stat.Mzxid), Version: data.Stat.Version}
	for _, a := range acl.ACL {
		z.ACL = append(z.ACL, embed.ACL{Perms: embed.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID})
	}
	return z, err
}

// ownerOf returns the session that owns an ephemeral. Servers also mark containers and TTL znodes
// in this field, by the highest bit alone and by the highest byte.
func ownerOf(field int64) embed.SessionID {
	const container, ttl = uint64(1) << 63, 0xff
	if u := uint64(field); u == container || u>>56 == ttl {
		return 0
	}
	return embed.SessionID(field)
}

func (r remote) Children(ctx context.Context, path string) ([]string, error) {
	reply, err := r.call(ctx, wire.Operation{Op: wire.OpGetChildren, Path: path})
	return reply.Names, err
}

func (r remote) Create(ctx context.Context, znodes []backup.Znode) error {
	ops := make([]wire.Operation, len(znodes))
	for i := range znodes {
		ops[i] = creation(&znodes[i])
	}
	return r.transaction(ctx, ops)
}

func creation(z *backup.Znode) wire.Operation {
	o := wire.Operation{Op: wire.OpCreate, Path: z.Path, Data: z.Data, ACL: aclOf(z)}
	switch z.Mode {
	case embed.Container:
		o.Op, o.Flags = wire.OpCreateContainer, wire.FlagsContainer
	case embed.TTL:
		o.Op, o.Flags, o.TTL = wire.OpCreateTTL, wire.FlagsTTL, z.TTL.Milliseconds()
	}
	return o
}

func aclOf(z *backup.Znode) (list []wire.ACL) {
	for _, a := range z.ACL {
		list = append(list, wire.ACL{Perms: wire.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID})
	}
	return list
}

func (r remote) Overwrite(ctx context.Context, z backup.Znode) error {
	_, err := r.call(ctx, wire.Operation{Op: wire.OpSetACL, Path: z.Path, ACL: aclOf(&z), Version: -1})
	if err == nil {
		_, err = r.call(ctx, wire.Operation{Op: wire.OpSetData, Path: z.Path, Data: z.Data, Version: -1})
	}
	return err
}

// Delete looks at the zxid of each znode's last write, because a version begins again at zero in
// each new znode. ZooKeeper's protocol cannot check a zxid in a transaction. So the transaction
// checks the version, and by a child that it creates and deletes that the znode is no ephemeral.
// What is left: a znode that is no ephemeral, has the same version, and took the place of the other
// one between the look and the transaction.
func (r remote) Delete(ctx context.Context, znodes []backup.Znode) error {
	ops := make([]wire.Operation, 0, 3*len(znodes))
	for i := range znodes {
		z := &znodes[i]
		now, err := r.call(ctx, wire.Operation{Op: wire.OpExists, Path: z.Path})
		if err != nil {
			return err
		}
		if now.Stat.Mzxid != int64(z.Mzxid) {
			return fmt.Errorf("%s: %w", z.Path, embed.ErrBadVersion)
		}
		child := wire.Operation{Op: wire.OpCreate, Path: z.Path + "/-", ACL: aclOf(&backup.Znode{ACL: embed.OpenACL()})}
		ops = append(ops, child,
			wire.Operation{Op: wire.OpDelete, Path: child.Path, Version: -1},
			wire.Operation{Op: wire.OpDelete, Path: z.Path, Version: z.Version})
	}
	err := r.transaction(ctx, ops)
	if client.CodeOf(err) == wire.NoChildrenForEphemerals {
		return fmt.Errorf("%w: %w", embed.ErrBadVersion, err)
	}
	return err
}
