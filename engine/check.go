package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrNoMember is the answer of Check for a directory that is not of a member.
var ErrNoMember = errors.New("it holds no member's data")

// A Report is what Check found in a directory.
type Report struct {
	Member   MemberID
	Ensemble string
	Starts   uint64        // how often a node was started on it
	Shards   []ShardReport // none if it cannot be told which there are
	Err      error         // what is wrong with the directory as a whole
}

// A ShardReport is what Check found of one shard. With an Err the rest may be missing.
type ShardReport struct {
	Shard    ShardID
	Applied  uint64 // index of the newest entry in the image; zero if there is none
	Last     uint64 // index of the newest entry in the log; zero if there is none
	Znodes   int    // in the image, as the next two
	Sessions int
	Zxid     tree.Zxid
	Err      error // what is wrong
}

// Damaged reports whether anything is wrong.
func (r Report) Damaged() bool {
	return r.Err != nil || slices.ContainsFunc(r.Shards, func(s ShardReport) bool { return s.Err != nil })
}

// Check reads the whole directory of a member that is stopped and changes nothing in it: are its files whole, does all that is in them
// fit together, and would Start take it? The shards come one after the other, for each takes the memory that it takes in a node. No node
// can be started on the directory meanwhile.
//
// The error says why it could not look: replication.ErrLocked, ErrNoMember, or there is no such directory, it may not be read, or what
// wrote it is newer than this build.
func Check(dir string) (Report, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Report{}, err
	}
	lock, err := replication.LockShared(dir)
	if err != nil {
		return Report{}, err
	}
	defer lock.Close()
	d, err := disk.Open(dir)
	if err != nil {
		return Report{}, err
	}
	id, found, err := replication.ReadIdentity(d, dir)
	if errors.Is(err, replication.ErrIdentity) {
		return Report{Err: err}, nil
	}
	if err != nil {
		return Report{}, err
	}
	if !found {
		return checkUnidentified(d, dir)
	}
	r := Report{Member: id.Member, Ensemble: id.Ensemble, Starts: id.Start}
	for i := range id.Shards {
		s := checkShard(d, dir, id, ShardID(i+1))
		if errors.Is(s.Err, fs.ErrPermission) || errors.Is(s.Err, storage.ErrNewer) || errors.Is(s.Err, command.ErrNewer) {
			return Report{}, s.Err
		}
		r.Shards = append(r.Shards, s)
	}
	return r, nil
}

// checkUnidentified judges a directory without an identity file.
func checkUnidentified(d *disk.Disk, dir string) (Report, error) {
	names, err := d.List(dir)
	if err != nil {
		return Report{}, err
	}
	if slices.Contains(names, imagesName) || slices.Contains(names, "raft") {
		return Report{Err: errNoIdentity(dir)}, nil
	}
	return Report{}, fmt.Errorf("%s: %w", dir, ErrNoMember)
}

func checkShard(d *disk.Disk, dir string, id replication.Identity, shard ShardID) ShardReport {
	r := ShardReport{Shard: shard}
	imageErr := r.checkImage(d, dir, id)
	x := extent{applied: r.Applied}
	var logErr error
	x.log, logErr = replication.VerifyLog(replication.Config{Dir: dir, Disk: d.View(), Member: id.Member, Digest: id.Digest}, shard)
	r.Last = x.log.Last
	if r.Err = errors.Join(imageErr, logErr); r.Err == nil {
		r.Err = x.check(dir, true, id.Log != "")
	}
	return r
}

// checkImage reads a shard's image into memory, and drops it.
func (r *ShardReport) checkImage(d *disk.Disk, dir string, id replication.Identity) error {
	at := imageDir(dir, r.Shard)
	found, err := replica.CheckImage(storage.Options{Disk: d, Dir: at}, session.MemberID(id.Member))
	if err != nil || found.Applied == 0 {
		return err
	}
	r.Applied, r.Znodes, r.Sessions, r.Zxid = found.Applied, found.Znodes, found.Sessions, found.Zxid
	return checkOrigin(dir, found.Origin, id.Start+1)
}
