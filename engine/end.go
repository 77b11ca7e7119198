package engine

import (
	"errors"
	"time"

	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/outbox"
)

// failureLoop waits until the disk's switch is thrown. By then the transport is shut: nothing that
// this node could still say reaches anyone.
func (e *Engine) failureLoop() {
	select {
	case <-e.disk.Failed():
		e.endReach()
		why, cause := e.switched()
		e.finish(why, cause)
		if cause != nil {
			e.log.Error("node failed", "cause", cause)
			e.health.LogRecent()
		}
	case <-e.stop:
	}
}

// switched returns what ends a node whose disk's switch is thrown, as finish wants it. A member
// that leaves may be out before Leave expects it: that is no failure.
func (e *Engine) switched() (why, cause error) {
	if e.departure.Expected() && e.isOut() {
		return outbox.ErrClosed, nil
	}
	return ErrFailed, e.disk.Err()
}

// finish ends the node for its users, and tells those who wait for its end.
func (e *Engine) finish(why, cause error) {
	e.endUse(why, cause)
	e.tellEnd.Do(func() { close(e.ended) })
}

// endUse ends all sessions and calls, and marks the node as over. Sessions and calls get the error
// why. Err returns cause.
func (e *Engine) endUse(why, cause error) {
	e.end.Do(func() {
		e.end.Lock() // first: Err has the cause when a call returns ErrFailed
		e.end.err, e.end.at = cause, time.Now()
		e.end.Unlock()
		if cause != nil {
			e.health.Recent.Note(health.Occurrence{Kind: health.Failed})
		}
		for _, r := range e.shards {
			r.Outbox.Close(why)
		}
		e.keeper.Close(why)
		close(e.done)
		e.forgetLeaders()
	})
}

// isOut reports whether this node ended because its member is out of the ensemble.
func (e *Engine) isOut() bool { return errors.Is(e.disk.Err(), ErrRemoved) }
