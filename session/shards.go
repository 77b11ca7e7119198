package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// Attach books that a session uses another shard, before that shard admits it: whoever ends the session later knows from the
// record where its ephemerals may be. It returns ErrExpired or ErrMoved as Usable does. A repeat changes nothing.
func (t *Table) Attach(id tree.SessionID, at MemberID, shard uint32) error {
	if err := t.Usable(id, at); err != nil {
		return err
	}
	x := t.sessions[id].extend()
	if i, there := slices.BinarySearch(x.shards, shard); !there {
		x.shards = slices.Insert(slices.Clone(x.shards), i, shard) // the old list may be in somebody's Record
		t.dirtySessions[id] = struct{}{}
	}
	return nil
}

// Admit adds a session of the home shard to this one, for the origin whose accepted batch asks for it. It returns ErrExpired
// for one that has ended and been purged here, or waits to be closed, ErrMoved for one that another origin speaks for, and
// otherwise the errors of Open. A repeat changes nothing.
func (t *Table) Admit(id tree.SessionID, timeout time.Duration, at MemberID, identities []tree.Identity) error {
	if _, ok := t.ended[id]; ok {
		return ErrExpired
	}
	if _, ok := t.sessions[id]; ok {
		return t.Usable(id, at)
	}
	return t.Open(id, [16]byte{}, timeout, at, identities)
}

// Purge books that a session has ended on the home shard, in transaction ended, and that its origin was a member: it is
// Closing here if it was admitted, and never admitted again. Its record stays, also when it is closed, until the origin shows
// by Carried that it knows of the end; not by a Register, for that may be the one of the incarnation that asked.
//
// It reports whether there is nothing of the session here. Otherwise there is nothing once it is closed.
func (t *Table) Purge(id tree.SessionID, at MemberID, ended tree.Zxid) (nothing bool) {
	t.dirtySessions[id] = struct{}{}
	e, ok := t.sessions[id]
	if !ok {
		t.remember(Record{ID: id, Origin: at, Ended: ended})
		return true
	}
	if !e.closing {
		t.origins[e.class.origin].remove(e)
		t.doom(e)
	}
	e.extend().ended = ended
	return false
}

// Carried tells that an accepted batch of a member was sent by a node that had applied transaction home of the home shard. What
// it knew to have ended it asks nothing for any more, so those records go.
func (t *Table) Carried(at MemberID, home tree.Zxid) {
	o, ok := t.origins[at]
	if !ok {
		return
	}
	for id, ended := range o.purged {
		if ended <= home {
			t.forgetEnded(id)
		}
	}
}

// Purged books that a shard has nothing of a session any more that has ended here. When no shard is left its record goes. A
// repeat changes nothing.
func (t *Table) Purged(id tree.SessionID, shard uint32) {
	r, ok := t.ended[id]
	if !ok {
		return
	}
	i, there := slices.BinarySearch(r.Shards, shard)
	if !there {
		return
	}
	t.dirtySessions[id] = struct{}{}
	if r.Shards = slices.Delete(slices.Clone(r.Shards), i, i+1); len(r.Shards) == 0 {
		t.forgetEnded(id)
		return
	}
	t.ended[id] = r
}

// IsEnding reports whether a session that Purge was told of waits here to be closed.
func (t *Table) IsEnding(id tree.SessionID) bool {
	e, open := t.sessions[id]
	return open && e.extra != nil && e.extra.ended != 0
}

// Ended returns the records of sessions that have ended here and still have to be purged on another shard, in id order.
func (t *Table) Ended(shard uint32) []Record {
	var rs []Record
	for _, r := range t.ended {
		if r.Uses(shard) {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return rs
}

// HasEnded reports whether a session is among Ended.
func (t *Table) HasEnded(id tree.SessionID, shard uint32) bool {
	r, ok := t.ended[id]
	return ok && r.Uses(shard)
}

// remember keeps the record of a session that has ended.
func (t *Table) remember(r Record) {
	t.ended[r.ID] = r
	if o := t.ensure(r.Origin); len(r.Shards) == 0 {
		o.purged[r.ID] = r.Ended
	}
}

func (t *Table) forgetEnded(id tree.SessionID) {
	delete(t.origins[t.ended[id].Origin].purged, id)
	delete(t.ended, id)
	t.dirtySessions[id] = struct{}{}
}
