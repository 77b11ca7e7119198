package tree

import "time"

// A Zxid is a transaction's place in the order of its shard; zero is before the first. Zxids of different shards do not
// compare.
type Zxid uint64

// A SessionID names a session; zero is none.
type SessionID int64

// Stat is what ZooKeeper tells of a znode beside its data.
type Stat struct {
	Czxid Zxid      // the transaction that created the znode
	Mzxid Zxid      // the transaction that last wrote its data
	Pzxid Zxid      // the transaction that last created or deleted a child; at first Czxid
	Ctime time.Time // of Czxid, in UTC, to the millisecond
	Mtime time.Time // of Mzxid, in UTC, to the millisecond

	Version  int32 // writes of the data: 0 at first, +1 for each set, -1 left out when it wraps
	Cversion int32 // children created plus children deleted; the root starts at -1 and /zookeeper at -2
	Aversion int32 // writes of the ACL

	EphemeralOwner SessionID // the session the znode belongs to; zero if it is not an ephemeral
	DataLength     int32     // bytes of data
	NumChildren    int32
}

// stat is the state's Stat. The child version is not stored: it is made of the create counter, which counts creations,
// and of the children left, as ZooKeeper makes it.
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

// nextVersion is the data or ACL version after old. It wraps from the largest number to the smallest and leaves out -1, which
// as an expected version would mean "any".
func nextVersion(old int32) int32 {
	if old == AnyVersion-1 {
		return 0
	}
	return old + 1
}
