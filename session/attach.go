package session

import (
	"crypto/subtle"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// An Incarnation is one start of a member. It has one stream to each shard.
type Incarnation struct {
	Member MemberID
	Start  uint64
}

// history records where a session is attached, which members spoke for it before, and how it ends.
type history struct {
	attached tree.Zxid
	former   []Incarnation
	lost     bool // how the session ends; set by Purge or DecideEnd
}

// lost reports whether the session counts as lost once it is due.
func (e *entry) lost() bool { return e.extra == nil || e.extra.ended == 0 || e.extra.history.lost }

// attached returns the transaction of the session's attachment; zero for an in-process session.
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

// Reattach attaches a remote session to the member whose accepted batch asks for it, in transaction
// zxid, which was never used before. The table keeps identities. From now on, what the member
// before still asks for the session is refused. The member may be the one that the session is
// attached to: the client has come back there, and its earlier connection counts no longer.
//
// The client knows the password. Reattach returns ErrExpired for a session that is unknown, due or
// closing, and ErrNotRemote or ErrWrongPassword where they apply. It returns ErrInvalidTimeout,
// ErrUnregistered and ErrSilent as Open does. The caller tells the client only that the session has
// expired, so that no client can find out which ids are in use.
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
	if from.Member != at && len(x.shards) > 0 { // else nothing is on its way there
		former = append(former, Incarnation{Member: from.Member, Start: from.Start})
	}
	x.history.former = former
	return nil
}

// attach moves a session from its class to one of the origin at, which has just been heard. From
// now on the new origin's silence counts for the session, and not the old one's.
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

// SetIdentities replaces the identities that a session has authenticated as. The table keeps
// identities. It returns ErrExpired or ErrAttachedElsewhere as Usable does.
func (t *Table) SetIdentities(id tree.SessionID, at MemberID, identities []tree.Identity) error {
	if err := t.Usable(id, at); err != nil {
		return err
	}
	t.sessions[id].ensureExtra().identities = identities
	t.dirtySessions[id] = struct{}{}
	return nil
}

// CheckAttachment reports whether the origin at still has the attachment of a session that it saw
// made in transaction attached, zero for an in-process session. Only then may the origin close the
// session, for example. It returns ErrExpired or ErrAttachedElsewhere as Usable does. It also
// returns ErrAttachedElsewhere if the client has come back to the same member since: the caller saw
// an earlier connection.
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
