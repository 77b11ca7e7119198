package value

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/level"
)

// create creates a persistent znode and the containers above it that are missing, those above the
// session's root too, in one commit. The checks are operations that come first.
func create(ctx context.Context, s *embed.Session, path string, data []byte, checks ...embed.Op) (embed.Stat, error) {
	o := embed.CreateOptions{Mode: embed.Persistent, Parents: true}
	r, err := multi(ctx, s, append(slices.Clone(checks), embed.OpCreateWith(path, data, o))...)
	if err != nil {
		return embed.Stat{}, err
	}
	return r[len(r)-1].Stat, nil
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

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}
