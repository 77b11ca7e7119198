package replica

import (
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// The image is saved when one of these limits is reached since the last save. So a znode that is
// set again and again is written once, and so is the position of each stream; see BenchmarkApply.
// Changes that are not saved yet are in the Raft log, which is cut only up to what Sync has made
// durable.
//
// The limits bound how much a start after a crash applies again, besides what the image had not
// flushed. They also bound how long one save stops apply, and the memory that it needs.
const (
	SaveEntries = 1024
	SaveBytes   = 1 << 20 // of the applied commands
	SaveRecords = 2048
)

// saveInterval is how long a transaction stays unsaved if few others follow it. The image flushes
// what is saved within seconds. At the next start an image that is ahead of the log shows that the
// log has lost its end, which could be taken for a write that a crash has torn.
const saveInterval = 2 * time.Second

// keptRecordMax is how large a record may be whose memory the next save uses again.
const keptRecordMax = 64 << 10

// Applied implements replication.StateMachine.
func (r *Replica) Applied() uint64 { return r.image.Applied() }

// save writes everything that has changed since the last save to the image, in one batch with the
// applied index. The commit may wait for the disk, so mu is not held during the commit. An error
// fails the node, because the changes are no longer marked as unsaved.
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

// SaveLoop saves what SaveEntries and the other limits leave in memory. It returns when either channel
// is closed, or when a save fails.
func (r *Replica) SaveLoop(stop, done <-chan struct{}) {
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	for saved := tree.Zxid(0); ; {
		select {
		case <-stop:
			return
		case <-done:
			return
		case <-ticker.C:
		}
		if now := r.Visible(); now != saved {
			if r.rest(stop, done) != nil {
				return
			}
			saved = now
		}
	}
}

// rest saves when Apply pauses.
func (r *Replica) rest(stop, done <-chan struct{}) error {
	select {
	case r.turn <- struct{}{}:
		defer r.endTurn()
	case <-stop:
		return storage.ErrClosed
	case <-done:
		return storage.ErrClosed
	}
	if r.lastFigures.Load() != nil {
		return storage.ErrClosed
	}
	return r.save()
}

// writeDirty puts everything that has changed into the batch.
func (r *Replica) writeDirty() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.batch
	err := r.tree.Load().Drain(func(path string, z tree.Znode, exists bool) error {
		if exists {
			r.record = command.AppendZnode(r.record[:0], z)
			// Put copies the record, so its memory is used again. A million creates make a tenth
			// less garbage that way.
			b.Put(storage.Znodes, []byte(path), r.record)
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
	r.mu.members.Drain(func(e session.Ensemble) {
		b.Put(storage.Members, command.EnsembleKey, command.EncodeEnsemble(e))
	}, func(m session.Member, exists bool) {
		if exists {
			b.Put(storage.Members, command.IDKey(uint64(m.ID)), command.EncodeMember(m))
		} else {
			b.Delete(storage.Members, command.IDKey(uint64(m.ID)))
		}
	})
	b.Put(storage.Meta, []byte(command.StateKey), command.EncodeState(r.mu.State))
	if cap(r.record) > keptRecordMax {
		r.record = nil
	}
	return nil
}

// Sync implements replication.StateMachine.
func (r *Replica) Sync() error {
	r.turn <- struct{}{}
	defer r.endTurn()
	if err := r.save(); err != nil {
		return err
	}
	return r.image.Sync()
}

// Snapshot implements replication.StateMachine.
func (r *Replica) Snapshot() (replication.Snapshot, error) {
	r.turn <- struct{}{}
	defer r.endTurn()
	if err := r.save(); err != nil {
		return nil, err
	}
	return r.image.Snapshot()
}

// Close implements replication.StateMachine. dragonboat calls it when the shard ends here, which may
// be while the node serves. So readers see the last tree until Drop.
func (r *Replica) Close() error {
	r.turn <- struct{}{}
	defer r.endTurn()
	return r.save()
}

// Drop makes the image durable, closes it, and drops the tree and the table, because dragonboat's
// metrics refer to the process's first node until the process ends. Nobody may read any more. What
// hangs within an entry keeps them.
func (r *Replica) Drop() error {
	r.drop()
	if r.image == nil {
		return nil
	}
	return r.image.Close()
}

func (r *Replica) drop() {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	last := r.Figures()
	r.lastFigures.Store(&last)
	r.tree.Store(tree.New(nil))
	r.mu.table, r.mu.members = session.NewTable(), session.NewMembers()
}
