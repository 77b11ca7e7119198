package transport

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"slices"
)

// strangersMax bounds the ids about which something is remembered although Options.Members does not
// have them. A member that was down for long meets others that its log does not have yet, and an
// ensemble has no more than that. But anybody who knows the founding can also claim any id. When one
// more comes, all others are forgotten and their connections are closed: whoever is a member
// connects again at once.
const strangersMax = 1000

// A Peer is the state of the connections between this member and another one.
type Peer struct {
	Member  uint64
	Reached bool // this member has a connection to it
	Heard   bool // the peer has a connection to this member

	Err       error // why the last connection failed or ended; nil before it and while Reached
	RefusedBy error // a *Refusal, if Err says that the peer refuses this member
	Refused   error // a *Refusal, if this member refused the newest peer that claimed this id

	Levels Levels // that the peer's build reads, as it last said; zero if not known
}

// A PeerEvent is what has happened between this member and another one.
type PeerEvent int

// The events.
const (
	PeerConnected PeerEvent = iota
	PeerLost
	PeerRefused // by either side
)

// noteLocked tells of an event.
func (t *Transport) noteLocked(peer uint64, what PeerEvent) {
	if t.o.Noted != nil && !t.shut.Load() {
		t.o.Noted(peer, what)
	}
}

// Peers returns what is known about each of the other members, in the order of their ids. A
// connection is made when there is something to send. A member without a leader soon tries all
// others.
func (t *Transport) Peers() []Peer {
	self, others := t.self().Member, t.others()
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Peer
	for _, id := range others {
		if id == self {
			continue
		}
		p := t.mu.peers[id]
		p.Member = id
		p.Heard = t.mu.served[id] != nil && len(t.mu.served[id].conns) > 0
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Peer) int { return cmp.Compare(a.Member, b.Member) })
	return list
}

// others returns the members that this one knows of.
func (t *Transport) others() []uint64 {
	if t.o.Members != nil {
		return t.o.Members()
	}
	return t.remembered()
}

// remembered returns the members that something is known about.
func (t *Transport) remembered() []uint64 {
	ids := make(map[uint64]struct{})
	for _, id := range t.role.Load().promises.members() {
		ids[id] = struct{}{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.mu.peers {
		ids[id] = struct{}{}
	}
	for id := range t.mu.served {
		ids[id] = struct{}{}
	}
	for id := range t.mu.asked {
		ids[id] = struct{}{}
	}
	for id := range t.mu.meters {
		ids[id] = struct{}{}
	}
	return slices.Collect(maps.Keys(ids))
}

// forgetSome drops what is known of members that were removed, and of strangers if there are too
// many. The ids of removed members are never used again, so without this a long life among
// short-lived members would cost memory. It keeps the newest member.
func (t *Transport) forgetSome(newest uint64) {
	var strangers []uint64
	var known []uint64
	if t.o.Members != nil {
		known = slices.Sorted(slices.Values(t.o.Members()))
	}
	for _, id := range t.remembered() {
		if no := t.knows(id); no != nil && no.Kind == ErrRemoved {
			t.forgetMember(id)
		} else if _, found := slices.BinarySearch(known, id); !found && id != newest {
			strangers = append(strangers, id)
		}
	}
	if len(strangers) < strangersMax {
		return
	}
	for _, id := range strangers {
		for _, conn := range t.forgetMember(id) {
			cut(conn)
		}
	}
}

// forgetMember drops what is known of a member, and returns its connections. They end soon if the
// member was removed; see answerAsk.
func (t *Transport) forgetMember(id uint64) (open []net.Conn) {
	t.mu.Lock()
	delete(t.mu.peers, id)
	delete(t.mu.asked, id)
	delete(t.mu.meters, id)
	if c := t.mu.served[id]; c != nil {
		open = c.conns
		delete(t.mu.served, id)
	}
	t.mu.Unlock()
	t.role.Load().promises.forget(id)
	return open
}

// recordReached records a connection to a peer.
func (t *Transport) recordReached(peer uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.peers[peer] = Peer{Reached: true, Levels: t.mu.peers[peer].Levels}
	t.noteLocked(peer, PeerConnected)
}

// recordNotReached records why there is no connection to a peer.
func (t *Transport) recordNotReached(peer uint64, err error) {
	p := Peer{Err: err}
	var by *refusedError
	var no *Refusal
	switch {
	case errors.Is(err, ErrNotMember): // no verdict: one of the two is no member yet
	case errors.As(err, &by):
		p.RefusedBy = by.reason
	case errors.As(err, &no):
		p.Refused = no
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.metersLocked(peer).noteRefusal(err)
	before := t.mu.peers[peer]
	if before.Reached {
		t.noteLocked(peer, PeerLost)
	}
	if p.RefusedBy != nil && before.RefusedBy == nil || p.Refused != nil && before.Refused == nil {
		t.noteLocked(peer, PeerRefused)
	}
	if p.Levels = before.Levels; p.Refused == nil {
		p.Refused = before.Refused
	}
	t.mu.peers[peer] = p
}

// recordLevels records which levels the build of a peer reads.
func (t *Transport) recordLevels(peer uint64, levels Levels) {
	t.mu.Lock()
	p, known := t.mu.peers[peer]
	p.Levels = levels
	t.mu.peers[peer] = p
	t.mu.Unlock()
	if !known {
		t.forgetSome(peer)
	}
}

// recordVerdict records whether this member refuses a peer that connected to it. It ignores a
// refusal by the peer, because anyone can connect and claim to be a member.
func (t *Transport) recordVerdict(peer uint64, err error) {
	if !slices.Contains(t.others(), peer) {
		return // anybody may claim any id
	}
	var by *refusedError
	var no *Refusal
	if errors.As(err, &by) || errors.Is(err, ErrNotMember) || err != nil && !errors.As(err, &no) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.metersLocked(peer).noteRefusal(err)
	p := t.mu.peers[peer]
	if no != nil && p.Refused == nil {
		t.noteLocked(peer, PeerRefused)
	}
	if p.Refused = nil; no != nil {
		p.Refused = no
	}
	t.mu.peers[peer] = p
}
