package transport

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Kinds of refusal. Test for them with errors.Is on a *Refusal.
var (
	ErrOtherVersion  = errors.New("other protocol version")
	ErrOtherEnsemble = errors.New("other ensemble")
	ErrNotMember     = errors.New("not a member")
	ErrWrongMember   = errors.New("another member answers at this address")
	ErrNotAccepted   = errors.New("not accepted")
	ErrForgot        = errors.New("has forgotten what it acknowledged")
	ErrOtherTick     = errors.New("other tick")
	ErrOtherHistory  = errors.New("other history")
)

// refusalKinds lists the kinds as they travel. The code of a kind is its place in the list.
var refusalKinds = [...]error{1: ErrOtherVersion, 2: ErrOtherEnsemble, 3: ErrNotMember, 4: ErrWrongMember, 5: ErrNotAccepted,
	6: ErrForgot, 7: ErrOtherTick, 8: ErrOtherHistory}

// A Refusal says why one member does not talk to another. It wraps one of the kinds above.
type Refusal struct {
	Kind error  // one of the kinds of refusal
	Text string // the reason, for people
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

// Final reports whether the refusal is about what the member's directory holds. No restart and no
// other config changes that.
func (r *Refusal) Final() bool {
	return r.Kind == ErrNotAccepted || r.Kind == ErrForgot || r.Kind == ErrOtherHistory
}

// level returns the level at which a refusal is logged. If acknowledged writes are in danger,
// somebody has to act.
func (r *Refusal) level() slog.Level {
	if r.Kind == ErrForgot || r.Kind == ErrOtherHistory {
		return slog.LevelError
	}
	return slog.LevelWarn
}

func refusal(kind error, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// notAccepted is the code of every kind that has no code of its own.
const notAccepted = 5

// code returns the kind as it travels.
func (r *Refusal) code() uint16 {
	for i, k := range refusalKinds {
		if k != nil && r.Kind == k {
			return uint16(i)
		}
	}
	return notAccepted
}

// purpose is what a connection is for.
type purpose uint8

const (
	forMessages purpose = 1
	forSnapshot purpose = 2
)

const (
	helloMagic   = "VvHi"
	verdictMagic = "VvOk"

	protocolVersion = 2
	helloHead       = 112 // a hello up to its shards
	stateSize       = 56
	statesMax       = 255
	helloMax        = helloHead + statesMax*stateSize + 4
	verdictSize     = 28   // without its text
	reasonMax       = 1024 // bytes of a refusal's text

	// handshakeTimeout bounds the handshake, including that of TLS. It is four round trips on the
	// worst of links. A silent peer keeps its place that long.
	handshakeTimeout = 3 * time.Second
)

// errHandshake is wrapped by all errors about the bytes of a handshake.
var errHandshake = errors.New("malformed handshake")

// A hello is the first message of each side.
type hello struct {
	Identity
	purpose purpose
	wanted  uint64 // the member that it is meant for
	nonce   [16]byte
}

// helloSize returns the size of a hello from its first eight bytes.
func helloSize(b []byte) int { return helloHead + int(b[7])*stateSize + 4 }

// marshal appends the hello as it travels.
func (h *hello) marshal(b []byte) []byte {
	n := len(b)
	b = append(b, helloMagic...)
	b = binary.BigEndian.AppendUint16(b, protocolVersion)
	b = append(b, byte(h.purpose), byte(len(h.Shards)))
	b = append(b, h.Digest[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Member)
	b = binary.BigEndian.AppendUint64(b, h.wanted)
	b = append(b, h.Directory[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Start)
	b = append(b, h.nonce[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Run)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Tick))
	for _, s := range h.Shards {
		for _, n := range [...]uint64{s.Term, s.Vote, s.Last, s.Held.Term, s.Held.Commit, s.Held.CommitTerm, s.Held.CommitSum} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

// tlsHandshake is the start of a connection with TLS.
const tlsHandshake = "\x16\x03"

// readHello reads a hello. Magic and version come first and have the same place in every version.
// So a member can tell the peer that their versions differ. The error is then a *Refusal.
func readHello(r *bufio.Reader) (hello, error) {
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
	if v := binary.BigEndian.Uint16(start[4:]); v != protocolVersion {
		return h, refusal(ErrOtherVersion, "one side speaks version %d of the protocol between members, the other %d", v, protocolVersion)
	}
	var room [helloMax]byte
	b := room[:helloHead]
	if _, err := io.ReadFull(r, b); err != nil {
		return h, cutShort(err)
	}
	size := helloSize(b)
	body := size - 4
	b = room[:size]
	if _, err := io.ReadFull(r, b[helloHead:]); err != nil {
		return h, cutShort(err)
	}
	if crc32.Checksum(b[:body], castagnoli) != binary.BigEndian.Uint32(b[body:]) {
		return h, fmt.Errorf("%w: checksum of the hello", errHandshake)
	}
	return parseHello(b[:body])
}

// parseHello parses a hello whose checksum is right.
func parseHello(b []byte) (hello, error) {
	var h hello
	h.purpose = purpose(b[6])
	if h.purpose != forMessages && h.purpose != forSnapshot {
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
	for b = b[helloHead:]; len(b) > 0; b = b[stateSize:] {
		h.Shards = append(h.Shards, parseState(b))
	}
	return h, nil
}

func parseState(b []byte) ShardState {
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return ShardState{Term: at(0), Vote: at(1), Last: at(2), Held: Held{Term: at(3), Commit: at(4), CommitTerm: at(5), CommitSum: at(6)}}
}

// appendVerdict appends the verdict on the hello with this nonce. A nil Refusal accepts.
func appendVerdict(b []byte, nonce [16]byte, r *Refusal) []byte {
	n := len(b)
	var code uint16
	var text string
	if r != nil {
		code, text = r.code(), r.Text[:min(len(r.Text), reasonMax)]
	}
	b = append(b, verdictMagic...)
	b = binary.BigEndian.AppendUint16(b, code)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, nonce[:]...)
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

// newHello returns this member's hello to another. A peer that is not recognised gets nothing that
// it could use as its own identity, and its hello costs no read of the log.
func (t *Transport) newHello(p purpose, wanted uint64, recognised bool) hello {
	h := hello{Identity: t.o.Self, purpose: p, wanted: wanted}
	rand.Read(h.nonce[:]) // never fails
	if !recognised {
		h.Identity = Identity{Member: h.Member}
	}
	if !recognised || t.o.Held == nil {
		return h
	}
	h.Shards = slices.Clone(h.Shards)
	for i := range h.Shards {
		h.Shards[i].Held = t.o.Held(i)
	}
	return h
}

// tickRatio is how many times longer the tick of one member may be than that of another. A slow
// leader sends a heartbeat every other tick. A fast follower loses patience after ten ticks of its
// own or more. At this ratio it gets two heartbeats in that time. Elections take as long as the
// slower member needs. Session timeouts are at least three ticks of the faster member. One step of
// a change of the tick must stay within the ratio.
const tickRatio = 2

// accept decides whether a recognised peer may talk to this member.
func (t *Transport) accept(h hello) *Refusal {
	if no := t.compareTicks(h); no != nil {
		return no
	}
	if t.o.Accept != nil {
		if err := t.o.Accept(h.Identity); err != nil {
			if no, ok := err.(*Refusal); ok {
				return no
			}
			return &Refusal{Kind: ErrNotAccepted, Text: err.Error()}
		}
	}
	return t.promises.accept(h.Identity)
}

// compareTicks refuses a peer whose tick is too far from this member's. It warns of a smaller
// difference.
func (t *Transport) compareTicks(h hello) *Refusal {
	ours, theirs := t.o.Self.Tick, h.Tick
	switch {
	case ours == theirs || ours == 0 || theirs == 0:
		return nil
	case max(ours, theirs)/tickRatio > min(ours, theirs) || theirs < 0:
		return refusal(ErrOtherTick, "Tick is %v on member %d and %v on member %d: elections cannot work; set the same Tick in every config, or change it member by member by at most a factor of %d at a time",
			theirs, h.Member, ours, t.o.Self.Member, tickRatio)
	}
	t.notices.give(slog.LevelWarn, notice{event: "another tick than this member's", peer: h.Member}, "tick", theirs, "own", ours)
	return nil
}

// recognise decides whether a peer is the member that it says it is, as far as the configs show.
func (t *Transport) recognise(h hello) *Refusal {
	self := t.o.Self
	switch {
	case h.Digest != self.Digest:
		return refusal(ErrOtherEnsemble, "member %d was founded as another ensemble than member %d (digests %x and %x): ids of Members, Shards and Ensemble must be the same in every config",
			h.Member, self.Member, h.Digest[:4], self.Digest[:4])
	case h.Member == self.Member:
		return refusal(ErrWrongMember, "both sides say they are member %d: check ID and the addresses in Members", self.Member)
	case !t.members[h.Member]:
		return refusal(ErrNotMember, "member %d is not among the members that member %d knows", h.Member, self.Member)
	case h.wanted != self.Member:
		return refusal(ErrWrongMember, "member %d looked for member %d and found member %d: check the addresses in Members", h.Member, h.wanted, self.Member)
	}
	return nil
}

// acceptHandshake does the handshake of the side that accepted.
func (t *Transport) acceptHandshake(conn net.Conn, r *bufio.Reader) (hello, error) {
	h, err := readHello(r)
	var no *Refusal
	if err != nil && !errors.As(err, &no) {
		return h, err
	}
	if no == nil {
		no = t.recognise(h)
	}
	own := t.newHello(max(h.purpose, forMessages), h.Member, no == nil)
	if no == nil {
		no = t.accept(h)
	}
	if _, err := conn.Write(appendVerdict(own.marshal(nil), h.nonce, no)); err != nil {
		return h, err
	}
	if no != nil {
		return h, no
	}
	err = readVerdict(r, own.nonce)
	if no, ok := err.(*Refusal); ok {
		// Only for the log. A peer that connects to us may be anybody. Only the peer at an address
		// of our own config counts (askBack).
		err = &refusedError{peer: h.Member, reason: no}
	}
	return h, err
}

// dialHandshake does the handshake of the side that dialled.
func (t *Transport) dialHandshake(conn net.Conn, r *bufio.Reader, member uint64, p purpose) error {
	own := t.newHello(p, member, true)
	if _, err := conn.Write(own.marshal(nil)); err != nil {
		return err
	}
	h, err := readHello(r)
	if err != nil {
		return err
	}
	doubt := t.recognise(h)
	if doubt == nil && h.Member != member {
		doubt = refusal(ErrWrongMember, "member %d looked for member %d and found member %d: check the addresses in Members", t.o.Self.Member, member, h.Member)
	}
	if err := readVerdict(r, own.nonce); err != nil {
		if no, ok := err.(*Refusal); ok && no.Final() && doubt != nil {
			err = doubt // a peer that is not recognised has no say in this
		}
		return t.refusedBy(member, err)
	}
	if doubt == nil {
		doubt = t.accept(h)
	}
	if _, err := conn.Write(appendVerdict(nil, h.nonce, doubt)); err != nil {
		return err
	}
	if doubt != nil {
		return doubt
	}
	return nil
}

// A refusedError says that the peer refused this member.
type refusedError struct {
	peer   uint64
	reason *Refusal
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("member %d refuses this one: %s", e.peer, e.reason.Text)
}

func (e *refusedError) Unwrap() error { return e.reason }

// refusedBy calls Options.Refused if err is the peer's refusal.
func (t *Transport) refusedBy(peer uint64, err error) error {
	no, ok := err.(*Refusal)
	if !ok {
		return err
	}
	if t.o.Refused != nil {
		t.o.Refused(peer, no)
	}
	return &refusedError{peer: peer, reason: no}
}

// dial connects to a member and does the handshake. The connection is adopted; the caller releases
// it.
func (t *Transport) dial(life context.Context, member uint64, p purpose) (net.Conn, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(life, dialTimeout)
	defer cancel()
	conn, err := t.o.Network.Dial(ctx, member)
	if err != nil {
		return nil, nil, err
	}
	if !t.adopt(conn) {
		return nil, nil, ErrShut
	}
	stop := context.AfterFunc(life, func() { cut(conn) })
	defer stop()
	r := bufio.NewReaderSize(conn, answerBuffer)
	if err := t.dialHandshakeInTime(conn, r, member, p); err != nil {
		t.release(conn)
		return nil, nil, err
	}
	return conn, r, nil
}

// dialHandshakeInTime does dialHandshake with its deadline.
func (t *Transport) dialHandshakeInTime(conn net.Conn, r *bufio.Reader, member uint64, p purpose) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := t.dialHandshake(conn, r, member, p); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
