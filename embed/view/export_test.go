package view

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
)

// OpenBuffer is Open with another buffer, which may be small enough to overflow.
func OpenBuffer[T any](ctx context.Context, s *embed.Session, path string, o Options[T], buffer int) (*View[T], error) {
	return open(ctx, s, path, o, buffer)
}
