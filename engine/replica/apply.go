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
func (m *Replica) Apply(entries []replication.Entry) {
	for i := range entries {
		c, err := m.room.Decode(entries[i].Cmd)
		if err != nil {
			m.node.Fail(fmt.Errorf("shard %d: log entry %d: %w", m.Shard, entries[i].Index, err))
			return
		}
		records := m.ApplyOne(entries[i].Index, &c)
		m.room.Reset()
		m.quotas.tell()
		m.gathered.entries++
		m.gathered.bytes += len(entries[i].Cmd)
		m.Sizes.note(len(entries[i].Cmd))
		if (m.gathered.entries >= SaveEntries || m.gathered.bytes >= SaveBytes || records >= SaveRecords) && m.save() != nil {
			return
		}
	}
}

// ApplyOne applies one entry, and returns how many records the image lacks. A panic under it fails the node, and must not keep mu.
func (m *Replica) ApplyOne(index uint64, c *command.Command) (records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(c)
	m.index.Store(index)
	return m.tree.Load().Dirty() + m.mu.table.Dirty()
}

// apply makes one command's transitions. mu is held.
func (m *Replica) apply(c *command.Command) {
	m.tree.Load().At(time.Since(m.mu.loaded))
	m.mu.removed = 0
	switch c.Kind {
	case command.KindRegister:
		m.applyRegister(c)
	case command.KindBatch:
		m.applyBatch(c)
	case command.KindSilence:
		if m.mu.table.Silence(c.Step, c.Silence) {
			m.mu.since[c.Step.Member] = time.Now()
			m.expireDue(c.Wall)
		}
	case command.KindExpire:
		m.expireDue(c.Wall)
	case command.KindReap:
		m.reap(c)
	case command.KindPurge:
		m.purge(c)
	case command.KindPurged:
		m.purged(c)
	}
}

func (m *Replica) own(o session.Origin) bool {
	return o.Member == m.Outbox.Origin.Member && o.Start == m.Outbox.Origin.Start
}

func (m *Replica) applyRegister(c *command.Command) {
	own := m.own(c.Origin)
	if o, ok := m.mu.table.Origin(c.Origin.Member); ok && o.Start == c.Origin.Start && o.Directory == c.Origin.Directory {
		if own && m.Outbox.Oldest(0) != nil { // a repeat of one that this process never saw applied
			m.node.Fail(fmt.Errorf("start %d of member %d has registered before: this directory is a copy from another time; %s", o.Start, o.Member, replication.WayOut))
		}
		return
	}
	if _, err := m.mu.table.Register(c.Origin); err != nil {
		if own {
			m.node.Fail(fmt.Errorf("the ensemble refuses this member: %w", err))
		}
		return
	}
	m.noteOrigins()
	m.use(c.Rules)
	m.mu.since[c.Origin.Member] = time.Now()
	m.expireDue(c.Wall) // the predecessor's sessions are due at once
	if own {
		if m.Shard == command.HomeShard {
			m.node.Adopt(m.mu.table)
		}
		m.Outbox.BatchApplied(m.Outbox.Oldest(0))
	}
}

// use has transactions judged by the rules of the member with the newest Register.
func (m *Replica) use(r command.Rules) {
	schemes, err := pick(m.schemes, r.Schemes)
	if err != nil {
		m.node.Fail(err)
		return
	}
	m.mu.Rules = r
	t := m.tree.Load()
	t.SetSchemes(schemes)
	t.SetWeightMax(r.TreeMax)
}

func (m *Replica) applyBatch(c *command.Command) {
	o := c.Origin
	own := m.own(o)
	switch v := m.mu.table.Accept(o.Member, o.Start, o.LastSeq); v {
	case session.Accepted:
	case session.Repeat:
		return
	case session.Gap:
		if own {
			m.Outbox.GapFound()
		}
		return
	default:
		if own {
			m.node.Fail(fmt.Errorf("the ensemble refuses this node's requests (%v): a newer start of member %d has registered, from this directory or a copy of it", v, o.Member))
		}
		return
	}
	m.mu.since[o.Member] = time.Now()
	m.mu.table.AcknowledgeEnds(o.Member, c.Home)
	var b *outbox.Batch
	if own {
		b = m.Outbox.Oldest(o.LastSeq)
	}
	var room []tree.Result
	if b == nil {
		room = m.result[:]
	}
	for i := range c.Requests {
		results, zxid, err := m.request(o.Member, c.Wall, &c.Requests[i], room)
		m.Outbox.Complete(b, i, results, zxid, err)
	}
	m.Outbox.BatchApplied(b)
}

// commit applies one transaction. What its end takes from holders on this node ends before any reader, watch or
// contender can see it. Its results may be in room.
func (m *Replica) commit(h tree.Header, ops []tree.Op, room []tree.Result) ([]tree.Result, error) {
	t := m.tree.Load()
	results, err := t.ApplyInto(room, h, ops)
	if err != nil {
		return nil, err
	}
	m.publish(t, h.Zxid)
	return results, nil
}

// publish makes the transaction that the tree has applied visible.
func (m *Replica) publish(t *tree.Tree, z tree.Zxid) {
	m.mu.Zxid = z
	changes := t.Changes()
	m.mu.table.Track(changes)
	m.node.Gone(changes)
	if over := t.Over(); len(over) > 0 {
		m.quotas.over(over, time.Now())
	}
	m.Watches.Deliver(z, changes, t.Publish)
}
