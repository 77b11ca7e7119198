package forest

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrCrossShard means that the operations of one transaction belong to several shards. None was
// applied.
var ErrCrossShard = errors.New("more than one shard")

// A Forest has the replicas of all shards of a node, indexed by ShardID - 1.
type Forest []*replica.Replica

// Home returns the replica of the home shard, which has the session table.
func (f Forest) Home() *replica.Replica { return f[command.HomeShard-1] }

// Each runs fn for all shards at the same time. It returns the first error.
func (f Forest) Each(fn func(r *replica.Replica) error) error {
	if len(f) == 1 {
		return fn(f.Home())
	}
	var all errgroup.Group
	for _, r := range f {
		all.Go(func() error { return fn(r) })
	}
	return all.Wait()
}

// Unseen returns on how many shards this member has never applied anything. It does not vote there, and
// is shut out before it ever does, so it never applies its removal from them.
func (f Forest) Unseen() (n int) {
	for _, r := range f {
		if r.Index() == 0 {
			n++
		}
	}
	return n
}

// At returns the replica of the shard to which a path belongs.
func (f Forest) At(path string) *replica.Replica {
	return f[command.ShardOf(path, len(f))-1]
}

// Route returns the replica of the shard of a transaction. It refuses operations that belong to
// several shards, because no shard could undo what another has committed. With an error, it returns
// any replica.
func (f Forest) Route(ops []tree.Op) (*replica.Replica, error) {
	if len(f) == 1 {
		return f.Home(), nil
	}
	var r *replica.Replica
	var first string // path of the first operation that has a shard
	for i := range ops {
		at, err := f.routeOne(&ops[i])
		if err == nil && r != nil && at != nil && at != r {
			err = fmt.Errorf("%w: %s is on shard %d, %s on shard %d: put what changes together below one first component",
				ErrCrossShard, first, r.Shard, ops[i].Path, at.Shard)
		}
		if err != nil {
			return f.Home(), &tree.MultiError{Index: i, Err: err}
		}
		if at != nil && r == nil {
			r, first = at, ops[i].Path
		}
	}
	if r == nil {
		r = f.Home()
	}
	return r, nil
}

// routeOne returns the replica for one operation, or nil if every shard will do.
func (f Forest) routeOne(op *tree.Op) (*replica.Replica, error) {
	switch {
	case f.Spans(op.Path) && (op.Kind == tree.KindSet || op.Kind == tree.KindAdd || op.Kind == tree.KindSetACL):
		return nil, fmt.Errorf("%w: the data and the ACL of %s, which is on each, are fixed when there are several", ErrCrossShard, op.Path)
	case f.Spans(op.Path) && op.Kind == tree.KindCheckChildren:
		return nil, fmt.Errorf("%w: the children of %s are on several, which count their own", ErrCrossShard, op.Path)
	case op.Kind == tree.KindCreate && op.Mode.IsSequential():
		return f.At(op.Path + strings.Repeat("0", command.NumberLen)), nil // the shard of the name that the create will make
	case op.Kind == tree.KindCreate && command.IsRootQuota(op.Path):
		return nil, fmt.Errorf("%w: what the root holds is not counted when there are several", ErrCrossShard)
	case f.Spans(op.Path) && op.Kind == tree.KindCheckMzxid:
		return nil, fmt.Errorf("%w: each has its own zxids of %s", ErrCrossShard, op.Path)
	case op.Path == command.RootPath && (op.Kind == tree.KindCheck || op.Kind == tree.KindEnsure):
		return nil, nil // it is the same on every shard
	}
	return f.At(op.Path), nil
}

// Spans reports whether a znode is on every shard.
func (f Forest) Spans(path string) bool {
	return len(f) > 1 && (path == command.RootPath || path == command.QuotaPath)
}

// Reaches reports whether a znode below path may be on another shard than path.
func (f Forest) Reaches(path string) bool {
	return f.Spans(path) || len(f) > 1 && path == command.RootPath+command.ZooKeeperName
}
