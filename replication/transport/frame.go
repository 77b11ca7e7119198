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
	kindBatch  kind = 1 // a raftpb.MessageBatch
	kindChunk  kind = 2 // a raftpb.Chunk
	kindAsk    kind = 3 // empty; to be answered when all frames before it are handled
	kindAnswer kind = 4 // empty; travels towards the member that dialled
)

// headSize is the size of a frame's head.
const headSize = 12

const (
	// frameMaxDefault holds dragonboat's largest batch, 64 MiB by its own estimate, which is never low.
	frameMaxDefault = 65 << 20
	// chunkMax holds a block of 2 MiB, the snapshot's header, the membership and the file's name.
	chunkMax = 3 << 20
	// bufferKeep is how much of a large frame's buffer an idle connection may hold on to.
	bufferKeep = 1 << 20
	// readStep bounds what a head can make its receiver allocate before the bytes have come.
	readStep = 1 << 20
	// writeStep is how much has to leave within writeTimeout.
	writeStep = 256 << 10
	// writeTimeout is how long a peer may take nothing at all before the connection counts as dead.
	writeTimeout = 5 * time.Second
	// readBuffer is the size of the reader's buffer: many small frames in one read.
	readBuffer = 32 << 10
	// answerBuffer is the same where only a handshake and answers come.
	answerBuffer = 512
	// frameMaxMax keeps lengths far from where they overflow.
	frameMaxMax = 1 << 30
)

// castagnoli is the polynomial that processors compute in hardware.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame is wrapped by everything that is wrong with a frame.
var errFrame = errors.New("malformed frame")

// finishFrame fills in the head at the start of b, whose payload is complete behind it.
func finishFrame(b []byte, k kind) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-headSize))
	b[4], b[5], b[6], b[7] = byte(k), 0, 0, 0
	sum := crc32.Update(crc32.Checksum(b[:8], castagnoli), castagnoli, b[headSize:])
	binary.BigEndian.PutUint32(b[8:], sum)
}

// appendEmpty appends a frame without payload.
func appendEmpty(b []byte, k kind) []byte {
	n := len(b)
	b = append(b, make([]byte, headSize)...)
	finishFrame(b[n:], k)
	return b
}

// A frameReader reads frames and trusts none.
type frameReader struct {
	r    *bufio.Reader
	max  func(kind) int // largest payload, negative for a kind that may not come
	keep int            // what buf may hold on to between frames
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

// fill reads n bytes into buf. The buffer grows with what has come, not with what was announced.
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

// A frameWriter writes whole frames; one goroutine uses it at a time.
type frameWriter struct {
	conn  net.Conn
	until time.Time // write deadline that is set
}

// write writes frames that are already complete. An error has left the connection useless.
func (f *frameWriter) write(b []byte, now time.Time) error {
	for {
		// Setting a deadline costs as much as a small write; once a second is enough.
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
