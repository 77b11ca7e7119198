package transporttest

import "encoding/binary"

// The dialling end of a connection sends a hello, a verdict and then frames. These are the parts of
// the layouts, drawn in the doc of package transport, that say where one ends and what a frame is.
const (
	helloStart  = 112 // a hello of version 2 up to the states of its shards
	levelsSize  = 12  // more since version 3
	lineageSize = 16  // more since version 4
	lengthSize  = 2   // then the length of the address at its end, since version 4
	stateSize   = 56
	sumSize     = 4

	verdictHead = 24 // a verdict up to its text

	frameHead = 12
	kindBatch = 1
)

// messageSize returns the size of the message at the start of b, after so many earlier ones on the
// connection. It returns zero while part of the message is missing.
func messageSize(b []byte, earlier int) (n int) {
	switch {
	case earlier == 0 && len(b) >= helloStart:
		n = helloSize(b)
	case earlier == 1 && len(b) >= verdictHead:
		n = verdictHead + int(binary.BigEndian.Uint16(b[6:])) + sumSize
	case earlier > 1 && len(b) >= frameHead:
		n = frameHead + int(binary.BigEndian.Uint32(b))
	}
	if len(b) < n {
		return 0
	}
	return n
}

// helloSize returns the size of a hello from its start. If the start does not say it yet, the size
// is more than there is.
func helloSize(b []byte) int {
	n := helloStart + int(b[7])*stateSize + sumSize
	version := binary.BigEndian.Uint16(b[4:])
	if version > 2 {
		n += levelsSize
	}
	if version > 3 {
		const length = helloStart + levelsSize + lineageSize
		n += lineageSize + lengthSize
		if len(b) >= length+lengthSize {
			n += int(binary.BigEndian.Uint16(b[length:]))
		}
	}
	return n
}

// isBatch reports whether a message, after so many earlier ones on the connection, is a frame with
// messages of Raft.
func isBatch(b []byte, earlier int) bool { return earlier > 1 && b[4] == kindBatch }
