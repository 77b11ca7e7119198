package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// FrameMax is ZooKeeper's default of the longest frame that a server reads.
const FrameMax = 0xfffff

// ErrFrameLength is wrapped by the error about a frame that is longer than the limit or of a negative length.
var ErrFrameLength = errors.New("no length of a frame")

// frameStep is how much room a frame gets before any of it has come. From then on it gets as much as has come: who announces a long
// frame and sends nothing takes no more than this.
const frameStep = 4 << 10

// ReadFrame reads a frame into buf, which grows as needed, and returns what it holds without its length. What was decoded of a frame may
// lie in it, so buf is to be used again only when none of that is needed. The errors are io.EOF if r ends before the frame,
// io.ErrUnexpectedEOF if it ends within, those of r, and ErrFrameLength, on which there is nothing to do but to close the connection.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	buf = slices.Grow(buf[:0], 4)[:4]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	length := int(int32(binary.BigEndian.Uint32(buf)))
	if length < 0 || length > limit {
		return nil, fmt.Errorf("%w: %d, at most %d", ErrFrameLength, length, limit)
	}
	for buf = buf[:0]; len(buf) < length; {
		have := len(buf)
		buf = slices.Grow(buf, min(length-have, max(have, frameStep)))
		buf = buf[:min(length, cap(buf))]
		if _, err := io.ReadFull(r, buf[have:]); err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		} else if err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// beginFrame appends room for a frame's length to b; the record is written behind it.
func beginFrame(b []byte) coder {
	return coder{b: append(b, 0, 0, 0, 0), writing: true}
}

// endFrame returns b with the length of the frame that begins at start.
func (c *coder) endFrame(start int) []byte {
	binary.BigEndian.PutUint32(c.b[start:], uint32(len(c.b)-start-4))
	return c.b
}

// FourLetterWord reports whether the first four bytes of a connection are one of ZooKeeper's words. As the length of a frame each of
// them would be beyond every limit.
func FourLetterWord(head []byte) bool {
	switch string(head) {
	case "ruok", "srvr", "stat", "cons", "conf", "crst", "srst", "dump", "envi", "dirs", "isro",
		"wchs", "wchc", "wchp", "mntr", "gtmk", "stmk", "hash":
		return true
	}
	return false
}
