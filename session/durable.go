package session

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vivarium-go/vivarium/tree"
)

// Drain passes on all that has changed since the last Drain, once and in its newest form: first
// origins by member, then sessions by id. If exists is false, the session is gone and its record is
// zero. If a function returns an error, Drain stops, returns the error, and forgets no change.
func (t *Table) Drain(
	origin func(Origin) error,
	session func(id tree.SessionID, r Record, exists bool) error,
) error {
	for _, m := range slices.Sorted(maps.Keys(t.dirtyOrigins)) {
		if err := origin(t.origins[m].Origin); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.dirtySessions)) {
		r, ok := t.Get(id)
		if !ok {
			var x end
			if x, ok = t.ended[id]; ok {
				r = x.record(id)
			}
		}
		if err := session(id, r, ok); err != nil {
			return err
		}
	}
	t.dirtyOrigins = forget(t.dirtyOrigins)
	t.dirtySessions = forget(t.dirtySessions)
	return nil
}

// Dirty returns how many origins and sessions Drain would pass on.
func (t *Table) Dirty() int { return len(t.dirtyOrigins) + len(t.dirtySessions) }

// forgetLen is the size up to which a set of dirty keys is cleared and kept. Clearing costs by the
// largest size that the set ever had, so after a burst a new set is cheaper.
const forgetLen = 128

func forget[K comparable](set map[K]struct{}) map[K]struct{} {
	if len(set) > forgetLen {
		return make(map[K]struct{})
	}
	clear(set)
	return set
}

// LoadOrigin restores an origin that Drain passed on. Origins and records may be loaded in any
// order, into a table that has not been used for anything else. Verify then says whether they fit
// together.
func (t *Table) LoadOrigin(n Origin) {
	o := t.ensure(n.Member)
	o.Origin = n
	o.markDue()
	t.departed(o) // a map never shrinks, so the many that have gone must not fill it
}

// LoadRecord restores a session that Drain passed on. It returns ErrCorrupt for a record that no
// session can have.
func (t *Table) LoadRecord(r Record) error {
	over := r.Ended != 0 && !r.Closing
	if r.ID == 0 || (r.Origin == 0) != over || (r.Timeout <= 0) != over || over && (r.Remote() || len(r.Former) == 0) || r.Lost && r.Ended == 0 || !slices.IsSorted(r.Shards) {
		return fmt.Errorf("%w: session %d of member %d has timeout %v, shards %v, attachment %d, end %d (lost: %v) and former members %v",
			ErrCorrupt, r.ID, r.Origin, r.Timeout, r.Shards, r.Attached, r.Ended, r.Lost, r.Former)
	}
	_, open := t.sessions[r.ID]
	if _, ended := t.ended[r.ID]; open || ended {
		return fmt.Errorf("%w: session %d is recorded twice", ErrCorrupt, r.ID)
	}
	if over {
		t.remember(r.ID, end{zxid: r.Ended, lost: r.Lost, shards: r.Shards, former: r.Former})
	} else {
		t.insert(t.ensure(r.Origin), r)
	}
	return nil
}

// Verify returns the first invariant of the table that does not hold, as ErrCorrupt. It looks at
// everything. The engine calls it after a load, when all ephemerals are tracked.
func (t *Table) Verify() error {
	if err := t.verifyOrigins(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := t.verifySessions(); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

func (t *Table) verifyOrigins() error {
	var digest *[32]byte
	for _, m := range slices.Sorted(maps.Keys(t.origins)) {
		o := t.origins[m]
		if o.Start == 0 && len(o.classes) == 0 && (len(o.purged) > 0 || o.Retired) {
			continue // the member never registered; the table remembers ends for it, or that it is retired
		}
		if o.Start == 0 {
			return fmt.Errorf("member %d has sessions but never registered", m)
		}
		if digest == nil {
			digest = &o.Digest
		}
		if o.Digest != *digest {
			return fmt.Errorf("member %d: founding digest %x, not %x", m, o.Digest, *digest)
		}
		if o.Silence < 0 || (o.Silence == 0) != (o.Steps == 0) {
			return fmt.Errorf("member %d: silence %v after %d steps", m, o.Silence, o.Steps)
		}
		if o.LastSeq == 0 && o.hasInProcess() {
			return fmt.Errorf("member %d: in-process sessions before its first batch", m)
		}
		if err := o.verifyClasses(); err != nil {
			return fmt.Errorf("member %d: %w", m, err)
		}
	}
	return nil
}

func (o *origin) hasInProcess() bool {
	for _, c := range o.live {
		if slices.ContainsFunc(c.members, func(e *entry) bool { return e.attached() == 0 }) {
			return true
		}
	}
	return false
}

func (o *origin) verifyClasses() error {
	if len(o.live)+len(o.due) != len(o.classes) {
		return fmt.Errorf("%d classes listed, %d known", len(o.live)+len(o.due), len(o.classes))
	}
	if err := o.verifyList(o.live, false); err != nil {
		return err
	}
	for i, c := range o.live {
		if parent := o.live[max(0, (i-1)/2)]; parent.timeout > c.timeout {
			return fmt.Errorf("timeout %v above %v", parent.timeout, c.timeout)
		}
	}
	return o.verifyList(o.due, true)
}

func (o *origin) verifyList(list []*class, due bool) error {
	for i, c := range list {
		placed := c.pos == i && o.classes[c.timeout] == c && c.origin == o.Member && len(c.members) > 0
		if !placed || c.due != due || (c.timeout <= o.Silence) != due {
			return fmt.Errorf("class %v is misplaced after a silence of %v", c.timeout, o.Silence)
		}
		for j, e := range c.members {
			if e.class != c || int(e.pos) != j || e.closing {
				return fmt.Errorf("session %d is misplaced in class %v", e.id, c.timeout)
			}
		}
	}
	return nil
}

func (t *Table) verifySessions() error {
	var placed int
	for _, o := range t.origins {
		for _, c := range o.classes {
			placed += len(c.members)
		}
	}
	if placed+len(t.closing) != len(t.sessions) {
		return fmt.Errorf("%d sessions placed, %d known", placed+len(t.closing), len(t.sessions))
	}
	for _, id := range slices.Sorted(maps.Keys(t.sessions)) {
		e := t.sessions[id]
		if e.id != id || e.class.timeout <= 0 || e.closing == e.isMember() || e.closing != (t.closing[id] == e) {
			return fmt.Errorf("session %d is misplaced, timeout %v", id, e.class.timeout)
		}
		if err := verifyFormer(e.record()); err != nil {
			return fmt.Errorf("session %d: %w", id, err)
		}
	}
	if err := t.verifyEnded(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(t.ephemerals)) {
		if _, ok := t.sessions[id]; !ok {
			return fmt.Errorf("session %d has no record but owns %q", id, t.Ephemerals(id)[0])
		}
	}
	return nil
}

func verifyFormer(r Record) error {
	if len(r.Former) > 0 && r.Ended == 0 && (!r.Remote() || len(r.Shards) == 0) {
		return fmt.Errorf("it has former members %v but uses no other shard or is in-process", r.Former)
	}
	for i, f := range r.Former {
		twice := slices.ContainsFunc(r.Former[:i], func(g Incarnation) bool { return g.Member == f.Member })
		if twice || f.Member == 0 || f.Member == r.Origin && r.Ended == 0 {
			return fmt.Errorf("former members %v name a member twice, member 0, or member %d that speaks now", r.Former, r.Origin)
		}
	}
	return nil
}

func (t *Table) verifyEnded() error {
	waiting := 0
	for _, id := range slices.Sorted(maps.Keys(t.ended)) {
		x := t.ended[id]
		if _, open := t.sessions[id]; open || x.zxid == 0 || len(x.former) == 0 {
			return fmt.Errorf("session %d has ended at %d and is misplaced", id, x.zxid)
		}
		if err := verifyFormer(x.record(id)); err != nil {
			return fmt.Errorf("session %d: %w", id, err)
		}
		if len(x.shards) > 0 {
			continue
		}
		waiting += len(x.former)
		for _, f := range x.former {
			if t.origins[f.Member].purged[id] != x.zxid || t.isRetired(f) {
				return fmt.Errorf("session %d has ended at %d, which member %d should acknowledge but cannot", id, x.zxid, f.Member)
			}
		}
	}
	for _, o := range t.origins {
		waiting -= len(o.purged)
	}
	if waiting != 0 {
		return fmt.Errorf("%d ends are kept for members but are not in the table", -waiting)
	}
	return nil
}
