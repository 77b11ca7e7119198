package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// AddShard records that a session uses another shard, before Introduce makes it known there. When
// the session ends later, the record says where its ephemerals may be. AddShard returns ErrExpired
// or ErrAttachedElsewhere as Usable does. A repeat changes nothing.
func (t *Table) AddShard(id tree.SessionID, at MemberID, shard uint32) error {
	if err := t.Usable(id, at); err != nil {
		return err
	}
	x := t.sessions[id].ensureExtra()
	if i, there := slices.BinarySearch(x.shards, shard); !there {
		x.shards = slices.Insert(slices.Clone(x.shards), i, shard) // Get's caller may have the old list
		t.dirtySessions[id] = struct{}{}
	}
	return nil
}

// Introduce adds a session of the home shard to this shard, for the origin whose accepted batch
// asks for it. The origin has applied transaction attached, which attached the session to it at
// home; zero means an in-process session. If this shard has the session from an earlier attachment,
// Introduce reattaches it. If it has the session from the same attachment, Introduce brings the
// identities that SetIdentities may have changed at home.
//
// Introduce returns ErrExpired for a session that has ended and was purged here, or that waits to
// be closed. It returns ErrAttachedElsewhere for a session that has a newer attachment, or that
// another origin speaks for. Otherwise it returns the errors of Open. A refused Introduce changes
// nothing.
func (t *Table) Introduce(id tree.SessionID, timeout time.Duration, at MemberID, attached tree.Zxid, identities []tree.Identity) error {
	if _, ok := t.ended[id]; ok {
		return ErrExpired
	}
	e, ok := t.sessions[id]
	switch {
	case !ok:
		return t.Open(id, [16]byte{}, timeout, at, attached, identities)
	case e.isDue():
		return ErrExpired
	case attached < e.attached() || attached == e.attached() && at != e.class.origin:
		return ErrAttachedElsewhere
	case attached == 0:
		return nil
	case e.attached() == 0:
		return ErrNotRemote
	}
	return t.attach(e, timeout, at, attached, identities)
}

// Purge records that a session has ended on the home shard in transaction ended, lost or not, and
// that the incarnations in former spoke for it. If the session is here, it becomes Closing, and no
// Introduce adds it again. Its record stays, even when it is closed, until each of these members
// shows that it asks nothing more for the session. AcknowledgeEnds shows that, and so does a
// Register here of an incarnation after the one that spoke. (Not every Register proves it. It may
// be that of the incarnation that asked, arriving late here.)
//
// Purge reports whether nothing of the session is left here. If it returns false, nothing is left
// once the session is closed.
//
// How the session ended at home counts, even if it is due here for another reason: a session that
// its owner closed ends here as closed.
func (t *Table) Purge(id tree.SessionID, former []Incarnation, ended tree.Zxid, lost bool) (nothing bool) {
	e, ok := t.sessions[id]
	if !ok {
		if _, repeat := t.ended[id]; !repeat {
			t.awaitFormer(id, ended, former)
		}
		return true
	}
	if !e.closing {
		t.origins[e.class.origin].remove(e)
		t.markClosing(e)
	}
	x := e.ensureExtra()
	x.ended, x.history = ended, &history{attached: e.attached(), former: former, lost: lost}
	t.dirtySessions[id] = struct{}{}
	return false
}

// AcknowledgeEnds records that an accepted batch of a member was sent by a node that had applied
// transaction home of the home shard. The member asks nothing more for sessions that had ended by
// then, so their records need not wait for it.
func (t *Table) AcknowledgeEnds(at MemberID, home tree.Zxid) {
	o, ok := t.origins[at]
	if !ok {
		return
	}
	for id, ended := range o.purged {
		if ended <= home {
			t.acknowledge(id, at)
		}
	}
}

// Purged records that a shard has nothing left of a session that has ended here. When no shard is
// left, the session's record is removed. A repeat changes nothing.
func (t *Table) Purged(id tree.SessionID, shard uint32) {
	x, ok := t.ended[id]
	if !ok {
		return
	}
	i, there := slices.BinarySearch(x.shards, shard)
	if !there {
		return
	}
	t.dirtySessions[id] = struct{}{}
	if x.shards = slices.Delete(slices.Clone(x.shards), i, i+1); len(x.shards) == 0 {
		delete(t.ended, id)
		return
	}
	t.ended[id] = x
}

// IsEnding reports whether a session that Purge or DecideEnd has marked waits here to be closed.
func (t *Table) IsEnding(id tree.SessionID) bool {
	e, open := t.sessions[id]
	return open && e.extra != nil && e.extra.ended != 0
}

// Ended returns the records of sessions that have ended here and still have to be purged on another
// shard, in id order.
func (t *Table) Ended(shard uint32) []Record {
	var rs []Record
	for id, x := range t.ended {
		if r := x.record(id); r.Uses(shard) {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return rs
}

// HasEnded reports whether Ended has a record of the session.
func (t *Table) HasEnded(id tree.SessionID, shard uint32) bool {
	r := t.ended[id].record(id)
	return r.Uses(shard)
}

// end is what is kept of a session that has ended.
type end struct {
	zxid   tree.Zxid
	lost   bool // for the other shards
	shards []uint32
	former []Incarnation
}

func (x end) record(id tree.SessionID) Record {
	return Record{ID: id, Shards: x.shards, Ended: x.zxid, Lost: x.lost, Former: x.former}
}

// of returns the incarnation of a member that spoke for the session.
func (x end) of(m MemberID) Incarnation {
	i := slices.IndexFunc(x.former, func(i Incarnation) bool { return i.Member == m })
	return x.former[i]
}

// awaitFormer keeps the end of a session until all former members know of it, except those that are
// retired or have registered a later incarnation.
func (t *Table) awaitFormer(id tree.SessionID, ended tree.Zxid, former []Incarnation) {
	t.dirtySessions[id] = struct{}{}
	if former = slices.DeleteFunc(slices.Clone(former), t.isRetired); len(former) > 0 {
		t.remember(id, end{zxid: ended, former: former})
	}
}

// isRetired reports whether the member is retired or has registered a later incarnation. Then
// nothing of this incarnation is accepted.
func (t *Table) isRetired(i Incarnation) bool {
	o, ok := t.origins[i.Member]
	return ok && (o.Retired || o.Start > i.Start)
}

// remember keeps the end of a session.
func (t *Table) remember(id tree.SessionID, x end) {
	t.ended[id] = x
	if len(x.shards) > 0 {
		return
	}
	for _, i := range x.former {
		t.ensure(i.Member).purged[id] = x.zxid
	}
}

// acknowledge records that a member asks nothing more for a session that has ended.
func (t *Table) acknowledge(id tree.SessionID, m MemberID) {
	t.dirtySessions[id] = struct{}{}
	delete(t.origins[m].purged, id)
	x := t.ended[id]
	if x.former = without(x.former, m); len(x.former) == 0 {
		delete(t.ended, id)
		return
	}
	t.ended[id] = x
}
