package campaign

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
)

// vacant returns a place where nobody is and nobody is to come back, or zero.
func (e *ensemble) vacant() embed.MemberID {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.ids {
		if _, evicted := e.mu.evicted[id]; e.mu.away[id] && !evicted {
			return id
		}
	}
	return 0
}

// appear starts a member in a place where nobody runs, on what is in its directory.
func (e *ensemble) appear(id embed.MemberID) {
	e.mu.Lock()
	delete(e.mu.evicted, id)
	e.mu.Unlock()
	if err := e.start(id); err != nil {
		e.report.violate("harness", "member %d: %v", id, err)
	}
	e.setAway(id, false)
}

// renew starts a new member, with an empty directory, in a place where nobody runs.
func (e *ensemble) renew(id embed.MemberID) {
	if err := e.host.Wipe(id); err != nil {
		e.report.violate("harness", "member %d: %v", id, err)
	}
	e.setLeft(id, false)
	e.appear(id)
}

// abandon kills a member whose directory perhaps nobody will use again.
func (e *ensemble) abandon(id embed.MemberID) {
	r := e.run(id)
	e.kill(id)
	add(e.history, abandoned, abandonment{id, r.number})
}

func (e *ensemble) setLeft(id embed.MemberID, left bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.left[id] = left
}

func (e *ensemble) setEvicted(id embed.MemberID, ev eviction) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.evicted[id] = ev
}

func (e *ensemble) allEvicted() map[embed.MemberID]eviction {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.mu.evicted)
}

func (e *ensemble) isTaken(id embed.MemberID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.taken[id] != ""
}

// members returns the members as one of them knows them, and not older than now.
func (e *ensemble) members(ctx context.Context, id embed.MemberID) (Reply, error) {
	if a, err := e.call(ctx, id, Request{Call: callReady, Within: requestTimeout}); err != nil {
		return a, err
	}
	return e.call(ctx, id, Request{Call: callMembers, Within: requestTimeout})
}

// rest waits until the members are at rest. If ctx ends first, why says who is not and why.
func (e *ensemble) rest(ctx context.Context) (why string) {
	for {
		if now := e.unrest(ctx); now == "" || ctx.Err() == nil {
			why = now // what was seen last is more of a reason than ctx
		}
		if why == "" || ctx.Err() != nil {
			return why
		}
		pause(ctx, 5*tick)
	}
}

// unrest says why members that come and go are not at rest. They are if all agree that just those
// in the present places are the members, and that as many of them vote as shall, by the Raft of
// each shard.
func (e *ensemble) unrest(ctx context.Context) string {
	if len(e.ids) == e.founders || e.isFixed() {
		return ""
	}
	here := e.here()
	var first Reply
	for i, id := range here {
		known, err := e.members(ctx, id)
		switch {
		case err != nil:
			return err.Error()
		case i == 0:
			first = known
		case !slices.Equal(known.Members, first.Members) || !slices.EqualFunc(known.Voters, first.Voters, slices.Equal):
			return fmt.Sprintf("member %d knows %v with the voters %v, and member %d knows %v with %v", here[0], first.Members, first.Voters, id, known.Members, known.Voters)
		}
	}
	all := e.statuses(here)
	var voters []embed.MemberID
	present := 0
	for _, f := range first.Members {
		if f.Out {
			continue
		}
		if placeOfMember(all, f.ID) == 0 || f.Leaving != "" || f.Name == "" || f.Votes != 0 && f.Votes != e.shards {
			return fmt.Sprintf("one of the members is %+v", f)
		}
		present++
		if f.Votes > 0 {
			voters = append(voters, f.ID)
		}
	}
	if len(voters) != e.voters || present != len(here) {
		return fmt.Sprintf("%v vote and shall be %d; %d of %d are members", voters, e.voters, present, len(here))
	}
	for _, raft := range first.Voters {
		if !slices.Equal(raft, voters) {
			return fmt.Sprintf("%v vote by the list of members, and by Raft %v", voters, first.Voters)
		}
	}
	return ""
}

// expectMembers waits until members that come and go are at rest.
func (c *campaign) expectMembers(w *workload) {
	ctx, cancel := limit(context.Background(), patience)
	defer cancel()
	if why := w.e.rest(ctx); why != "" {
		c.report.violate("members", "%v after everything was healed: %s", patience, why)
	} else if len(w.e.ids) > w.e.founders {
		c.report.count(sectionChecks, "voters as all members see them", 1)
	}
}
