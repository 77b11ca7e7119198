package inside

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A Txn is one transaction of a session. Add its Ops, then Submit or Claim; Outcome translates what
// comes back.
type Txn struct {
	session *SessionParts
	count   int // Ops added
	ops     []tree.Op
	terms   Terms
	claims  engine.ClaimKind // the greatest of the Ops
	heir    bool             // an Op inherits
	at      []int            // where the operations of each Op begin; nil if each Op is one operation
	answers []int            // beside at: which operation's result is that of the Op
}

// NewTxn returns a transaction without operations, with room for n Ops.
func (s *Session) NewTxn(n int) *Txn {
	return &Txn{session: &s.parts, ops: make([]tree.Op, 0, n), terms: s.parts.Session.NewTerms()}
}

// Add appends an Op. After an error, a *tree.MultiError, the transaction cannot be sent.
func (t *Txn) Add(o *Op) error {
	first := len(t.ops)
	if err := t.add(o); err != nil {
		t.terms.Undo()
		return &tree.MultiError{Index: t.count, Err: err}
	}
	if t.at == nil && len(t.ops) != t.count+1 {
		for i := range t.count {
			t.at, t.answers = append(t.at, i), append(t.answers, i)
		}
	}
	if t.at != nil || len(t.ops) != t.count+1 {
		answer := first
		if o.parents {
			answer = len(t.ops) - 1
		}
		t.at, t.answers = append(t.at, first), append(t.answers, answer)
	}
	t.count++
	return nil
}

func (t *Txn) add(o *Op) error {
	var ops []tree.Op
	var err error
	switch o.kind {
	case kindGuard:
		ops, err = t.terms.Guard(o.guard)
	case kindRelease:
		ops, err = t.terms.Release(o.release)
	default:
		if err = o.Validate(t.session.MaxData); err == nil {
			op := t.session.Root.Op(o.plain)
			if o.parents {
				t.ops = appendParents(t.ops, op.Path)
			}
			t.ops = append(t.ops, op)
			t.heir, t.claims = t.heir || o.inherit, max(t.claims, o.claims)
		}
	}
	t.ops = append(t.ops, ops...)
	return err
}

// appendParents appends operations that create what is missing above a path. Those for what every
// tree has are left out: it may be on other shards.
func appendParents(ops []tree.Op, path string) []tree.Op {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' && path[:i] != zookeeperPath && path[:i] != quotaPath {
			ops = append(ops, tree.Op{Kind: tree.KindEnsure, Path: path[:i]})
		}
	}
	return ops
}

// What every tree has from the start.
const (
	zookeeperPath = "/zookeeper"
	quotaPath     = "/zookeeper/quota"
)

// Submit sends the transaction, unless ctx has ended.
func (t *Txn) Submit(ctx context.Context) Pending {
	t.terms.Set(t.heir, t.claims)
	return t.session.Session.Submit(ctx, t.ops, t.terms)
}

// Do sends the transaction, unless ctx has ended, and waits for it.
func (t *Txn) Do(ctx context.Context) ([]tree.Result, error) {
	t.terms.Set(t.heir, t.claims)
	return t.Outcome(t.session.Session.Do(ctx, t.ops, t.terms))
}

// Claim sends the transaction, and claims the ephemerals that it creates. There must be at least
// one. Claim sends nothing if ctx has ended.
func (t *Txn) Claim(ctx context.Context) (Claim, error) {
	if !slices.ContainsFunc(t.ops, createsEphemeral) {
		t.terms.Undo()
		return nil, fmt.Errorf("%w: a claim is of ephemerals", tree.ErrInvalidMode)
	}
	t.terms.Set(t.heir, t.claims)
	return t.session.Session.Claim(ctx, t.ops, t.terms), nil
}

func createsEphemeral(o tree.Op) bool { return o.Kind == tree.KindCreate && o.Mode.IsEphemeral() }

// Outcome translates what the engine answers: one Result per Op, the Op's index in a
// *tree.MultiError, and the session's paths.
func (t *Txn) Outcome(results []tree.Result, err error) ([]tree.Result, error) {
	if t.at == nil {
		return t.session.Root.Results(results), err
	}
	var refused *tree.MultiError
	if errors.As(err, &refused) {
		i, exact := slices.BinarySearch(t.at, refused.Index)
		if !exact {
			i--
		}
		err = &tree.MultiError{Index: i, Err: refused.Err}
	}
	if err != nil {
		return nil, err
	}
	firsts := make([]tree.Result, len(t.at))
	for i, at := range t.answers {
		firsts[i] = results[at]
	}
	return t.session.Root.Results(firsts), nil
}
