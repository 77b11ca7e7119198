package datadir

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

// CheckOrigin compares the next start with the newest start that a shard knows of. newest.Start is
// zero if the shard knows of none.
func CheckOrigin(dir string, newest session.Origin, start uint64) error {
	if newest.Start >= start {
		return fmt.Errorf("%s: the identity file counts start %d, start %d has registered: part of the directory is from another time; %s", dir, start, newest.Start, replication.WayOut)
	}
	return nil
}

// Extent says how far the image and the log of a shard reach.
type Extent struct {
	Applied uint64 // the newest entry in the image; zero if it has none
	Log     replication.Log
}

// Check returns why image and log do not fit together, or nil. If the log is missing or ends before
// the image, Raft would treat entries as applied that this replica never saw. And a member without
// its log would vote against what it has acknowledged. If founded, the directory has an identity
// file. If logged, it had a log.
func (x Extent) Check(dir string, founded, logged bool) error {
	switch {
	case (x.Applied > 0 || x.Log.Exists) && !founded:
		return NoIdentity(dir)
	case logged && !x.Log.Exists:
		return fmt.Errorf("%s: the raft log is missing: part of the directory is lost; %s", dir, replication.WayOut)
	case x.Applied > 0 && (!x.Log.Exists || x.Log.Last < x.Applied):
		return fmt.Errorf("%s: the image holds entries up to %d, the raft log ends at %d: part of the directory is lost or from another time; %s", dir, x.Applied, x.Log.Last, replication.WayOut)
	case x.Log.Exists && x.Log.First > x.Applied+1:
		return fmt.Errorf("%s: the raft log begins at %d, the image holds entries up to %d only: part of the directory is lost or from another time; %s", dir, x.Log.First, x.Applied, replication.WayOut)
	}
	return nil
}

// NoIdentity says that a directory has data and no identity file.
func NoIdentity(dir string) error {
	return fmt.Errorf("%s holds data but its identity file is missing; %s", dir, replication.WayOut)
}

// ImagesName is the name of the directory that has the images.
const ImagesName = "image"

// ImageDir returns where a shard's image is.
func ImageDir(dir string, id replication.ShardID) string {
	return filepath.Join(dir, ImagesName, fmt.Sprintf("shard-%d", id))
}

// Interrupted says why a node does not start on a directory whose recovery was interrupted.
func Interrupted(id replication.Identity) error {
	stopped := strings.ReplaceAll(replication.Listed(id.Stopped), " ", "")
	return fmt.Errorf("a forced recovery was interrupted: run vivarium recover -accept-data-loss -i-have-stopped %s again with this directory; if the others live after all, keep this directory aside, and join with an empty one", stopped)
}
