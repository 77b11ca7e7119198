// Package storage keeps the durable image of one shard: its records and, with them, the index of the last
// log entry they include.
//
// It is an inner room of Vivarium and carries no compatibility promise; users import embed.
//
// # What it owns
//
// The Pebble database behind a shard, the layout of the shard's image directory, the checks before anything in
// it is changed, background flushing, and the format of a snapshot stream. It is the only room that names a
// Pebble type, and none leaves it.
//
// # What it never does
//
// It does not know what a record means, starts no transport, and touches no file but through disk.Disk. It
// returns no error for a write that the disk refused: the disk's switch is the one place where that is
// noticed, and Sync, Install and Close report its cause.
//
// # Why an image needs no log of its own
//
// The Raft log holds every entry past the image's index, so an image that lost its newest commits in a crash is
// brought up again by applying them once more. That holds because of the invariants below.
//
// # Invariants
//
//  1. The applied index is written in the same Pebble batch as the records it covers, so no state of the image
//     has one without the other.
//  2. What is on disk is a prefix of what was committed: memtables reach the disk in order and each as a whole.
//  3. After Sync returned nil, no crash takes the image back before the index it had. The pointer file records
//     that index, and an image that is found below it is refused as corrupt: the log may not reach back further.
//  4. The live image is the one the pointer file names; the pointer moves only to an image that is complete,
//     verified and durable.
//  5. Until Load has read every record of an existing image, nothing in its directory is changed: Open, Peek, Check and
//     the first Load read through a view of the disk that keeps its writes in memory.
//
// # The image directory
//
// One directory a shard. The two small files end with a line "sum " and the crc32c of the bytes before it, as
// eight hexadecimal digits. They are written beside, synced, renamed, and the directory is synced.
//
//	name            contents
//	--------------  -------------------------------------------------------------------------
//	format          "vivarium image", "format 1": what this directory is; written first
//	current         "vivarium current", "image <name>", "state <state>", "synced <index>"
//	image-000001/   a Pebble database; the number grows with every install
//	format.tmp      a write beside that a crash cut off; ignored, removed by the next start
//	current.tmp     likewise
//	image-000002/   not named by current: a replaced image or an install that a crash cut
//	                off; removed by the next start
//
// State is "new" from before the first image is created until it is durable: such an image never held anything
// and is made anew. From then on it is "live" and the image must be there.
//
// # Keys
//
// A record's key in Pebble is one byte, its Table, and the caller's key. Byte 0 is ours: the key 0 'a' holds the
// applied index, 8 bytes, big-endian.
//
// # The snapshot stream
//
// Integers are big-endian. An image without records is a header and a trailer.
//
//	header    8  "vivimage"
//	          4  version, 1
//	          8  applied index
//	          4  crc32c of the 20 bytes before
//	record    1  table, 1 or more
//	          4  length of the key, at most 1 MiB
//	          4  length of the value, at most 64 MiB
//	          …  key, value; records are in ascending order of (table, key), none twice
//	trailer   1  0
//	          8  number of records
//	          4  crc32c of everything before, header included
//
// # Memory
//
// For one open image: at most 16 MiB of commits that are not flushed (Options.UnflushedMax, by an estimate that
// counts 64 bytes beside each record; Commit waits beyond it), in memtables that begin at 256 KiB and grow to
// 4 MiB under load, and one such memtable at rest; 1 MiB of block cache, which the memtables in use are taken off;
// at most 64 open tables with their index blocks. Measured: 20 images at rest add 3 MB to a process, one that
// takes commits as fast as it can about 25 MB. An Install adds one memtable being filled and one being flushed,
// 256 KiB of records and 64 KiB of stream; a WriteTo 64 KiB and a block of each table it reads from. Single
// records beyond these sizes are held once each.
//
// # Goroutines
//
// Each Image runs one flushLoop, from its first use for writing until Close. Pebble adds two that idle and up to
// two at work (a flush, a compaction); Close ends them all. Every method may be called from any goroutine, but
// commits are meant to come from one, and none may run beside an Install.
//
// # Reading order
//
// image.go, batch.go, flush.go, snapshot.go, install.go, stream.go, layout.go, store.go, check.go, filesystem.go.
package storage
