package backupfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

var (
	// ErrNotBackup means that the bytes do not begin as a backup does.
	ErrNotBackup = errors.New("not a backup")
	// ErrNewer means that a newer build has written the file.
	ErrNewer = errors.New("written by a newer version")
	// ErrCorrupt means that the file is damaged or incomplete, or not what a backup can be.
	ErrCorrupt = errors.New("damaged or incomplete backup")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

const (
	magic  = "vivback"
	format = '1'

	kindHeader  = 1
	kindRecords = 2
	kindEnd     = 3

	headLen   = 1 + 4
	sumLen    = 4
	headerMax = 1 << 20
	endLen    = 8 + sha256.Size

	// BlockSize is when a block is full.
	BlockSize = 256 << 10
	// The limits of a record are those of package storage.
	pathMax   = 1 << 20
	znodeMax  = 64 << 20
	recordMax = 4 + 4 + pathMax + znodeMax
	blockMax  = 4 + BlockSize + recordMax
	// readStep is how much is read before more memory is allocated, so that a false length costs
	// no more than the bytes that follow it.
	readStep = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Sum is a SHA-256.
type Sum = [sha256.Size]byte

// bodyMax returns how long a block of a kind may be, or -1.
func bodyMax(kind byte) int {
	switch kind {
	case kindHeader:
		return headerMax
	case kindRecords:
		return blockMax
	case kindEnd:
		return endLen
	}
	return -1
}

// A blockWriter writes blocks and counts their bytes.
type blockWriter struct {
	to    io.Writer
	whole hash.Hash
	size  int64
	block []byte // the head of the block to be written, and its body so far
}

// begin begins a block. Its body is appended to block.
func (w *blockWriter) begin(kind byte) {
	w.block = append(w.block[:0], kind, 0, 0, 0, 0)
}

// end writes the block.
func (w *blockWriter) end() error {
	binary.BigEndian.PutUint32(w.block[1:], uint32(len(w.block)-headLen))
	w.block = binary.BigEndian.AppendUint32(w.block, crc32.Checksum(w.block, castagnoli))
	err := w.write(w.block)
	if cap(w.block) > 2*BlockSize {
		w.block = nil // of a large record
	}
	return err
}

func (w *blockWriter) write(b []byte) error {
	n, err := w.to.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	w.whole.Write(b)
	w.size += int64(len(b))
	return err
}

// A blockReader reads blocks, and trusts nothing. Its errors wrap ErrCorrupt, or are the
// underlying reader's.
type blockReader struct {
	from  io.Reader
	whole hash.Hash
	sum   Sum // of everything before the present block
	size  int64
	block []byte
}

// next reads a block. The body is valid until the next call.
func (r *blockReader) next() (kind byte, body []byte, err error) {
	r.whole.Sum(r.sum[:0])
	r.block = r.block[:0]
	if err := r.more(headLen); err != nil {
		return 0, nil, err
	}
	kind, n := r.block[0], int(binary.BigEndian.Uint32(r.block[1:]))
	if n > bodyMax(kind) {
		return 0, nil, corrupt("at byte %d is a block of kind %d and %d bytes", r.size-headLen, kind, n)
	}
	if err := r.more(n + sumLen); err != nil {
		return 0, nil, err
	}
	block, sum := r.block[:headLen+n], r.block[headLen+n:]
	if crc32.Checksum(block, castagnoli) != binary.BigEndian.Uint32(sum) {
		return 0, nil, corrupt("the checksum of the block before byte %d does not match", r.size)
	}
	return kind, block[headLen:], nil
}

// more reads n bytes behind those of the block. It allocates memory only as the bytes arrive.
func (r *blockReader) more(n int) error {
	if len(r.block) == 0 && cap(r.block) > 2*BlockSize {
		r.block = nil // of a large record
	}
	for n > 0 {
		at, step := len(r.block), min(n, readStep)
		if cap(r.block) < at+step {
			r.block = append(make([]byte, 0, max(at+step, min(at+n, 2*at))), r.block...)
		}
		r.block = r.block[:at+step]
		got, err := io.ReadFull(r.from, r.block[at:])
		r.size += int64(got)
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return corrupt("it is cut off after %d bytes", r.size)
		case err != nil:
			return err
		}
		r.whole.Write(r.block[at:])
		n -= step
	}
	return nil
}

// ends returns nil if nothing follows.
func (r *blockReader) ends() error {
	var one [1]byte
	switch n, err := io.ReadFull(r.from, one[:]); {
	case n > 0:
		return corrupt("more bytes follow its end")
	case err != io.EOF:
		return err
	}
	return nil
}
