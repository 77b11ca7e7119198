package embed

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// An Op is one operation of a Multi. Make it with OpCreate, OpCreateWith, OpSet, OpDelete, OpCheck, OpCheckCzxid, OpCheckChildren, OpGuard,
// OpRelease or OpInherit; the zero Op is refused.
type Op struct {
	op      tree.Op
	guard   *Turn // these two are made into operations when they are sent
	release *Claim
	inherit bool
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

// OpCheckCzxid makes the Multi fail with ErrNotHeld unless the znode is the ephemeral that the transaction czxid created: not another
// one of the same path.
func OpCheckCzxid(path string, czxid Zxid) Op {
	return Op{op: tree.Op{Kind: tree.KindGuard, Path: path, Czxid: czxid}}
}

// OpCheckChildren makes the Multi fail with ErrTooManyChildren if the znode has more than so many children, counted where the
// operation stands: those that the operations before it create and delete count. Other errors: ErrInvalidArgument if that is a number that no
// znode can have, ErrNoNode if there is no such znode, and with several shards ErrCrossShard for the root, which has children on each that
// nothing counts in one step.
func OpCheckChildren(path string, most int) Op {
	if most < 0 || most > math.MaxInt32 {
		most = -1 // which is refused
	}
	return Op{op: tree.Op{Kind: tree.KindCheckChildren, Path: path, Version: int32(most)}}
}

// OpGuard makes the Multi fail with ErrNotHeld unless the claim is held by this turn: by its node's clock when the Multi is issued, and by
// the ensemble when it is applied. So nothing that is guarded by a lock or a leadership is written once somebody else may
// have it. The Multi may be of any session of the ensemble, but for claims that are held again and again: see Claim.Hold.
func OpGuard(t *Turn) Op {
	if t == nil {
		t = new(Turn) // which has ended
	}
	return Op{guard: t}
}

// OpRelease gives a claim of the Multi's session up: its znodes are deleted in the same transaction as the rest is done. If the claim is
// held, its turn ends when the Multi is issued, whatever becomes of it. If nothing comes of the Multi the claim's znodes are still there. It
// fails with ErrNotHeld if the claim has ended or another Multi is giving it up.
func OpRelease(c *Claim) Op {
	if c == nil {
		c = new(Claim)
	}
	return Op{release: c}
}

// OpInherit deletes an ephemeral that was seen to linger, for a Claim that takes its place: see CreateOptions.TTL. As long as the claim has not
// been held whatever ends it is a loss too, its Release and its session's Close as well, so that what it has created lingers in its turn.
func OpInherit(path string) Op {
	return Op{op: tree.Op{Kind: tree.KindDelete, Path: path, Version: AnyVersion}, inherit: true}
}

// errMost refuses a number of children that no znode can have at most.
var errMost = fmt.Errorf("%w: the most children of a znode are not from 0 to 2147483647", ErrInvalidArgument)

// validate checks what can be checked before anything is sent.
func (o Op) validate(dataMax int) error {
	var err error
	switch o.op.Kind {
	case tree.KindCreate:
		if err = o.op.Mode.Validate(); err == nil {
			err = tree.ValidateCreatePath(o.op.Path, o.op.Mode)
		}
	case tree.KindSet, tree.KindDelete, tree.KindCheck, tree.KindSetACL, tree.KindGuard:
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

// A txn is the operations of a Multi as the engine takes them.
type txn struct {
	root chroot
	ops  []tree.Op
	with *engine.With
	at   []int // where those of each Op begin; nil: each has one, at its own index
}

// plain returns the transaction of operations. The error is that of the first one that cannot be sent.
func (s *Session) plain(ops []Op) (*txn, error) {
	t := &txn{root: s.root, ops: make([]tree.Op, 0, len(ops)), with: new(engine.With)}
	for i := range ops {
		first := len(t.ops)
		if err := t.add(s, &ops[i]); err != nil {
			t.with.Undo()
			return nil, &MultiError{Index: i, Err: err}
		}
		if t.at == nil && len(t.ops) != i+1 {
			for j := range i {
				t.at = append(t.at, j)
			}
		}
		if t.at != nil || len(t.ops) != i+1 {
			t.at = append(t.at, first)
		}
	}
	return t, nil
}

// add appends what an Op is for the engine.
func (t *txn) add(s *Session, o *Op) error {
	var ops []tree.Op
	var err error
	switch {
	case o.guard != nil:
		ops, err = t.with.Guard(s.s, o.guard.t)
	case o.release != nil:
		ops, err = t.with.Leave(s.s, o.release.c)
	default:
		if err = o.validate(s.dataMax); err == nil {
			t.ops = append(t.ops, s.root.op(o.op))
			t.with.Inherits = t.with.Inherits || o.inherit
		}
	}
	t.ops = append(t.ops, ops...)
	return err
}

// outcome returns what the engine says of the transaction in terms of the Ops that it was made from.
func (t *txn) outcome(results []Result, err error) ([]Result, error) {
	if t.at == nil {
		return t.root.results(results), err
	}
	var refused *MultiError
	if errors.As(err, &refused) {
		i, exact := slices.BinarySearch(t.at, refused.Index)
		if !exact {
			i--
		}
		err = &MultiError{Index: i, Err: refused.Err}
	}
	if err != nil {
		return nil, err
	}
	firsts := make([]Result, len(t.at))
	for i, at := range t.at {
		firsts[i] = results[at]
	}
	return t.root.results(firsts), nil
}

// claims reports whether the transaction creates an ephemeral.
func (t *txn) claims() bool {
	return slices.ContainsFunc(t.ops, func(o tree.Op) bool { return o.Kind == tree.KindCreate && o.Mode.IsEphemeral() })
}
