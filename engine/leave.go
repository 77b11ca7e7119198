package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
)

// A departure counts the calls that take this member out, and the shards that it is out of. One
// word has both: whoever gives up knows whether somebody has counted on it. Zero is a member that
// stays.
type departure struct {
	word atomic.Int64
	done sync.Once // closes Engine.departed
}

const (
	aLeaver = 1       // a call whose wish is, or may be, recorded
	aShard  = 1 << 32 // from the first one on the member serves nobody
)

// begin adds a call.
func (d *departure) begin() { d.word.Add(aLeaver) }

// giveUp takes a call back, and reports whether it could. It cannot once the member is out of a
// shard: then somebody's wish was recorded.
func (d *departure) giveUp() bool {
	for {
		was := d.word.Load()
		if was >= aShard {
			return false
		}
		if d.word.CompareAndSwap(was, was-aLeaver) {
			return true
		}
	}
}

// outOfOne adds a shard. It returns how many there are, and whether a call expects it.
func (d *departure) outOfOne() (shards int, expected bool) {
	now := d.word.Add(aShard)
	return int(now / aShard), now%aShard > 0
}

// expected reports whether a call takes this member out.
func (d *departure) expected() bool { return d.word.Load()%aShard > 0 }

// shards returns of how many shards the member is out.
func (d *departure) shards() int { return int(d.word.Load() / aShard) }

// Leave takes this member out of the ensemble, closes its sessions, transfers its leaderships, and
// calls Close. Once it is recorded, it goes on without this node: if ctx ends first, the error says
// so. If the voters that answer would be no quorum without it, Leave returns ErrUnsafe, and the
// node goes on. The only voter waits for a learner that answers, until it is fit to vote.
func (e *Engine) Leave(ctx context.Context) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	leaves, err := e.wishOut(ctx)
	if !leaves && (!errors.Is(err, outbox.ErrUnknownOutcome) || e.departure.giveUp()) {
		return err
	}
	return e.depart(ctx, nil)
}

// wishOut has the wish recorded that this member is to be out. It reports whether it is, by this
// call or by another one. After ErrUnknownOutcome the caller has to depart or give up.
func (e *Engine) wishOut(ctx context.Context) (recorded bool, err error) {
	if err := e.over(); err != nil {
		return e.departure.expected() && e.departure.shards() > 0, err
	}
	e.departure.begin()
	if e.roster.Self() == 0 {
		return true, nil
	}
	err = e.Petitioner().Leave(ctx, e.isOut)
	if err == nil || e.isOut() {
		return true, nil
	}
	return !errors.Is(err, outbox.ErrUnknownOutcome) && !e.departure.giveUp(), err
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
		late = e.outrun(late)
	}
	if late == nil {
		if e.noted.CompareAndSwap(false, true) { // later the directory may be another node's
			e.recordOut(e.reasonOut(session.Left.String()))
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
