// Package storage keeps the durable image of one shard: its records, together with the index of the
// last log entry they include. A member that starts loads the image, and applies only the log
// entries after that index.
//
// It is an inner room of Vivarium and carries no compatibility promise; users import embed.
//
//	image, err := storage.Open(storage.Options{Disk: d, Dir: dir})
//	err = image.Load(func(t storage.Table, key, value []byte) error { … })
//	batch := image.NewBatch()
//	batch.Put(storage.Znodes, key, value)
//	err = batch.Commit(index) // reaches the disk later, or by the next Sync
//
// # What it owns
//
// Package storage owns the Pebble database behind a shard, the layout of the shard's image
// directory, background flushing, and the format of a snapshot stream. It checks an existing image
// completely before it changes anything in its directory. It is the only room that names a Pebble
// type, and no Pebble type leaves it.
//
// # What it never does
//
// It does not know what a record means: the engine encodes keys and values. It starts no transport.
// It touches files only through disk.Disk. It returns no error for a write that the disk refused.
// Such a failure throws the disk's switch, and Sync, Install and Close report the cause.
//
// # Why an image needs no log of its own
//
// The Raft log holds every entry after the image's index. If a crash loses the image's newest
// commits, applying those entries again restores them. The invariants below make that safe.
//
// # Invariants
//
//  1. The applied index is written in the same Pebble batch as the records it covers. No state of
//     the image has one without the other.
//  2. The image on disk is a prefix of what was committed: memtables reach the disk in order, each
//     as a whole.
//  3. After Sync returned nil, no crash takes the image back to an earlier index. The pointer file
//     records the index. An image found below it is refused as corrupt, because the log may no
//     longer hold the entries in between.
//  4. The live image is the one that the pointer file names. The pointer is changed only to an
//     image that is complete, verified and durable.
//  5. Nothing in the directory of an existing image changes until Load has read every record. Open,
//     Peek, Check and the first Load read through a view of the disk that keeps its writes in
//     memory.
//
// # The image directory
//
// Each shard has one directory. The two small files end with a line "sum " and the crc32c of the
// bytes before it, as eight hexadecimal digits. Each is written under a temporary name, synced and
// renamed; then the directory is synced.
//
//	name            contents
//	--------------  -------------------------------------------------------------------------
//	format          "vivarium image", "format 1": what this directory is; written first
//	current         "vivarium current", "image <name>", "state <state>", "synced <index>"
//	image-000001/   a Pebble database; the number grows with every install
//	format.tmp      left by a crash during a write; ignored, removed by the next start
//	current.tmp     likewise
//	image-000002/   not named by current: a replaced image, or an install that a crash
//	                interrupted; removed by the next start
//
// The state is "new" from before the first image is created until it is durable. Such an image has
// never held anything, so it may be created again. From then on the state is "live", and the image
// must exist.
//
// # Keys
//
// A record's key in Pebble is one byte for its Table, then the caller's key. Byte 0 belongs to this
// package: the key 0 'a' holds the applied index, 8 bytes, big-endian.
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
// One open image holds at most:
//
//   - 16 MiB of commits that are not flushed (Options.UnflushedMax). This is an estimate that adds
//     64 bytes to each record. Beyond it, Commit waits. The commits are in memtables that begin at
//     256 KiB and grow to 4 MiB under load. At rest, one memtable remains;
//   - 1 MiB of block cache, less the memory of the memtables in use;
//   - 64 open tables with their index blocks.
//
// Measured: 20 images at rest add 3 MB to a process. One image that accepts commits as fast as it
// can adds about 25 MB. An Install adds one memtable that is being filled and one that is being
// flushed, 256 KiB of records, and 64 KiB of stream. A WriteTo adds 64 KiB, and one block of each
// table it reads from. A single record larger than these sizes is held once in addition.
//
// # Goroutines
//
// Each Image runs one flushLoop, from its first use for writing until Close. Pebble adds two idle
// goroutines, and up to two that flush or compact; Close ends them all. Every method may be called
// from any goroutine. Commits should come from one goroutine, and must not run beside an Install.
package storage
