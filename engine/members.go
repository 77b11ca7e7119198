package engine

import (
	"cmp"
	"fmt"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/roster"
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
	self := e.roster.Self()
	leads := self != 0 && e.Leader(command.HomeShard).Member == self && !e.silenced()
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

// FounderName is the name of a founder to which nobody has given one.
func FounderName(m MemberID) string { return session.FounderName(session.MemberID(m)) }

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
		e.endUse(ErrFailed, e.roster.Removed(how))
	}
	switch {
	case left+e.shards.Unseen() < len(e.shards):
	case leaves:
		e.departing.Do(func() { close(e.departed) })
	default:
		e.failAsRemoved(how)
	}
}

// failAsRemoved records in the identity file that this member is out, and fails the node. A failed
// disk may keep it from being recorded; then the next start is told again. When it returns, nobody
// reads any more.
func (e *Engine) failAsRemoved(how string) {
	e.roster.RecordOut(e.roster.ReasonOut(roster.ToldByOthers))
	e.fail(e.roster.Removed(how))
	e.finish(e.switched()) // failureLoop may notice later
}

// failAsSuperseded records in the identity file that a forced recovery has gone on without this
// member, and fails the node.
func (e *Engine) failAsSuperseded(how string) {
	e.roster.RecordOut(replication.Superseded)
	e.fail(fmt.Errorf("%w: member %d: %s", ErrSuperseded, e.roster.Self(), how))
}
