package tree

import (
	"fmt"
	"math"
	"slices"
)

// Apply carries out one transaction: all operations in order, each on what those before it made, or none of them. What
// it did shows to readers after Publish.
//
// A transaction of one operation fails with that operation's error, a longer one with a *MultiError around it. The errors
// are ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty, ErrNoChildrenForEphemerals, ErrInvalidPath, ErrInvalidMode,
// ErrInvalidTTL, ErrInvalidACL, ErrNoAuth, ErrQuotaExceeded, ErrNotHeld,
// ErrTooManyChildren and ErrInvalidKind; an operation that several apply to fails
// with the one ZooKeeper finds first. A failed transaction changes nothing, and its zxid may be used again.
//
// Apply keeps neither the header nor ops, nor the bytes of their data and words. It panics if the transaction before has
// not been published or had a zxid that is not smaller: these are faults of the caller that would make replicas differ.
func (t *Tree) Apply(h Header, ops []Op) ([]Result, error) { return t.ApplyInto(nil, h, ops) }

// ApplyInto is Apply with the results in room, if they fit: most replicas apply what nobody there waits for.
func (t *Tree) ApplyInto(room []Result, h Header, ops []Op) ([]Result, error) {
	t.begin(&h)
	if len(ops) > 1 {
		if err := t.refuse(ops); err != nil {
			t.abort()
			return nil, err
		}
		t.changes = slices.Grow(t.changes, len(ops))
	}
	if room == nil || len(room) < len(ops) {
		room = make([]Result, len(ops))
	}
	results := room[:len(ops)]
	clear(results)
	for i := range ops {
		if err := t.applyOp(&ops[i], &results[i]); err != nil {
			return nil, t.fail(ops, i, err)
		}
	}
	if err := t.checkWeight(); err != nil {
		return nil, t.fail(ops, lastGrowing(ops), err)
	}
	t.install()
	return results, nil
}

// fail takes back what is staged, and returns what the transaction fails with for an error of one operation.
func (t *Tree) fail(ops []Op, i int, err error) error {
	t.abort()
	if len(ops) > 1 {
		err = &MultiError{Index: i, Err: err}
	}
	return err
}

// Changes returns what the last Apply or Reap did, in the order it was done; nothing if that failed. The slice is valid
// until the next one.
func (t *Tree) Changes() []Change { return t.changes }

// Publish makes the last transaction that Apply or Reap carried out visible to readers, in one step. It does nothing if
// that is done already.
func (t *Tree) Publish() {
	t.visible.Store(uint64(t.applied))
	t.length.Store(t.count)
	t.size.Store(t.bytes)
	t.visibleWeight.Store(t.weight)
	t.unpublished = false
}

// scratchMax bounds the slices that are kept from one transaction to the next; what a larger transaction needed is left
// to the collector.
const scratchMax = 4096

// changesFew is a number of changes that are not worth the time to be cleared: the next transactions write over them.
const changesFew = 16

func (t *Tree) begin(h *Header) {
	if t.unpublished {
		panic(fmt.Sprintf("tree: zxid %d applied while %d is not published", h.Zxid, t.applied))
	}
	if h.Zxid <= t.applied {
		panic(fmt.Sprintf("tree: zxid %d applied after %d", h.Zxid, t.applied))
	}
	if len(t.recent) > 0 {
		t.tidy()
	}
	t.header, t.recounted = *h, false
	t.edit++
	if len(t.changes) <= changesFew {
		t.changes = t.changes[:0]
	} else {
		t.changes = reuse(t.changes)
	}
	if t.over != nil {
		t.over = nil
	}
}

// A made is a version that a transaction made for an entry.
type made struct {
	e *entry
	v *version
}

// tidy lets go of what readers needed until the newest transaction was visible: the versions before it, and the index's
// entries of what it deleted. A reader that still looks for them finds the chain trimmed and loads the visible zxid
// again, or finds no entry; both were true at a moment since it began. A pin keeps what is of use at its zxid and after.
func (t *Tree) tidy() {
	upTo := t.pins.limit()
	for i, m := range t.recent {
		if m.v.zxid > upTo {
			t.recent = slices.Delete(t.recent, 0, i)
			return
		}
		m.v.prev.Store(trimmed)
		if !m.v.exists() && m.e.newest.Load() == m.v {
			t.removeEntry(m.e)
		}
	}
	t.recent = reuse(t.recent)
}

// install makes the staged versions the newest that there are. They are later than visible, so readers pass them over.
func (t *Tree) install() {
	if len(t.charged) > 0 {
		t.findOver()
	}
	for _, m := range t.touched {
		m.v.staged = false
		t.bytes += m.e.size(m.v) - m.e.size(m.v.prev.Load())
		t.weight += m.e.weight(m.v) - m.e.weight(m.v.prev.Load())
		if !m.v.isCount() {
			t.markDirty(m.e)
		}
		t.markMortal(m.e, m.v)
	}
	if len(t.recent) == 0 {
		t.recent, t.touched = t.touched, t.recent
	} else {
		t.recent = append(t.recent, t.touched...)
	}
	for i := range t.changes {
		t.count += countOf(t.changes[i].Type)
	}
	t.touched = reuse(t.touched)
	t.applied = t.header.Zxid
	t.header.Identities = nil
	t.unpublished = true
	if invariants {
		if err := t.check(); err != nil {
			panic(err)
		}
	}
}

// abort takes the staged versions off their chains, and entries that were new out of the index. A reader that has seen such
// a version has passed it over: it is later than what is visible until its zxid is used again.
func (t *Tree) abort() {
	for _, m := range t.touched {
		old := m.v.prev.Load()
		m.e.newest.Store(old)
		if old == nil {
			t.removeEntry(m.e)
		}
	}
	t.touched = reuse(t.touched)
	t.changes = reuse(t.changes)
	t.charged = nil
	t.header.Identities = nil
}

// refuse returns an error if an operation cannot be in a transaction with others, whatever the tree is like. ZooKeeper
// refuses such a multi before it looks at any operation.
func (t *Tree) refuse(ops []Op) error {
	for i := range ops {
		var err error
		switch op := &ops[i]; op.Kind {
		case KindCreate:
			err = op.Mode.Validate()
		case KindSet, KindDelete, KindCheck, KindGuard, KindCheckChildren:
		case KindSetACL:
			err = fmt.Errorf("%w: %v must be alone", ErrInvalidKind, op.Kind)
		case KindLose:
			err = t.ownOnly(op)
		default:
			err = fmt.Errorf("%w: %v", ErrInvalidKind, op.Kind)
		}
		if err != nil {
			return &MultiError{Index: i, Err: err}
		}
	}
	return nil
}

// applyOp stages one operation.
func (t *Tree) applyOp(op *Op, r *Result) error {
	r.Kind = op.Kind
	switch op.Kind {
	case KindCreate:
		return t.create(op, r)
	case KindSet:
		return t.set(op, r)
	case KindDelete:
		return t.delete(op)
	case KindCheck:
		return t.checkVersion(op)
	case KindSetACL:
		return t.setACL(op, r)
	case KindGuard:
		return t.guard(op)
	case KindCheckChildren:
		return t.checkChildren(op)
	case KindLose:
		return t.lose(op)
	}
	return fmt.Errorf("%w: %v", ErrInvalidKind, op.Kind)
}

// permit returns ErrNoAuth unless who asks for the transaction may do it to a znode with the ACL.
func (t *Tree) permit(acl []ACL, need Perms) error {
	if len(acl) == 0 || t.header.System || t.schemes.Load().permit(acl, t.header.Identities, need) {
		return nil
	}
	return ErrNoAuth
}

// stage returns the entry's version of this transaction, which at first is a copy of its newest. It is at the head of the chain
// at once, later than what readers see.
func (t *Tree) stage(e *entry) *version {
	old := e.newest.Load()
	if old != nil && old.staged {
		return old
	}
	v := newVersion(old)
	v.zxid, v.staged = t.header.Zxid, true
	e.newest.Store(v)
	t.touched = append(t.touched, made{e, v})
	return v
}

// newVersion returns a copy of a version, if there is one, with that as its predecessor.
func newVersion(old *version) *version {
	switch {
	case old == nil:
		return new(version)
	case !old.exists() || old.more == nil:
		v := &version{state: old.state}
		v.prev.Store(old)
		return v
	}
	v := &struct {
		version
		rest
	}{rest: *old.more} // one allocation instead of two: for each child created or deleted there is a version of its parent
	v.state, v.more = old.state, &v.rest
	v.prev.Store(old)
	return &v.version
}

// addZnode stages the first version of a new znode and its parent's with one child more.
func (t *Tree) addZnode(e *entry, s state) *version {
	v := t.stage(e)
	s.marks = v.marks
	v.state = s
	p := t.stage(e.parent)
	r := p.own()
	r.children = r.children.add(Base(e.path), t.edit)
	r.numChildren++
	t.countBelow(e, 1)
	// At the end of its range the counter stands still, and with it, as in ZooKeeper, Pzxid.
	if r.created < math.MaxInt32 {
		r.created++
		r.pzxid = t.header.Zxid
	}
	t.changes = append(t.changes, Change{Type: Created, Path: e.path, Owner: v.rest().owner, ACL: v.acl(), ParentACL: p.acl()})
	size := int64(len(v.data))
	t.recount(e)
	t.charge(e.path, 1, size)
	return v
}

// removeZnode stages the end of a znode without children and its parent's version with one child less.
func (t *Tree) removeZnode(e *entry) {
	v, p := t.stage(e), t.stage(e.parent)
	t.changes = append(t.changes, Change{Type: Deleted, Path: e.path, Owner: v.rest().owner, ACL: v.acl(), ParentACL: p.acl()})
	size := int64(len(v.data))
	v.state = state{marks: v.marks, more: absent}
	r := p.own()
	r.children = r.children.remove(Base(e.path), t.edit)
	r.numChildren--
	r.pzxid = t.header.Zxid
	t.countBelow(e, -1)
	t.charge(e.path, -1, -size)
}

// countBelow stages all znodes above an entry with n znodes more below them. So a create costs by its
// depth, and a count costs nothing: a walk by whoever asks would cost a tenth of a second for
// 300,000 znodes, again for each request of a client that may do no more than read.
func (t *Tree) countBelow(e *entry, n int32) {
	for e = e.parent; e != nil; e = e.parent {
		t.stage(e).own().below += n
	}
}

// countOf is what a change adds to the number of znodes.
func countOf(c ChangeType) int64 {
	switch c {
	case Created:
		return 1
	case Deleted:
		return -1
	}
	return 0
}

// reuse empties a slice and keeps its room if that is not too much.
func reuse[T any](s []T) []T {
	if cap(s) > scratchMax {
		return nil
	}
	clear(s)
	return s[:0]
}
