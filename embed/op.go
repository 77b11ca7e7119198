package embed

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// An Op is one operation of a Multi. Make it with OpCreate, OpCreateWith, OpSet, OpDelete, OpCheck, OpCheckChildren or
// OpGuard; the zero Op is refused.
type Op struct {
	op    tree.Op
	guard *Claim // of a guard, which the claim makes when it is sent
}

// OpCreate creates a znode.
func OpCreate(path string, data []byte, mode CreateMode) Op {
	return Op{op: tree.Op{Kind: tree.KindCreate, Path: path, Data: data, Mode: mode}}
}

// OpCreateWith creates a znode with all that can be said of it.
func OpCreateWith(path string, data []byte, o CreateOptions) Op {
	ttl := o.TTL.Milliseconds()
	if o.TTL != 0 && time.Duration(ttl)*time.Millisecond != o.TTL {
		ttl = -1 // which is refused: it is not whole milliseconds
	}
	return Op{op: tree.Op{Kind: tree.KindCreate, Path: path, Data: data, Mode: o.Mode, ACL: o.ACL, TTL: ttl}}
}

// OpSet replaces a znode's data if it has the version, or any with AnyVersion.
func OpSet(path string, data []byte, version int32) Op {
	return Op{op: tree.Op{Kind: tree.KindSet, Path: path, Data: data, Version: version}}
}

// OpDelete deletes a znode without children if it has the version, or any with AnyVersion.
func OpDelete(path string, version int32) Op {
	return Op{op: tree.Op{Kind: tree.KindDelete, Path: path, Version: version}}
}

// OpCheck makes the Multi fail unless the znode exists and has the version, or any with AnyVersion.
func OpCheck(path string, version int32) Op {
	return Op{op: tree.Op{Kind: tree.KindCheck, Path: path, Version: version}}
}

// OpCheckChildren makes the Multi fail with ErrTooManyChildren if the znode has more than so many children, counted where the
// operation stands: those that the operations before it create and delete count. ErrNoNode if there is no such znode. With several
// shards the root has children on each, which nothing counts in one step: ErrCrossShard.
func OpCheckChildren(path string, most int) Op {
	if most < 0 || most > math.MaxInt32 {
		most = -1 // which is refused
	}
	return Op{op: tree.Op{Kind: tree.KindCheckChildren, Path: path, Version: int32(most)}}
}

// OpGuard makes the Multi fail with ErrNotHeld unless the claim is held: by its node's clock when the Multi is issued, and by
// the ensemble when it is applied. So nothing that is guarded by a lock or a leadership is written once somebody else may
// have it. The Multi may be of any session of the ensemble.
func OpGuard(c *Claim) Op { return Op{guard: c} }

// errMost refuses a number of children that no znode can have at most.
var errMost = errors.New("the most children of a znode are not from 0 to 2147483647")

// validate checks what can be checked before anything is sent.
func (o Op) validate(dataMax int) error {
	var err error
	switch o.op.Kind {
	case tree.KindCreate:
		if err = o.op.Mode.Validate(); err == nil {
			err = tree.ValidateCreatePath(o.op.Path, o.op.Mode)
		}
	case tree.KindSet, tree.KindDelete, tree.KindCheck, tree.KindSetACL:
		err = tree.ValidatePath(o.op.Path)
	case tree.KindCheckChildren:
		if err = tree.ValidatePath(o.op.Path); err == nil && o.op.Version < 0 {
			err = errMost
		}
	default:
		err = tree.ErrInvalidKind
	}
	if err == nil && len(o.op.Data) > dataMax {
		err = fmt.Errorf("%w: %d bytes of data, the limit is %d", ErrTooLarge, len(o.op.Data), dataMax)
	}
	return err
}

// plain returns the operations as the engine takes them. The error is that of the first one that cannot be sent.
func (s *Session) plain(ops []Op) ([]tree.Op, error) {
	out := make([]tree.Op, len(ops))
	for i, o := range ops {
		var err error
		if o.guard != nil {
			out[i], err = o.guard.c.Guard()
		} else if err = o.validate(s.dataMax); err == nil {
			out[i] = s.root.op(o.op)
		}
		if err != nil {
			return nil, &MultiError{Index: i, Err: err}
		}
	}
	return out, nil
}
