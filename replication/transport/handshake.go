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
	ErrOtherLevel    = errors.New("other level")
	ErrOtherLineage  = errors.New("other lineage")
)

// refusalKinds lists the kinds as they travel. The code of a kind is its place in the list.
var refusalKinds = [...]error{1: ErrOtherVersion, 2: ErrOtherEnsemble, 3: ErrNotMember, 4: ErrWrongMember, 5: ErrNotAccepted,
	6: ErrForgot, 7: ErrOtherTick, 8: ErrOtherHistory, 9: ErrOtherLevel, 10: ErrOtherLineage}

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

// Codes that stand for other kinds too.
const (
	otherVersion  = 1 // for ErrOtherLevel in version 2, whose members may be replaced by a newer build
	otherEnsemble = 2 // for ErrOtherLineage before version 4
	notAccepted   = 5 // for every kind that has no code of its own
)

// code returns the kind as it travels in a version of the protocol. A build takes a code that it
// does not know for notAccepted, and stops for good.
func (r *Refusal) code(version uint16) uint16 {
	switch {
	case version < 3 && r.Kind == ErrOtherLevel:
		return otherVersion
	case version < 4 && r.Kind == ErrOtherLineage:
		return otherEnsemble
	}
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

	// This build speaks these versions of the protocol and all between them.
	protocolMin = 2
	protocolMax = 4

	helloStart  = 112 // a hello up to where the versions differ
	levelsSize  = 12  // since version 3
	lineageSize = 16  // since version 4
	stateSize   = 56
	statesMax   = 255
	helloMax    = helloStart + levelsSize + lineageSize + statesMax*stateSize + 4
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

// helloHead returns the size of a hello of a version up to its shards.
func helloHead(version uint16) int {
	switch version {
	case 2:
		return helloStart
	case 3:
		return helloStart + levelsSize
	}
	return helloStart + levelsSize + lineageSize
}

// helloSize returns the size of a hello from its first eight bytes.
func helloSize(b []byte) int {
	return helloHead(binary.BigEndian.Uint16(b[4:])) + int(b[7])*stateSize + 4
}

// marshal appends the hello as it travels.
func (h *hello) marshal(b []byte) []byte {
	n := len(b)
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
	if h.version > 2 {
		for _, n := range [...]uint32{h.Levels.Min, h.Levels.Max, h.Level} {
			b = binary.BigEndian.AppendUint32(b, n)
		}
	}
	if h.version > 3 {
		b = append(b, h.Lineage[:]...)
	}
	for _, s := range h.Shards {
		for _, n := range [...]uint64{s.Term, s.Vote, s.Last, s.Held.Term, s.Held.Commit, s.Held.CommitTerm, s.Held.CommitSum} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
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
	head := helloHead(h.version)
	b := room[:head]
	if _, err := io.ReadFull(r, b); err != nil {
		return h, cutShort(err)
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
	h.Levels, h.Level = Levels{Min: 1, Max: 1}, 1 // of every build of version 2
	if h.version > 2 {
		at := func(i int) uint32 { return binary.BigEndian.Uint32(b[helloStart+4*i:]) }
		h.Levels, h.Level = Levels{Min: at(0), Max: at(1)}, at(2)
	}
	if h.version > 3 {
		copy(h.Lineage[:], b[helloStart+levelsSize:])
	}
	if h.Levels.Min > h.Levels.Max {
		return h, fmt.Errorf("%w: the build reads %v", errHandshake, h.Levels)
	}
	for b = b[helloHead(h.version):]; len(b) > 0; b = b[stateSize:] {
		h.Shards = append(h.Shards, parseState(b))
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
		code, text = r.code(h.version), r.Text[:min(len(r.Text), reasonMax)]
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

// newHello returns this member's hello to another. A peer that is not recognised gets nothing that
// it could use as its own identity, and its hello costs no read of the log.
func (t *Transport) newHello(version uint16, p purpose, wanted uint64, recognised bool) hello {
	h := hello{Identity: t.o.Self, version: version, purpose: p, wanted: wanted}
	rand.Read(h.nonce[:]) // never fails
	if !recognised {
		h.Identity = Identity{Member: h.Member}
		return h
	}
	h.Level, h.Lineage = t.level(), t.lineage()
	if t.o.Held == nil {
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
	t.recordLevels(h.Member, h.Levels)
	if no := t.compareLevels(h); no != nil {
		return no
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

// level returns the level in use on this member.
func (t *Transport) level() uint32 {
	if t.o.Level == nil {
		return 1
	}
	return t.o.Level()
}

// lineage returns the ensemble's lineage as far as this member knows it.
func (t *Transport) lineage() (l [16]byte) {
	if t.o.Lineage != nil {
		l = t.o.Lineage()
	}
	return l
}

// compareLevels refuses a peer if its build or this one does not read the level in use on the other
// side. The lowest levels do not matter: a member whose shards lag behind is at an older level than
// the ensemble, and gets the newer one with its next entries.
func (t *Transport) compareLevels(h hello) *Refusal {
	inUse := max(t.level(), h.Level)
	for _, m := range [...]*Identity{&h.Identity, &t.o.Self} {
		if m.Levels.Max < inUse {
			return refusal(ErrOtherLevel, "the ensemble is at level %d and member %d's build reads %v: start a build on member %d that reads level %d",
				inUse, m.Member, m.Levels, m.Member, inUse)
		}
	}
	return nil
}

// recognise decides whether a peer is the member that it says it is, as far as configs and lineages
// show. A peer that is not recognised cannot make this member fail: of two ensembles with the same
// config, each would make the other's members fail.
func (t *Transport) recognise(h hello) *Refusal {
	self, own := t.o.Self, t.lineage()
	switch {
	case h.Digest != self.Digest:
		return refusal(ErrOtherEnsemble, "member %d was founded as another ensemble than member %d (digests %x and %x): ids of Members, Shards and Ensemble must be the same in every config",
			h.Member, self.Member, h.Digest[:4], self.Digest[:4])
	case h.Member == self.Member:
		return refusal(ErrWrongMember, "both sides say they are member %d: check ID and the addresses in Members", self.Member)
	case !t.members[h.Member]:
		return refusal(ErrNotMember, "member %d is not among the members that member %d knows", h.Member, self.Member)
	case h.Lineage != own && h.Lineage != ([16]byte{}) && own != ([16]byte{}):
		return refusal(ErrOtherLineage, "member %d is of another lineage than member %d (%x, not %x): both were founded with the same config, apart from each other, and their data do not mix: check the addresses in Members, and start member %d on a directory of this ensemble",
			h.Member, self.Member, h.Lineage[:8], own[:8], h.Member)
	case h.wanted != self.Member:
		return refusal(ErrWrongMember, "member %d looked for member %d and found member %d: check the addresses in Members", h.Member, h.wanted, self.Member)
	}
	return nil
}

// acceptHandshake does the handshake of the side that accepted. It answers in the version of the
// dialler's hello. If this build does not speak that, it answers in its highest version: the
// dialler can then dial again with a version that both speak.
func (t *Transport) acceptHandshake(conn net.Conn, r *bufio.Reader) (hello, error) {
	h, err := readHello(r, protocolMin, t.o.highest)
	var no *Refusal
	version := h.version
	switch {
	case err == ErrOtherVersion:
		no, version = t.unspoken(h.version), t.o.highest
	case err != nil:
		return h, err
	default:
		no = t.recognise(h)
	}
	own := t.newHello(version, max(h.purpose, forMessages), h.Member, no == nil)
	if no == nil {
		no = t.accept(h)
	}
	if _, err := conn.Write(h.appendVerdict(own.marshal(nil), no)); err != nil {
		return h, err
	}
	if no != nil {
		return h, t.withFoundings(r, h.version, own.nonce, no)
	}
	err = readVerdict(r, own.nonce)
	if no, ok := err.(*Refusal); ok {
		// Only for the log. A peer that connects to us may be anybody. Only the peer at an address
		// of our own config counts (askBack).
		err = &refusedError{peer: h.Member, reason: no}
	}
	return h, err
}

// withFoundings adds to the refusal of another ensemble, for this member's log, what both sides were
// founded as. The peer says it in its verdict, from version 3 of the protocol on: see
// refusedAsOther.
func (t *Transport) withFoundings(r *bufio.Reader, version uint16, nonce [16]byte, no *Refusal) *Refusal {
	if no.Kind != ErrOtherEnsemble || t.o.Founding == "" {
		return no
	}
	text := no.Text + "; " + t.founding()
	if version > 2 {
		if theirs, ok := readVerdict(r, nonce).(*Refusal); ok && theirs.Kind == ErrOtherEnsemble {
			text += ", " + theirs.Text
		}
	}
	return &Refusal{Kind: no.Kind, Text: text}
}

// refusedAsOther tells the member that was dialled what this member was founded as. That member has
// refused it as one of another ensemble, and has its digest already.
func (t *Transport) refusedAsOther(conn net.Conn, h hello, no *Refusal) *Refusal {
	if t.o.Founding == "" {
		return no
	}
	_, _ = conn.Write(h.appendVerdict(nil, refusal(ErrOtherEnsemble, "%s", t.founding()))) // only for the peer's log
	return &Refusal{Kind: no.Kind, Text: no.Text + "; " + t.founding()}
}

func (t *Transport) founding() string {
	return fmt.Sprintf("member %d has %s", t.o.Self.Member, t.o.Founding)
}

// unspoken refuses a hello of a version that this build does not speak. It cannot read who sent it.
func (t *Transport) unspoken(version uint16) *Refusal {
	next := "the peer may offer one of these next"
	if version < protocolMin {
		next = "start a newer build on the peer"
	}
	return refusal(ErrOtherVersion, "the peer offers version %d of the protocol between members, member %d speaks versions %d to %d: %s",
		version, t.o.Self.Member, protocolMin, t.o.highest, next)
}

// dialHandshake does the handshake of the side that dialled, in a version of the protocol.
func (t *Transport) dialHandshake(conn net.Conn, r *bufio.Reader, member uint64, p purpose, version uint16) error {
	own := t.newHello(version, p, member, true)
	// A peer that does not speak the version answers after the first bytes, and closes the
	// connection. So there may be an answer even if the rest could not be written.
	_, unwritten := conn.Write(own.marshal(nil))
	h, err := readHello(r, version, version)
	switch {
	case err == ErrOtherVersion:
		return t.answeredIn(h.version, member)
	case unwritten != nil && !errors.Is(err, errOwnExpired):
		return unwritten
	case err != nil:
		return err
	}
	doubt := t.recognise(h)
	if doubt == nil && h.Member != member {
		doubt = refusal(ErrWrongMember, "member %d looked for member %d and found member %d: check the addresses in Members", t.o.Self.Member, member, h.Member)
	}
	if err := readVerdict(r, own.nonce); err != nil {
		switch no, ok := err.(*Refusal); {
		case ok && no.Kind == ErrOtherEnsemble:
			err = t.refusedAsOther(conn, h, no)
		case ok && no.Final() && doubt != nil:
			err = doubt // a peer that is not recognised has no say in this
		}
		return t.refusedBy(member, err)
	}
	if doubt == nil {
		doubt = t.accept(h)
	}
	if _, err := conn.Write(h.appendVerdict(nil, doubt)); err != nil {
		return err
	}
	if doubt != nil {
		return doubt
	}
	return nil
}

// A versionError says that the peer does not speak the version that was offered, but another one
// that this build speaks.
type versionError struct{ version uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("the peer now speaks version %d of the protocol between members: its build was replaced", e.version)
}

// answeredIn returns the error for an answer in another version than was offered. The verdict after
// it says nothing more. It cannot even name our nonce, because the peer has not read it.
func (t *Transport) answeredIn(version uint16, member uint64) error {
	if protocolMin <= version && version <= t.o.highest {
		return &versionError{version}
	}
	old := member
	if version > t.o.highest {
		old = t.o.Self.Member
	}
	return refusal(ErrOtherVersion, "member %d answers in version %d of the protocol between members, member %d speaks versions %d to %d: start a newer build on member %d",
		member, version, t.o.Self.Member, protocolMin, t.o.highest, old)
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

// dial connects to a member and does the handshake. It offers the highest version of the protocol,
// and dials once more if the peer answers that it speaks only a lower one. It remembers nothing of
// that, so a peer with a newer build is met at its highest version the next time. The connection is
// adopted; the caller releases it.
func (t *Transport) dial(life context.Context, member uint64, p purpose) (net.Conn, *bufio.Reader, error) {
	conn, r, err := t.dialIn(life, member, p, t.o.highest)
	if other, ok := err.(*versionError); ok {
		return t.dialIn(life, member, p, other.version)
	}
	return conn, r, err
}

// dialIn dials in a version of the protocol.
func (t *Transport) dialIn(life context.Context, member uint64, p purpose, version uint16) (net.Conn, *bufio.Reader, error) {
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
	if err := t.dialHandshakeInTime(conn, r, member, p, version); err != nil {
		t.release(conn)
		return nil, nil, err
	}
	return conn, r, nil
}

// dialHandshakeInTime does dialHandshake with its deadline.
func (t *Transport) dialHandshakeInTime(conn net.Conn, r *bufio.Reader, member uint64, p purpose, version uint16) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := t.dialHandshake(conn, r, member, p, version); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}
