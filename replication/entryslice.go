package replication

import _ "unsafe" // for go:linkname

// dragonboat makes room for 512 entries, 40 KiB, each time that all it had in memory was applied: with few callers at each write.
// An entry of ours is a batch, of which some are on their way at once. With room for 32 a write of one caller leaves 7 KB of
// garbage a member instead of 46, and its p99 went from 1.1 to 0.7 ms. The settings can only be reached in this way, or
// by a file in the working directory of the process. They are of all of dragonboat in the process; it reads them when a shard
// starts and when it makes room.

//go:linkname entrySliceSize github.com/lni/dragonboat/v4/internal/raft.entrySliceSize
var entrySliceSize uint64

//go:linkname minEntrySliceSize github.com/lni/dragonboat/v4/internal/raft.minEntrySliceSize
var minEntrySliceSize uint64

func init() { entrySliceSize, minEntrySliceSize = 32, 8 }
