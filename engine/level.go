package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// The feature levels that this build reads and writes.
const (
	LevelMin = command.LevelMin
	LevelMax = command.LevelMax
)

// ErrLevel says that the ensemble is at a feature level that this build does not read, or that the
// config wants to hold it below, or that a member keeps it down.
var ErrLevel = command.ErrLevel

// raiseInterval is how often a leader looks whether it may raise a shard's feature level.
const raiseInterval = time.Second

// raiseLoop raises the feature level of the shards that this node leads, by one each time, when all
// members agree to it. It ends with the node, or when no shard can rise any further.
func (e *Engine) raiseLoop() {
	ticker := time.NewTicker(raiseInterval)
	defer ticker.Stop()
	for e.raiseLevels() {
		select {
		case <-e.stop:
			return
		case <-e.done:
			return
		case <-ticker.C:
		}
	}
}

// raiseLevels proposes what raiseLoop is for. It reports whether a shard may still rise.
func (e *Engine) raiseLevels() (more bool) {
	for _, r := range e.shards {
		next := r.Level() + 1
		if next > e.cfg.levelMax() {
			continue
		}
		more = true
		if e.Leader(r.Shard).Member == e.roster.Self() && !e.isHeldBelow(next) {
			_, _ = e.host.Load().Propose(r.Shard, command.EncodeRaise(next, nil)) // if it is lost, the loop proposes it again
		}
	}
	return more
}

// isHeldBelow reports whether some shard has a member without which it cannot rise to a level. A new
// member holds its level on every shard: it may not be on all of them yet.
func (e *Engine) isHeldBelow(level uint32) bool {
	return slices.ContainsFunc(e.shards, func(r *replica.Replica) bool { return len(r.HeldDown(level)) > 0 })
}

// Level returns the feature level of the ensemble, that of its lowest shard.
func (e *Engine) Level() uint32 {
	level := e.home().Level()
	for _, r := range e.shards {
		level = min(level, r.Level())
	}
	return level
}

// levels returns the levels that this node agrees to.
func (e *Engine) levels() transport.Levels {
	return transport.Levels{Min: LevelMin, Max: e.cfg.levelMax()}
}

// HeldDown returns the members that keep the ensemble from the next level, in the order of their
// ids. It returns none if this build reads no higher level.
func (e *Engine) HeldDown() []MemberID {
	next := e.Level() + 1
	if next > e.cfg.levelRead() || e.roster.Self() == 0 {
		return nil
	}
	var by []MemberID
	for _, r := range e.shards {
		for _, m := range r.HeldDown(next) {
			by = append(by, MemberID(m))
		}
	}
	slices.Sort(by)
	return slices.Compact(by)
}

// RaiseLevel raises the feature level of the ensemble by one, without the consent of the given
// members. It waits until every shard on this node has it.
func (e *Engine) RaiseLevel(ctx context.Context, behind []MemberID) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	next := e.Level() + 1
	if err := e.mayRaise(ctx, next, behind); err != nil {
		return err
	}
	left := make([]session.MemberID, len(behind))
	for i, m := range behind {
		left[i] = session.MemberID(m)
	}
	var proposed time.Time
	sent := false
	for e.Level() < next {
		if now := time.Now(); now.Sub(proposed) >= replica.RetryAfter {
			proposed = now
			for _, r := range e.shards {
				_, err := e.host.Load().Propose(r.Shard, command.EncodeRaise(next, left)) // if it is lost, it is proposed again
				sent = sent || err == nil
			}
		}
		select {
		case <-ctx.Done():
			return e.Petitioner().GaveUp(ctx, sent, fmt.Sprintf("the raise to level %d", next))
		case <-e.done:
			return e.Petitioner().GaveUp(ctx, sent, fmt.Sprintf("the raise to level %d", next))
		case <-time.After(replica.PollInterval):
		}
	}
	return nil
}

// mayRaise returns why the ensemble cannot rise to a level without the given members, or nil.
func (e *Engine) mayRaise(ctx context.Context, next uint32, behind []MemberID) error {
	if over := e.over(); over != nil {
		return over
	}
	if e.host.Load() == nil {
		return e.notReady(outbox.ErrUnavailable)
	}
	if next > e.cfg.levelRead() {
		return fmt.Errorf("%w: the ensemble is at level %d, the highest that this build reads", command.ErrLevel, next-1)
	}
	for _, m := range behind {
		switch {
		case !slices.Contains(e.roster.MemberIDs(), m):
			return fmt.Errorf("member %d is none of the members %s", m, replication.Listed(e.roster.MemberIDs()))
		case m == e.roster.Self() || e.isUp(ctx, m):
			return fmt.Errorf("member %d is up: upgrade it, or stop it if it is to be left behind", m)
		}
	}
	for _, m := range e.HeldDown() {
		if !slices.Contains(behind, m) {
			return fmt.Errorf("%w: the ensemble stays at level %d because of member %d: upgrade it and remove its Config.HoldLevel, or leave it behind if it never comes back", command.ErrLevel, next-1, m)
		}
	}
	return nil
}

// isUp reports whether another member may run: somebody accepts connections where it was, and does not
// say that he is another one. Members that lead nothing have no connection between them, so it makes
// one. Where nobody answers at all, it leaves its caller half of the time.
func (e *Engine) isUp(ctx context.Context, m MemberID) bool {
	half := ask.Time
	if deadline, ok := ctx.Deadline(); ok {
		half = min(half, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, half)
	defer cancel()
	address := e.roster.Address(m)
	conn, err := e.network.Dial(ctx, transport.Target{Member: uint64(m), Address: address})
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	a, err := ask.Ask(ctx, e.transport, transport.Target{Address: address}, ask.Question{})
	other := a.Member != m || a.Lineage != e.roster.Lineage() && a.Lineage != (session.Lineage{})
	return err != nil || !other
}
