package claim

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/tree"
)

// Before returns the name of the sibling with the next lower sequence number, or false if there is
// none. The sequence number is the last ten characters of a name, if they are digits. With match,
// Before skips siblings whose names contain none of its strings.
//
// The cost does not grow with the number of siblings, so a contender finds its predecessor in a
// queue of any length. Errors are those of Session.Get, with embed.ErrNoNode if path itself does
// not exist, and embed.ErrCrossShard for a child of a znode that is on several shards.
func Before(ctx context.Context, s *embed.Session, path string, match ...string) (name string, ok bool, err error) {
	if err = ctx.Err(); err == nil {
		err = tree.ValidatePath(path)
	}
	if err == nil {
		in := (*inside.Session)(s).Parts()
		name, ok, err = in.Session.Before(ctx, in.Root.In(path), match...)
	}
	return name, ok, opError("before", path, err)
}
