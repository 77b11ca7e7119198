package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"
)

// kind is the kind of a frame.
type kind uint8

const (
	kindBatch    kind = 1 // protobuf of a raftpb.MessageBatch
	kindChunk    kind = 2 // protobuf of a raftpb.Chunk
	kindAsk      kind = 3 // empty; answered when all frames before it are handled
	kindAnswer   kind = 4 // empty; sent to the member that dialled
	kindQuestion kind = 5 // bytes of whoever asks
	kindReply    kind = 6 // bytes of whoever answers a question
)

// headSize is the size of a frame's head.
const headSize = 12

const (
	// frameMaxDefault holds dragonboat's largest batch. That is 64 MiB by its own estimate, which
	// is never too low.
	frameMaxDefault = 65 << 20
	// chunkMax holds a block of 2 MiB, the snapshot's header, the membership and the file's name.
	chunkMax = 3 << 20
	// bufferKeep is how large the buffer of an idle connection may stay after a large frame.
	bufferKeep = 1 << 20
	// readStep bounds how much a receiver allocates for announced bytes that have not arrived yet.
	readStep = 1 << 20
	// writeStep is how many bytes the peer must accept within writeTimeout.
	writeStep = 256 << 10
	// writeTimeout is how long a peer may accept nothing before the connection counts as dead.
	writeTimeout = 5 * time.Second
	// readBuffer is the size of the reader's buffer. One read brings many small frames.
	readBuffer = 32 << 10
	// answerBuffer is the same for a connection that receives only a handshake and answers.
	answerBuffer = 512
	// frameMaxMax keeps lengths far from an overflow.
	frameMaxMax = 1 << 30
)

// castagnoli is the polynomial that processors compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame is wrapped by all errors about the bytes of a frame.
var errFrame = errors.New("malformed frame")

// finishFrame fills in the head at the start of b. The payload behind it is complete.
func finishFrame(b []byte, k kind) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-headSize))
	b[4], b[5], b[6], b[7] = byte(k), 0, 0, 0
	sum := crc32.Update(crc32.Checksum(b[:8], castagnoli), castagnoli, b[headSize:])
	binary.BigEndian.PutUint32(b[8:], sum)
}

// appendEmpty appends a frame without a payload.
func appendEmpty(b []byte, k kind) []byte {
	n := len(b)
	b = append(b, make([]byte, headSize)...)
	finishFrame(b[n:], k)
	return b
}

// A frameReader reads frames and checks each of them.
type frameReader struct {
	r    *bufio.Reader
	max  func(kind) int // largest payload of a kind; negative if the kind is not allowed here
	keep int            // how large buf may stay between frames
	head [headSize]byte
	buf  []byte
}

// next returns the next frame. The payload is valid until the next call.
func (f *frameReader) next() (kind, []byte, error) {
	if cap(f.buf) > f.keep {
		f.buf = nil
	}
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return 0, nil, err
	}
	k := kind(f.head[4])
	n := binary.BigEndian.Uint32(f.head[:])
	if f.head[5]|f.head[6]|f.head[7] != 0 {
		return 0, nil, fmt.Errorf("%w: head % x", errFrame, f.head)
	}
	switch limit := f.max(k); {
	case limit < 0:
		return 0, nil, fmt.Errorf("%w: kind %d does not belong here", errFrame, k)
	case uint64(n) > uint64(limit):
		return 0, nil, fmt.Errorf("%w: %d bytes of kind %d, at most %d are allowed", errFrame, n, k, limit)
	}
	if err := f.fill(int(n)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	sum := crc32.Update(crc32.Checksum(f.head[:8], castagnoli), castagnoli, f.buf)
	if sum != binary.BigEndian.Uint32(f.head[8:]) {
		return 0, nil, fmt.Errorf("%w: checksum of %d bytes of kind %d", errFrame, n, k)
	}
	return k, f.buf, nil
}

// fill reads n bytes into buf. The buffer grows with the bytes that arrive, not with the announced
// length.
func (f *frameReader) fill(n int) error {
	f.buf = f.buf[:0]
	for len(f.buf) < n {
		have := len(f.buf)
		step := n - have
		if have+step > cap(f.buf) {
			step = min(step, max(readStep, have))
			f.buf = append(f.buf, make([]byte, step)...)
		} else {
			f.buf = f.buf[:have+step]
		}
		if _, err := io.ReadFull(f.r, f.buf[have:have+step]); err != nil {
			return err
		}
	}
	return nil
}

// A frameWriter writes whole frames. One goroutine uses it at a time.
type frameWriter struct {
	conn  net.Conn
	until time.Time // the current write deadline
}

// write writes complete frames. After an error the connection is useless.
func (f *frameWriter) write(b []byte, now time.Time) error {
	for {
		// Setting a deadline costs as much as a small write. Once a second is enough.
		if f.until.Sub(now) < writeTimeout-time.Second {
			f.until = now.Add(writeTimeout)
			if err := f.conn.SetWriteDeadline(f.until); err != nil {
				return err
			}
		}
		step := min(len(b), writeStep)
		if _, err := f.conn.Write(b[:step]); err != nil {
			return err
		}
		if b = b[step:]; len(b) == 0 {
			return nil
		}
		now = time.Now()
	}
}
