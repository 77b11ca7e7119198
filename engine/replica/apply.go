package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Apply implements replication.StateMachine. An entry that cannot be applied fails the node: if the
// replica went on without it, it would differ from all others.
func (r *Replica) Apply(entries []replication.Entry) {
	began, bytes := time.Now(), 0
	r.turn <- struct{}{}
	defer func() {
		r.endTurn()
		r.Meters.Applies.Observe(time.Since(began))
		r.Meters.Bytes.Add(uint64(bytes))
	}()
	for i := range entries {
		c, err := r.decoder.Decode(entries[i].Cmd)
		if err != nil {
			r.node.Fail(fmt.Errorf("shard %d: log entry %d: %w", r.Shard, entries[i].Index, err))
			return
		}
		records := r.ApplyOne(entries[i].Index, &c)
		r.decoder.Reset()
		r.unsaved.entries++
		r.unsaved.bytes += len(entries[i].Cmd)
		r.Sizes.note(len(entries[i].Cmd))
		bytes += len(entries[i].Cmd)
		if (r.unsaved.entries >= SaveEntries || r.unsaved.bytes >= SaveBytes || records >= SaveRecords) && r.save() != nil {
			return
		}
	}
}

// ApplyOne applies one entry and returns how many records the image lacks. A panic in here fails
// the node and must not leave mu locked, hence the defer.
func (r *Replica) ApplyOne(index uint64, c *command.Command) (records int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apply(c)
	r.noteLead(c)
	if r.mu.members.TakeChanged() {
		r.configure(c.Wall)
		r.noteMembers()
	}
	r.index.Store(index)
	return r.tree.Load().Dirty() + r.mu.table.Dirty() + r.mu.members.Dirty()
}

// apply makes the transitions of one command. mu is held.
func (r *Replica) apply(c *command.Command) {
	r.tree.Load().At(time.Since(r.mu.loadedAt)) // for Mortals only; replicas do not share it
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
			r.mu.members.Forget(r.mu.table) // a member that is out may have lost its last session
		}
	case command.KindExpire:
		r.expireDue(c.Wall)
		r.mu.members.Forget(r.mu.table)
	case command.KindReap:
		r.applyReap(c)
	case command.KindPurge:
		r.applyPurge(c)
	case command.KindPurged:
		r.applyPurged(c)
	case command.KindRaise:
		r.applyRaise(c)
	case command.KindFound:
		r.applyFound(c)
	case command.KindJoin:
		r.applyJoin(c)
	case command.KindReport:
		r.mu.members.Report(c.Member, c.Shard, c.Place) // it has no members if this is not the home shard
		r.mu.members.Forget(r.mu.table)
	case command.KindGovern:
		r.mu.members.Govern(c.Number, c.Member)
	case command.KindWant:
		_ = r.mu.members.Want(c.Number, c.Member, c.Wish, c.Reason, c.Wall) // whoever wished it looks at the table
	case command.KindRetire:
		r.applyRetire(c)
	case command.KindRecover:
		r.applyRecover(c)
	case command.KindLoad:
		r.applyLoad(c)
	}
}

// isOwn reports whether an origin is this start of this member.
func (r *Replica) isOwn(o session.Origin) bool {
	return o.Member == r.Outbox.Origin.Member && o.Start == r.Outbox.Origin.Start
}

// applyRegister registers a start of a member. A repeat of a Register changes nothing.
func (r *Replica) applyRegister(c *command.Command) {
	own := r.isOwn(c.Origin)
	if o, ok := r.mu.table.Origin(c.Origin.Member); ok && o.Start == c.Origin.Start && o.Directory == c.Origin.Directory {
		if own && r.Outbox.Oldest(outbox.RegisterSeq) != nil { // and this process has not seen its Register applied
			r.node.Fail(fmt.Errorf("start %d of member %d has registered before, so this directory is a copy from another time; %s", o.Start, o.Member, replication.WayOut))
		}
		return
	}
	err := r.checkRegister(c)
	if err == nil {
		c.Origin.Schemes = c.Rules.Schemes
		_, err = r.mu.table.Register(c.Origin)
	}
	if err != nil {
		switch {
		case !own:
		case errors.Is(err, session.ErrDismissed), errors.Is(err, session.ErrRetired):
			r.node.Dismissed(err)
		default:
			r.node.Fail(fmt.Errorf("the ensemble refuses this member: %w", err))
		}
		return
	}
	r.mu.members.Registered(c.Origin.Member, c.Origin.Directory)
	r.noteOrigin(c.Origin.Member)
	r.useRules(r.rulesAfter(c))
	r.mu.stepStart[c.Origin.Member] = time.Now()
	r.expireDue(c.Wall) // the sessions of the member's former start are due now
	if own {
		if r.Shard == command.HomeShard {
			r.node.Adopt(r.mu.table)
		}
		r.Outbox.BatchApplied(r.Outbox.Oldest(outbox.RegisterSeq))
	}
}

// useRules makes the replica judge transactions by the given rules.
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

// applyBatch applies the requests of a batch if it is the next one of its stream. The calls of this
// node get their outcomes.
func (r *Replica) applyBatch(c *command.Command) {
	o := c.Origin
	own := r.isOwn(o)
	switch v := r.mu.table.Accept(o.Member, o.Start, c.Seq); v {
	case session.Accepted:
	case session.Repeat: // it was sent twice, and its first copy was applied
		return
	case session.Gap:
		if own {
			r.Outbox.GapFound()
		}
		return
	default:
		if own {
			r.node.Fail(r.refused(o.Member, v))
		}
		return
	}
	r.mu.stepStart[o.Member] = time.Now()
	r.mu.table.AcknowledgeEnds(o.Member, c.Home)
	var b *outbox.Batch
	if own {
		b = r.Outbox.Oldest(c.Seq)
	}
	var buf []tree.Result
	if b == nil {
		buf = r.discarded[:]
	}
	for i := range c.Requests {
		results, zxid, err := r.request(o.Member, c.Wall, &c.Requests[i], buf)
		r.Outbox.Complete(b, i, results, zxid, err)
	}
	r.Outbox.BatchApplied(b)
}

// refused returns why the batches of this node's member are no longer accepted. mu is held.
func (r *Replica) refused(m session.MemberID, v session.Verdict) error {
	if r.mu.table.IsRetired(m) {
		return fmt.Errorf("the ensemble refuses this node's requests: member %d: %w", m, session.ErrRetired)
	}
	return fmt.Errorf("the ensemble refuses this node's requests (%v): a newer start of member %d has registered, from this directory or a copy of it", v, m)
}

// commit applies one transaction and publishes it. The results may be stored in buf.
func (r *Replica) commit(h tree.Header, ops []tree.Op, buf []tree.Result) ([]tree.Result, error) {
	t := r.tree.Load()
	results, err := t.ApplyInto(buf, h, ops)
	if err != nil {
		return nil, err
	}
	r.publish(t, h.Zxid)
	return results, nil
}

// publish makes the transaction visible that the tree has just applied. Before any reader, watch or
// contender on this member can see it, the node ends the claims whose znodes it takes.
func (r *Replica) publish(t *tree.Tree, z tree.Zxid) {
	r.mu.Zxid = z
	changes := t.Changes()
	r.mu.table.Track(changes)
	r.node.Gone(changes)
	if over := t.Over(); len(over) > 0 {
		r.quotas.note(over, time.Now())
	}
	r.Watches.Deliver(z, changes, t)
}
