package replica

import (
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Apply implements replication.StateMachine. An entry that cannot be applied fails the node: going on without it
// would make this replica another than the rest.
func (r *Replica) Apply(entries []replication.Entry) {
	for i := range entries {
		c, err := r.decoder.Decode(entries[i].Cmd)
		if err != nil {
			r.node.Fail(fmt.Errorf("shard %d: log entry %d: %w", r.Shard, entries[i].Index, err))
			return
		}
		records := r.ApplyOne(entries[i].Index, &c)
		r.decoder.Reset()
		r.quotas.logDue()
		r.unsaved.entries++
		r.unsaved.bytes += len(entries[i].Cmd)
		r.Sizes.note(len(entries[i].Cmd))
		if (r.unsaved.entries >= SaveEntries || r.unsaved.bytes >= SaveBytes || records >= SaveRecords) && r.save() != nil {
			return
		}
	}
}

// ApplyOne applies one entry, and returns how many records the image lacks. A panic under it fails the node, and must not keep mu.
func (r *Replica) ApplyOne(index uint64, c *command.Command) (records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apply(c)
	r.index.Store(index)
	return r.tree.Load().Dirty() + r.mu.table.Dirty()
}

// apply makes one command's transitions. mu is held.
func (r *Replica) apply(c *command.Command) {
	r.tree.Load().At(time.Since(r.mu.loadedAt))
	r.mu.removed = 0
	switch c.Kind {
	case command.KindRegister:
		r.applyRegister(c)
	case command.KindBatch:
		r.applyBatch(c)
	case command.KindSilence:
		if r.mu.table.Silence(c.Step, c.Silence) {
			r.mu.stepStart[c.Step.Member] = time.Now()
			r.expireDue(c.Wall)
		}
	case command.KindExpire:
		r.expireDue(c.Wall)
	case command.KindReap:
		r.applyReap(c)
	case command.KindPurge:
		r.applyPurge(c)
	case command.KindPurged:
		r.applyPurged(c)
	}
}

func (r *Replica) isOwn(o session.Origin) bool {
	return o.Member == r.Outbox.Origin.Member && o.Start == r.Outbox.Origin.Start
}

func (r *Replica) applyRegister(c *command.Command) {
	own := r.isOwn(c.Origin)
	if o, ok := r.mu.table.Origin(c.Origin.Member); ok && o.Start == c.Origin.Start && o.Directory == c.Origin.Directory {
		if own && r.Outbox.Oldest(0) != nil { // a repeat of one that this process never saw applied
			r.node.Fail(fmt.Errorf("start %d of member %d has registered before: this directory is a copy from another time; %s", o.Start, o.Member, replication.WayOut))
		}
		return
	}
	if _, err := r.mu.table.Register(c.Origin); err != nil {
		if own {
			r.node.Fail(fmt.Errorf("the ensemble refuses this member: %w", err))
		}
		return
	}
	r.noteOrigins()
	r.useRules(c.Rules)
	r.mu.stepStart[c.Origin.Member] = time.Now()
	r.expireDue(c.Wall) // the predecessor's sessions are due at once
	if own {
		if r.Shard == command.HomeShard {
			r.node.Adopt(r.mu.table)
		}
		r.Outbox.BatchApplied(r.Outbox.Oldest(0))
	}
}

// use has transactions judged by the rules of the member with the newest Register.
func (r *Replica) useRules(rules command.Rules) {
	schemes, err := pickSchemes(r.schemes, rules.Schemes)
	if err != nil {
		r.node.Fail(err)
		return
	}
	r.mu.Rules = rules
	t := r.tree.Load()
	t.SetSchemes(schemes)
	t.SetWeightMax(rules.TreeMax)
}

func (r *Replica) applyBatch(c *command.Command) {
	o := c.Origin
	own := r.isOwn(o)
	switch v := r.mu.table.Accept(o.Member, o.Start, o.LastSeq); v {
	case session.Accepted:
	case session.Repeat:
		return
	case session.Gap:
		if own {
			r.Outbox.GapFound()
		}
		return
	default:
		if own {
			r.node.Fail(fmt.Errorf("the ensemble refuses this node's requests (%v): a newer start of member %d has registered, from this directory or a copy of it", v, o.Member))
		}
		return
	}
	r.mu.stepStart[o.Member] = time.Now()
	r.mu.table.AcknowledgeEnds(o.Member, c.Home)
	var b *outbox.Batch
	if own {
		b = r.Outbox.Oldest(o.LastSeq)
	}
	var room []tree.Result
	if b == nil {
		room = r.discarded[:]
	}
	for i := range c.Requests {
		results, zxid, err := r.request(o.Member, c.Wall, &c.Requests[i], room)
		r.Outbox.Complete(b, i, results, zxid, err)
	}
	r.Outbox.BatchApplied(b)
}

// commit applies one transaction. What its end takes from holders on this node ends before any reader, watch or
// contender can see it. Its results may be in room.
func (r *Replica) commit(h tree.Header, ops []tree.Op, room []tree.Result) ([]tree.Result, error) {
	t := r.tree.Load()
	results, err := t.ApplyInto(room, h, ops)
	if err != nil {
		return nil, err
	}
	r.publish(t, h.Zxid)
	return results, nil
}

// publish makes the transaction that the tree has applied visible.
func (r *Replica) publish(t *tree.Tree, z tree.Zxid) {
	r.mu.Zxid = z
	changes := t.Changes()
	r.mu.table.Track(changes)
	r.node.Gone(changes)
	if over := t.Over(); len(over) > 0 {
		r.quotas.note(over, time.Now())
	}
	r.Watches.Deliver(z, changes, t.Publish)
}
