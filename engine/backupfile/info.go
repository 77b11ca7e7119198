package backupfile

import (
	"encoding/hex"
	"time"

	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/tree"
)

// An Info says what a backup has.
type Info struct {
	Time     time.Time // when it began, by the clock of Member
	Ensemble string    // the name; may be empty
	Lineage  string    // in hex; empty if the ensemble has chosen none
	Level    int       // the feature level that reading it needs
	Member   replication.MemberID
	Members  []replication.MemberID
	Shards   []ShardInfo
	Znodes   int
	Size     int64  // bytes
	Sum      string // SHA-256 of the file in hex, as sha256sum prints it
}

// A ShardInfo says what a backup has of a shard.
type ShardInfo struct {
	Shard  int       // from 1
	Zxid   tree.Zxid // everything up to this transaction is in it, and nothing after it
	Znodes int
}

// Info returns what a whole file with this header has.
func (h *Header) Info(size int64, sum Sum) Info {
	i := Info{Time: time.UnixMilli(h.Time).UTC(), Ensemble: h.Ensemble, Lineage: h.Lineage, Member: replication.MemberID(h.Member), Size: size, Sum: hex.EncodeToString(sum[:])}
	for _, m := range h.Members {
		i.Members = append(i.Members, replication.MemberID(m))
	}
	for _, s := range h.Shards {
		i.Level = max(i.Level, int(s.Level))
		i.Znodes += s.Znodes
		i.Shards = append(i.Shards, ShardInfo{Shard: int(s.Shard), Zxid: s.Zxid, Znodes: s.Znodes})
	}
	return i
}
