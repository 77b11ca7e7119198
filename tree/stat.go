package tree

import "time"

// A Zxid is a transaction's place in the order of its shard. Zero is before the first transaction.
// Zxids of different shards cannot be compared.
type Zxid uint64

// A SessionID names a session; zero means none.
type SessionID int64

// Stat is what ZooKeeper reports about a znode besides its data.
type Stat struct {
	Czxid Zxid      // the transaction that created the znode
	Mzxid Zxid      // the transaction that last wrote its data
	Pzxid Zxid      // the transaction that last created or deleted a child; Czxid if there is none
	Ctime time.Time // time of Czxid, in UTC, to the millisecond
	Mtime time.Time // time of Mzxid, in UTC, to the millisecond

	Version  int32 // writes of the data: 0 at first, +1 for each set; skips -1 when it wraps
	Cversion int32 // children created plus deleted; starts at -1 for the root, -2 for /zookeeper
	Aversion int32 // writes of the ACL

	EphemeralOwner SessionID // the owning session; zero if the znode is not an ephemeral
	DataLength     int32     // bytes of data
	NumChildren    int32
}

// stat returns the state's Stat. The child version is not stored. As in ZooKeeper, it follows from
// the create counter and the present number of children.
func (s *state) stat() Stat {
	r := s.rest()
	return Stat{
		Czxid:          s.czxid,
		Mzxid:          s.mzxid,
		Pzxid:          s.pzxid(),
		Ctime:          time.UnixMilli(s.ctime).UTC(),
		Mtime:          time.UnixMilli(s.mtime).UTC(),
		Version:        s.version,
		Cversion:       2*r.created - r.numChildren,
		Aversion:       r.aversion,
		EphemeralOwner: r.owner,
		DataLength:     int32(len(s.data)),
		NumChildren:    r.numChildren,
	}
}

// nextVersion returns the data or ACL version after old. It wraps from the largest number to the
// smallest, and skips -1, which would match any version.
func nextVersion(old int32) int32 {
	if old == AnyVersion-1 {
		return 0
	}
	return old + 1
}
