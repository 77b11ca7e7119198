package embed

import (
	"math"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/tree"
)

// An Op is one operation of a Multi. Make it with OpCreate, OpCreateWith, OpSet, OpDelete, OpCheck,
// OpCheckChildren, OpCheckMzxid, OpAdd or OpEnsure; lock.Guard and election.Guard make others. The
// zero Op is refused.
type Op inside.Op

// plain returns the Op that is an operation of the tree.
func plain(o tree.Op) Op { return Op(inside.Plain(o)) }

// OpCreate creates a znode.
func OpCreate(path string, data []byte, mode CreateMode) Op {
	return plain(tree.Op{Kind: tree.KindCreate, Path: path, Data: data, Mode: mode})
}

// OpCreateWith creates a znode with all its options.
func OpCreateWith(path string, data []byte, o CreateOptions) Op {
	ttl := o.TTL.Milliseconds()
	if o.TTL != 0 && time.Duration(ttl)*time.Millisecond != o.TTL {
		ttl = -1 // refused, because it is not whole milliseconds
	}
	op := plain(tree.Op{Kind: tree.KindCreate, Path: path, Data: data, Mode: o.Mode, ACL: o.ACL, TTL: ttl})
	if o.Parents {
		return Op(inside.Op(op).WithParents())
	}
	return op
}

// OpSet replaces the data of a znode. The znode must have the version; AnyVersion matches every
// one.
func OpSet(path string, data []byte, version int32) Op {
	return plain(tree.Op{Kind: tree.KindSet, Path: path, Data: data, Version: version})
}

// OpDelete deletes a znode without children. The znode must have the version; AnyVersion matches
// every one.
func OpDelete(path string, version int32) Op {
	return plain(tree.Op{Kind: tree.KindDelete, Path: path, Version: version})
}

// OpCheck makes the Multi fail unless the znode exists and has the version; AnyVersion matches
// every one.
func OpCheck(path string, version int32) Op {
	return plain(tree.Op{Kind: tree.KindCheck, Path: path, Version: version})
}

// OpCheckChildren makes the Multi fail with ErrTooManyChildren if the znode has more than most
// children. It counts at its place in the Multi, so it sees what the operations before it create
// and delete.
//
// Other errors: ErrInvalidArgument if most is a number that no znode can have, and ErrNoNode if the
// znode does not exist. With several shards, ErrCrossShard for the root: its children are on all
// shards, and no single step counts them all.
func OpCheckChildren(path string, most int) Op {
	if most < 0 || most > math.MaxInt32 {
		most = -1 // refused
	}
	return plain(tree.Op{Kind: tree.KindCheckChildren, Path: path, Version: int32(most)})
}

// OpCheckMzxid makes the Multi fail with ErrBadVersion unless the znode exists and zxid is the last
// write of its data, its Stat's Mzxid. Unlike a version, a zxid also tells a znode that was deleted
// and created again.
func OpCheckMzxid(path string, zxid Zxid) Op {
	return plain(tree.Op{Kind: tree.KindCheckMzxid, Path: path, Mzxid: zxid})
}

// OpAdd adds to the number that is a znode's data; an empty znode is zero. The Result's Value is
// the sum. So a sum costs one commit, however many add. It needs the permissions Read and Write.
//
// Errors: ErrNoNode, ErrNotNumber if the data is not of the width, ErrOverflow if the sum does not
// fit (then nothing is changed), ErrQuotaExceeded, and ErrInvalidMode if the width is unknown.
func OpAdd(path string, delta int64, w Width) Op {
	return plain(tree.Op{Kind: tree.KindAdd, Path: path, Delta: delta, Width: w})
}

// OpEnsure creates a container, unless the path has a znode of any kind. Its parent must exist: a
// Multi may ensure one level after the other, in one commit. The Result has a Path if the znode was
// created.
func OpEnsure(path string) Op {
	return plain(tree.Op{Kind: tree.KindEnsure, Path: path})
}
