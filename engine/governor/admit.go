package governor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/service"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

const (
	// recordTime bounds how long a member waits for a change of the table to be applied.
	recordTime = 10 * time.Second
	// comesWithin is how long a name is kept for a member that was admitted under it and has not begun.
	comesWithin = 30 * time.Second
)

// Admit makes the asking node a member. It proposes the admission until the table shows it.
func (g *Governor) Admit(ctx context.Context, q *ask.Question) (MemberID, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	if !g.settled(ctx) {
		return 0, fmt.Errorf("member %d has led for too short a time to know who answers", g.Roster.Self())
	}
	if err := g.mayAdmit(ctx, q); err != nil {
		return 0, err
	}
	c := candidate(q)
	var proposed time.Time
	for {
		table := g.Roster.Table()
		if rec, found := table.Of(c.Directory); found && rec.Wish < session.Out {
			if g.hasBegun(rec) {
				return 0, fmt.Errorf("the directory is that of member %d, which has a log and stores entries: it was put back to a time before it was a member; %s", rec.ID, replication.WayOut)
			}
			return MemberID(rec.ID), nil
		}
		gone, err := g.instead(table, c)
		c.Instead = gone
		if err = cmp.Or(err, table.CheckAdmit(c)); err != nil {
			return 0, err
		}
		if now := time.Now(); now.Sub(proposed) >= replica.RetryAfter {
			proposed = now
			g.propose(command.EncodeJoin(c, now.UnixMilli())) // if it is lost, it is proposed again
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-g.Done:
			return 0, g.Node.Over()
		case <-ctx.Done():
			return 0, fmt.Errorf("no quorum has admitted the new member in time: %w", ctx.Err())
		}
	}
}

// hasBegun reports whether a member has registered. Its directory has recorded by then who it is, so
// whoever comes with the directory and does not know that has an older copy, without the entries that
// the member has acknowledged.
func (g *Governor) hasBegun(m session.Member) bool {
	o, registered := g.home().Origin(m.ID)
	return registered && o.Directory == m.Directory
}

func candidate(q *ask.Question) session.Candidate {
	return session.Candidate{Directory: q.Directory, Name: q.Name, Zone: q.Zone, Address: q.Address, Observer: q.Observer,
		Former: session.Former{ID: session.MemberID(q.Former.Member), Directory: q.Former.Directory}}
}

// mayAdmit returns why the asking node cannot be a member, or nil.
func (g *Governor) mayAdmit(ctx context.Context, q *ask.Question) error {
	if gone := g.gone.n.Load(); gone >= goneMax {
		return fmt.Errorf("%d members have come and gone, and the ensemble keeps the id of each: it admits nobody any more, so that members can still catch up (docs/limits.md: Members)", gone)
	}
	if g.home().Lineage() == (session.Lineage{}) {
		return errors.New("the ensemble has no lineage yet, which it gets when a majority of the founders is there")
	}
	if err := g.unfit(q); err != nil {
		return err
	}
	if g.Options.Admit != nil {
		c := Candidate{Name: q.Name, Zone: q.Zone, Address: q.Address, Observer: q.Observer}
		_, err := service.Call(ctx, "Config.Admit", func(ctx context.Context) (any, error) { return nil, g.Options.Admit(ctx, c) })
		if err != nil {
			return fmt.Errorf("Config.Admit of member %d refuses it: %w", g.Roster.Self(), err)
		}
	}
	return nil
}

// unfit returns what the asking node must change in its config or build to fit this ensemble.
func (g *Governor) unfit(q *ask.Question) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if q.Ensemble != g.Ensemble {
		bad("Ensemble is %q, that of the members is %q: it is another ensemble, or the name is wrong", q.Ensemble, g.Ensemble)
	}
	if q.Shards != len(g.Shards) {
		bad("Shards is %d, that of the members is %d: set it to %d", q.Shards, len(g.Shards), len(g.Shards))
	}
	if max(q.Tick, g.Tick)/transport.TickRatio > min(q.Tick, g.Tick) {
		bad("Tick is %v, that of the members is %v: set it to %v", q.Tick, g.Tick, g.Tick)
	}
	if level := replica.HighestLevel(g.Shards); q.Levels.Max < level {
		bad("the ensemble is at level %d, the build reads %v: start a build that reads level %d, without a lower Config.HoldLevel", level, q.Levels, level)
	}
	if len(q.Name) > ask.NameMax || len(q.Zone) > ask.NameMax || len(q.Address) > ask.AddressMax {
		bad("Name, Zone or Advertise is too long: Name and Zone may have %d bytes, Advertise %d", ask.NameMax, ask.AddressMax)
	}
	for _, name := range g.home().SchemesInForce() {
		if !slices.Contains(q.Schemes, name) {
			bad("Schemes lack %q, which the ensemble's ACLs use: set Config.Schemes as on the other members", name)
		}
	}
	return errors.Join(errs...)
}

// instead returns the members with a candidate's name, which it may replace. It refuses the name of a
// member that answers, or was admitted a moment ago: two processes with one name would pass for
// replacements of each other.
func (g *Governor) instead(table *session.MembersView, c session.Candidate) (gone []session.MemberID, err error) {
	for _, m := range table.Namesakes(c) {
		switch {
		case g.Answers(MemberID(m.ID)):
			return nil, fmt.Errorf("member %d has the Name %q and answers: give each replica a Name of its own, or none", m.ID, c.Name)
		case g.isOnItsWay(m):
			return nil, fmt.Errorf("member %d was admitted under the Name %q a moment ago: give each replica a Name of its own, or none", m.ID, c.Name)
		}
		gone = append(gone, m.ID)
	}
	return gone, nil
}

// isOnItsWay reports whether a member has not begun yet, and was admitted so lately that it may.
func (g *Governor) isOnItsWay(m session.Member) bool {
	age := time.Since(time.UnixMilli(m.Since))
	return !g.hasBegun(m) && 0 <= age && age < comesWithin
}
