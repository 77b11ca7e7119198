package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
)

// barrier waits until this node has applied everything that any node had acknowledged on the shard
// before the call.
func (e *Engine) barrier(ctx context.Context, id ShardID) error {
	host := e.host.Load()
	if host == nil {
		return e.health.Explain(fmt.Errorf("%w: %w", outbox.ErrUnavailable, ErrJoining))
	}
	err := host.Barrier(ctx, id, e.cfg.RequestTimeout)
	switch {
	case err == nil:
		return nil
	case e.over() != nil:
		return e.over()
	}
	return e.health.ExplainOn(id, outbox.Lacking(ctx, err))
}

// Ready waits until this node's Register is applied, and until it has applied everything that was
// committed at the time of the call. If the ensemble begins with a backup, it also waits until that
// is loaded. If ctx ends first, the error says what is missing.
func (e *Engine) Ready(ctx context.Context) error {
	for {
		err := e.tryReady(ctx)
		if over := e.over(); over != nil {
			return errors.Join(over, e.Err())
		}
		if err == nil {
			return e.seeding.Missed()
		}
		if ctx.Err() != nil {
			return e.health.Explain(ctx.Err())
		}
	}
}

func (e *Engine) tryReady(ctx context.Context) error {
	for _, r := range e.shards {
		select {
		case <-r.Outbox.Ready:
		case <-e.done:
			return e.over()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := e.awaitSeed(ctx); err != nil {
		return err
	}
	step, cancel := context.WithTimeout(ctx, e.cfg.RequestTimeout)
	defer cancel()
	return e.shards.Each(func(r *replica.Replica) error { return e.host.Load().Barrier(step, r.Shard, 0) })
}

// whenReady runs until this member's Register is applied, and with it everything that the log held
// before this start. This start had to read all entries since the newest snapshot. So whenReady
// asks for a new snapshot, which spares the next start the same. It also records in the identity
// file that the directory has a Raft log. If the log is missing later, it cannot be mistaken for a
// log that was never begun.
func (e *Engine) whenReady() {
	for _, r := range e.shards {
		select {
		case <-r.Outbox.Ready:
		case <-e.stop:
			return
		}
	}
	e.meters.endPhase(phaseRegister, time.Since(e.started))
	e.health.Recent.Note(health.Occurrence{Kind: health.Ready, Took: time.Since(e.started)})
	e.log.Info("ready", "took", time.Since(e.started))
	e.health.Look()         // whether the node serves
	_ = e.RequestSnapshot() // an error means that the node is closed
	if e.noteLog() == nil {
		_ = e.former().Drop() // an error has failed the node
	}
}

// noteLog records in the identity file that the directory has a log.
func (e *Engine) noteLog() error {
	return e.identity.Amend(func(id *replication.Identity) bool {
		isNews := id.Log == ""
		id.Log = replication.LogTan
		return isNews
	})
}

// awaitSeed waits until the ensemble is loaded, if it begins with a backup.
func (e *Engine) awaitSeed(ctx context.Context) error {
	for e.seeding.Pending() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.done:
			return e.over()
		case <-time.After(replica.PollInterval):
		}
	}
	return nil
}
