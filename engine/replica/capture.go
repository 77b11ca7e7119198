package replica

import (
	"context"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/storage"
)

// A Capture is a shard as it was at one moment. Its caller must close it.
type Capture struct {
	*storage.Snapshot
	State  command.State
	Znodes int
}

// Capture captures the shard as it is now, with everything that it has applied. Apply stops for one
// save meanwhile, as it does after every thousand entries; nothing is flushed or synced. If
// somebody else has the turn, Capture waits. It returns ctx's error if ctx ends first, and
// storage.ErrClosed if done is closed first.
func (r *Replica) Capture(ctx context.Context, done <-chan struct{}) (Capture, error) {
	select {
	case r.turn <- struct{}{}:
		defer r.endTurn()
	case <-done:
		return Capture{}, storage.ErrClosed
	case <-ctx.Done():
		return Capture{}, ctx.Err()
	}
	if r.lastFigures.Load() != nil {
		return Capture{}, storage.ErrClosed
	}
	if err := r.save(); err != nil {
		return Capture{}, err
	}
	snapshot, err := r.image.Snapshot()
	if err != nil {
		return Capture{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Capture{Snapshot: snapshot, State: r.mu.State, Znodes: r.tree.Load().Len()}, nil
}

// endTurn lets the next one work on what Apply owns.
func (r *Replica) endTurn() { <-r.turn }
