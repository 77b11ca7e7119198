package petition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/governor"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// A Node is what a Petitioner needs from above it.
type Node interface {
	// Leader says who leads a shard; nobody once the node is over.
	Leader(replication.ShardID) replication.Leader
	// Over returns why the node is over for its users, or nil.
	Over() error
	// Lacking adds to an error what the node lacks now, if anything.
	Lacking(error) error
}

// A Petitioner asks the leader of the home shard to record changes of the ensemble, wherever it is.
type Petitioner struct {
	Node      Node
	Roster    *roster.Roster
	Governor  *governor.Governor
	Transport *transport.Transport
	Shards    int
	Timeout   time.Duration   // of what has no deadline
	Done      <-chan struct{} // closed when the node is over for its users
}

// Remove takes a member out of the ensemble, wherever it is, and waits until no shard has it
// any more. ErrUnsafe says that the members that answer now would be no quorum without it. If ctx
// ends after the removal was recorded, the removal goes on, and the error is ErrUnknownOutcome.
func (p *Petitioner) Remove(ctx context.Context, m replication.MemberID) error {
	ctx, cancel := outbox.Bounded(ctx, p.Timeout)
	defer cancel()
	if err := p.Node.Over(); err != nil {
		return err
	}
	var sent bool
	var asked time.Time
	what := ask.RemovalOf(m)
	for {
		table := p.Roster.Table()
		rec, found := table.Find(session.MemberID(m))
		switch {
		case table.Ensemble.Next == 0:
			// It has no table yet, or this node has not loaded it.
		case found && rec.OutOf() == p.Shards, sent && !found:
			return nil
		case !found:
			return fmt.Errorf("%w: %d", session.ErrNotMember, m)
		case rec.Wish == session.Out:
			sent = true
		case time.Since(asked) > replica.RetryAfter:
			asked = time.Now()
			if _, err := p.askLeader(ctx, ask.Question{Remove: m}, what, &sent); err != nil {
				return err
			}
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-p.Done:
			return p.GaveUp(ctx, sent, what)
		case <-ctx.Done():
			return p.GaveUp(ctx, sent, what)
		}
	}
}

// Reconfig makes a change of the members, and waits until it is so on all shards. ErrUnsafe says
// that those who would vote then are no quorum now, or that a learner is not fit to vote.
// ErrUnknownOutcome says that it was asked for, and that nobody knows what is recorded of it: that
// goes on.
func (p *Petitioner) Reconfig(ctx context.Context, c ask.Reconfig) error {
	ctx, cancel := outbox.Bounded(ctx, p.Timeout)
	defer cancel()
	if err := p.Node.Over(); err != nil {
		return err
	}
	var recorded, sent bool
	var asked time.Time
	const what = "the change of the members"
	for {
		switch {
		case recorded && governor.IsMade(&c, p.Roster.Table()):
			return nil
		case !recorded && time.Since(asked) > replica.RetryAfter:
			asked = time.Now()
			var err error
			if recorded, err = p.askLeader(ctx, ask.Question{Reconfig: &c}, what, &sent); err != nil {
				return err
			}
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-p.Done:
			return p.GaveUp(ctx, sent, what)
		case <-ctx.Done():
			return p.GaveUp(ctx, sent, what)
		}
	}
}

// Leave has the leader of the home shard record that this member is to be out.
func (p *Petitioner) Leave(ctx context.Context, isOut func() bool) error {
	const what = "the departure of this member"
	var sent bool
	var asked time.Time
	for !isOut() {
		if !sent || time.Since(asked) > replica.RetryAfter {
			asked = time.Now()
			if recorded, err := p.askLeader(ctx, ask.Question{Leave: p.Roster.Self()}, what, &sent); recorded || err != nil {
				return err
			}
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-p.Done:
			return p.GaveUp(ctx, sent, what)
		case <-ctx.Done():
			return p.GaveUp(ctx, sent, what)
		}
	}
	return nil
}

// GaveUp is the error of a change of the ensemble that this node no longer waits for. What was sent may
// be recorded, whatever ended the wait.
func (p *Petitioner) GaveUp(ctx context.Context, sent bool, what string) error {
	over := p.Node.Over()
	switch {
	case !sent && over != nil:
		return over
	case !sent:
		return p.Node.Lacking(outbox.Lacking(ctx, ctx.Err()))
	case over != nil:
		return ask.Unsure(what, errors.New(over.Error())) // it matches none of those that say that nothing was applied
	}
	return ask.Unsure(what, p.Node.Lacking(outbox.WhyOver(ctx)))
}

// askLeader has the leader of the home shard record a change. sent says whether the change may have
// been proposed, now or before.
func (p *Petitioner) askLeader(ctx context.Context, q ask.Question, what string, sent *bool) (recorded bool, err error) {
	recorded, err = p.atLeader(ctx, q)
	switch {
	case errors.Is(err, ask.ErrLater):
		return false, nil
	case err != nil:
		return false, ask.Refused(err, *sent, what)
	}
	*sent = true
	return recorded, nil
}

// atLeader has the leader of the home shard record the change that a question asks for. It returns
// false if that is worth another try: with ask.ErrLater nothing was proposed, without an error nobody
// knows.
func (p *Petitioner) atLeader(ctx context.Context, q ask.Question) (answered bool, err error) {
	leader := p.Node.Leader(command.HomeShard).Member
	address := p.Roster.Address(leader)
	switch {
	case leader == 0:
		return false, ask.ErrLater
	case leader == p.Roster.Self():
		return p.Governor.Change(ctx, &q)
	case address == "":
		return false, ask.ErrLater
	}
	q.Lineage = p.Roster.Lineage()
	a, err := ask.Ask(ctx, p.Transport, transport.Target{Member: uint64(leader), Address: address}, q)
	if err != nil || a.Lineage != q.Lineage {
		return false, nil // the leader may be another one by now, or elsewhere
	}
	if a.Later {
		return false, ask.ErrLater
	}
	err = a.Refusal()
	return a.Done || err != nil, err
}
