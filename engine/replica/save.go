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

// keptRecordMax is how large a record may be whose memory the next save uses again.
const keptRecordMax = 64 << 10

// Applied implements replication.StateMachine.
func (r *Replica) Applied() uint64 { return r.image.Applied() }

// save writes what has changed to the image, in one batch with the applied index. The commit may have to wait for the disk, so mu
// is not held over it. An error fails the node: the changes are forgotten.
func (r *Replica) save() error {
	if r.unsaved.entries == 0 {
		return nil
	}
	err := r.writeDirty()
	if err == nil {
		err = r.batch.Commit(r.index.Load())
	}
	if err != nil {
		r.node.Fail(fmt.Errorf("shard %d: image: %w", r.Shard, err))
		return err
	}
	r.unsaved.entries, r.unsaved.bytes = 0, 0
	return nil
}

// writeDirty collects what has changed in the batch.
func (r *Replica) writeDirty() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.batch
	err := r.tree.Load().Drain(func(path string, z tree.Znode, exists bool) error {
		if exists {
			r.record = command.AppendZnode(r.record[:0], z)
			b.Put(storage.Znodes, []byte(path), r.record) // which copies it: a million creates make a tenth less garbage
		} else {
			b.Delete(storage.Znodes, []byte(path))
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = r.mu.table.Drain(func(o session.Origin) error {
		b.Put(storage.Origins, command.IDKey(uint64(o.Member)), command.EncodeOrigin(o))
		return nil
	}, func(id tree.SessionID, rec session.Record, exists bool) error {
		if exists {
			b.Put(storage.Sessions, command.IDKey(uint64(id)), command.EncodeSession(rec))
		} else {
			b.Delete(storage.Sessions, command.IDKey(uint64(id)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.Put(storage.Meta, []byte(command.StateKey), command.EncodeState(r.mu.State))
	if cap(r.record) > keptRecordMax {
		r.record = nil
	}
	return nil
}

// Sync implements replication.StateMachine.
func (r *Replica) Sync() error {
	if err := r.save(); err != nil {
		return err
	}
	return r.image.Sync()
}

// Snapshot implements replication.StateMachine.
func (r *Replica) Snapshot() (replication.Snapshot, error) {
	if err := r.save(); err != nil {
		return nil, err
	}
	return r.image.Snapshot()
}

// Close implements replication.StateMachine. The image stays open until the engine closes it, which makes it durable. The tree and the
// table are let go: dragonboat's metrics keep what belongs to a process's first node until the process ends.
func (r *Replica) Close() error {
	err := r.save()
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.Figures()
	r.lastFigures.Store(&last)
	r.tree.Store(tree.New(nil))
	r.mu.table = session.NewTable()
	return err
}

// CloseImage makes the image durable and closes it.
func (r *Replica) CloseImage() error {
	if r.image == nil {
		return nil
	}
	return r.image.Close()
}
