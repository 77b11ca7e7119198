package session

import (
	"crypto/subtle"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// An Incarnation is one stream of a member.
type Incarnation struct {
	Member MemberID
	Start  uint64
}

// history is what a session has of the members that speak for it and spoke, beside its origin.
type history struct {
	attached tree.Zxid
	former   []Incarnation
	lost     bool // of one that Purge or DecideEnd was told of: how it ends
}

// lost is how the session ends once it is due.
func (e *entry) lost() bool { return e.extra == nil || e.extra.ended == 0 || e.extra.history.lost }

// attached is zero for an in-process session.
func (e *entry) attached() tree.Zxid {
	if e.extra == nil || e.extra.history == nil {
		return 0
	}
	return e.extra.history.attached
}

func (e *entry) former() []Incarnation {
	if e.extra == nil || e.extra.history == nil {
		return nil
	}
	return e.extra.history.former
}

// Reattach attaches a remote client's session to the member whose accepted batch asks for it, in transaction zxid, which was never
// used before; the table keeps identities. What the member before still asks for the session is refused from now on. A move to
// the member where it is already is how a client comes back, and no other.
//
// The client knows the password. It returns ErrExpired for a session that is unknown, due or closing, ErrNotRemote,
// ErrWrongPassword, or ErrInvalidTimeout, ErrUnregistered and ErrSilent as Open does. Whoever asks is told nothing but that the
// session has expired, so that nobody learns which ids are in use.
func (t *Table) Reattach(id tree.SessionID, password [16]byte, timeout time.Duration, at MemberID, zxid tree.Zxid, identities []tree.Identity) error {
	e, ok := t.sessions[id]
	switch {
	case !ok || e.isDue():
		return ErrExpired
	case e.attached() == 0:
		return ErrNotRemote
	case subtle.ConstantTimeCompare(e.password[:], password[:]) == 0:
		return ErrWrongPassword
	}
	from := t.origins[e.class.origin]
	if err := t.attach(e, timeout, at, zxid, identities); err != nil {
		return err
	}
	x := e.extra
	former := without(x.history.former, at)
	if from.Member != at && len(x.shards) > 0 { // else nothing of it can be on its way to another shard
		former = append(former, Incarnation{Member: from.Member, Start: from.Start})
	}
	x.history.former = former
	return nil
}

// attach takes a session from the class it is in to one of the origin at, which has just been heard: with the session, the new
// origin's silence counts for it, and no longer the old one's.
func (t *Table) attach(e *entry, timeout time.Duration, at MemberID, zxid tree.Zxid, identities []tree.Identity) error {
	if timeout <= 0 {
		return ErrInvalidTimeout
	}
	o, err := t.heard(at)
	if err != nil {
		return err
	}
	t.origins[e.class.origin].remove(e)
	o.add(e, timeout)
	e.extra.history.attached, e.extra.identities = zxid, identities
	t.dirtySessions[e.id] = struct{}{}
	return nil
}

// heard returns an origin whose newest entry in the log is an accepted batch.
func (t *Table) heard(at MemberID) (*origin, error) {
	o, ok := t.origins[at]
	if !ok || o.Start == 0 {
		return nil, ErrUnregistered
	}
	if o.LastSeq == 0 || o.Silence > 0 {
		return nil, ErrSilent
	}
	return o, nil
}

// SetIdentities replaces what a session has authenticated as; the table keeps identities. It returns ErrExpired or ErrAttachedElsewhere as Usable
// does.
func (t *Table) SetIdentities(id tree.SessionID, at MemberID, identities []tree.Identity) error {
	if err := t.Usable(id, at); err != nil {
		return err
	}
	t.sessions[id].ensureExtra().identities = identities
	t.dirtySessions[id] = struct{}{}
	return nil
}

// CheckAttachment tells whether the origin at may close a session that it saw attached in transaction attached, zero for an in-process
// one. It returns ErrExpired or ErrAttachedElsewhere as Usable does, and ErrAttachedElsewhere also if its client has come back to the same member
// since: who was silent for too long was another connection.
func (t *Table) CheckAttachment(id tree.SessionID, at MemberID, attached tree.Zxid) error {
	if err := t.Usable(id, at); err != nil {
		return err
	}
	if t.sessions[id].attached() != attached {
		return ErrAttachedElsewhere
	}
	return nil
}

// without returns a new list that lacks a member.
func without(list []Incarnation, m MemberID) []Incarnation {
	return slices.DeleteFunc(slices.Clone(list), func(i Incarnation) bool { return i.Member == m })
}
