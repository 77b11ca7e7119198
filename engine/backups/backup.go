package backups

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vivarium-go/vivarium/engine/backupfile"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
)

// ErrSlow says that a backup was given up, because its writer took the data so slowly that
// the disk would have had to keep too much for it.
var ErrSlow = errors.New("the backup is written too slowly")

const (
	// BehindMax bounds what the disk keeps of a shard only for the sake of a backup.
	BehindMax = 4 << 30
	// look is how often a backup looks whether it must be given up.
	look = time.Second
)

// A Node is what backups need from above them.
type Node interface {
	// CatchUp waits until this node has applied everything that was acknowledged before the call.
	CatchUp(context.Context) error
	// Lacking adds to an error what the node lacks now, if anything.
	Lacking(error) error
	// Silenced returns why the node is over, or will be soon because its disk has failed; or nil.
	Silenced() error
}

// Options are all that a backup needs.
type Options struct {
	Node     Node
	Forest   forest.Forest
	Roster   *roster.Roster
	Ensemble string
	Behind   int64         // how far the images may go ahead of a backup, in bytes
	Timeout  time.Duration // of what waits for a quorum
	Wall     func() time.Time
	Private  bool // somebody decides who may join: strangers get no backup
	Work     *meter.Work
	Done     <-chan struct{} // closed when the node is over for its users
}

// Backup writes a backup of all shards. Each is as it is on this node at a moment of its own, after
// the call and with everything that was acknowledged anywhere before the call.
//
// The records come from a snapshot of each shard's image. A pin of the tree would do as well, but
// keeps in memory what is replaced meanwhile; the image keeps it on disk. Writes and apply go on
// while w takes the data: nothing is locked during a Write. If w hangs, the snapshots are released
// when ctx or the node ends, or when too much was written to the image meanwhile.
func (o *Options) Backup(ctx context.Context, w io.Writer) (backupfile.Info, error) {
	o.Work.Begin()
	defer o.Work.End()
	b := backup{Options: o, began: o.Wall()}
	life, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := b.capture(ctx); err != nil {
		return backupfile.Info{}, err
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
	case o.Node.Silenced() != nil && errors.Is(err, storage.ErrClosed):
		err = o.Node.Silenced() // which watch has not noticed yet
	}
	return backupfile.Info{}, err
}

// A backup is one call of Backup.
type backup struct {
	*Options
	began  time.Time
	shards []replica.Capture // indexed by ShardID - 1
}

// capture fixes what the backup has. It waits at most until ctx ends, or for the request timeout if
// ctx has no deadline.
func (b *backup) capture(ctx context.Context) error {
	bounded, cancel := outbox.Bounded(ctx, b.Timeout)
	defer cancel()
	err := b.Node.CatchUp(bounded)
	if err == nil {
		b.shards = make([]replica.Capture, len(b.Forest))
		err = b.Forest.Each(func(r *replica.Replica) (err error) {
			b.shards[r.Shard-1], err = r.Capture(bounded, b.Done)
			return err
		})
		if err == nil && b.loading() {
			err = replica.ErrLoading
		}
	}
	silenced := b.Node.Silenced()
	switch {
	case err == nil && silenced == nil:
		return nil
	case silenced != nil: // what was applied on a disk that had failed may not be committed
		err = silenced
	case !errors.Is(err, storage.ErrCorrupt):
		err = b.Node.Lacking(outbox.Lacking(ctx, err))
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
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-life.Done():
			return
		case <-b.Done:
			cancel(b.Node.Silenced())
			return
		case <-ticker.C:
			select {
			case <-b.Done:
				continue // the images are being closed
			default:
			}
		}
		for i, c := range b.shards {
			if behind := c.Behind(); behind > b.Behind {
				cancel(fmt.Errorf("%w: %d bytes were written on shard %d meanwhile", ErrSlow, behind, i+1))
				return
			}
		}
	}
}

func (b *backup) header() backupfile.Header {
	h := backupfile.Header{Time: b.began.UnixMilli(), Ensemble: b.Ensemble, Member: uint64(b.Roster.Self())}
	if lineage := b.Roster.Lineage(); lineage != (session.Lineage{}) {
		h.Lineage = hex.EncodeToString(lineage[:])
	}
	for _, m := range b.Roster.MemberIDs() {
		h.Members = append(h.Members, uint64(m))
	}
	for i, c := range b.shards {
		h.Shards = append(h.Shards, backupfile.Shard{Shard: uint32(i + 1), Level: c.State.Level, Index: c.Applied(), Zxid: c.State.Zxid, Lead: c.State.Lead,
			Znodes: c.Znodes, Schemes: c.State.Rules.Schemes})
	}
	return h
}

func (b *backup) write(life context.Context, w io.Writer) (backupfile.Info, error) {
	h := b.header()
	out, err := backupfile.NewWriter(w, h)
	if err != nil {
		return backupfile.Info{}, err
	}
	for i, c := range b.shards {
		if err := copyShard(life, out, uint32(i+1), c.Snapshot); err != nil {
			return backupfile.Info{}, err
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
