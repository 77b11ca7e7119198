package inside

import (
	"errors"
	"fmt"
	"math"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrInvalidArgument is embed.ErrInvalidArgument.
var ErrInvalidArgument = errors.New("invalid argument")

// errMost refuses a number that no znode's children can reach.
var errMost = fmt.Errorf("%w: the most children of a znode are not from 0 to %d", ErrInvalidArgument, math.MaxInt32)

// An Op is an embed.Op: one operation of a transaction, or a guard or release of a claim, which
// become operations when the transaction is sent. The zero Op is refused.
type Op struct {
	kind    opKind
	plain   tree.Op          // of kindPlain
	guard   *engine.Tenure   // of kindGuard; nil has ended
	release Claim            // of kindRelease; nil has ended
	inherit bool             // of kindPlain: the znode it deletes lingers, see engine.With
	parents bool             // of kindPlain: what is missing above the znode it creates is created too
	claims  engine.ClaimKind // of kindPlain: what the transaction's claim is for
}

type opKind uint8

const (
	kindPlain opKind = iota
	kindGuard
	kindRelease
)

// Plain returns the Op that is an operation of the tree.
func Plain(o tree.Op) Op { return Op{plain: o} }

// Guard returns the Op that refuses the transaction unless a claim is held in this tenure.
func Guard(t *engine.Tenure) Op { return Op{kind: kindGuard, guard: t} }

// Release returns the Op that gives a claim up.
func Release(c Claim) Op { return Op{kind: kindRelease, release: c} }

// Inherit returns the Op that deletes a lingering ephemeral whose place the transaction's claim
// takes.
func Inherit(path string) Op {
	return Op{plain: tree.Op{Kind: tree.KindDelete, Path: path, Version: tree.AnyVersion}, inherit: true}
}

// WithParents returns a create that also creates what is missing above its znode.
func (o Op) WithParents() Op {
	o.parents = true
	return o
}

// For returns a create that says what the transaction's claim is for.
func (o Op) For(k engine.ClaimKind) Op {
	o.claims = k
	return o
}

// Plain returns the operation of the tree that the Op is; the zero tree.Op of a guard or a release.
func (o *Op) Plain() tree.Op { return o.plain }

// Validate checks what can be checked before anything is sent.
func (o *Op) Validate(maxData int) error {
	var err error
	op := &o.plain
	switch op.Kind {
	case tree.KindCreate:
		if err = op.Mode.Validate(); err == nil {
			err = tree.ValidateCreatePath(op.Path, op.Mode)
		}
	case tree.KindSet, tree.KindDelete, tree.KindCheck, tree.KindSetACL, tree.KindGuard, tree.KindCheckMzxid, tree.KindEnsure, tree.KindCheckLost:
		err = tree.ValidatePath(op.Path)
	case tree.KindAdd:
		if err = tree.ValidatePath(op.Path); err == nil {
			err = op.Width.Validate()
		}
	case tree.KindCheckChildren:
		if err = tree.ValidatePath(op.Path); err == nil && op.Version < 0 {
			err = errMost
		}
	default:
		err = tree.ErrInvalidKind
	}
	if err == nil && len(op.Data) > maxData {
		err = fmt.Errorf("%w: %d bytes of data, the limit is %d", engine.ErrTooLarge, len(op.Data), maxData)
	}
	return err
}
