// Package backupfile is the format of a backup: one file with the znodes of all shards of an
// ensemble.
//
//	w, err := backupfile.NewWriter(file, header)
//	full, err := w.Add(1, path, record) // for each znode, in order
//	err = w.Flush()                     // when full
//	sum, err := w.Close()
//
//	r, err := backupfile.NewReader(file)
//	record, err := r.Next() // until io.EOF, which says that the whole file is sound
//
// It is an inner room of Vivarium and carries no compatibility promise; users import embed/backup.
//
// # What is in a file
//
// A header says whose backup it is and when it was made. For each shard it has the zxid up to which
// every transaction is in the file, and none after it, and the lead of package command. Then come the znodes, shard by shard, in
// byte order of their paths, so that a parent comes before its children. A znode has what the image
// keeps of it: data, ACL, mode, TTL, times, zxids, versions and the create counter. The rest of its
// Stat follows from the children.
//
// Ephemerals are in the file with their owner, to show who held what. Sessions, their passwords and
// the members' addresses are not.
//
// # Bytes
//
// A file is 8 bytes and then blocks. Integers are big-endian.
//
//	file     8  "vivback1", where the digit is the format
//	         …  one header, any number of records blocks, one end; nothing follows it
//	block    1  kind
//	         4  n, the length of the body
//	         n  body
//	         4  crc32c of the block so far
//	header   kind 1, at most 1 MiB: a Header as JSON, without a space more than json.Marshal writes
//	records  kind 2
//	         4  shard
//	         …  one or more records: 4 length of the path, 4 length of the znode, path, znode
//	end      kind 3
//	         8  number of records in all
//	        32  SHA-256 of the file before this block
//
// A znode is a record of the image; see package command. Its level is that of its shard in the
// header.
//
// # What a reader refuses
//
// The reader gives out a record only after the checksum of its block was right. It refuses every
// changed byte, every cut, and bytes after the end. It also refuses a file whose records are not
// those of a tree: out of order, without a parent, with a zxid above the shard's, or not as many as
// the header says. The writer refuses the same, so a file that was written is one that can be read.
//
// # Memory
//
// Reader and writer hold one block. A block ends after 256 KiB, or after a record that is larger.
package backupfile
