package tree

import (
	"fmt"
	"strings"
)

// A Named is a znode in its durable form, with its path.
type Named struct {
	Path string
	Znode
}

// CheckRestore returns why Restore would refuse a znode by itself, or nil. The error wraps
// ErrCorrupt and names the path.
func CheckRestore(n Named) error {
	fault := pathFault(n.Path)
	if fault == "" {
		fault = n.fault(n.Path)
	}
	switch {
	case fault != "":
	case n.Path == ConfigPath:
		fault = "says who the members are"
	case n.Owner != 0:
		fault = "is an ephemeral"
	}
	if fault != "" {
		return corrupt(n.Path, fault)
	}
	return nil
}

// Restore adds znodes of another tree as they were there, with their zxids, times, versions and
// create counters. Parents come before their children. The initial znodes exist already, and take
// what Restore brings; their create counters never go down. ConfigPath and ephemerals are refused.
//
// Restore is a transaction of its own, like Apply, and checks no permission and no limit. All
// zxids in it must be below the header's. The usage of a quota is counted anew. It begins with
// those of its znodes that the tree has when the usage is restored. The ages of mortals begin now.
//
// Errors wrap ErrCorrupt and name a path. Then nothing has changed. The causes are those of
// CheckRestore, and:
//
//   - a znode that exists already, or whose parent does not
//   - a zxid that is not below the header's
func (t *Tree) Restore(h Header, znodes []Named) error {
	t.begin(&h)
	for i := range znodes {
		if err := t.restore(&znodes[i]); err != nil {
			t.abort()
			return err
		}
	}
	t.install()
	return nil
}

func (t *Tree) restore(n *Named) error {
	if err := CheckRestore(*n); err != nil {
		return err
	}
	if z := max(n.Czxid, n.Mzxid, n.Pzxid); z >= t.header.Zxid {
		return corrupt(n.Path, fmt.Sprintf("has zxid %d, not before %d", z, t.header.Zxid))
	}
	if isReserved(n.Path) {
		return t.restoreInitial(n)
	}
	e := t.index.get(n.Path)
	if e != nil && e.current() != nil {
		return corrupt(n.Path, "exists already")
	}
	parent := t.index.get(Parent(n.Path))
	if parent == nil || parent.current() == nil {
		return corrupt(n.Path, "has no parent")
	}
	if e == nil {
		e = &entry{path: strings.Clone(n.Path), parent: parent}
		t.addEntry(e)
	}
	t.addRestored(e, n)
	return nil
}

// addRestored stages the first version of a znode, and a version of its parent with one more child.
// The parent keeps its Pzxid, and its create counter unless that is less than its children: it was
// restored with both.
func (t *Tree) addRestored(e *entry, n *Named) {
	p := t.stage(e.parent)
	near := p.rest().traits
	z := n.Znode
	z.ACL = keepACL(z.ACL, near)
	s := newState(&z)
	s.share(near)
	v := t.stage(e)
	s.marks = v.marks
	v.state = s
	r := p.own()
	r.children = r.children.add(Base(e.path), t.edit)
	r.numChildren++
	r.created = max(r.created, r.numChildren-initialChildren(e.parent.path))
	t.countBelow(e, 1)
	t.changes = append(t.changes, Change{Type: Created, Path: e.path, ACL: v.acl(), ParentACL: p.acl()})
	size := int64(len(v.data))
	t.recount(e)
	t.charge(e.path, 1, size)
}

// restoreInitial stages what an initial znode was in another tree. Its children stay.
func (t *Tree) restoreInitial(n *Named) error {
	e, err := t.existing(n.Path)
	if err != nil {
		return corrupt(n.Path, "is missing")
	}
	v := t.stage(e)
	grown := int64(len(n.Data) - len(v.data))
	v.czxid, v.mzxid, v.ctime, v.mtime, v.version = n.Czxid, n.Mzxid, n.Ctime, n.Mtime, n.Version
	v.setData(n.Data)
	r := v.own()
	r.pzxid, r.aversion, r.created = n.Pzxid, n.Aversion, max(r.created, n.Created)
	v.setACL(cloneACL(n.ACL), e.parent)
	t.charge(e.path, 0, grown)
	t.changes = append(t.changes, Change{Type: DataChanged, Path: e.path, ACL: v.acl()})
	return nil
}
