package tree

import (
	"fmt"
	"math"
	"strings"
)

// Apply carries out one transaction: all operations in order, each on what those before it made, or none of them. What
// it did shows to readers after Publish.
//
// A transaction of one operation fails with that operation's error, a longer one with a *MultiError around it. The errors
// are ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty, ErrNoChildrenForEphemerals, ErrInvalidPath, ErrInvalidMode
// and ErrInvalidKind; an operation that several apply to fails with the one ZooKeeper finds first. A failed transaction
// changes nothing, and its zxid may be used again.
//
// Apply keeps neither ops nor the bytes of their data and paths. It panics if the transaction before has not been
// published or had a zxid that is not smaller: these are faults of the caller that would make replicas differ.
func (t *Tree) Apply(h Header, ops []Op) ([]Result, error) {
	t.begin(h)
	results := make([]Result, len(ops))
	for i := range ops {
		if err := t.applyOp(&ops[i], &results[i]); err != nil {
			t.abort()
			if len(ops) > 1 {
				err = &MultiError{Index: i, Err: err}
			}
			return nil, err
		}
	}
	t.install()
	return results, nil
}

// Changes returns what the last Apply did, in the order it was done; nothing if that failed. The slice is valid until the
// next Apply.
func (t *Tree) Changes() []Change { return t.changes }

// Publish makes the last transaction that Apply carried out visible to readers, in one step. It does nothing if that is
// done already.
func (t *Tree) Publish() {
	t.visible.Store(uint64(t.applied))
	t.length.Store(t.count)
	t.unpublished = false
}

// scratchMax bounds the slices that are kept from one transaction to the next; what a larger transaction needed is left
// to the collector.
const scratchMax = 4096

func (t *Tree) begin(h Header) {
	if t.unpublished {
		panic(fmt.Sprintf("tree: zxid %d applied while %d is not published", h.Zxid, t.applied))
	}
	if h.Zxid <= t.applied {
		panic(fmt.Sprintf("tree: zxid %d applied after %d", h.Zxid, t.applied))
	}
	t.tidy()
	t.header = h
	t.edit++
	t.changes = reuse(t.changes)
}

// tidy lets go of what readers needed until the newest transaction was visible: the versions before it, and the index's
// entries of what it deleted. A reader that still looks for them finds the chain trimmed and loads the visible zxid
// again, or finds no entry; both were true at a moment since it began.
func (t *Tree) tidy() {
	for _, e := range t.recent {
		v := e.newest.Load()
		v.prev.Store(trimmed)
		if v.deleted {
			t.index.remove(e.path)
		}
	}
	t.recent = reuse(t.recent)
}

// install puts the staged versions at the head of their chains. They are later than visible, so readers pass them over.
func (t *Tree) install() {
	for _, e := range t.touched {
		e.newest.Store(e.staged)
		e.staged = nil
		t.markDirty(e)
	}
	for i := range t.changes {
		t.count += countOf(t.changes[i].Type)
	}
	t.recent, t.touched = t.touched, t.recent
	t.applied = t.header.Zxid
	t.unpublished = true
	if invariants {
		if err := t.check(); err != nil {
			panic(err)
		}
	}
}

// abort forgets the staged versions and takes entries that were new out of the index.
func (t *Tree) abort() {
	for _, e := range t.touched {
		e.staged = nil
		if e.newest.Load() == nil {
			t.index.remove(e.path)
		}
	}
	t.touched = reuse(t.touched)
	t.changes = reuse(t.changes)
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
	}
	return fmt.Errorf("%w: %v", ErrInvalidKind, op.Kind)
}

func (t *Tree) create(op *Op, r *Result) error {
	if err := op.Mode.Validate(); err != nil {
		return err
	}
	if op.Mode.IsEphemeral() && t.header.Session == 0 {
		return fmt.Errorf("%w: an ephemeral needs a session", ErrInvalidMode)
	}
	slash, err := lastSlash(op.Path)
	if err != nil {
		return err
	}
	parent := t.index.get(parentOf(op.Path, slash))
	if parent == nil || parent.current() == nil {
		return ErrNoNode
	}
	path := op.Path
	if op.Mode.IsSequential() {
		path = sequentialPath(path, parent.current().Created)
	}
	if err := ValidatePath(path); err != nil {
		return err
	}
	e := t.index.get(path)
	if e != nil && e.current() != nil {
		return ErrNodeExists
	}
	if parent.current().Owner != 0 {
		return ErrNoChildrenForEphemerals
	}
	if e == nil {
		if !op.Mode.IsSequential() {
			path = strings.Clone(path) // it may lie in a buffer of the caller's
		}
		e = &entry{path: path, parent: parent}
		t.index.add(e)
	}
	r.Path, r.Stat = e.path, t.addZnode(e, op).stat()
	return nil
}

// addZnode stages the first version of a new znode and its parent's with one child more.
func (t *Tree) addZnode(e *entry, op *Op) *version {
	h := &t.header
	v := t.stage(e)
	v.Znode = Znode{Czxid: h.Zxid, Mzxid: h.Zxid, Pzxid: h.Zxid, Ctime: h.Time, Mtime: h.Time, Data: clone(op.Data)}
	v.deleted = false
	if op.Mode.IsEphemeral() {
		v.Owner = h.Session
	}

	p := t.stage(e.parent)
	p.children = p.children.add(Base(e.path), t.edit)
	p.numChildren++
	// At the end of its range the counter stands still, and with it, as in ZooKeeper, Pzxid.
	if p.Created < math.MaxInt32 {
		p.Created++
		p.Pzxid = h.Zxid
	}
	t.record(Created, e.path, v.Owner)
	return v
}

func (t *Tree) set(op *Op, r *Result) error {
	e, err := t.expect(op)
	if err != nil {
		return err
	}
	v := t.stage(e)
	v.Mzxid, v.Mtime = t.header.Zxid, t.header.Time
	v.Version = nextVersion(v.Version)
	v.Data = clone(op.Data)
	r.Stat = v.stat()
	t.record(DataChanged, e.path, v.Owner)
	return nil
}

// delete looks at the path only as far as ZooKeeper does: a malformed one is the path of no znode.
func (t *Tree) delete(op *Op) error {
	if _, err := lastSlash(op.Path); err != nil {
		return err
	}
	if isReserved(op.Path) {
		return invalidPath(op.Path, "cannot be deleted")
	}
	e := t.index.get(op.Path)
	if e == nil || e.current() == nil {
		return ErrNoNode
	}
	old := e.current()
	if op.Version != AnyVersion && op.Version != old.Version {
		return ErrBadVersion
	}
	if old.numChildren > 0 {
		return ErrNotEmpty
	}
	t.removeZnode(e, old.Owner)
	return nil
}

// removeZnode stages the end of a znode without children and its parent's version with one child less.
func (t *Tree) removeZnode(e *entry, owner SessionID) {
	v := t.stage(e)
	v.Znode = Znode{}
	v.deleted = true

	p := t.stage(e.parent)
	p.children = p.children.remove(Base(e.path), t.edit)
	p.numChildren--
	p.Pzxid = t.header.Zxid
	t.record(Deleted, e.path, owner)
}

func (t *Tree) checkVersion(op *Op) error {
	_, err := t.expect(op)
	return err
}

// expect returns the entry of an existing znode whose version is the one the operation names.
func (t *Tree) expect(op *Op) (*entry, error) {
	e := t.index.get(op.Path)
	if e == nil || e.current() == nil {
		// Only here can the path be invalid: a path in the tree is not. So the common case is spared the check.
		if err := ValidatePath(op.Path); err != nil {
			return nil, err
		}
		return nil, ErrNoNode
	}
	if op.Version != AnyVersion && op.Version != e.current().Version {
		return nil, ErrBadVersion
	}
	return e, nil
}

// stage returns the entry's version of this transaction, which at first is a copy of its newest.
func (t *Tree) stage(e *entry) *version {
	if e.staged != nil {
		return e.staged
	}
	v := &version{zxid: t.header.Zxid}
	if old := e.newest.Load(); old != nil {
		v.Znode, v.children, v.numChildren, v.deleted = old.Znode, old.children, old.numChildren, old.deleted
		v.prev.Store(old)
	}
	e.staged = v
	t.touched = append(t.touched, e)
	return v
}

func (t *Tree) record(c ChangeType, path string, owner SessionID) {
	t.changes = append(t.changes, Change{Type: c, Path: path, Owner: owner})
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

// lastSlash is all that ZooKeeper asks of the path of a create or delete before it looks for the parent.
func lastSlash(path string) (int, error) {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 {
		return 0, invalidPath(path, "has no slash")
	}
	if strings.IndexByte(path, 0) >= 0 {
		return 0, invalidPath(path, "has a control character")
	}
	return slash, nil
}

// reuse empties a slice and keeps its room if that is not too much.
func reuse[T any](s []T) []T {
	if cap(s) > scratchMax {
		return nil
	}
	clear(s)
	return s[:0]
}
