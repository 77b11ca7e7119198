package replica

import (
	"io"
)

// Install implements replication.StateMachine: it replaces the state by a received one. Waiters, sessions, claims and
// watches of this node that the gap concerns are told before a reader can see the new state.
func (m *Replica) Install(r io.Reader, stop <-chan struct{}) error {
	if err := m.image.Install(r, stop); err != nil {
		return err
	}
	next, table, one, err := loadImage(m.image, m.schemes)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.table, m.mu.State = table, one
	m.noteOrigins()
	m.index.Store(m.image.Applied())
	m.gathered.entries, m.gathered.bytes = 0, 0
	m.restartClocks()
	prove := func() {}
	o, registered := table.Origin(m.Outbox.Origin.Member)
	if registered = registered && o.Start == m.Outbox.Origin.Start; registered {
		prove = m.Outbox.SkipTo(o.LastSeq)
	}
	gap := gap{old: m.tree.Load(), next: next, below: make(map[string]verdict)}
	m.node.Reconcile(m.Shard, gap.old, next, table, registered)
	m.Watches.Install(one.Zxid, gap.notice, func() { m.tree.Store(next) })
	prove()
	return nil
}
