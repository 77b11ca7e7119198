package tree

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// The operations. Each makes its checks in ZooKeeper's order.

func (t *Tree) create(op *Op, r *Result) error {
	slash, err := t.checkCreate(op)
	if err != nil {
		return err
	}
	acl := op.ACL
	if acl != nil {
		if acl, err = t.schemes.Load().fix(acl, t.header.Identities); err != nil {
			return err
		}
	}
	parent := t.index.get(parentOf(op.Path, slash))
	if parent == nil || parent.current() == nil {
		return ErrNoNode
	}
	p := parent.current()
	path := op.Path
	if op.Mode.IsSequential() {
		path = sequentialPath(path, p.rest().created)
	}
	if err := t.permitWrite(path, p.acl(), Create); err != nil {
		return err
	}
	if err := ValidatePath(path); err != nil {
		return err
	}
	e := t.index.get(path)
	if e != nil && e.current() != nil {
		return errExists(op.Mode, path)
	}
	if p.rest().owner != 0 {
		return ErrNoChildrenForEphemerals
	}
	if err := t.checkQuota(path, 1, int64(len(op.Data))); err != nil {
		return err
	}
	if err := t.checkRecount(path); err != nil {
		return err
	}
	if e == nil {
		if !op.Mode.IsSequential() {
			path = strings.Clone(path) // it may lie in a buffer of the caller
		}
		e = &entry{path: path, parent: parent}
		t.addEntry(e)
	}
	r.Path, r.Stat = e.path, t.addZnode(e, t.newZnode(op, acl, p.rest().traits)).stat()
	return nil
}

// errExists says that a new znode's path is taken. The caller of a sequential create has never seen
// the whole name, so the error names it.
func errExists(mode CreateMode, path string) error {
	switch name := Base(path); {
	case !mode.IsSequential():
		return ErrNodeExists
	case strings.HasSuffix(name, lastSuffix):
		return fmt.Errorf("%w: %s, the last sequential name here: use another parent", ErrNodeExists, name)
	default:
		return fmt.Errorf("%w: %s is the next sequential name", ErrNodeExists, name)
	}
}

// checkCreate makes the checks of a create that do not depend on the tree, except for the ACL. It
// returns where the parent's path ends.
func (t *Tree) checkCreate(op *Op) (slash int, err error) {
	if err := op.Mode.Validate(); err != nil {
		return 0, err
	}
	least, most := int64(0), int64(0)
	if op.Mode.IsTTL() || op.Mode.IsEphemeral() {
		most = MaxTTL
	}
	if op.Mode.IsTTL() {
		least = 1
	}
	if op.TTL < least || op.TTL > most {
		return 0, fmt.Errorf("%w: %d ms for mode %v", ErrInvalidTTL, op.TTL, op.Mode)
	}
	if op.Mode.IsEphemeral() && t.header.Session == 0 {
		return 0, fmt.Errorf("%w: an ephemeral needs a session", ErrInvalidMode)
	}
	return lastSlash(op.Path)
}

func (t *Tree) newZnode(op *Op, acl []ACL, near *traits) state {
	h := &t.header
	s := state{czxid: h.Zxid, mzxid: h.Zxid, ctime: h.Time, mtime: h.Time}
	s.setData(op.Data)
	if op.Mode.IsEphemeral() {
		s.own().owner = h.Session
	}
	if traits := newTraits(keepACL(acl, near), op.TTL, op.Mode == Container, near); traits != nil {
		s.own().traits = traits
	}
	return s
}

func (t *Tree) set(op *Op, r *Result) error {
	e, err := t.existing(op.Path)
	if err != nil {
		return err
	}
	old := e.current()
	if err := t.permitWrite(op.Path, old.acl(), Write); err != nil {
		return err
	}
	if err := t.checkQuota(e.path, 0, int64(len(op.Data)-len(old.data))); err != nil {
		return err
	}
	if !op.expects(old.version) {
		return ErrBadVersion
	}
	r.Stat = t.write(e, op.Data)
	return nil
}

// write stages new data of a znode, and returns the Stat.
func (t *Tree) write(e *entry, data []byte) Stat {
	v := t.stage(e)
	grown := int64(len(data) - len(v.data))
	v.written(&t.header)
	v.setData(data)
	t.charge(e.path, 0, grown)
	t.changes = append(t.changes, Change{Type: DataChanged, Path: e.path, Owner: v.rest().owner, ACL: v.acl()})
	return v.stat()
}

// add needs both Read and Write: the requester learns the sum.
func (t *Tree) add(op *Op, r *Result) error {
	if err := op.Width.Validate(); err != nil {
		return err
	}
	e, err := t.existing(op.Path)
	if err != nil {
		return err
	}
	old := e.current()
	if err := cmp.Or(t.permitWrite(op.Path, old.acl(), Write), t.permit(old.acl(), Read)); err != nil {
		return err
	}
	n, err := op.Width.parse(old.data)
	if err != nil {
		return err
	}
	sum := n + op.Delta
	if (sum < n) != (op.Delta < 0) || op.Width == Int32 && sum != int64(int32(sum)) {
		return fmt.Errorf("%w: %d and %d", ErrOverflow, n, op.Delta)
	}
	data := op.Width.Format(sum)
	if err := t.checkQuota(e.path, 0, int64(len(data)-len(old.data))); err != nil {
		return err
	}
	r.Stat, r.Value = t.write(e, data), sum
	return nil
}

// ensure makes no check on a znode that exists, as Exists makes none but Read.
func (t *Tree) ensure(op *Op, r *Result) error {
	_, err := t.existing(op.Path)
	if !errors.Is(err, ErrNoNode) {
		return err
	}
	return t.create(&Op{Kind: KindCreate, Path: op.Path, Mode: Container}, r)
}

// delete checks the path only as far as ZooKeeper does: no znode has a malformed path. It needs a
// permission on the parent and none on the znode. A requester without the permission does not learn
// whether the znode exists.
//
// A delete that names the creation gives up a claim. Like a guard, it returns the same error
// whether the znode is gone, another creation has its path, or the requester may not know which:
// see isCreation. The owner of an ephemeral needs no permission for it: ending the session would
// have the same effect.
func (t *Tree) delete(op *Op) error {
	slash, err := lastSlash(op.Path)
	if err != nil {
		return err
	}
	if isReserved(op.Path) {
		return invalidPath(op.Path, "cannot be deleted")
	}
	e, old := t.index.get(op.Path), (*version)(nil)
	if e != nil {
		old = e.current()
	}
	switch {
	case op.Czxid != 0 && !t.isCreation(old, op.Czxid):
		return ErrNotHeld
	case old == nil:
		parent := t.index.get(parentOf(op.Path, slash))
		if parent == nil || parent.current() == nil || t.permit(parent.current().acl(), Delete) == nil {
			return ErrNoNode
		}
		return ErrNoAuth
	}
	if op.Czxid == 0 || !t.isOwn(old) {
		if err := t.permitWrite(op.Path, e.parent.current().acl(), Delete); err != nil {
			return err
		}
	}
	if !op.expects(old.version) {
		return ErrBadVersion
	}
	if old.numChildren() > 0 {
		return ErrNotEmpty
	}
	t.removeZnode(e)
	return nil
}

// isOwn reports whether a znode is an ephemeral of the transaction's session.
func (t *Tree) isOwn(v *version) bool {
	owner := v.rest().owner
	return owner != 0 && owner == t.header.Session
}

// isCreation reports whether a znode was created by a transaction, as far as the requester may know
// that: who may not read the znode, and does not own it, would otherwise find its creation by asking
// for one after the other.
func (t *Tree) isCreation(v *version, by Zxid) bool {
	return v != nil && v.czxid == by && (t.isOwn(v) || t.permit(v.acl(), Read) == nil)
}

func (t *Tree) checkVersion(op *Op) error {
	e, err := t.existing(op.Path)
	if err != nil {
		return err
	}
	if err := t.permit(e.current().acl(), Read); err != nil {
		return err
	}
	if !op.expects(e.current().version) {
		return ErrBadVersion
	}
	return nil
}

func (t *Tree) checkMzxid(op *Op) error {
	e, err := t.existing(op.Path)
	if err != nil {
		return err
	}
	if err := t.permit(e.current().acl(), Read); err != nil {
		return err
	}
	if e.current().mzxid != op.Mzxid {
		return ErrBadVersion
	}
	return nil
}

// checkLost is checkMzxid for what nobody keeps: the ensemble would delete it when its TTL is over.
func (t *Tree) checkLost(op *Op) error {
	if err := t.checkMzxid(op); err != nil {
		return err
	}
	r := t.index.get(op.Path).current().rest()
	if r.owner != 0 || r.traits == nil || r.traits.ttl == 0 {
		return ErrBadVersion
	}
	return nil
}

// checkChildren limits the number of children: a transaction with such a check adds a child only
// while there is room, even if others add children at the same time.
func (t *Tree) checkChildren(op *Op) error {
	e, err := t.existing(op.Path)
	if err != nil {
		return err
	}
	if err := t.permit(e.current().acl(), Read); err != nil {
		return err
	}
	if e.current().numChildren() > int(op.Version) {
		return ErrTooManyChildren
	}
	return nil
}

// guard needs Read, except on the session's own: see isCreation. A lingering znode keeps its creation
// but is held by nobody. So a guard accepts only ephemerals.
func (t *Tree) guard(op *Op) error {
	if e, err := t.existing(op.Path); err != nil || !t.isCreation(e.current(), op.Czxid) || e.current().rest().owner == 0 {
		return ErrNotHeld
	}
	return nil
}

// ownOnly refuses an operation that only the ensemble may use.
func (t *Tree) ownOnly(op *Op) error {
	if !t.header.System {
		return fmt.Errorf("%w: %v is only for the ensemble", ErrInvalidKind, op.Kind)
	}
	return nil
}

// lose ends an ephemeral of the transaction's session, which was lost. An ephemeral with a TTL
// lingers: from now on it is a TTL znode without an owner. It counts as set to the same data, so
// that its TTL begins now and its watches fire.
func (t *Tree) lose(op *Op) error {
	if err := t.ownOnly(op); err != nil {
		return err
	}
	e, err := t.existing(op.Path)
	if err != nil {
		return err
	}
	owner, traits := e.current().rest().owner, e.current().rest().traits
	switch {
	case owner == 0 || owner != t.header.Session:
		return ErrNotHeld
	case traits == nil || traits.ttl == 0:
		t.removeZnode(e)
		return nil
	}
	v := t.stage(e)
	v.own().owner = 0
	v.written(&t.header)
	t.changes = append(t.changes, Change{Type: DataChanged, Path: e.path, Owner: owner, Lost: true, ACL: v.acl()})
	return nil
}

// configure writes who the members are. The version stays -1, as in ZooKeeper: the content has a
// version of its own. No quota applies, because the members do not ask for room.
func (t *Tree) configure(op *Op) error {
	if err := t.ownOnly(op); err != nil {
		return err
	}
	e, err := t.existing(ConfigPath)
	if err != nil {
		return err
	}
	v := t.stage(e)
	grown := int64(len(op.Data) - len(v.data))
	v.written(&t.header)
	v.version = configVersion
	v.setData(op.Data)
	t.charge(e.path, 0, grown)
	t.changes = append(t.changes, Change{Type: DataChanged, Path: e.path, ACL: v.acl()})
	return nil
}

// written updates the fields that every write of the data changes.
func (v *version) written(h *Header) {
	v.mzxid, v.mtime = h.Zxid, h.Time
	v.version = nextVersion(v.version)
}

// setACL changes the ACL version and the list, but no zxid and no time. It makes no Change.
func (t *Tree) setACL(op *Op, r *Result) error {
	if err := ValidatePath(op.Path); err != nil {
		return err
	}
	acl, err := t.schemes.Load().fix(op.ACL, t.header.Identities)
	if err != nil {
		return err
	}
	e, err := t.existing(op.Path)
	if err != nil {
		return err
	}
	old := e.current()
	if err := t.permitWrite(op.Path, old.acl(), Admin); err != nil {
		return err
	}
	if !op.expects(old.rest().aversion) {
		return ErrBadVersion
	}
	former := old.acl() // a version that is staged may be old itself
	v := t.stage(e)
	v.own().aversion = nextVersion(v.own().aversion)
	v.setACL(acl, e.parent)
	t.changes = append(t.changes, Change{Type: ACLChanged, Path: e.path, Owner: v.rest().owner, ACL: v.acl(), FormerACL: former})
	r.Stat = v.stat()
	return nil
}

// setACL replaces the list and keeps the other traits.
func (v *version) setACL(acl []ACL, parent *entry) {
	var near *traits
	if parent != nil {
		near = parent.current().rest().traits
	}
	var ttl int64
	var container bool
	r := v.own()
	if r.traits != nil {
		ttl, container = r.traits.ttl, r.traits.container
	}
	r.traits = newTraits(keepACL(acl, near), ttl, container, near)
}

// existing returns the entry of a znode, or ErrInvalidPath or ErrNoNode.
func (t *Tree) existing(path string) (*entry, error) {
	e := t.index.get(path)
	if e != nil && e.current() != nil {
		return e, nil
	}
	// The path is checked only now, because a path in the tree is valid. That spares the common
	// case the check.
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	return nil, ErrNoNode
}

// expects reports whether the operation expects this version.
func (o *Op) expects(version int32) bool { return o.Version == AnyVersion || o.Version == version }

// lastSlash makes the only checks that ZooKeeper makes on the path of a create or delete before it
// looks for the parent.
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
