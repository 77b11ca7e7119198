package value

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// create creates a persistent znode and the containers above it that are missing, those above the
// session's root too, in one commit. The checks are operations that come first.
func create(ctx context.Context, s *embed.Session, path string, data []byte, checks ...embed.Op) (embed.Stat, error) {
	o := embed.CreateOptions{Mode: embed.Persistent, Parents: true}
	r, err := s.Multi(ctx, append(slices.Clone(checks), embed.OpCreateWith(path, data, o))...)
	if err != nil {
		return embed.Stat{}, err
	}
	return r[len(r)-1].Stat, nil
}

// child returns the path of a child.
func child(parent, name string) string { return strings.TrimSuffix(parent, "/") + "/" + name }

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}
