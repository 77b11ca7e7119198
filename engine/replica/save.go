package replica

import (
	"fmt"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// What was applied is written to the image when one of these is reached since the last time, so that a znode that is set again
// and again, and where each stream stands, is written once; see BenchmarkApply. Until then it is in the Raft log alone, which is
// cut behind what Sync has made durable only. They bound what a start after a crash applies again beside what the image had not
// flushed, how long the log stands still for one write, and with it the memory that takes.
const (
	SaveEntries = 1024
	SaveBytes   = 1 << 20 // of commands
	SaveRecords = 2048
)

// Applied implements replication.StateMachine.
func (m *Replica) Applied() uint64 { return m.image.Applied() }

// save writes what has changed to the image, in one batch with the applied index. The commit may have to wait for the disk, so mu
// is not held over it. An error fails the node: the changes are forgotten.
func (m *Replica) save() error {
	if m.gathered.entries == 0 {
		return nil
	}
	err := m.writeDirty()
	if err == nil {
		err = m.batch.Commit(m.index.Load())
	}
	if err != nil {
		m.node.Fail(fmt.Errorf("shard %d: image: %w", m.Shard, err))
		return err
	}
	m.gathered.entries, m.gathered.bytes = 0, 0
	return nil
}

// writeDirty collects what has changed in the batch.
func (m *Replica) writeDirty() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.batch
	err := m.tree.Load().Drain(func(path string, z tree.Znode, exists bool) error {
		if exists {
			m.record = command.AppendZnode(m.record[:0], z)
			b.Put(storage.Znodes, []byte(path), m.record) // which copies it: a million creates make a tenth less garbage
		} else {
			b.Delete(storage.Znodes, []byte(path))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = m.mu.table.Drain(func(o session.Origin) error {
		b.Put(storage.Origins, command.IDKey(uint64(o.Member)), command.EncodeOrigin(o))
		return nil
	}, func(id tree.SessionID, r session.Record, exists bool) error {
		if exists {
			b.Put(storage.Sessions, command.IDKey(uint64(id)), command.EncodeSession(r))
		} else {
			b.Delete(storage.Sessions, command.IDKey(uint64(id)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.Put(storage.Meta, []byte(command.StateKey), command.EncodeState(m.mu.State))
	return nil
}

// Sync implements replication.StateMachine.
func (m *Replica) Sync() error {
	if err := m.save(); err != nil {
		return err
	}
	return m.image.Sync()
}

// Snapshot implements replication.StateMachine.
func (m *Replica) Snapshot() (replication.Snapshot, error) {
	if err := m.save(); err != nil {
		return nil, err
	}
	return m.image.Snapshot()
}

// Close implements replication.StateMachine. The image stays open until the engine closes it, which makes it durable. The tree and the
// table are let go: dragonboat's metrics keep what belongs to a process's first node until the process ends.
func (m *Replica) Close() error {
	err := m.save()
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.Figures()
	m.last.Store(&last)
	m.tree.Store(tree.New(nil))
	m.mu.table = session.NewTable()
	return err
}

// CloseImage makes the image durable and closes it.
func (m *Replica) CloseImage() error {
	if m.image == nil {
		return nil
	}
	return m.image.Close()
}
