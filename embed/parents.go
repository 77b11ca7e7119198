package embed

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// oneWithParents is one for a create whose parents may be missing.
func (s *Session) oneWithParents(ctx context.Context, name string, op Op) (Result, error) {
	in, plain := s.in(), (*inside.Op)(&op).Plain()
	check := op
	if plain.Path == "/" && in.Root != "" { // the session's root, which may be missing too
		whole := plain
		whole.Path = string(in.Root)
		check = Op(inside.Plain(whole))
	}
	err := (*inside.Op)(&check).Validate(in.MaxData)
	if err != nil {
		return Result{}, opError(name, plain.Path, err)
	}
	create := in.Root.Op(plain)
	for err = ctx.Err(); err == nil; err = ctx.Err() {
		var above []string
		if above, err = s.missingAbove(ctx, create.Path); err != nil {
			break
		}
		var result Result
		if result, err = s.createBelow(ctx, above, create); err == nil {
			return in.Root.Results([]Result{result})[0], nil
		}
		if !errors.Is(err, ErrNoNode) { // else one of them has been removed meanwhile
			break
		}
	}
	return Result{}, opError(name, plain.Path, err)
}

// missingAbove returns the paths above a path that this node's replica does not have, the highest
// first.
func (s *Session) missingAbove(ctx context.Context, path string) (missing []string, err error) {
	for path = tree.Parent(path); path != "/"; path = tree.Parent(path) {
		_, there, err := s.in().Session.Exists(ctx, path)
		if there || errors.Is(err, ErrNoAuth) {
			break
		}
		if err != nil {
			return nil, err
		}
		missing = append(missing, path)
	}
	slices.Reverse(missing)
	return missing, nil
}

// createBelow creates a znode and those above it, in one transaction.
func (s *Session) createBelow(ctx context.Context, above []string, create tree.Op) (Result, error) {
	ops := make([]tree.Op, 0, len(above)+1)
	for _, path := range above {
		ops = append(ops, tree.Op{Kind: tree.KindEnsure, Path: path})
	}
	results, err := s.in().Session.Do(ctx, append(ops, create), nil)
	if err == nil {
		return results[len(above)], nil
	}
	var refused *MultiError
	if errors.As(err, &refused) && refused.Index < len(above) {
		return Result{}, fmt.Errorf("what is above it: %w", refused.Err)
	}
	return Result{}, engine.Single(err)
}
