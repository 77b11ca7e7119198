package shell

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

var open = []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}

func at(op wire.Op, path string) wire.Operation {
	return wire.Operation{Op: op, Path: path, Version: -1}
}

const ttlMax = 1<<40 - 1 // milliseconds

func (s *shell) create(ctx context.Context, a *args) error {
	o, err := createOperation(a)
	if err != nil {
		return err
	}
	if len(a.words) > 2 {
		o.Data = []byte(a.words[2])
	}
	if len(a.words) > 3 {
		o.ACL = s.parseACL(a.words[3])
	}
	r, err := s.call(ctx, o)
	switch client.CodeOf(err) {
	case wire.InvalidACL:
		s.errorln(err)
	case wire.EphemeralOnLocalSession:
		s.errorln("Unable to create ephemeral node on a local session")
	}
	if err != nil {
		return err
	}
	s.errorln("Created " + r.Path) // on stderr, like zkCli
	return nil
}

// createOperation returns the operation for the flags of create.
func createOperation(a *args) (wire.Operation, error) {
	o := wire.Operation{Op: wire.OpCreate, Path: a.words[1], ACL: open}
	e, s, c, t := a.has("e"), a.has("s"), a.has("c"), a.has("t")
	if c && (e || s) {
		return o, usage("-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.")
	}
	ttl, err := a.number("t", 64, 0)
	switch {
	case err != nil:
		return o, err
	case t && e:
		return o, usage("TTLs cannot be used with Ephemeral znodes")
	case t && c:
		return o, usage("TTLs cannot be used with Container znodes")
	case t && (ttl < 1 || ttl > ttlMax):
		return o, usage("ttl must be positive and cannot be larger than: %d", int64(ttlMax))
	}
	switch {
	case c:
		o.Op, o.Flags = wire.OpCreateContainer, wire.FlagsContainer
	case t:
		o.Op, o.Flags, o.TTL = wire.OpCreateTTL, wire.FlagsTTL, ttl
		if s {
			o.Flags = wire.FlagsSequentialTTL
		}
	default:
		if e {
			o.Flags |= wire.FlagsEphemeral
		}
		if s {
			o.Flags |= wire.FlagsSequential
		}
	}
	return o, nil
}

func (s *shell) delete(ctx context.Context, a *args) error {
	if len(a.words) > 2 {
		s.errorln("'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.")
		if !a.has("v") {
			a.flags["v"] = a.words[2:3]
		}
	}
	version, err := a.number("v", 32, -1)
	if err != nil {
		return err
	}
	o := at(wire.OpDelete, a.words[1])
	o.Version = int32(version)
	_, err = s.call(ctx, o)
	return err
}

const (
	batchPreset = 1000
	batchBytes  = 256 << 10 // of paths in a multi: a server closes the connection if a frame is too long
)

// deleteall deletes a subtree, the deepest znodes first, many in one transaction.
func (s *shell) deleteall(ctx context.Context, a *args) error {
	batch, err := a.number("b", 32, batchPreset)
	if err != nil {
		return err
	}
	tree := []string{a.words[1]}
	for i := 0; i < len(tree); i++ { // tree grows
		r, err := s.call(ctx, at(wire.OpGetChildren, tree[i]))
		if err != nil {
			return err
		}
		for _, name := range r.Names {
			tree = append(tree, below(tree[i], name))
		}
	}
	slices.Reverse(tree)
	if batch <= 0 {
		for _, path := range tree {
			if _, err := s.call(ctx, at(wire.OpDelete, path)); err != nil {
				return err
			}
		}
		return nil
	}
	for len(tree) > 0 {
		n, size := 0, 0
		for n < len(tree) && int64(n) < batch && (n == 0 || size < batchBytes) {
			size += len(tree[n])
			n++
		}
		if err := s.deleteBatch(ctx, tree[:n]); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return sentence("Failed to delete some node(s) in the subtree!\nCause: " + describe(err))
		}
		tree = tree[n:]
	}
	return nil
}

func (s *shell) deleteBatch(ctx context.Context, paths []string) error {
	q := wire.Request{}
	q.Op = wire.OpMulti
	for _, path := range paths {
		q.Ops = append(q.Ops, at(wire.OpDelete, path))
	}
	r, err := s.request(ctx, q)
	if err != nil {
		return err
	}
	for i, one := range r.Results {
		if one.Err != wire.OK && i < len(paths) {
			return &client.Error{Code: one.Err, Path: paths[i]}
		}
	}
	return nil
}

func below(path, name string) string {
	if path == "/" {
		return "/" + name
	}
	return path + "/" + name
}

// oldWatch sets a watch if a word follows the path, as the shell of ZooKeeper 3.4 did.
func (s *shell) oldWatch(a *args, usage string) {
	if len(a.words) > 2 {
		s.errorln("'" + a.words[0] + " path [watch]' has been deprecated. Please use '" + a.words[0] + " " + usage + " path' instead.")
		a.flags["w"] = nil
	}
}

func (s *shell) get(ctx context.Context, a *args) error {
	s.oldWatch(a, "[-s] [-w]")
	o := at(wire.OpGetData, a.words[1])
	o.Watch = a.has("w")
	r, err := s.call(ctx, o)
	if err != nil {
		return err
	}
	data := text(r.Data)
	switch {
	case a.has("x"):
		data = hexdump([]byte(data))
	case a.has("b"):
		data = base64.StdEncoding.EncodeToString([]byte(data))
	}
	s.println(data)
	if a.has("s") {
		s.stat(&r.Stat)
	}
	return nil
}

func (s *shell) set(ctx context.Context, a *args) error {
	version, err := a.number("v", 32, -1)
	if err != nil {
		return err
	}
	o := wire.Operation{Op: wire.OpSetData, Path: a.words[1], Data: []byte(a.words[2]), Version: int32(version)}
	if a.has("b") {
		if o.Data, err = base64.StdEncoding.DecodeString(a.words[2]); err != nil {
			return usage("%v", err)
		}
	}
	r, err := s.call(ctx, o)
	if err == nil && a.has("s") {
		s.stat(&r.Stat)
	}
	return err
}

func (s *shell) statOf(ctx context.Context, a *args) error {
	s.oldWatch(a, "[-w]")
	o := at(wire.OpExists, a.words[1])
	o.Watch = a.has("w")
	r, err := s.call(ctx, o)
	if err == nil {
		s.stat(&r.Stat)
	}
	return err
}

func (s *shell) ls(ctx context.Context, a *args) error {
	if a.has("?") {
		s.println("usage: ls [options] path\n -?   help\n -R   recurse\n -s   stat\n -w   watch")
	}
	if len(a.words) < 2 {
		return usage("ls %s", commands["ls"].usage)
	}
	s.oldWatch(a, "[-w]")
	if a.has("R") {
		return s.walk(ctx, a.words[1], a.has("w"), func(path string) error { s.println(path); return nil })
	}
	o := at(wire.OpGetChildren2, a.words[1])
	o.Watch = a.has("w")
	r, err := s.call(ctx, o)
	if err != nil {
		return err
	}
	slices.Sort(r.Names)
	s.println(list(r.Names))
	if a.has("s") {
		s.stat(&r.Stat)
	}
	return nil
}

// walk visits a subtree in zkCli's order: all children of a znode, then what is below the first
// child, and so on. It skips znodes that are deleted meanwhile.
func (s *shell) walk(ctx context.Context, path string, watch bool, visit func(path string) error) error {
	o := at(wire.OpGetData, path)
	o.Watch = watch
	if _, err := s.call(ctx, o); err != nil {
		return err
	}
	if err := visit(path); err != nil {
		return err
	}
	return s.walkBelow(ctx, path, watch, visit)
}

func (s *shell) walkBelow(ctx context.Context, path string, watch bool, visit func(path string) error) error {
	o := at(wire.OpGetChildren, path)
	o.Watch = watch
	r, err := s.call(ctx, o)
	if client.CodeOf(err) == wire.NoNode {
		return nil
	} else if err != nil {
		return err
	}
	slices.Sort(r.Names)
	for _, name := range r.Names {
		if err := visit(below(path, name)); err != nil {
			return err
		}
	}
	for _, name := range r.Names {
		if err := s.walkBelow(ctx, below(path, name), watch, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *shell) getAllChildrenNumber(ctx context.Context, a *args) error {
	r, err := s.call(ctx, at(wire.OpGetAllChildrenNumber, a.words[1]))
	if err == nil {
		s.println(strconv.Itoa(int(r.Count)))
	}
	return err
}

func (s *shell) getEphemerals(ctx context.Context, a *args) error {
	o := at(wire.OpGetEphemerals, "/") // all
	if len(a.words) > 1 {
		o.Path = a.words[1]
	}
	r, err := s.call(ctx, o)
	if err != nil {
		return err
	}
	slices.Sort(r.Names)
	s.println(list(r.Names))
	return nil
}

func (s *shell) sync(ctx context.Context, a *args) error {
	_, err := s.call(ctx, at(wire.OpSync, a.words[1]))
	if code := client.CodeOf(err); code != wire.OK {
		s.println("Sync has failed. rc=" + strconv.Itoa(int(code)))
		return errSaid
	}
	if err == nil {
		s.println("Sync is OK")
	}
	return err
}
