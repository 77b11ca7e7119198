package engine

import (
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/tree"
)

// ShardOf returns the shard of a path in an ensemble of n shards.
func ShardOf(path string, n int) ShardID { return command.ShardOf(path, n) }

// at returns the replica of the shard to which a path belongs.
func (e *Engine) at(path string) *replica.Replica {
	return e.shards[command.ShardOf(path, len(e.shards))-1]
}

// route returns the replica of the shard of a transaction. It refuses operations that belong to
// several shards, because no shard could undo what another has committed. With an error, it returns
// any replica.
func (e *Engine) route(ops []tree.Op) (*replica.Replica, error) {
	if len(e.shards) == 1 {
		return e.home(), nil
	}
	var r *replica.Replica
	var first string // path of the first operation that has a shard
	for i := range ops {
		at, err := e.routeOne(&ops[i])
		if err == nil && r != nil && at != nil && at != r {
			err = fmt.Errorf("%w: %s is on shard %d, %s on shard %d: put what changes together below one first component",
				ErrCrossShard, first, r.Shard, ops[i].Path, at.Shard)
		}
		if err != nil {
			return e.home(), &tree.MultiError{Index: i, Err: err}
		}
		if at != nil && r == nil {
			r, first = at, ops[i].Path
		}
	}
	if r == nil {
		r = e.home()
	}
	return r, nil
}

// routeOne returns the replica for one operation, or nil if every shard will do.
func (e *Engine) routeOne(op *tree.Op) (*replica.Replica, error) {
	switch {
	case e.spans(op.Path) && (op.Kind == tree.KindSet || op.Kind == tree.KindAdd || op.Kind == tree.KindSetACL):
		return nil, fmt.Errorf("%w: the data and the ACL of %s, which is on each, are fixed when there are several", ErrCrossShard, op.Path)
	case e.spans(op.Path) && op.Kind == tree.KindCheckChildren:
		return nil, fmt.Errorf("%w: the children of %s are on several, which count their own", ErrCrossShard, op.Path)
	case op.Kind == tree.KindCreate && op.Mode.IsSequential():
		return e.at(op.Path + strings.Repeat("0", command.NumberLen)), nil // the shard of the name that the create will make
	case op.Kind == tree.KindCreate && command.IsRootQuota(op.Path):
		return nil, fmt.Errorf("%w: what the root holds is not counted when there are several", ErrCrossShard)
	case e.spans(op.Path) && op.Kind == tree.KindCheckMzxid:
		return nil, fmt.Errorf("%w: each has its own zxids of %s", ErrCrossShard, op.Path)
	case op.Path == command.RootPath && (op.Kind == tree.KindCheck || op.Kind == tree.KindEnsure):
		return nil, nil // it is the same on every shard
	}
	return e.at(op.Path), nil
}

// spans reports whether a znode is on every shard.
func (e *Engine) spans(path string) bool {
	return len(e.shards) > 1 && (path == command.RootPath || path == command.QuotaPath)
}

// reaches reports whether a znode below path may be on another shard than path.
func (e *Engine) reaches(path string) bool {
	return e.spans(path) || len(e.shards) > 1 && path == command.RootPath+command.ZooKeeperName
}
