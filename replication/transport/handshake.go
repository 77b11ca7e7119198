package transport

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
)

// newHello returns this member's hello to a member that it knows.
func (t *Transport) newHello(version uint16, p purpose, wanted uint64) hello {
	h := t.shortHello(version, p, wanted)
	if t.o.Held == nil {
		h.Shards = t.self().Shards
		return h
	}
	h.Shards = slices.Clone(t.self().Shards)
	for i := range h.Shards {
		h.Shards[i].Held = t.o.Held(i)
	}
	return h
}

// shortHello returns a hello without the state of the shards. It shows a member that was removed or
// superseded who tells it so, and costs no read of the log.
func (t *Transport) shortHello(version uint16, p purpose, wanted uint64) hello {
	h := t.bareHello(version, p, wanted)
	h.Identity = *t.self()
	h.Level, h.Lineage, h.Shards = t.level(), t.lineage(), nil
	return h
}

// bareHello returns the hello to a peer that is not recognised. It has nothing that the peer could
// use as its own identity.
func (t *Transport) bareHello(version uint16, p purpose, wanted uint64) hello {
	h := hello{Identity: Identity{Member: t.self().Member}, version: version, purpose: p, wanted: wanted}
	rand.Read(h.nonce[:]) // never fails
	return h
}

// reply returns the acceptor's hello to a dialler that recognise has judged.
func (t *Transport) reply(h hello, version uint16, no *Refusal) hello {
	p := max(h.purpose, forMessages)
	switch {
	case p == forQuestion:
		return t.bareHello(version, p, h.Member)
	case no == nil:
		return t.newHello(version, p, h.Member)
	case no.Kind == ErrRemoved, no.Kind == ErrSuperseded:
		return t.shortHello(version, p, h.Member)
	}
	return t.bareHello(version, p, h.Member)
}

// TickRatio is how many times longer the tick of one member may be than that of another. A slow
// leader sends a heartbeat every other tick. A fast follower loses patience after ten ticks of its
// own or more. At this ratio it gets two heartbeats in that time. Elections take as long as the
// slower member needs. Session timeouts are at least three ticks of the faster member. One step of
// a change of the tick must stay within the ratio.
const TickRatio = 2

// superseded reports whether a peer of another lineage tells this member that a recovery has ended
// its own. Nobody else is of the same founding and knows this member's lineage.
func (t *Transport) superseded(no, doubt *Refusal) bool {
	return no.Kind == ErrSuperseded && doubt.Kind == ErrOtherLineage
}

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
	return t.role.Load().promises.accept(h.Identity)
}

// compareTicks refuses a peer whose tick is too far from this member's. It warns of a smaller
// difference.
func (t *Transport) compareTicks(h hello) *Refusal {
	self := t.self()
	ours, theirs := self.Tick, h.Tick
	switch {
	case ours == theirs || ours == 0 || theirs == 0:
		return nil
	case max(ours, theirs)/TickRatio > min(ours, theirs) || theirs < 0:
		return refusal(ErrOtherTick, "Tick is %v on member %d and %v on member %d: elections cannot work; set the same Tick in every config, or change it member by member by at most a factor of %d at a time",
			theirs, h.Member, ours, self.Member, TickRatio)
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
	for _, m := range [...]*Identity{&h.Identity, t.self()} {
		if m.Levels.Max < inUse {
			return refusal(ErrOtherLevel, "the ensemble is at level %d and member %d's build reads %v: start a build on member %d that reads level %d",
				inUse, m.Member, m.Levels, m.Member, inUse)
		}
	}
	return nil
}

// recognise decides whether a peer is the member that it says it is, as far as configs, lineages
// and Options.Knows show. A peer that is not recognised cannot make this member fail: of two
// ensembles with the same config, each would make the other's members fail.
func (t *Transport) recognise(h hello) *Refusal {
	self, own := t.self(), t.lineage()
	switch {
	case h.Digest != self.Digest:
		return refusal(ErrOtherEnsemble, "member %d was founded as another ensemble than member %d (digests %x and %x): ids of Members, Shards and Ensemble must be the same in every config",
			h.Member, self.Member, h.Digest[:4], self.Digest[:4])
	case h.Member == 0:
		return refusal(ErrNotMember, "the peer does not say which member it is")
	case h.Member == self.Member:
		return refusal(ErrWrongMember, "both sides say they are member %d: check ID and the addresses in Members", self.Member)
	case t.o.Ancestor != nil && t.o.Ancestor(h.Lineage):
		return refusal(ErrSuperseded, "member %d is of the lineage %x, which a forced recovery has ended; member %d goes on as %x, without what member %d may have acknowledged since: start member %d again to let it join as a new member, which drops its data (docs/runbook.md: The majority is lost for good)",
			h.Member, h.Lineage[:8], self.Member, own[:8], h.Member, h.Member)
	case h.Lineage != own && h.Lineage != ([16]byte{}) && own != ([16]byte{}):
		return refusal(ErrOtherLineage, "member %d is of another lineage than member %d (%x, not %x): both were founded with the same config, or recovered from one ensemble, apart from each other, and their data do not mix: check the addresses in Members, and start member %d on a directory of this ensemble",
			h.Member, self.Member, h.Lineage[:8], own[:8], h.Member)
	}
	// The ids of another lineage mean other members, so they are judged last.
	if no := t.knows(h.Member); no != nil {
		return no
	}
	if h.wanted != self.Member {
		return refusal(ErrWrongMember, "member %d looked for member %d and found member %d: check the addresses in Members", h.Member, h.wanted, self.Member)
	}
	return nil
}

// knows returns why a member may not talk to this one, or nil.
func (t *Transport) knows(member uint64) *Refusal {
	if t.o.Knows == nil {
		return nil
	}
	return t.o.Knows(member)
}

// mayBegin refuses messages and snapshots while nobody here receives them.
func (t *Transport) mayBegin() *Refusal {
	switch self := t.self(); {
	case self.Member == 0:
		return refusal(ErrNotMember, "the node at this address is no member yet: it has to join or to found an ensemble first")
	case t.handlers.Load() == nil:
		return refusal(ErrNotMember, "member %d has not started yet", self.Member)
	}
	return nil
}

// judge decides whether a dialler may go on, before this member says who it is.
func (t *Transport) judge(conn net.Conn, h hello) *Refusal {
	if h.purpose == forQuestion {
		return t.admitQuestion(conn)
	}
	if no := t.mayBegin(); no != nil {
		return no
	}
	return t.recognise(h)
}

// acceptHandshake does the handshake of the side that accepted. It answers in the version of the
// dialler's hello. If this build does not speak that, it answers in its highest version: the
// dialler can then dial again with a version that both speak.
func (t *Transport) acceptHandshake(conn net.Conn, r *bufio.Reader) (hello, error) {
	h, err := readHello(r, protocolMin, t.o.Highest)
	var no *Refusal
	version := h.version
	switch {
	case err == ErrOtherVersion:
		no, version = t.unspoken(h.version), t.o.Highest
	case err != nil:
		return h, err
	default:
		no = t.judge(conn, h)
	}
	own := t.reply(h, version, no)
	if no == nil && h.purpose != forQuestion {
		no = t.accept(h)
	}
	if _, err := conn.Write(h.appendVerdict(own.marshal(nil), no)); err != nil {
		return h, err
	}
	if no != nil {
		return h, t.withFoundings(r, own.nonce, no)
	}
	err = readVerdict(r, own.nonce)
	if no, ok := err.(*Refusal); ok && h.purpose != forQuestion {
		// Only for the log. A peer that connects to us may be anybody. Only the peer at an address
		// of our own config counts (askBack).
		err = &refusedError{peer: h.Member, reason: no}
	}
	if err == nil {
		t.met(h)
	}
	return h, err
}

// met tells where a peer says that it is reached. A hello of a question does not say it.
func (t *Transport) met(h hello) {
	if t.o.Met != nil && h.Address != "" && h.purpose != forQuestion {
		t.o.Met(h.Member, h.Address)
	}
}

// withFoundings adds to the refusal of another ensemble, for this member's log, what both sides
// were founded as. The peer says it in its verdict: see refusedAsOther.
func (t *Transport) withFoundings(r *bufio.Reader, nonce [16]byte, no *Refusal) *Refusal {
	if no.Kind != ErrOtherEnsemble || t.role.Load().founding == "" {
		return no
	}
	text := no.Text + "; " + t.founding()
	if theirs, ok := readVerdict(r, nonce).(*Refusal); ok && theirs.Kind == ErrOtherEnsemble {
		text += ", " + theirs.Text
	}
	return &Refusal{Kind: no.Kind, Text: text}
}

// refusedAsOther tells the member that was dialled what this member was founded as. That member has
// refused it as one of another ensemble, and has its digest already.
func (t *Transport) refusedAsOther(conn net.Conn, h hello, no *Refusal) *Refusal {
	if t.role.Load().founding == "" {
		return no
	}
	_, _ = conn.Write(h.appendVerdict(nil, refusal(ErrOtherEnsemble, "%s", t.founding()))) // only for the peer's log
	return &Refusal{Kind: no.Kind, Text: no.Text + "; " + t.founding()}
}

func (t *Transport) founding() string {
	r := t.role.Load()
	return fmt.Sprintf("member %d has %s", r.self.Member, r.founding)
}

// unspoken refuses a hello of a version that this build does not speak. It cannot read who sent it.
func (t *Transport) unspoken(version uint16) *Refusal {
	next := "the peer may offer one of these next"
	if version < protocolMin {
		next = "start a newer build on the peer"
	}
	return refusal(ErrOtherVersion, "the peer offers version %d of the protocol between members, %s speaks versions %d to %d: %s",
		version, t.self().name(), protocolMin, t.o.Highest, next)
}

// dialHandshake does the handshake of the side that dialled, in a version of the protocol.
func (t *Transport) dialHandshake(conn net.Conn, r *bufio.Reader, member uint64, p purpose, version uint16) error {
	own := t.newHello(version, p, member)
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
		doubt = refusal(ErrWrongMember, "member %d looked for member %d and found member %d: check the addresses in Members", t.self().Member, member, h.Member)
	}
	if err := readVerdict(r, own.nonce); err != nil {
		switch no, ok := err.(*Refusal); {
		case ok && no.Kind == ErrOtherEnsemble:
			err = t.refusedAsOther(conn, h, no)
		case ok && no.Final() && doubt != nil && !t.superseded(no, doubt):
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
	t.met(h)
	return nil
}
