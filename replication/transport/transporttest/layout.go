package transporttest

import "encoding/binary"

// The dialling end of a connection sends a hello, a verdict and then frames. These are the parts of
// the layouts, drawn in the doc of package transport, that say where one ends and what a frame is.
const (
	helloHead = 142 // a hello of version 1 up to the states of its shards; the length of its address comes last
	stateSize = 56
	sumSize   = 4

	verdictHead = 24 // a verdict up to its text

	frameHead = 12
	kindBatch = 1
)

// messageSize returns the size of the message at the start of b, after so many earlier ones on the
// connection. It returns zero while part of the message is missing.
func messageSize(b []byte, earlier int) (n int) {
	switch {
	case earlier == 0 && len(b) >= helloHead:
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

// helloSize returns the size of a hello from its head.
func helloSize(b []byte) int {
	n := helloHead + int(b[7])*stateSize + int(binary.BigEndian.Uint16(b[helloHead-2:])) + sumSize
	if binary.BigEndian.Uint16(b[4:]) >= 2 { // transport.VersionNext
		n += 4
	}
	return n
}

// isBatch reports whether a message, after so many earlier ones on the connection, is a frame with
// messages of Raft.
func isBatch(b []byte, earlier int) bool { return earlier > 1 && b[4] == kindBatch }
