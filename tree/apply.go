package tree

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/internal/rank"
)

// Apply applies one transaction: all operations in order, each on the result of those before it, or
// none of them. Readers see the result after Publish.
//
// A transaction of one operation fails with that operation's error, a longer one with a *MultiError
// around it. The errors are ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty,
// ErrNoChildrenForEphemerals, ErrInvalidPath, ErrInvalidMode, ErrInvalidTTL, ErrInvalidACL,
// ErrNoAuth, ErrQuotaExceeded, ErrNotHeld, ErrTooManyChildren and ErrInvalidKind. If several of
// them apply to an operation, it fails with the one that ZooKeeper finds first. A failed
// transaction changes nothing, and its zxid may be used again.
//
// Apply keeps neither the header nor ops, nor the bytes of their data and strings. It panics if the
// previous transaction has not been published, or if its zxid was not smaller. These are bugs of
// the caller that would make replicas differ.
func (t *Tree) Apply(h Header, ops []Op) ([]Result, error) { return t.ApplyInto(nil, h, ops) }

// ApplyInto is Apply, but stores the results in buf if they fit. On most replicas nobody waits for
// the results, so they need no memory of their own.
func (t *Tree) ApplyInto(buf []Result, h Header, ops []Op) ([]Result, error) {
	t.begin(&h)
	if len(ops) > 1 {
		if err := t.refuse(ops); err != nil {
			t.abort()
			return nil, err
		}
		t.changes = slices.Grow(t.changes, len(ops))
	}
	if buf == nil || len(buf) < len(ops) {
		buf = make([]Result, len(ops))
	}
	results := buf[:len(ops)]
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

// fail discards what is staged. It returns the transaction's error when operation i failed with
// err.
func (t *Tree) fail(ops []Op, i int, err error) error {
	t.abort()
	if len(ops) > 1 {
		err = &MultiError{Index: i, Err: err}
	}
	return err
}

// Changes returns what the last Apply or Reap did, in order, or nothing if it failed. The slice is
// valid until the next Apply or Reap.
func (t *Tree) Changes() []Change { return t.changes }

// Announce says that watchers may hear of the last successful transaction from now on. Until
// Publish, readers of what it changed wait: whoever has heard of the change must not read the state
// before it. It does nothing if the transaction is already visible.
func (t *Tree) Announce() {
	if !t.unpublished || t.announcing {
		return
	}
	t.announcing = true
	t.announcement.Lock()
	t.announced.Store(uint64(t.applied))
}

// Publish makes the last successful transaction visible to readers, in one step. It does nothing if
// the transaction is already visible.
func (t *Tree) Publish() {
	t.visible.Store(uint64(t.applied))
	t.length.Store(t.count)
	t.size.Store(t.bytes)
	t.visibleWeight.Store(t.weight)
	t.unpublished = false
	if t.announcing {
		t.announcing = false
		t.announcement.Unlock()
	}
}

// settled returns a visible zxid. Everything that was announced before the call is visible at it.
func (t *Tree) settled() Zxid {
	visible := t.Visible()
	if Zxid(t.announced.Load()) <= visible && !rank.Checked {
		return visible
	}
	t.announcement.Lock()
	defer t.announcement.Unlock()
	return t.Visible()
}

// scratchMax limits the slices that are reused by the next transaction. Larger ones are left to the
// garbage collector.
const scratchMax = 4096

// changesFew is up to how many changes are not worth clearing: the next transactions overwrite
// them.
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

// tidy drops what readers needed only until the newest transaction was visible: the previous
// versions, and the index entries of deleted znodes. A reader that still looks for a dropped
// version finds the chain trimmed, and loads the visible zxid again. A reader that looks for a
// dropped entry finds none. Either result was true at some moment during the read. If there is a
// pin, tidy keeps what is needed at its zxid and after it, unless that is too much.
func (t *Tree) tidy() {
	for t.dropUpTo(t.pins.limit()); len(t.recent) > 0 && t.pins.lose(t.kept, t.weight); {
		t.dropUpTo(t.pins.limit())
	}
}

func (t *Tree) dropUpTo(z Zxid) {
	for i, m := range t.recent {
		if m.v.zxid > z {
			t.recent = slices.Delete(t.recent, 0, i)
			return
		}
		t.kept -= m.replaced()
		m.v.prev.Store(trimmed)
		if !m.v.exists() && m.e.newest.Load() == m.v {
			t.removeEntry(m.e)
		}
	}
	t.recent = reuse(t.recent)
}

// listBytes is about what a version's list of children takes that differs from the next one's.
const listBytes = 2 << 10

// replaced estimates the memory of what the version has replaced.
func (m made) replaced() int64 {
	prev := m.v.prev.Load().orNil()
	n := m.e.weight(prev)
	if prev != nil && m.v.exists() && prev.mzxid == m.v.mzxid {
		n -= int64(len(prev.data)) // which both have
	}
	if prev != nil && m.v.exists() && prev.numChildren() != m.v.numChildren() {
		n += listBytes
	}
	return n
}

// install makes the staged versions the newest ones. They are later than visible, so readers skip
// them.
func (t *Tree) install() {
	if len(t.charged) > 0 {
		t.findOver()
	}
	for _, m := range t.touched {
		m.v.staged = false
		t.bytes += m.e.size(m.v) - m.e.size(m.v.prev.Load())
		t.weight += m.e.weight(m.v) - m.e.weight(m.v.prev.Load())
		t.kept += m.replaced()
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

// abort removes the staged versions from their chains, and new entries from the index. A reader
// that met such a version has skipped it: it is later than visible until its zxid is used again.
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

// refuse returns an error if an operation is never allowed in a transaction of several. ZooKeeper
// refuses such a multi before it looks at any operation.
func (t *Tree) refuse(ops []Op) error {
	for i := range ops {
		var err error
		switch op := &ops[i]; op.Kind {
		case KindCreate:
			err = op.Mode.Validate()
		case KindSet, KindDelete, KindCheck, KindGuard, KindCheckChildren, KindCheckMzxid, KindAdd, KindEnsure, KindCheckLost:
		case KindSetACL:
			err = fmt.Errorf("%w: %v must be alone", ErrInvalidKind, op.Kind)
		case KindLose, KindConfigure:
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
	case KindConfigure:
		return t.configure(op)
	case KindCheckMzxid:
		return t.checkMzxid(op)
	case KindAdd:
		return t.add(op, r)
	case KindEnsure:
		return t.ensure(op, r)
	case KindCheckLost:
		return t.checkLost(op)
	}
	return fmt.Errorf("%w: %v", ErrInvalidKind, op.Kind)
}

// permit returns ErrNoAuth unless the ACL allows the requester one of the needed permissions.
func (t *Tree) permit(acl []ACL, need Perms) error {
	if len(acl) == 0 || t.header.System || t.schemes.Load().permit(acl, t.header.Identities, need) {
		return nil
	}
	return ErrNoAuth
}

// permitWrite is permit for a write at a path. Two kinds of znodes have more weight than their ACLs
// know of. What steers the ensemble is closed to clients. Who limits a subtree can stop all its
// writes, so below the quotas a write also needs Admin on the subtree.
func (t *Tree) permitWrite(path string, acl []ACL, need Perms) error {
	if err := t.permit(acl, need); err != nil || !strings.HasPrefix(path, zookeeperPath) {
		return err
	}
	if t.header.Remote && Steers(path) && !isSuper(t.header.Identities) {
		return ErrNoAuth
	}
	return t.permitQuota(path)
}

// stage returns the entry's version in this transaction. Its first call for an entry copies the
// newest version. The copy is at the head of the chain at once, and later than what readers see.
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

// newVersion returns a copy of old, or an empty version if old is nil. Its predecessor is old.
func newVersion(old *version) *version {
	switch {
	case old == nil:
		return new(version)
	case !old.exists() || old.more == nil:
		v := &version{state: old.state}
		v.prev.Store(old)
		return v
	}
	// One allocation instead of two: every create or delete of a child makes a version of the
	// parent.
	v := &struct {
		version
		rest
	}{rest: *old.more}
	v.state, v.more = old.state, &v.rest
	v.prev.Store(old)
	return &v.version
}

// addZnode stages the first version of a new znode, and a version of its parent with one more
// child. In ZooKeeper the parent's Pzxid stops with its create counter. Here it goes on, because it
// tells a client that comes back what its watches have missed.
func (t *Tree) addZnode(e *entry, s state) *version {
	v := t.stage(e)
	s.marks = v.marks
	v.state = s
	p := t.stage(e.parent)
	r := p.own()
	r.children = r.children.add(Base(e.path), t.edit)
	r.numChildren++
	t.countBelow(e, 1)
	if r.created < math.MaxInt32 {
		r.created++
	}
	r.pzxid = t.header.Zxid
	t.changes = append(t.changes, Change{Type: Created, Path: e.path, Owner: v.rest().owner, ACL: v.acl(), ParentACL: p.acl()})
	size := int64(len(v.data))
	t.recount(e)
	t.charge(e.path, 1, size)
	return v
}

// removeZnode stages the end of a znode without children, and a version of its parent with one
// child less.
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

// countBelow stages every znode above an entry, with n more znodes below it. So a create costs in
// proportion to its depth, and a count costs nothing. Counting on request would take a tenth of a
// second for 300,000 znodes, for every request of any client that may read.
func (t *Tree) countBelow(e *entry, n int32) {
	for e = e.parent; e != nil; e = e.parent {
		t.stage(e).own().below += n
	}
}

// countOf returns by how much a change alters the number of znodes.
func countOf(c ChangeType) int64 {
	switch c {
	case Created:
		return 1
	case Deleted:
		return -1
	}
	return 0
}

// reuse empties a slice and keeps its memory, unless that is too much.
func reuse[T any](s []T) []T {
	if cap(s) > scratchMax {
		return nil
	}
	clear(s)
	return s[:0]
}
