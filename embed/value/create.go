package value

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/level"
)

// create creates a persistent znode and the containers above it that are missing, in one commit.
// The checks are operations that come first. An embed.ErrNoNode concerns what is above the
// session's root.
func create(ctx context.Context, s *embed.Session, path string, data []byte, checks ...embed.Op) (embed.Stat, error) {
	for all := false; ; all = true {
		ops := append(slices.Clone(checks), above(ctx, s, path, all)...)
		r, err := multi(ctx, s, append(ops, embed.OpCreate(path, data, embed.Persistent))...)
		if err == nil {
			return r[len(r)-1].Stat, nil
		}
		if all || !errors.Is(err, embed.ErrNoNode) {
			return embed.Stat{}, err
		}
	}
}

// above returns the operations that create the containers above a path: those that this node
// misses, or all. It leaves those out that exist, because they would cost room in the log.
func above(ctx context.Context, s *embed.Session, path string, all bool) (ops []embed.Op) {
	ensure := func(parent string) {
		if _, ok, err := s.Exists(ctx, parent); all || err == nil && !ok {
			ops = append(ops, embed.OpEnsure(parent))
		}
	}
	if s.Root() != "/" {
		ensure("/")
	}
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			ensure(path[:i])
		}
	}
	return ops
}

// multi is embed.Session.Multi, but waits while a new ensemble rises to the level of the
// operations.
func multi(ctx context.Context, s *embed.Session, ops ...embed.Op) (r []embed.Result, err error) {
	err = level.Await(ctx, func() error {
		r, err = s.Multi(ctx, ops...)
		return err
	})
	return r, err
}

// child returns the path of a child.
func child(parent, name string) string { return strings.TrimSuffix(parent, "/") + "/" + name }

// unanswered reports whether a call failed because no quorum answered it in time.
func unanswered(err error) bool {
	return errors.Is(err, embed.ErrUnavailable) || errors.Is(err, embed.ErrUnknownOutcome)
}

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}
