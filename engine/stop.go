package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

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
		if left := e.departure.Shards(); left > 0 && left < len(e.shards) {
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

// Leave takes this member out of the ensemble, closes its sessions, transfers its leaderships, and
// calls Close. Once it is recorded, it goes on without this node: if ctx ends first, the error says
// so. If the voters that answer would be no quorum without it, Leave returns ErrUnsafe, and the
// node goes on. The only voter waits for a learner that answers, until it is fit to vote.
func (e *Engine) Leave(ctx context.Context) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	leaves, err := e.wishOut(ctx)
	if !leaves && (!errors.Is(err, outbox.ErrUnknownOutcome) || e.departure.GiveUp()) {
		return err
	}
	return e.depart(ctx, nil)
}

// wishOut has the wish recorded that this member is to be out. It reports whether it is, by this
// call or by another one. After ErrUnknownOutcome the caller has to depart or give up.
func (e *Engine) wishOut(ctx context.Context) (recorded bool, err error) {
	if err := e.over(); err != nil {
		return e.departure.Expected() && e.departure.Shards() > 0, err
	}
	e.departure.Begin()
	if e.roster.Self() == 0 {
		return true, nil
	}
	err = e.Petitioner.Leave(ctx, e.isOut)
	if err == nil || e.isOut() {
		return true, nil
	}
	return !errors.Is(err, outbox.ErrUnknownOutcome) && !e.departure.GiveUp(), err
}

// depart waits until this member is out of all shards, and closes the node. doubt says why nobody
// knows whether the wish is recorded.
func (e *Engine) depart(ctx context.Context, doubt error) error {
	if e.roster.Self() == 0 {
		return e.Close() // nobody knows it
	}
	err := e.keeper.CloseAll(ctx)
	e.transferAll(ctx)
	late := e.awaitOut(ctx)
	if late != nil && late == ctx.Err() {
		late = e.outrun(outbox.WhyOver(ctx))
	}
	if late == nil {
		if e.noted.CompareAndSwap(false, true) { // later the directory may be another node's
			e.roster.RecordOut(e.roster.ReasonOut(session.Left.String()))
		}
		return e.Close() // all that it held ends with it
	}
	return errors.Join(doubt, err, late, e.Close())
}

// awaitOut waits until this member is out of all shards. Otherwise the error says what ended the
// wait.
func (e *Engine) awaitOut(ctx context.Context) error {
	select {
	case <-e.departed:
	case <-e.disk.Failed():
	case <-e.stop:
	case <-ctx.Done():
	}
	switch { // several may be so
	case isDone(e.departed), e.isOut():
		return nil
	case e.disk.Err() != nil:
		return withoutIt(ErrFailed)
	case isDone(e.stop):
		return withoutIt(outbox.ErrClosed)
	}
	return ctx.Err()
}

// withoutIt is the error of a departure whose node has ended first. It does not match why, which says
// that nothing was applied.
func withoutIt(why error) error {
	return fmt.Errorf("the node ended before its member was out: %s", why.Error())
}

// outrunElections is how long a departure outlasts its ctx. A leader that leaves hands over, which may
// cost an election, and the next one has to learn who answers before it removes anybody.
const outrunElections = 3

// outrun waits a little more for the others to take this member out of all shards. If they need its
// vote for that, they do so at once, and cannot without it.
func (e *Engine) outrun(why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), outrunElections*LongestElection(e.cfg.Tick))
	defer cancel()
	err := e.awaitOut(ctx)
	if err == context.DeadlineExceeded {
		return fmt.Errorf("the node ended before its member was out: %w", why)
	}
	return err
}
