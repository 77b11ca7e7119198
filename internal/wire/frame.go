package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// FrameMax is the longest frame that a ZooKeeper server reads by default.
const FrameMax = 0xfffff

// ErrFrameLength is wrapped by the error about a frame that is too long or has a negative length.
var ErrFrameLength = errors.New("invalid frame length")

// frameStep is the room that a frame gets before any of it has arrived. After that, the room at
// most doubles. So a client that announces a long frame and sends nothing takes no more than this.
const frameStep = 4 << 10

// ReadFrame reads a frame into buf, which grows as needed, and returns the frame without its
// length. What is decoded from the frame may share its memory. So reuse buf only when nothing of
// that is needed any more.
//
// The error is io.EOF if r ends before the frame, and io.ErrUnexpectedEOF if r ends within it.
// Other errors are those of r, and ErrFrameLength, after which the connection can only be closed.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	buf = slices.Grow(buf[:0], 4)[:4]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	length := int(int32(binary.BigEndian.Uint32(buf)))
	if length < 0 || length > limit {
		return nil, fmt.Errorf("%w: %d, the limit is %d", ErrFrameLength, length, limit)
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

// beginFrame appends room for a frame's length to b. The record is then written behind it.
func beginFrame(b []byte) coder {
	return coder{b: append(b, 0, 0, 0, 0), writing: true}
}

// endFrame sets the length of the frame that begins at start, and returns the bytes.
func (c *coder) endFrame(start int) []byte {
	binary.BigEndian.PutUint32(c.b[start:], uint32(len(c.b)-start-4))
	return c.b
}
