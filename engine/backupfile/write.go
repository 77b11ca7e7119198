package backupfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A Writer writes a backup. After an error it is of no use, and neither is what it has written.
type Writer struct {
	out   blockWriter
	check checker
}

// NewWriter writes the header.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	body, err := h.encode()
	if err != nil {
		return nil, err
	}
	bw := &Writer{out: blockWriter{to: w, whole: sha256.New()}, check: checker{shards: h.Shards}}
	if err := bw.out.write([]byte{magic[0], magic[1], magic[2], magic[3], magic[4], magic[5], magic[6], format}); err != nil {
		return nil, err
	}
	bw.out.begin(kindHeader)
	bw.out.block = append(bw.out.block, body...)
	err = bw.out.end()
	bw.out.block = bw.out.block[:0]
	return bw, err
}

// Add adds the record of a znode, which it copies. It writes nothing: when full is true, and before
// the first record of a further shard, Flush must follow.
func (w *Writer) Add(shard uint32, path string, record []byte) (full bool, err error) {
	if len(path) > pathMax || len(record) > znodeMax {
		return false, fmt.Errorf("a path of %d bytes with a znode of %d", len(path), len(record))
	}
	if _, err := w.check.next(shard, path, record); err != nil {
		return false, err
	}
	b := w.out.block
	if len(b) == 0 {
		w.out.begin(kindRecords)
		b = binary.BigEndian.AppendUint32(w.out.block, shard)
	} else if binary.BigEndian.Uint32(b[headLen:]) != shard {
		return false, errors.New("a block with znodes of two shards")
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(record)))
	w.out.block = append(append(b, path...), record...)
	return len(w.out.block) >= BlockSize, nil
}

// Flush writes what was added.
func (w *Writer) Flush() error {
	if len(w.out.block) == 0 {
		return nil
	}
	err := w.out.end()
	w.out.block = w.out.block[:0]
	return err
}

// Close checks that nothing is missing, and writes the end. It returns the sum of the whole file.
// It does not close the underlying writer.
func (w *Writer) Close() (Sum, error) {
	if err := w.Flush(); err != nil {
		return Sum{}, err
	}
	if err := w.check.end(); err != nil {
		return Sum{}, err
	}
	var sum Sum
	w.out.whole.Sum(sum[:0])
	w.out.begin(kindEnd)
	w.out.block = binary.BigEndian.AppendUint64(w.out.block, w.check.all)
	w.out.block = append(w.out.block, sum[:]...)
	err := w.out.end()
	w.out.whole.Sum(sum[:0])
	return sum, err
}

// Size returns how many bytes were written.
func (w *Writer) Size() int64 { return w.out.size }
