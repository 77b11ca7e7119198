package governor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

// recordDeparture records that a member is to be out, where the home shard is led, and returns once the
// table has it. Until then no other change is judged: each counts on those who stay.
//
// A member that is removed is over once it is out of one of several shards, and several at once could
// take the quorum of another shard. So that is answered only when nobody else is on the way out.
func (g *Governor) recordDeparture(ctx context.Context, m MemberID, reason session.Reason) (answered bool, err error) {
	select {
	case g.recording <- struct{}{}:
		defer func() { <-g.recording }()
	default:
		return false, ask.ErrLater
	}
	table := g.Roster.Table()
	rec, found := table.Find(session.MemberID(m))
	switch {
	case !found:
		return true, fmt.Errorf("%w: %d", session.ErrNotMember, m)
	case rec.Wish == session.Out:
		return true, nil
	case reason == session.Removed && len(g.Shards) > 1 && g.anyGoes(table):
		return false, ask.ErrLater
	}
	stored := g.proveAtHome(ctx)
	if stored == nil {
		return false, ask.ErrLater
	}
	if why := g.unsafeWithout(m, reason == session.Left, stored); why != "" {
		return true, fmt.Errorf("%w: %s", ask.ErrUnsafe, why)
	}
	if reason == session.Removed {
		g.Roster.Log.Info("a member is to be removed on request", "peer", m)
	}
	g.propose(command.EncodeWant(0, rec.ID, session.Out, reason, time.Now().UnixMilli())) // if it is lost, the caller asks again
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	for {
		if rec, _ := g.Roster.Table().Find(session.MemberID(m)); rec.Wish == session.Out {
			return true, nil
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-g.Done:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}

// anyGoes reports whether somebody is to be out, and still votes on some shard.
func (g *Governor) anyGoes(table *session.MembersView) bool {
	return slices.ContainsFunc(table.List, func(m session.Member) bool {
		return m.Wish == session.Out && slices.ContainsFunc(g.Shards, func(r *replica.Replica) bool { return m.Votes(uint32(r.Shard)) })
	})
}

// unsafeWithout says why the voters that have just stored would be no quorum without a member, on any
// shard. It is empty if they are one on each. A member that leaves stays until it is out of all
// shards. Any other is over once it is out of one: on the others they must be a quorum beside it.
func (g *Governor) unsafeWithout(m MemberID, leaves bool, stored map[MemberID]bool) string {
	for _, r := range g.Shards {
		if why := g.unsafeOn(r.Shard, m, leaves || len(g.Shards) == 1, stored); why != "" {
			return why
		}
	}
	return ""
}

// unsafeOn is unsafeWithout for one shard. helps says that m is there until it is out of the shard.
func (g *Governor) unsafeOn(id ShardID, m MemberID, helps bool, stored map[MemberID]bool) string {
	voters := g.Roster.Voters(id)
	if !slices.Contains(voters, m) {
		return ""
	}
	rest := slices.DeleteFunc(voters, func(v MemberID) bool { return v == m || g.Roster.Goes(v) })
	answering := slices.DeleteFunc(slices.Clone(rest), func(v MemberID) bool { return !stored[v] })
	switch {
	case len(rest) == 0 && helps && g.hasHeir(m, stored):
		return "" // it stays until that one votes
	case len(rest) == 0:
		return fmt.Sprintf("member %d is the only one that votes: let others join before", m)
	case len(answering) < len(rest)/2+1:
		return fmt.Sprintf("without member %d the voters would be %s, and of them only %s answer", m, replication.Listed(rest), replication.Listed(answering))
	case !helps && len(answering) < (len(rest)+1)/2+1:
		return fmt.Sprintf("member %d is over once it is out of one shard, and shard %d cannot take it out without its vote, because besides it only %s of %s answer: let it leave", m, id, replication.Listed(answering), replication.Listed(rest))
	}
	return ""
}

// isAlone reports whether a member is the only voter of the home shard that stays.
func (g *Governor) isAlone(m MemberID) bool {
	return !slices.ContainsFunc(g.Roster.Voters(command.HomeShard), func(v MemberID) bool { return v != m && !g.Roster.Goes(v) })
}

// hasHeir reports whether somebody other than a member is to vote, and stores what it is sent.
func (g *Governor) hasHeir(m MemberID, stored map[MemberID]bool) bool {
	return slices.ContainsFunc(g.Roster.Table().List, func(other session.Member) bool {
		id := MemberID(other.ID)
		return id != m && other.Wish == session.Voter && stored[id]
	})
}

// wishHeir wishes that a learner votes in the place of the only voter: the oldest one that is fit.
// It reports whether there is anybody who answers and may vote; it may have to become fit first.
// The planner does not do so, because two voters are no better than one unless one of them goes.
func (g *Governor) wishHeir(ctx context.Context, m MemberID) (comes bool) {
	for _, other := range g.Roster.Table().List {
		id := MemberID(other.ID)
		if id == m || other.Wish == session.Out || other.Observer || !g.Answers(id) {
			continue
		}
		comes = true
		if other.Wish == session.Voter {
			return true
		}
		if g.isStable(ctx, other.ID) {
			g.Roster.Log.Info("a learner is to vote in the place of one that leaves", "peer", id)
			want := command.EncodeWant(0, other.ID, session.Voter, 0, time.Now().UnixMilli())
			g.propose(want) // if it is lost, it is proposed again
			return true
		}
	}
	return comes
}
