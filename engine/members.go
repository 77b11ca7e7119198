package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Member returns the id of this member, or zero while the node has yet to join an ensemble.
func (e *Engine) Member() MemberID { return e.roster.Self() }

// Learns reports whether this member does not vote on the home shard.
func (e *Engine) Learns() bool { return e.roster.Learns(command.HomeShard) }

// Members returns all members that this node knows of, by their ids. Before the table of members is
// founded, they are the founders.
func (e *Engine) Members() (list []Member) {
	table := e.roster.Table()
	leads := e.Leader(command.HomeShard).Member == e.roster.Self() && !e.silenced()
	if table.Ensemble.Next == 0 {
		for _, m := range e.roster.Founders() {
			list = append(list, e.describe(session.Member{ID: session.MemberID(m), Wish: session.Voter}, leads))
		}
		return list
	}
	for _, m := range table.List {
		list = append(list, e.describe(m, leads))
	}
	return list
}

// describe adds what this node knows of a member. leads says that it leads the home shard, and so
// knows who answers.
func (e *Engine) describe(m session.Member, leads bool) Member {
	d := Member{Member: m}
	d.Name = cmp.Or(m.Name, m.Address) // for people
	if d.Address == "" {
		d.Address = e.roster.Address(MemberID(m.ID))
	}
	if !leads {
		return d
	}
	if d.Answers = e.governor.Answers(MemberID(m.ID)); !d.Answers || MemberID(m.ID) == e.roster.Self() {
		return d
	}
	committed, has := e.host.Load().Committed(command.HomeShard), e.transport.Pulse(uint64(m.ID), int(command.HomeShard)).Index
	if committed > has {
		d.Behind = committed - has
	}
	return d
}

// MayReconfig returns ErrNoAuth unless somebody may ask for a Reconfig.
func (e *Engine) MayReconfig(who []tree.Identity) error {
	return e.home().Tree().As(who).CheckWrite(tree.ConfigPath)
}

// Config returns what tree.ConfigPath says; empty until all members have said where they are.
func (e *Engine) Config() string {
	data, _, _ := e.home().Tree().Get(tree.ConfigPath) // every tree has it
	return string(data)
}

// memberInterval is how often memberLoop looks without a change of the table.
const memberInterval = time.Second

// memberLoop tells the ensemble where this member is, tells observers of changes, and looks for the
// others where nobody leads. It ends with the node.
func (e *Engine) memberLoop() {
	ticker := time.NewTicker(memberInterval)
	defer ticker.Stop()
	leaderless := time.Now()
	observerSaid := false
	present := e.roster.Present()
	for {
		select {
		case <-e.stop:
			return
		case <-e.done:
			return
		case <-e.membersChanged:
			present = e.noteMembers(present)
			if e.cfg.MembersChanged != nil {
				e.cfg.MembersChanged() // queues the call, so it does not block
			}
		case <-ticker.C:
		}
		if e.Leader(command.HomeShard).Member != 0 {
			leaderless = time.Now()
			e.announce()
			observerSaid = observerSaid || e.sayObserver()
		} else if time.Since(leaderless) > LongestElection(e.cfg.Tick) {
			e.seek()
		}
	}
}

// noteMembers notes who has joined or is gone since the table had these members. It returns those
// that it has now. Both lists are sorted.
func (e *Engine) noteMembers(before []session.MemberID) []session.MemberID {
	now := e.roster.Present()
	for _, c := range []struct {
		kind     health.Kind
		all, old []session.MemberID
	}{{health.MemberJoined, now, before}, {health.MemberGone, before, now}} {
		for _, m := range c.all {
			if _, had := slices.BinarySearch(c.old, m); !had {
				e.health.Recent.Note(health.Occurrence{Kind: c.kind, Member: MemberID(m)})
			}
		}
	}
	return now
}

// AnnounceClient says where this member's clients connect, so that tree.ConfigPath has it. It
// returns false if somebody else has said so already. The ensemble hears of it within a second or
// two.
func (e *Engine) AnnounceClient(address string) bool { return e.client.CompareAndSwap(nil, &address) }

// WithdrawClient takes back what AnnounceClient said.
func (e *Engine) WithdrawClient() { e.client.Store(nil) }

// announce enters in the table where this member is, unless it says so already.
func (e *Engine) announce() {
	home := e.home()
	table := e.roster.Table()
	rec, known := table.Find(session.MemberID(e.roster.Self()))
	says := command.Announce{Name: e.nameToSay(table, rec), Address: e.cfg.Advertise, Zone: e.cfg.Zone}
	if announced := e.client.Load(); announced != nil {
		says.Client = *announced
	}
	news := says != command.Announce{Name: rec.Name, Address: rec.Address, Client: rec.Client, Zone: rec.Zone}
	if !known || rec.Wish == session.Out || !news {
		return
	}
	call := outbox.NewCall(nil, &command.Request{Kind: command.RequestAnnounce, Announce: says})
	if _, err := home.Outbox.Submit(call); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.reach, memberInterval)
	defer cancel()
	_ = home.Outbox.Wait(ctx, call, memberInterval) // the loop looks again
}

// FounderName is the name of a founder to which nobody has given one.
func FounderName(m MemberID) string { return session.FounderName(session.MemberID(m)) }

// nameToSay returns the name under which a member is in the table, or is to be. Only a founder enters
// it after it has joined, once, and none that another one has: whoever was admitted under the name of
// an older member passes for its replacement.
func (e *Engine) nameToSay(table *session.MembersView, rec session.Member) string {
	taken := slices.ContainsFunc(table.List, func(m session.Member) bool { return m.ID != rec.ID && m.Name == e.cfg.Name && m.Wish < session.Out })
	given := rec.Name != "" && rec.Name != session.FounderName(rec.ID)
	if given || rec.Since != 0 || taken {
		return rec.Name
	}
	return e.cfg.Name
}

// sayObserver logs that Config.Observer is not what the ensemble knows, and reports whether it did.
// The value counts at the join alone: a voter never becomes a learner again, and nothing in the log
// changes it for a learner.
func (e *Engine) sayObserver() bool {
	rec, known := e.roster.Table().Find(session.MemberID(e.roster.Self()))
	if !known || rec.Observer == e.cfg.Observer || !isDone(e.home().Outbox.Ready) {
		return false
	}
	e.log.Warn("Config.Observer has no effect: it counts when a member joins", "recorded", rec.Observer)
	return true
}

// seek asks the seeds where the members are. All of them may have moved at once. It also greets
// them: a learner that was removed says nothing by itself, and nobody would tell it.
func (e *Engine) seek() {
	ctx, cancel := context.WithTimeout(e.reach, ask.Time)
	defer cancel()
	answers, _ := e.entry.AskAll(ctx)
	own := e.roster.Lineage()
	for _, a := range answers {
		if slices.Contains(a.Ancestors, own) {
			e.failAsSuperseded(fmt.Sprintf("member %d at %s goes on as lineage %v, which follows %v", a.Member, a.Address, a.Lineage, own))
			return
		}
		if a.Member == 0 || a.Lineage != own && a.Lineage != (session.Lineage{}) || a.Address == "" {
			continue
		}
		e.roster.Met(a.Member, a.Address)
		if a.Member != e.roster.Self() {
			_ = e.transport.Probe(ctx, uint64(a.Member)) // a refusal reaches refused
		}
	}
}

// removedFrom is called when this member has applied its own removal from a shard. Nothing behind
// the removal is applied before it returns.
//
// The member serves nobody from then on. Its vote goes on: until it is out of all shards, the others
// may need it there, whatever the reason. One that was silent may be back.
func (e *Engine) removedFrom(id ShardID) {
	how := fmt.Sprintf("it has applied its removal from shard %d", id)
	left, leaves := e.departure.OutOfOne() // first: Leave looks at it once calls end
	switch serves := isDone(e.home().Outbox.Ready); {
	case leaves:
		e.endUse(outbox.ErrClosed, nil)
	case serves:
		e.endUse(ErrFailed, e.removed(how))
	}
	switch {
	case left+e.unseen() < len(e.shards):
	case leaves:
		e.departing.Do(func() { close(e.departed) })
	default:
		e.failAsRemoved(how)
	}
}

// unseen returns on how many shards this member has never applied anything. It does not vote there, and
// is shut out before it ever does, so it never applies its removal from them.
func (e *Engine) unseen() (n int) {
	for _, r := range e.shards {
		if r.Index() == 0 {
			n++
		}
	}
	return n
}

// failAsRemoved records in the identity file that this member is out, and fails the node. A failed
// disk may keep it from being recorded; then the next start is told again. When it returns, nobody
// reads any more.
func (e *Engine) failAsRemoved(how string) {
	e.recordOut(e.reasonOut(toldByOthers))
	e.fail(e.removed(how))
	e.finish(e.switched()) // failureLoop may notice later
}

// removed is why a node fails whose member is out.
func (e *Engine) removed(how string) error {
	return fmt.Errorf("%w: member %d (%s): %s", ErrRemoved, e.roster.Self(), e.reasonOut(toldByOthers), how)
}

const toldByOthers = "told by others"

// reasonOut returns why this member is to be out by its table, or else what it says if that is not
// known here.
func (e *Engine) reasonOut(unknown string) string {
	if rec, ok := e.roster.Table().Find(session.MemberID(e.roster.Self())); ok && rec.Wish == session.Out {
		return rec.Reason.String()
	}
	return unknown
}

// recordOut records in the identity file that this member is out for good.
func (e *Engine) recordOut(reason string) {
	_ = e.identity.Amend(func(id *replication.Identity) bool { id.Out = reason; return true })
}

// failAsSuperseded records in the identity file that a forced recovery has gone on without this
// member, and fails the node.
func (e *Engine) failAsSuperseded(how string) {
	e.recordOut(replication.Superseded)
	e.fail(fmt.Errorf("%w: member %d: %s", ErrSuperseded, e.roster.Self(), how))
}
