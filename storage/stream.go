package storage

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// The limits of a record. A reader refuses a larger one before it allocates memory for it. So
// Commit must refuse it too.
const (
	keyLenMax   = 1 << 20
	valueLenMax = 64 << 20
)

const (
	streamMagic   = "vivimage"
	streamVersion = 1
	headerLen     = len(streamMagic) + 4 + 8 + 4
	recordHeadLen = 1 + 4 + 4
	trailerMark   = 0

	// streamBuffer is the buffer for reading or writing a stream. It is large enough to avoid a
	// system call for every record, and small enough for many snapshots at once.
	streamBuffer = 64 << 10

	// readStep is how much of a record is read before more memory is allocated. So a false length
	// costs no more than the bytes that follow it.
	readStep = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A streamWriter writes one snapshot stream.
type streamWriter struct {
	out   *bufio.Writer
	sum   *sumWriter
	count uint64
	head  [recordHeadLen]byte
}

// sumWriter computes the checksum of everything written through it.
type sumWriter struct {
	to  io.Writer
	sum uint32
}

func (s *sumWriter) Write(p []byte) (int, error) {
	s.sum = crc32.Update(s.sum, castagnoli, p)
	return s.to.Write(p)
}

func newStreamWriter(w io.Writer, applied uint64) (*streamWriter, error) {
	sum := &sumWriter{to: w}
	s := &streamWriter{out: bufio.NewWriterSize(sum, streamBuffer), sum: sum}
	_, err := s.out.Write(streamHeader(streamVersion, applied))
	return s, err
}

func streamHeader(version uint32, applied uint64) []byte {
	h := make([]byte, 0, headerLen)
	h = append(h, streamMagic...)
	h = binary.BigEndian.AppendUint32(h, version)
	h = binary.BigEndian.AppendUint64(h, applied)
	return binary.BigEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

func (s *streamWriter) record(t Table, key, value []byte) error {
	s.head[0] = byte(t)
	binary.BigEndian.PutUint32(s.head[1:], uint32(len(key)))
	binary.BigEndian.PutUint32(s.head[5:], uint32(len(value)))
	s.count++
	// A bufio.Writer remembers its first error, so checking the last write is enough.
	s.out.Write(s.head[:])
	s.out.Write(key)
	_, err := s.out.Write(value)
	return err
}

func (s *streamWriter) finish() error {
	s.out.WriteByte(trailerMark)
	s.out.Write(binary.BigEndian.AppendUint64(nil, s.count))
	if err := s.out.Flush(); err != nil {
		return err
	}
	s.out.Write(binary.BigEndian.AppendUint32(nil, s.sum.sum))
	return s.out.Flush()
}

// A streamReader reads one snapshot stream and trusts nothing in it. Errors about the contents wrap
// ErrCorrupt or ErrNewer; an error of the underlying reader is returned unchanged. The streamReader
// reads ahead beyond the trailer, but does not care what follows it.
type streamReader struct {
	in    *bufio.Reader
	sum   uint32
	count uint64

	table Table
	key   []byte
	value []byte
	prev  []byte
}

func newStreamReader(r io.Reader) (*streamReader, uint64, error) {
	s := &streamReader{in: bufio.NewReaderSize(r, streamBuffer)}
	h := make([]byte, headerLen)
	if err := s.read(h); err != nil {
		return nil, 0, err
	}
	if string(h[:len(streamMagic)]) != streamMagic {
		return nil, 0, streamError("it does not begin like a snapshot stream")
	}
	body, sum := h[:headerLen-4], binary.BigEndian.Uint32(h[headerLen-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, 0, streamError("the header's checksum does not match")
	}
	if v := binary.BigEndian.Uint32(h[len(streamMagic):]); v != streamVersion {
		return nil, 0, newer("snapshot stream", int(v), streamVersion)
	}
	return s, binary.BigEndian.Uint64(h[len(streamMagic)+4:]), nil
}

func streamError(format string, args ...any) error {
	return fmt.Errorf("snapshot stream: %w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// next reads the next record into table, key and value, which stay valid until the following call.
// After the last record it verifies the trailer and returns io.EOF.
func (s *streamReader) next() error {
	var head [recordHeadLen]byte
	if err := s.read(head[:1]); err != nil {
		return err
	}
	if head[0] == trailerMark {
		return s.trailer()
	}
	if err := s.read(head[1:]); err != nil {
		return err
	}
	table := Table(head[0])
	keyLen, valueLen := binary.BigEndian.Uint32(head[1:]), binary.BigEndian.Uint32(head[5:])
	if !table.known() || keyLen > keyLenMax || valueLen > valueLenMax {
		return streamError("record %d has table %d, a key of %d and a value of %d bytes", s.count, table, keyLen, valueLen)
	}
	s.prev, s.key = s.key, s.prev
	var err error
	if s.key, err = s.readN(s.key[:0], int(keyLen)); err != nil {
		return err
	}
	if s.count > 0 && (table < s.table || table == s.table && bytes.Compare(s.prev, s.key) >= 0) {
		return streamError("record %d is out of order", s.count)
	}
	s.table = table
	s.count++
	s.value, err = s.readN(s.value[:0], int(valueLen))
	return err
}

func (s *streamReader) trailer() error {
	var b [12]byte
	if err := s.read(b[:8]); err != nil {
		return err
	}
	want := s.sum
	if err := s.read(b[8:]); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint64(b[:]); n != s.count {
		return streamError("its trailer counts %d records, but it holds %d", n, s.count)
	}
	if binary.BigEndian.Uint32(b[8:]) != want {
		return streamError("the checksum does not match")
	}
	return io.EOF
}

// readN reads n bytes into b. It allocates memory only as the bytes arrive.
func (s *streamReader) readN(b []byte, n int) ([]byte, error) {
	for len(b) < n {
		from, step := len(b), min(n-len(b), readStep)
		if cap(b) < from+step {
			b = append(make([]byte, 0, max(from+step, min(n, 2*from))), b...)
		}
		b = b[:from+step]
		if err := s.read(b[from:]); err != nil {
			return b[:from], err
		}
	}
	return b, nil
}

func (s *streamReader) read(p []byte) error {
	_, err := io.ReadFull(s.in, p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return streamError("it ends after %d records, before its trailer", s.count)
	}
	if err != nil {
		return err
	}
	s.sum = crc32.Update(s.sum, castagnoli, p)
	return nil
}
