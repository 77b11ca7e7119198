// Package virtualtime is a job that runs every midnight. Its tests let nights pass in a second.
package virtualtime

import (
	"context"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// again is how long a process waits after a failure before it tries again.
const again = time.Minute

// Nightly writes a report every midnight, UTC, in one of the processes that call it, until ctx or
// the node ends. A night's report is written again if its writer does not live to record it.
//
// Calls fail while the ensemble has no leader, and all processes may call just then. So a failure is
// no reason to miss the night.
func Nightly(ctx context.Context, node *embed.Node, write func(ctx context.Context, night string, token lock.Token) error) error {
	for {
		midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		wait := time.Until(midnight)
		for written := false; !written; wait = again {
			select {
			case <-time.After(wait):
			case <-node.Done():
				return embed.ErrClosed
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			err := once(ctx, node, midnight.Format(time.DateOnly), write)
			if written = err == nil; !written {
				slog.Warn("the report is not written", "cause", err)
			}
		}
	}
}

// once writes the report of a night, unless it is written.
func once(ctx context.Context, node *embed.Node, night string, write func(ctx context.Context, night string, token lock.Token) error) error {
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer session.Close()
	hold, err := lock.NewMutex(session, "/nightly/lock").Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Release()
	if _, written, err := session.Exists(ctx, "/nightly/"+night); written || err != nil {
		return err
	}
	if err := write(hold.Context(), night, hold.Token()); err != nil {
		return err
	}
	record := embed.OpCreate("/nightly/"+night, nil, embed.Persistent)
	_, err = session.Multi(ctx, lock.Guard(hold), record)
	return err
}
