package backupfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/vivarium-go/vivarium/tree"
)

// A Record is one znode of a file. The znode's data is valid until the next call of Next.
type Record struct {
	Shard uint32
	Path  string
	Znode tree.Znode
}

// A Reader reads a backup, and trusts nothing in it. Its errors wrap ErrNotBackup, ErrNewer,
// ErrCorrupt or command.ErrLevel; an error of the underlying reader is returned unchanged.
type Reader struct {
	Header Header

	in    blockReader
	check checker
	shard uint32
	left  []byte // of the present block
	err   error  // why Next ends
}

// NewReader reads the header.
func NewReader(r io.Reader) (*Reader, error) {
	br := &Reader{in: blockReader{from: r, whole: sha256.New()}}
	if err := br.in.more(len(magic) + 1); err != nil {
		return nil, err
	}
	switch b := br.in.block; {
	case string(b[:len(magic)]) != magic:
		return nil, ErrNotBackup
	case b[len(magic)] != format:
		return nil, fmt.Errorf("%w: format %q, this version reads %q; run the version that wrote it, or a later version", ErrNewer, b[len(magic)], format)
	}
	kind, body, err := br.in.next()
	if err != nil {
		return nil, err
	}
	if kind != kindHeader {
		return nil, corrupt("it has no header")
	}
	if br.Header, err = decodeHeader(body); err != nil {
		return nil, err
	}
	br.check.shards = br.Header.Shards
	return br, nil
}

// Next returns the next record. The error is io.EOF if there is none, and the file is sound from
// its first byte to its last. After an error, Next returns the same.
func (r *Reader) Next() (Record, error) {
	if r.err == nil && len(r.left) == 0 {
		r.err = r.nextBlock()
	}
	if r.err != nil {
		return Record{}, r.err
	}
	rec, err := r.record()
	r.err = err
	return rec, err
}

// nextBlock reads a block of records, or the end.
func (r *Reader) nextBlock() error {
	kind, body, err := r.in.next()
	switch {
	case err != nil:
		return err
	case kind == kindEnd:
		return r.end(body)
	case kind != kindRecords || len(body) <= 4:
		return corrupt("the block before byte %d has no records", r.in.size)
	}
	r.shard, r.left = binary.BigEndian.Uint32(body), body[4:]
	return nil
}

// record takes a record from the block.
func (r *Reader) record() (Record, error) {
	if len(r.left) < 8 {
		return Record{}, corrupt("a record ends before its lengths")
	}
	path, znode := uint64(binary.BigEndian.Uint32(r.left)), uint64(binary.BigEndian.Uint32(r.left[4:]))
	r.left = r.left[8:]
	if path > pathMax || znode > znodeMax || path+znode > uint64(len(r.left)) {
		return Record{}, corrupt("a record has a path of %d bytes and a znode of %d", path, znode)
	}
	rec := Record{Shard: r.shard, Path: string(r.left[:path])}
	record := r.left[path : path+znode]
	r.left = r.left[path+znode:]
	var err error
	rec.Znode, err = r.check.next(rec.Shard, rec.Path, record)
	if err != nil {
		return Record{}, err
	}
	return rec, nil
}

func (r *Reader) end(body []byte) error {
	if err := r.check.end(); err != nil {
		return err
	}
	if len(body) != endLen || binary.BigEndian.Uint64(body) != r.check.all || !bytes.Equal(body[8:], r.in.sum[:]) {
		return corrupt("what it says at its end is not what it has")
	}
	if err := r.in.ends(); err != nil {
		return err
	}
	return io.EOF
}

// Info returns what the file has. It is true after Next has returned io.EOF.
func (r *Reader) Info() Info { return r.Header.Info(r.in.size, r.Sum()) }

// Sum returns the SHA-256 of the file. It is true after Next has returned io.EOF.
func (r *Reader) Sum() (sum Sum) {
	r.in.whole.Sum(sum[:0])
	return sum
}
