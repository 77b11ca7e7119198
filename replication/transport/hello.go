package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"
	"unicode"
)

// purpose is what a connection is for.
type purpose uint8

const (
	forMessages purpose = 1
	forSnapshot purpose = 2
	forQuestion purpose = 3
)

const (
	helloMagic   = "VvHi"
	verdictMagic = "VvOk"

	// This build speaks these versions of the protocol and all between them.
	protocolMin = 1
	protocolMax = 1
	// VersionNext is what a build to come speaks. Only tests reach it, with Options.Highest. Its
	// hello has four bytes more, so that tests see how a release changes the protocol.
	VersionNext = protocolMax + 1

	helloHead   = 142 // a hello up to its shards, in version 1
	lengthAt    = helloHead - 2
	nextSize    = 4 // since VersionNext
	stateSize   = 56
	statesMax   = 255
	addressMax  = 300 // bytes of the address
	helloMax    = helloHead + nextSize + statesMax*stateSize + addressMax + 4
	verdictSize = 28   // without its text
	reasonMax   = 1024 // bytes of a refusal's text

	// handshakeTimeout bounds the handshake, including that of TLS. It is four round trips on the
	// worst of links. A silent peer keeps its place that long.
	handshakeTimeout = 3 * time.Second
)

// errHandshake is wrapped by all errors about the bytes of a handshake.
var errHandshake = errors.New("malformed handshake")

// A hello is the first message of each side.
type hello struct {
	Identity
	version uint16
	purpose purpose
	wanted  uint64 // the member that it is meant for
	nonce   [16]byte
}

// headSizeOf returns the size of a hello of a version up to its shards.
func headSizeOf(version uint16) int {
	if version < VersionNext {
		return helloHead
	}
	return helloHead + nextSize
}

// helloSize returns the size of a hello from its head.
func helloSize(b []byte) int {
	return headSizeOf(binary.BigEndian.Uint16(b[4:])) + int(b[7])*stateSize + addressSize(b) + 4
}

// addressSize returns the size of the address from the head of a hello.
func addressSize(b []byte) int { return int(binary.BigEndian.Uint16(b[lengthAt:])) }

// marshal appends the hello as it travels.
func (h *hello) marshal(b []byte) []byte {
	n, address := len(b), travelling(h.Address)
	b = append(b, helloMagic...)
	b = binary.BigEndian.AppendUint16(b, h.version)
	b = append(b, byte(h.purpose), byte(len(h.Shards)))
	b = append(b, h.Digest[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Member)
	b = binary.BigEndian.AppendUint64(b, h.wanted)
	b = append(b, h.Directory[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Start)
	b = append(b, h.nonce[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Run)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Tick))
	for _, n := range [...]uint32{h.Levels.Min, h.Levels.Max, h.Level} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	b = append(b, h.Lineage[:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(address)))
	if h.version >= VersionNext {
		b = append(b, make([]byte, nextSize)...)
	}
	for _, s := range h.Shards {
		for _, n := range [...]uint64{s.Term, s.Vote, s.Last, s.Held.Term, s.Held.Commit, s.Held.CommitTerm, s.Held.CommitSum} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
	}
	b = append(b, address...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

// travelling returns an address if it may travel, else an empty one.
func travelling(address string) string {
	if len(address) > addressMax || printable(address) != address {
		return ""
	}
	return address
}

// tlsHandshake is the start of a connection with TLS.
const tlsHandshake = "\x16\x03"

// readHello reads a hello of a version between lowest and highest. Magic and version come first and
// have the same place in every version. Of a hello of another version readHello returns only the
// version, with ErrOtherVersion itself.
func readHello(r *bufio.Reader, lowest, highest uint16) (hello, error) {
	var h hello
	start, err := r.Peek(6)
	if err == io.EOF && len(start) == 0 {
		return h, fmt.Errorf("%w: the peer closed the connection at once, as a member with TLS does to one without", errHandshake)
	}
	if err != nil {
		return h, cutShort(err)
	}
	if string(start[:2]) == tlsHandshake {
		return h, fmt.Errorf("%w: the peer uses TLS and this member does not", errHandshake)
	}
	if string(start[:4]) != helloMagic {
		return h, fmt.Errorf("%w: it begins with % x, which no member sends", errHandshake, start)
	}
	h.version = binary.BigEndian.Uint16(start[4:])
	if h.version < lowest || h.version > highest {
		return h, ErrOtherVersion
	}
	var room [helloMax]byte
	head := headSizeOf(h.version)
	b := room[:head]
	if _, err := io.ReadFull(r, b); err != nil {
		return h, cutShort(err)
	}
	if n := addressSize(b); n > addressMax {
		return h, fmt.Errorf("%w: address of %d bytes", errHandshake, n)
	}
	size := helloSize(b)
	body := size - 4
	b = room[:size]
	if _, err := io.ReadFull(r, b[head:]); err != nil {
		return h, cutShort(err)
	}
	if crc32.Checksum(b[:body], castagnoli) != binary.BigEndian.Uint32(b[body:]) {
		return h, fmt.Errorf("%w: checksum of the hello", errHandshake)
	}
	return parseHello(b[:body])
}

// parseHello parses a hello whose checksum is right.
func parseHello(b []byte) (hello, error) {
	h := hello{version: binary.BigEndian.Uint16(b[4:]), purpose: purpose(b[6])}
	if h.purpose < forMessages || h.purpose > forQuestion {
		return h, fmt.Errorf("%w: purpose %d", errHandshake, b[6])
	}
	copy(h.Digest[:], b[8:40])
	h.Member = binary.BigEndian.Uint64(b[40:])
	h.wanted = binary.BigEndian.Uint64(b[48:])
	copy(h.Directory[:], b[56:72])
	h.Start = binary.BigEndian.Uint64(b[72:])
	copy(h.nonce[:], b[80:96])
	h.Run = binary.BigEndian.Uint64(b[96:])
	h.Tick = time.Duration(binary.BigEndian.Uint64(b[104:]))
	at := func(i int) uint32 { return binary.BigEndian.Uint32(b[i:]) }
	h.Levels, h.Level = Levels{Min: at(112), Max: at(116)}, at(120)
	copy(h.Lineage[:], b[124:])
	if h.Levels.Min > h.Levels.Max {
		return h, fmt.Errorf("%w: the build reads %v", errHandshake, h.Levels)
	}
	states, address := b[headSizeOf(h.version):len(b)-addressSize(b)], string(b[len(b)-addressSize(b):])
	for ; len(states) > 0; states = states[stateSize:] {
		h.Shards = append(h.Shards, parseState(states))
	}
	if h.Address = travelling(address); h.Address != address {
		return h, fmt.Errorf("%w: unprintable address", errHandshake)
	}
	return h, nil
}

func parseState(b []byte) ShardState {
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return ShardState{Term: at(0), Vote: at(1), Last: at(2), Held: Held{Term: at(3), Commit: at(4), CommitTerm: at(5), CommitSum: at(6)}}
}

// appendVerdict appends the verdict on a hello. A nil Refusal accepts.
func (h *hello) appendVerdict(b []byte, r *Refusal) []byte {
	n := len(b)
	var code uint16
	var text string
	if r != nil {
		code, text = r.code(), r.Text[:min(len(r.Text), reasonMax)]
	}
	b = append(b, verdictMagic...)
	b = binary.BigEndian.AppendUint16(b, code)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, h.nonce[:]...)
	b = append(b, text...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

// readVerdict reads the peer's verdict on our hello. A *Refusal comes from the peer; every other
// error is about the bytes. The nonce shows that the verdict answers our hello and is not a replay.
func readVerdict(r *bufio.Reader, nonce [16]byte) error {
	var b [verdictSize + reasonMax]byte
	head := verdictSize - 4
	if _, err := io.ReadFull(r, b[:head]); err != nil {
		return cutShort(err)
	}
	n := int(binary.BigEndian.Uint16(b[6:]))
	code := binary.BigEndian.Uint16(b[4:])
	switch {
	case string(b[:4]) != verdictMagic:
		return fmt.Errorf("%w: verdict begins with % x", errHandshake, b[:4])
	case n > reasonMax:
		return fmt.Errorf("%w: reason of %d bytes", errHandshake, n)
	}
	if _, err := io.ReadFull(r, b[head:head+n+4]); err != nil {
		return cutShort(err)
	}
	if crc32.Checksum(b[:head+n], castagnoli) != binary.BigEndian.Uint32(b[head+n:]) {
		return fmt.Errorf("%w: checksum of the verdict", errHandshake)
	}
	if [16]byte(b[8:24]) != nonce {
		return fmt.Errorf("%w: verdict on another hello", errHandshake)
	}
	if code == 0 {
		return nil
	}
	text := printable(string(b[head : head+n]))
	if int(code) >= len(refusalKinds) {
		return &Refusal{Kind: ErrNotAccepted, Text: text}
	}
	return &Refusal{Kind: refusalKinds[code], Text: text}
}

// cutShort returns a clearer error for a connection that ends in the middle of the handshake.
func cutShort(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: the peer closed the connection in the middle", errHandshake)
	}
	return err
}

// printable replaces runes of a peer's text that do not belong in a log.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
