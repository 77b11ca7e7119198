package governor

import (
	"log/slog"
	"sync/atomic"
)

const (
	// goneMax bounds the members that have come and gone. Raft never forgets their ids: they are in
	// every snapshot, and with some 140,000 a chunk of one is larger than a frame may be. Then nobody
	// could join or catch up.
	goneMax = 100_000
	// goneMany is from when on the leader warns.
	goneMany = 20_000
)

// A count says how many members have come and gone, as the leader of the home shard read last.
type count struct {
	n   atomic.Int64
	log *slog.Logger
}

// note takes in how many they are, and warns once if they are many.
func (c *count) note(n int) {
	if before := c.n.Swap(int64(n)); n >= goneMany && before < goneMany {
		c.log.Warn("very many members have come and gone: keep the directories of members, or found another ensemble (docs/limits.md)", "count", n)
	}
}
