package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// AddShard books that a session uses another shard, before that shard admits it: whoever ends the session later knows from the
// record where its ephemerals may be. It returns ErrExpired or ErrAttachedElsewhere as Usable does. A repeat changes nothing.
func (t *Table) AddShard(id tree.SessionID, at MemberID, shard uint32) error {
	if err := t.Usable(id, at); err != nil {
		return err
	}
	x := t.sessions[id].ensureExtra()
	if i, there := slices.BinarySearch(x.shards, shard); !there {
		x.shards = slices.Insert(slices.Clone(x.shards), i, shard) // the old list may be in somebody's Record
		t.dirtySessions[id] = struct{}{}
	}
	return nil
}

// Introduce adds a session of the home shard to this one, for the origin whose accepted batch asks for it and which has applied the
// transaction that attached the session to it, zero for an in-process one. If it is here since an earlier attachment, it is
// attached anew; for the newest one, what SetIdentities may have changed at home is brought here.
//
// It returns ErrExpired for one that has ended and been purged here, or waits to be closed, ErrAttachedElsewhere for one that has been
// attached anew since or that another origin speaks for, and otherwise the errors of Open. What is refused changes nothing.
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

// Purge books that a session has ended on the home shard, in transaction ended, lost or not, and that those of former spoke for it: it is
// Closing here if it was admitted, and never admitted again. Its record stays, also when it is closed, until each of them shows
// that it asks nothing for the session any more: by AcknowledgeEnds, or by a Register here of an incarnation after the one that spoke.
// (Any Register would not do. It may be that of the incarnation that asked, which is late here.)
//
// It reports whether there is nothing of the session here. Otherwise there is nothing once it is closed.
//
// What home says of how it ended counts, also if it is due here for another reason, and closed it is as its owner meant.
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

// AcknowledgeEnds tells that an accepted batch of a member was sent by a node that had applied transaction home of the home shard. What
// it knew to have ended it asks nothing for any more, so those records go.
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

// Purged books that a shard has nothing of a session any more that has ended here. When no shard is left its record goes. A
// repeat changes nothing.
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

// IsEnding reports whether a session that Purge or DecideEnd was told of waits here to be closed.
func (t *Table) IsEnding(id tree.SessionID) bool {
	e, open := t.sessions[id]
	return open && e.extra != nil && e.extra.ended != 0
}

// Ended returns the records of sessions that have ended here and still have to be purged on another shard, in id order.
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

// HasEnded reports whether a session is among Ended.
func (t *Table) HasEnded(id tree.SessionID, shard uint32) bool {
	r := t.ended[id].record(id)
	return r.Uses(shard)
}

// end is what is kept of a session that has ended.
type end struct {
	zxid   tree.Zxid
	lost   bool // for those of the shards
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

// awaitFormer keeps in mind that a session has ended, until all that spoke for it and still may ask for it know.
func (t *Table) awaitFormer(id tree.SessionID, ended tree.Zxid, former []Incarnation) {
	t.dirtySessions[id] = struct{}{}
	if former = slices.DeleteFunc(slices.Clone(former), t.isRetired); len(former) > 0 {
		t.remember(id, end{zxid: ended, former: former})
	}
}

// isRetired reports whether a later incarnation has registered, so that nothing of this one is accepted.
func (t *Table) isRetired(i Incarnation) bool {
	o, ok := t.origins[i.Member]
	return ok && o.Start > i.Start
}

// remember keeps what there is of a session that has ended.
func (t *Table) remember(id tree.SessionID, x end) {
	t.ended[id] = x
	if len(x.shards) > 0 {
		return
	}
	for _, i := range x.former {
		t.ensure(i.Member).purged[id] = x.zxid
	}
}

// acknowledge books that a member asks nothing any more for a session that has ended.
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
