package engine

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vivarium-go/vivarium/engine/backupfile"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
)

// Types of a backup that package embed uses.
type (
	// BackupInfo says what a backup has.
	BackupInfo = backupfile.Info
	// BackupShard says what a backup has of one shard.
	BackupShard = backupfile.ShardInfo
)

// ErrSlowBackup says that a backup was given up, because its writer took the data so slowly that
// the disk would have had to keep too much for it.
var ErrSlowBackup = errors.New("the backup is written too slowly")

const (
	// backupBehindMax bounds what the disk keeps of a shard only for the sake of a backup.
	backupBehindMax = 4 << 30
	// backupLook is how often a backup looks whether it must be given up.
	backupLook = time.Second
)

// Backup writes a backup of all shards. Each is as it is on this node at a moment of its own, after
// the call and with everything that was acknowledged anywhere before the call.
//
// The records come from a snapshot of each shard's image. A pin of the tree would do as well, but
// keeps in memory what is replaced meanwhile; the image keeps it on disk. Writes and apply go on
// while w takes the data: nothing is locked during a Write. If w hangs, the snapshots are released
// when ctx or the node ends, or when too much was written to the image meanwhile.
func (e *Engine) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	e.slow.Work.Backups.Begin()
	defer e.slow.Work.Backups.End()
	b := backup{engine: e, began: e.clock.Wall()}
	life, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := b.capture(ctx); err != nil {
		return BackupInfo{}, err
	}
	defer b.close()
	defer context.AfterFunc(life, b.close)()
	go b.watch(life, cancel)
	info, err := b.write(life, w)
	switch {
	case err == nil:
		return info, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case life.Err() != nil:
		err = context.Cause(life) // and not that a snapshot is closed
	case e.over() != nil && errors.Is(err, storage.ErrClosed):
		err = e.over() // which watch has not noticed yet
	}
	return BackupInfo{}, err
}

// A backup is one call of Backup.
type backup struct {
	engine *Engine
	began  time.Time
	shards []replica.Capture // indexed by ShardID - 1
}

// capture fixes what the backup has. It waits at most until ctx ends, or for the request timeout if
// ctx has no deadline.
func (b *backup) capture(ctx context.Context) error {
	e := b.engine
	bounded, cancel := e.bounded(ctx)
	defer cancel()
	if e.host.Load() == nil {
		return e.notReady(ErrUnavailable)
	}
	err := e.tryReady(bounded)
	if err == nil {
		b.shards = make([]replica.Capture, len(e.shards))
		err = e.eachShard(func(r *replica.Replica) (err error) {
			b.shards[r.Shard-1], err = r.Capture(bounded, e.done)
			return err
		})
		if err == nil && b.loading() {
			err = replica.ErrLoading
		}
	}
	switch {
	case err == nil && !e.silenced():
		return nil
	case e.silenced(): // what was applied on a disk that had failed may not be committed
		err = ErrFailed
		if over := e.over(); over != nil {
			err = over
		}
	case !errors.Is(err, storage.ErrCorrupt):
		err = e.notReady(outbox.Lacking(ctx, err))
	}
	b.close()
	return err
}

// loading reports whether a shard was captured in the middle of what the ensemble begins with. The
// home shard begins with that before the others, and ends after them.
func (b *backup) loading() bool {
	home := b.shards[0].State.Seed
	for _, c := range b.shards {
		if s := c.State.Seed; s.Loading() || home.Next > 0 && s.Next == 0 {
			return true
		}
	}
	return false
}

// close releases the snapshots. It may be called twice, and beside write.
func (b *backup) close() {
	for _, c := range b.shards {
		if c.Snapshot != nil {
			_ = c.Close() // it was only read
		}
	}
}

// watch gives the backup up if the node ends, or if the images have gone too far ahead. It returns
// when life ends.
func (b *backup) watch(life context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(backupLook)
	defer ticker.Stop()
	for {
		select {
		case <-life.Done():
			return
		case <-b.engine.done:
			cancel(b.engine.over())
			return
		case <-ticker.C:
			if isDone(b.engine.done) {
				continue // the images are being closed
			}
		}
		for i, c := range b.shards {
			if behind := c.Behind(); behind > b.engine.cfg.backupBehind() {
				cancel(fmt.Errorf("%w: %d bytes were written on shard %d meanwhile", ErrSlowBackup, behind, i+1))
				return
			}
		}
	}
}

func (b *backup) header() backupfile.Header {
	e := b.engine
	h := backupfile.Header{Time: b.began.UnixMilli(), Ensemble: e.cfg.Ensemble, Member: uint64(e.roster.Self())}
	if lineage := session.Lineage(e.roster.Lineage()); lineage != (session.Lineage{}) {
		h.Lineage = hex.EncodeToString(lineage[:])
	}
	for _, m := range e.roster.MemberIDs() {
		h.Members = append(h.Members, uint64(m))
	}
	for i, c := range b.shards {
		h.Shards = append(h.Shards, backupfile.Shard{Shard: uint32(i + 1), Level: c.State.Level, Index: c.Applied(), Zxid: c.State.Zxid, Lead: c.State.Lead,
			Znodes: c.Znodes, Schemes: c.State.Rules.Schemes})
	}
	return h
}

func (b *backup) write(life context.Context, w io.Writer) (BackupInfo, error) {
	h := b.header()
	out, err := backupfile.NewWriter(w, h)
	if err != nil {
		return BackupInfo{}, err
	}
	for i, c := range b.shards {
		if err := copyShard(life, out, uint32(i+1), c.Snapshot); err != nil {
			return BackupInfo{}, err
		}
	}
	sum, err := out.Close()
	return h.Info(out.Size(), sum), err
}

// copyShard writes the znodes of a shard. It reads a block at a time, so that the snapshot can be
// closed while the writer takes one.
func copyShard(life context.Context, out *backupfile.Writer, shard uint32, from *storage.Snapshot) error {
	var next []byte
	for more := true; more; {
		var bad error
		more = false
		err := from.Scan(storage.Znodes, next, func(key, value []byte) bool {
			more, bad = out.Add(shard, string(key), value)
			next = append(append(next[:0], key...), 0)
			return bad == nil && !more
		})
		if err = errors.Join(err, bad, life.Err()); err == nil {
			err = out.Flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
