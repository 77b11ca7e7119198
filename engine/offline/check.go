package offline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrNoMember means that the directory has no member's data.
var ErrNoMember = errors.New("it holds no member's data")

// A Report is the result of Check.
type Report struct {
	Member   replication.MemberID
	Ensemble string
	Starts   uint64        // how many times a node was started on it
	Shards   []ShardReport // empty if the number of shards is unknown
	Err      error         // a problem of the directory as a whole
}

// A ShardReport is the result of Check for one shard. If Err is set, the other fields may be
// missing.
type ShardReport struct {
	Shard    replication.ShardID
	Applied  uint64 // index of the newest entry in the image; zero if it has none
	Last     uint64 // index of the newest entry in the log; zero if it has none
	Znodes   int    // in the image, as Sessions and Zxid
	Sessions int
	Zxid     tree.Zxid
	Level    uint32 // of the image
	// Torn is the size of a last record of the log that was not written whole. A power cut leaves it,
	// and it was never acknowledged. Damage that has removed the end of an acknowledged record looks
	// alike, unless the image has more than the log.
	Torn int64
	Err  error // the problem, if any
}

// Damaged reports whether Check found a problem.
func (r Report) Damaged() bool {
	return r.Err != nil || slices.ContainsFunc(r.Shards, func(s ShardReport) bool { return s.Err != nil })
}

// Check reads the whole directory of a stopped member, and changes nothing. It checks that the
// files are intact, that they fit together, and that Start would accept them. It reads one shard
// after the other, because each takes as much memory as in a running node. Meanwhile no node can be
// started on the directory.
//
// The error says why Check could not look: replication.ErrLocked, ErrNoMember, a directory that
// does not exist or may not be read, or data that another build wrote.
func Check(dir string) (Report, error) {
	d, dir, lock, err := openStopped(dir)
	if err != nil {
		return Report{}, err
	}
	defer lock.Close()
	r, _, err := examine(d, dir)
	return r, err
}

// openStopped opens the directory of a stopped member, to read. It also returns the absolute path.
// Until lock is closed, no node can be started there.
func openStopped(dir string) (d *disk.Disk, path string, lock io.Closer, err error) {
	if path, err = filepath.Abs(dir); err != nil {
		return nil, "", nil, err
	}
	if lock, err = replication.LockShared(files.OS, path); err != nil {
		return nil, "", nil, err
	}
	if d, err = disk.Open(files.OS, path); err != nil {
		return nil, "", nil, errors.Join(err, lock.Close())
	}
	return d, path, lock, nil
}

// examine does Check in a directory that is locked. It also returns the identity.
func examine(d *disk.Disk, dir string) (Report, replication.Identity, error) {
	id, found, err := replication.ReadIdentity(d, dir)
	if errors.Is(err, replication.ErrIdentity) && !errors.Is(err, replication.ErrFormat) {
		return Report{Err: err}, id, nil
	}
	if err != nil {
		return Report{}, id, err
	}
	if !found {
		r, err := checkUnidentified(d, dir)
		return r, id, err
	}
	if id.Member == 0 {
		return Report{}, id, fmt.Errorf("%s: %w: it has yet to join an ensemble", dir, ErrNoMember)
	}
	r := Report{Member: id.Member, Ensemble: id.Ensemble, Starts: id.Start}
	for i := range id.Shards {
		s := checkShard(d, dir, id, replication.ShardID(i+1))
		if errors.Is(s.Err, fs.ErrPermission) || errors.Is(s.Err, storage.ErrNewer) || errors.Is(s.Err, command.ErrLevel) {
			return Report{}, id, s.Err
		}
		r.Shards = append(r.Shards, s)
	}
	return r, id, nil
}

// checkUnidentified judges a directory without an identity file.
func checkUnidentified(d *disk.Disk, dir string) (Report, error) {
	names, err := d.List(dir)
	if err != nil {
		return Report{}, err
	}
	if slices.Contains(names, datadir.ImagesName) || slices.Contains(names, "raft") {
		return Report{Err: datadir.NoIdentity(dir)}, nil
	}
	return Report{}, fmt.Errorf("%s: %w", dir, ErrNoMember)
}

func checkShard(d *disk.Disk, dir string, id replication.Identity, shard replication.ShardID) ShardReport {
	r := ShardReport{Shard: shard}
	imageErr := r.checkImage(d, dir, id)
	x := datadir.Extent{Applied: r.Applied}
	var logErr error
	x.Log, logErr = replication.VerifyLog(replication.Config{Dir: dir, Disk: d.View(), Member: id.Member, Digest: id.Digest}, shard, x.Applied, new(command.Reader).Check)
	r.Last, r.Torn = x.Log.Last, x.Log.Torn
	if r.Err = errors.Join(imageErr, logErr); r.Err == nil {
		r.Err = x.Check(dir, true, id.Log != "")
	}
	return r
}

// checkImage reads a shard's image into memory, and drops it.
func (r *ShardReport) checkImage(d *disk.Disk, dir string, id replication.Identity) error {
	at := datadir.ImageDir(dir, r.Shard)
	found, err := replica.CheckImage(storage.Options{Disk: d, Dir: at}, session.MemberID(id.Member))
	if err != nil || found.Applied == 0 {
		return err
	}
	r.Applied, r.Znodes, r.Sessions, r.Zxid, r.Level = found.Applied, found.Znodes, found.Sessions, found.Zxid, found.Level
	return datadir.CheckOrigin(dir, found.Origin, id.Start+1)
}
