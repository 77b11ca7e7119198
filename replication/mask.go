package replication

import (
	"encoding/binary"
	"math/rand/v2"
)

// A command is masked in the log: it is XORed with a random key, which stands before it. Most of a
// command is bytes that a client chose. As they are, they could look like records of the log, and
// after a power cut cutTails looks for records behind one that is torn. A client that writes such
// bytes at that moment would keep its members from starting.
const (
	maskMark = 0xc1 // no other command begins with it: MessagePack never uses it
	maskSize = 1 + 8
)

// mask returns a masked copy of a command.
func mask(cmd []byte) []byte {
	key := rand.Uint64()
	out := make([]byte, maskSize, maskSize+len(cmd))
	out[0] = maskMark
	binary.LittleEndian.PutUint64(out[1:], key)
	return appendXOR(out, cmd, key)
}

// appendUnmasked appends the command that is in the log as logged.
func appendUnmasked(to, logged []byte) []byte {
	if len(logged) < maskSize || logged[0] != maskMark {
		return append(to, logged...) // of an earlier build
	}
	return appendXOR(to, logged[maskSize:], binary.LittleEndian.Uint64(logged[1:]))
}

func appendXOR(to, b []byte, key uint64) []byte {
	for ; len(b) >= 8; b = b[8:] {
		to = binary.LittleEndian.AppendUint64(to, binary.LittleEndian.Uint64(b)^key)
	}
	for i := range b {
		to = append(to, b[i]^byte(key>>(8*i)))
	}
	return to
}
