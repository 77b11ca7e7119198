package engine

import (
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/tree"
)

const (
	rootPath      = "/"
	zookeeperName = "zookeeper"
	quotaPath     = "/zookeeper/quota"
)

// ShardOf returns the shard that a path belongs to where there are n.
func ShardOf(path string, n int) ShardID { return ShardID(shardOf(path, n) + 1) }

// shardOf returns which of n shards, counted from 0, a path belongs to. Its first component decides, by a hash that can never
// change: which shard holds a znode is not written down anywhere. A sequence number does not count, so that the name asked
// for and the name given belong together. What is ZooKeeper's own is on the first shard, except that a quota is where its
// subtree is. The root is everywhere; here it is on the first shard.
func shardOf(path string, n int) int {
	if n == 1 || path == rootPath {
		return 0
	}
	name := firstComponent(path)
	if name == zookeeperName {
		if name = firstComponent(strings.TrimPrefix(path, quotaPath)); isRootQuota(path) || !strings.HasPrefix(path, quotaPath+"/") {
			return 0
		}
	}
	return shardOfName(name, n)
}

// shardOfName is shardOf for a child of the root. The hash is XXH64: unlike FNV's, its low bits depend on all of the name's.
func shardOfName(name string, n int) int {
	return int(xxhash.Sum64String(withoutNumber(name)) % uint64(n))
}

// isRootQuota reports whether a path is that of a limit or of the use of the whole tree.
func isRootQuota(path string) bool {
	return path == quotaPath+"/zookeeper_limits" || path == quotaPath+"/zookeeper_stats"
}

// firstComponent of "/a/b" is "a".
func firstComponent(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name
}

// numberLen is how many digits a sequence number takes in a name.
const numberLen = 10

// withoutNumber takes the number off a name that a sequential create may have made.
func withoutNumber(name string) string {
	at := len(name) - numberLen
	if at < 0 || strings.Trim(name[at:], "0123456789") != "" {
		return name
	}
	return name[:at]
}

// at returns the shard that a path belongs to.
func (e *Engine) at(path string) *replica.Replica { return e.shards[shardOf(path, len(e.shards))] }

// route returns the shard of a transaction. Operations that belong to several shards are refused, for none could undo what
// another has committed; the shard is some one then.
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

// routeOne returns the shard of an operation, nil if any will do.
func (e *Engine) routeOne(op *tree.Op) (*replica.Replica, error) {
	switch {
	case e.spans(op.Path) && (op.Kind == tree.KindSet || op.Kind == tree.KindSetACL):
		return nil, fmt.Errorf("%w: the data and the ACL of %s, which is on each, are fixed when there are several", ErrCrossShard, op.Path)
	case e.spans(op.Path) && op.Kind == tree.KindCheckChildren:
		return nil, fmt.Errorf("%w: the children of %s are on several, which count their own", ErrCrossShard, op.Path)
	case op.Kind == tree.KindCreate && op.Mode.IsSequential():
		return e.at(op.Path + strings.Repeat("0", numberLen)), nil // where the name will be looked for that is given
	case op.Kind == tree.KindCreate && isRootQuota(op.Path):
		return nil, fmt.Errorf("%w: what the root holds is not counted when there are several", ErrCrossShard)
	case op.Path == rootPath && op.Kind == tree.KindCheck:
		return nil, nil // it is the same everywhere
	}
	return e.at(op.Path), nil
}
