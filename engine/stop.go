package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
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
	if e.departure.expected() && e.isOut() {
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

// Shutdown closes the sessions of this node, transfers its leaderships, and calls Close. Before
// Close it takes no longer than ctx, or the request timeout if ctx has no deadline. The error also
// says which sessions it could not close.
//
// A member with Config.Ephemeral also leaves the ensemble. If it cannot, the error is that of Leave, and
// it remains a member. If nobody knows whether it does, Shutdown takes three longest elections
// more.
func (e *Engine) Shutdown(ctx context.Context) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	err := e.keeper.CloseAll(ctx)
	if e.cfg.Ephemeral {
		leaves, why := e.wishOut(ctx)
		if leaves || errors.Is(why, outbox.ErrUnknownOutcome) {
			return e.depart(ctx, why)
		}
		err = errors.Join(why, err)
	}
	e.transferAll(ctx)
	return errors.Join(err, e.Close())
}

// Close ends all claims, sessions and calls of this node, and stops it. It is idempotent, and works
// without a quorum and on a failed node. It takes little more than twice the close timeout at
// worst. The error says what it left behind.
func (e *Engine) Close() error {
	if e.closing.CompareAndSwap(false, true) { // not a Once: in virtual time, who waits for one stops the clock
		e.closeBy = time.Now().Add(2 * e.cfg.closeTimeout())
		if e.disk.Err() != nil {
			e.finish(e.switched()) // failureLoop may not have noticed yet
		}
		e.finish(outbox.ErrClosed, nil)
		if left := e.departure.shards(); left > 0 && left < len(e.shards) {
			_ = e.outrun(nil)
		}
		close(e.stop)
		e.endReach()
		e.disk.Patience(0)
		e.left = e.undoOpen()
		close(e.closed)
	}
	<-e.closed
	return e.left
}

// CloseBy returns when a Close that has returned was to be done.
func (e *Engine) CloseBy() time.Time { return e.closeBy }

// errHung is why Close gives up the node's directory: a call on it does not return.
var errHung = errors.New("could not be closed in time")

// undoOpen gives back what open acquired. The directory goes last, when nothing of this node can
// reach it any more.
func (e *Engine) undoOpen() error {
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- e.closeAll()
	}()
	patience := time.NewTimer(2 * e.cfg.closeTimeout())
	defer patience.Stop()
	var err error
	select {
	case err = <-ended:
	case <-patience.C:
		err = fmt.Errorf("%s %w", e.cfg.Dir, errHung)
	}
	if e.disk != nil && (errors.Is(err, errHung) || errors.Is(err, replication.ErrStillRunning)) {
		e.disk.Fail(err) // from here on, hanging calls cannot change anything
		if errors.Is(err, errHung) || !e.disk.Quiet() {
			go e.unlockAfter(ended)
			return fmt.Errorf("%w; the directory stays locked until what hangs has ended", err)
		}
	}
	return errors.Join(err, e.unlock())
}

// closeAll closes everything except the directory, in reverse order of opening.
func (e *Engine) closeAll() error {
	var errs []error
	if e.entering != nil {
		<-e.entering // it may be about to make the host
	}
	if h := e.host.Load(); h != nil {
		errs = append(errs, h.Close(e.cfg.closeTimeout()))
	}
	e.loops.Wait()
	if e.transport != nil {
		errs = append(errs, e.transport.Close())
	}
	if e.listener != nil {
		errs = append(errs, e.listener.Close())
	}
	for _, r := range e.shards {
		errs = append(errs, r.Drop())
	}
	if e.disk != nil && e.disk.Err() != nil {
		// Err says why the node failed. Here every write that could not be done would repeat it.
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, e.disk.Err()) })
	}
	return errors.Join(errs...)
}

// unlock unlocks the directory, also for a host that runs on in it.
func (e *Engine) unlock() error {
	if e.lock == nil {
		return nil
	}
	if h := e.host.Load(); h != nil {
		h.Unlock()
	}
	return e.lock.Close()
}

// unlockAfter unlocks the directory when closeAll and all hanging calls have ended. Until then
// another node could not tell what those calls will still do to the directory, and would find the
// images locked.
func (e *Engine) unlockAfter(ended <-chan error) {
	for range ended { // closed when closeAll has ended
	}
	for !e.disk.Quiet() {
		time.Sleep(100 * time.Millisecond)
	}
	_ = e.unlock()
}

// transferAll transfers all leaderships of this node to other members, and waits until those lead.
func (e *Engine) transferAll(ctx context.Context) {
	if e.halted() || e.roster.Self() == 0 {
		return
	}
	var all sync.WaitGroup
	for _, r := range e.shards {
		all.Go(func() { e.transferShard(ctx, r.Shard) })
	}
	all.Wait()
}

func (e *Engine) transferShard(ctx context.Context, id ShardID) {
	if e.raftLeader(id).Member != e.roster.Self() {
		return
	}
	next := e.roster.Others(id)
	if len(next) > 1 {
		stored := e.governor.Prove(ctx, id, next)
		first := slices.DeleteFunc(slices.Clone(next), func(m MemberID) bool { return !stored[m] })
		next = append(first, slices.DeleteFunc(next, func(m MemberID) bool { return stored[m] })...)
	}
	for _, m := range next {
		if e.raftLeader(id).Member != e.roster.Self() {
			return
		}
		if err := e.transfer(id, m, TransferShutdown); err != nil {
			continue
		}
		deadline := time.Now().Add(LongestElection(e.cfg.Tick))
		for e.leadsOrNobody(id) && ctx.Err() == nil && time.Now().Before(deadline) {
			select {
			case <-time.After(e.cfg.Tick):
			case <-ctx.Done():
			}
		}
	}
}

// leadsOrNobody reports whether this node knows of no other member that leads. This is also true
// while the next leader is still collecting votes, this node's among them.
func (e *Engine) leadsOrNobody(id ShardID) bool {
	leader := e.raftLeader(id).Member
	return leader == e.roster.Self() || leader == 0
}
