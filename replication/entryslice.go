package replication

import _ "unsafe" // for go:linkname

// dragonboat allocates room for 512 entries, 40 KiB, each time that all entries in memory were
// applied. With few callers that is at each write. An entry of ours is a batch, and only a few
// batches are on their way at once. With room for 32, a write of one caller leaves 7 KB of garbage
// per member instead of 46, and its p99 went from 1.1 to 0.7 ms. These settings can be changed only
// in this way, or by a file in the working directory of the process. They apply to all of
// dragonboat in the process. It reads them when a shard starts and when it allocates room.

//go:linkname entrySliceSize github.com/lni/dragonboat/v4/internal/raft.entrySliceSize
var entrySliceSize uint64

//go:linkname minEntrySliceSize github.com/lni/dragonboat/v4/internal/raft.minEntrySliceSize
var minEntrySliceSize uint64

func init() { entrySliceSize, minEntrySliceSize = 32, 8 }
