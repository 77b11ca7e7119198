package governor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/steer"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// isRecorded reports whether a table has all wishes of the change.
func isRecorded(c *ask.Reconfig, table *session.MembersView) bool { return len(lacks(c, table)) == 0 }

// lacks returns the wishes that a table does not have yet. Those to vote come first: the table
// refuses to let the last one go who is to vote.
func lacks(c *ask.Reconfig, table *session.MembersView) (list []steer.Wish) {
	for _, id := range c.Promote {
		list = append(list, steer.Wish{Member: session.MemberID(id), Part: session.Voter})
	}
	for _, id := range c.Remove {
		list = append(list, steer.Wish{Member: session.MemberID(id), Part: session.Out, Reason: session.Removed})
	}
	return slices.DeleteFunc(list, func(w steer.Wish) bool {
		m, found := table.Find(w.Member)
		return m.Wish == w.Part || !found && w.Part == session.Out
	})
}

// recordReconfig records a change where the home shard is led. It returns once the table has it, so
// that of two changes for one version only the first is made. It returns false if it has proposed the
// change, and does not know whether all of it will be recorded.
func (g *Governor) recordReconfig(ctx context.Context, c *ask.Reconfig) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.RequestTimeout)
	defer cancel()
	select {
	case g.recording <- struct{}{}:
		defer func() { <-g.recording }()
	case <-ctx.Done():
		return true, ask.ErrReconfiguring
	}
	if isRecorded(c, g.Roster.Table()) {
		return true, nil // the leader was asked before, and its answer was lost
	}
	if err := g.mayReconfig(ctx, c); err != nil {
		return true, err
	}
	g.Roster.Log.Info("the members are to change on request", "promote", c.Promote, "remove", c.Remove)
	var proposed time.Time
	for {
		missing := lacks(c, g.Roster.Table())
		if len(missing) == 0 {
			return true, nil
		}
		if now := time.Now(); now.Sub(proposed) >= replica.RetryAfter {
			proposed = now
			for _, w := range missing { // if one is lost, it is proposed again
				g.propose(command.EncodeWant(0, w.Member, w.Part, w.Reason, now.UnixMilli()))
			}
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

// mayReconfig returns why a change must not be made now, or nil.
func (g *Governor) mayReconfig(ctx context.Context, c *ask.Reconfig) error {
	table := g.Roster.Table()
	if m := underWay(c, table); m != 0 {
		return fmt.Errorf("%w: that of member %d", ask.ErrReconfiguring, m)
	}
	if stat, _ := g.home().Tree().Exists(tree.ConfigPath); c.Version != 0 && c.Version != stat.Mzxid {
		return fmt.Errorf("%w: they have version %x, the change is for %x", ask.ErrConfigChanged, uint64(stat.Mzxid), uint64(c.Version))
	}
	for _, id := range c.Promote {
		switch m, found := table.Find(session.MemberID(id)); {
		case !found || m.Wish == session.Out:
			return fmt.Errorf("%w: %d", session.ErrNotMember, id)
		case m.Observer:
			return fmt.Errorf("%w: member %d", session.ErrObserver, id)
		case m.Wish == session.Learner && !g.isStable(ctx, m.ID):
			return fmt.Errorf("%w: member %d has not answered and kept up for %v: try again when it has", ask.ErrUnsafe, id, stableTicks*g.Tick)
		}
	}
	stored := g.proveAtHome(ctx)
	if stored == nil {
		return fmt.Errorf("%w: no quorum has stored an entry in time", outbox.ErrUnavailable)
	}
	for _, r := range g.Shards {
		if why := g.unsafeAfter(r.Shard, c, stored); why != "" {
			return fmt.Errorf("%w: %s", ask.ErrUnsafe, why)
		}
	}
	return nil
}

// underWay returns a member that is on its way to another part, and that the change does not
// send there too; zero if there is none.
func underWay(c *ask.Reconfig, table *session.MembersView) session.MemberID {
	for i := range table.List {
		m := &table.List[i]
		id := MemberID(m.ID)
		underWay, meant := false, slices.Contains(c.Remove, id)
		switch m.Wish {
		case session.Voter:
			underWay, meant = !IsMade(&ask.Reconfig{Promote: []MemberID{id}}, table), meant || slices.Contains(c.Promote, id)
		case session.Out:
			underWay = !IsMade(&ask.Reconfig{Remove: []MemberID{id}}, table)
		}
		if underWay && !meant {
			return m.ID
		}
	}
	return 0
}

// unsafeAfter says why those who vote on a shard after a change and have just stored would be no quorum, or would be
// two instead of one. It is empty if all is well. With several shards, those who stay must also be a
// quorum beside those who go: who is out of one shard is over on all.
func (g *Governor) unsafeAfter(id ShardID, c *ask.Reconfig, stored map[MemberID]bool) string {
	before := g.Roster.Voters(id)
	voters := slices.DeleteFunc(slices.Clone(before), func(m MemberID) bool { return slices.Contains(c.Remove, m) })
	stay := slices.DeleteFunc(slices.Clone(voters), func(m MemberID) bool { return !stored[m] })
	stays, goes := len(voters), 0
	for _, m := range c.Remove { // also who is on the way out
		if rec, _ := g.Roster.Table().Find(session.MemberID(m)); rec.Votes(uint32(id)) {
			goes++
		}
	}
	for _, m := range c.Promote {
		if !slices.Contains(voters, m) {
			voters = append(voters, m)
		}
	}
	slices.Sort(voters)
	answering := slices.DeleteFunc(slices.Clone(voters), func(m MemberID) bool { return !stored[m] })
	switch {
	case len(before) == 1 && stays == 1 && len(voters) == 2:
		return fmt.Sprintf("member %d votes alone, and of two voters either failure stops both: let two more vote at once", voters[0])
	case len(g.Shards) > 1 && goes > 0 && steer.Margin(stays+goes, len(stay)) < 0:
		return fmt.Sprintf("those who go are over once they are out of one shard, and shard %d cannot take them out without their votes, because of its voters %s only %s stay and answer: ask for fewer at once, or let them leave", id, replication.Listed(before), replication.Listed(stay))
	case steer.Margin(len(voters), len(answering)) < 0:
		return fmt.Sprintf("the voters would be %s, and of them only %s answer", replication.Listed(voters), replication.Listed(answering))
	}
	return ""
}

// isStable reports whether a member's replica of the home shard has been well for long enough to
// vote. It asks the steering of that shard, which watches that.
func (g *Governor) isStable(ctx context.Context, m session.MemberID) bool {
	a := judgement{member: m, stable: make(chan bool, 1)}
	select {
	case g.steering[command.HomeShard-1].judge <- a:
		return <-a.stable
	case <-ctx.Done():
	case <-g.Reach.Done():
	}
	return false
}

// IsMade reports whether a table shows the change on all shards.
func IsMade(c *ask.Reconfig, table *session.MembersView) bool {
	for _, id := range c.Promote {
		m, _ := table.Find(session.MemberID(id))
		votes := 0
		for _, p := range m.Places {
			if p.Part == session.Voter {
				votes++
			}
		}
		if votes < int(table.Ensemble.Shards) {
			return false
		}
	}
	return !slices.ContainsFunc(c.Remove, func(id MemberID) bool {
		m, found := table.Find(session.MemberID(id))
		return found && m.OutOf() < int(table.Ensemble.Shards)
	})
}
