package levels

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// interval is how often a leader looks whether it may raise a shard's feature level.
const interval = time.Second

// A Node is what a Raiser needs from above it.
type Node interface {
	// Leader says who leads a shard; nobody once the node is over.
	Leader(replication.ShardID) replication.Leader
	// Over returns why the node is over for its users, or nil.
	Over() error
	// Lacking adds to an error what the node lacks now, if anything.
	Lacking(error) error
}

// A Raiser raises the feature level of the ensemble.
type Raiser struct {
	Node      Node
	Forest    forest.Forest
	Roster    *roster.Roster
	Transport *transport.Transport
	Network   transport.Network
	Host      func() *replication.Host
	GaveUp    func(ctx context.Context, sent bool, what string) error

	Read    uint32        // the highest level that this build reads
	Agreed  uint32        // the highest that this node agrees to
	Timeout time.Duration // of what has no deadline
	Reach   context.Context
	Done    <-chan struct{} // closed when the node is over for its users
}

// Loop raises the feature level of the shards that this node leads, by one each time, when all
// members agree to it. It ends with the node, or when no shard can rise any further.
func (r *Raiser) Loop() {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for r.raise() {
		select {
		case <-r.Reach.Done():
			return
		case <-r.Done:
			return
		case <-ticker.C:
		}
	}
}

// raise proposes what Loop is for. It reports whether a shard may still rise.
func (r *Raiser) raise() (more bool) {
	for _, shard := range r.Forest {
		next := shard.Level() + 1
		if next > r.Agreed {
			continue
		}
		more = true
		if r.Node.Leader(shard.Shard).Member == r.Roster.Self() && !r.isHeldBelow(next) {
			_, _ = r.Host().Propose(shard.Shard, command.EncodeRaise(next, nil)) // if it is lost, the loop proposes it again
		}
	}
	return more
}

// isHeldBelow reports whether some shard has a member without which it cannot rise to a level. A new
// member holds its level on every shard: it may not be on all of them yet.
func (r *Raiser) isHeldBelow(level uint32) bool {
	return slices.ContainsFunc(r.Forest, func(shard *replica.Replica) bool { return len(shard.HeldDown(level)) > 0 })
}

// Level returns the feature level of the ensemble, that of its lowest shard.
func (r *Raiser) Level() uint32 {
	level := r.Forest.Home().Level()
	for _, shard := range r.Forest {
		level = min(level, shard.Level())
	}
	return level
}

// HeldDown returns the members that keep the ensemble from the next level, in the order of their
// ids. It returns none if this build reads no higher level.
func (r *Raiser) HeldDown() []replication.MemberID {
	next := r.Level() + 1
	if next > r.Read || r.Roster.Self() == 0 {
		return nil
	}
	var by []replication.MemberID
	for _, shard := range r.Forest {
		for _, m := range shard.HeldDown(next) {
			by = append(by, replication.MemberID(m))
		}
	}
	slices.Sort(by)
	return slices.Compact(by)
}

// Raise raises the feature level of the ensemble by one, without the consent of the given
// members. It waits until every shard on this node has it.
func (r *Raiser) Raise(ctx context.Context, behind []replication.MemberID) error {
	ctx, cancel := outbox.Bounded(ctx, r.Timeout)
	defer cancel()
	next := r.Level() + 1
	if err := r.mayRaise(ctx, next, behind); err != nil {
		return err
	}
	left := make([]session.MemberID, len(behind))
	for i, m := range behind {
		left[i] = session.MemberID(m)
	}
	var proposed time.Time
	sent := false
	for r.Level() < next {
		if now := time.Now(); now.Sub(proposed) >= replica.RetryAfter {
			proposed = now
			for _, shard := range r.Forest {
				_, err := r.Host().Propose(shard.Shard, command.EncodeRaise(next, left)) // if it is lost, it is proposed again
				sent = sent || err == nil
			}
		}
		select {
		case <-ctx.Done():
			return r.GaveUp(ctx, sent, fmt.Sprintf("the raise to level %d", next))
		case <-r.Done:
			return r.GaveUp(ctx, sent, fmt.Sprintf("the raise to level %d", next))
		case <-time.After(replica.PollInterval):
		}
	}
	return nil
}

// mayRaise returns why the ensemble cannot rise to a level without the given members, or nil.
func (r *Raiser) mayRaise(ctx context.Context, next uint32, behind []replication.MemberID) error {
	if over := r.Node.Over(); over != nil {
		return over
	}
	if r.Host() == nil {
		return r.Node.Lacking(outbox.ErrUnavailable)
	}
	if next > r.Read {
		return fmt.Errorf("%w: the ensemble is at level %d, the highest that this build reads", command.ErrLevel, next-1)
	}
	for _, m := range behind {
		switch {
		case !slices.Contains(r.Roster.MemberIDs(), m):
			return fmt.Errorf("member %d is none of the members %s", m, replication.Listed(r.Roster.MemberIDs()))
		case m == r.Roster.Self() || r.isUp(ctx, m):
			return fmt.Errorf("member %d is up: upgrade it, or stop it if it is to be left behind", m)
		}
	}
	for _, m := range r.HeldDown() {
		if !slices.Contains(behind, m) {
			return fmt.Errorf("%w: the ensemble stays at level %d because of member %d: upgrade it and remove its Config.HoldLevel, or leave it behind if it never comes back", command.ErrLevel, next-1, m)
		}
	}
	return nil
}

// isUp reports whether another member may run: somebody accepts connections where it was, and does not
// say that he is another one. Members that lead nothing have no connection between them, so it makes
// one. Where nobody answers at all, it leaves its caller half of the time.
func (r *Raiser) isUp(ctx context.Context, m replication.MemberID) bool {
	half := ask.Time
	if deadline, ok := ctx.Deadline(); ok {
		half = min(half, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, half)
	defer cancel()
	address := r.Roster.Address(m)
	conn, err := r.Network.Dial(ctx, transport.Target{Member: uint64(m), Address: address})
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	a, err := ask.Ask(ctx, r.Transport, transport.Target{Address: address}, ask.Question{})
	other := a.Member != m || a.Lineage != r.Roster.Lineage() && a.Lineage != (session.Lineage{})
	return err != nil || !other
}
