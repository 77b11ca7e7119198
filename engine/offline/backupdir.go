package offline

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/vivarium-go/vivarium/engine/backupfile"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// BackupDir writes a backup of what a stopped member's directory knows to be committed. Other
// members may know more. It changes nothing there, and needs as much memory as a running member.
// The error says why it cannot: replication.ErrLocked, ErrNoMember, or damage.
func BackupDir(dir string, w io.Writer) (backupfile.Info, error) {
	d, dir, lock, err := openStopped(dir)
	if err != nil {
		return backupfile.Info{}, err
	}
	defer lock.Close()
	report, id, err := examine(d, dir)
	if err != nil {
		return backupfile.Info{}, err
	}
	if report.Damaged() {
		errs := []error{report.Err}
		for _, s := range report.Shards {
			errs = append(errs, s.Err)
		}
		return backupfile.Info{}, fmt.Errorf("%s: it is damaged, as vivarium check shows: choose another directory: %w", dir, errors.Join(errs...))
	}
	return backupDir(d, dir, id, w)
}

// backupDir does BackupDir in a directory that is locked and sound.
func backupDir(d *disk.Disk, dir string, id replication.Identity, w io.Writer) (backupfile.Info, error) {
	h := backupfile.Header{Time: time.Now().UnixMilli(), Ensemble: id.Ensemble, Member: uint64(id.Member)}
	if lineage := session.Lineage(id.Lineage); lineage != (session.Lineage{}) {
		h.Lineage = hex.EncodeToString(lineage[:])
	}
	shards := make([]*replica.Past, id.Shards)
	for i := range shards {
		shard := replication.ShardID(i + 1)
		past, err := pastOf(d, dir, id, shard)
		if err != nil {
			return backupfile.Info{}, fmt.Errorf("%s: shard %d: %w", dir, shard, err)
		}
		state, znodes := past.State()
		shards[i] = past
		if home, _ := shards[0].State(); state.Seed.Loading() || home.Seed.Next > 0 && state.Seed.Next == 0 {
			return backupfile.Info{}, fmt.Errorf("%s: shard %d is not all loaded from the backup that the ensemble begins with: choose another directory, or that backup", dir, shard)
		}
		h.Shards = append(h.Shards, backupfile.Shard{Shard: uint32(shard), Level: state.Level, Index: past.Index(), Zxid: state.Zxid, Lead: state.Lead, Znodes: znodes, Schemes: state.Rules.Schemes})
		for _, m := range past.Members().List { // only the home shard has any
			if m.OutOf() == 0 {
				h.Members = append(h.Members, uint64(m.ID))
			}
		}
	}
	out, err := backupfile.NewWriter(w, h)
	if err != nil {
		return backupfile.Info{}, err
	}
	for i, past := range shards {
		if err := writePast(out, uint32(i+1), past); err != nil {
			return backupfile.Info{}, err
		}
	}
	sum, err := out.Close()
	return h.Info(out.Size(), sum), err
}

// pastOf returns a shard as the directory knows it to be committed. What a forced recovery has added
// counts once the recovery is done.
func pastOf(d *disk.Disk, dir string, id replication.Identity, shard replication.ShardID) (*replica.Past, error) {
	past, err := replica.LoadPast(storage.Options{Disk: d, Dir: datadir.ImageDir(dir, shard)}, shard)
	if err != nil {
		return nil, err
	}
	known := uint64(math.MaxUint64)
	if !id.Recovered {
		known = knew(id, shard)
	}
	_, err = replication.ReadRemains(offline(d.View(), dir, id), shard, func(e replication.Entry, committed bool) error {
		if !committed || e.Index > known {
			return nil
		}
		return past.Apply(e.Index, e.Cmd)
	})
	return past, err
}

func writePast(out *backupfile.Writer, shard uint32, past *replica.Past) error {
	var record []byte
	err := past.Walk(func(path string, z tree.Znode) error {
		record = command.AppendZnode(record[:0], z)
		full, err := out.Add(shard, path, record)
		if err == nil && full {
			err = out.Flush()
		}
		return err
	})
	return errors.Join(err, out.Flush())
}
