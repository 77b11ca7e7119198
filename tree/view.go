package tree

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// A View is the tree with somebody's permissions. It has the reads of Tree, each with a check of
// the permission it needs. Any number of goroutines may use it. Its zero value is not usable; see
// Tree.As.
type View struct {
	tree *Tree
	who  []Identity
	pin  *Pin // nil: always the newest visible state
}

// As returns the tree as seen with the identities, which the View keeps. There may be none.
func (t *Tree) As(who []Identity) View { return View{tree: t, who: who} }

// MayRead reports whether the ACL allows reading a znode and learning about its changes. For a
// Created, Deleted or DataChanged, pass the znode's ACL; for a change in a list of children, the
// parent's.
func (v View) MayRead(acl []ACL) bool { return v.permit(acl, Read) == nil }

// CheckWrite returns why setting a znode's data would be refused whatever the data: ErrNoNode, or
// ErrNoAuth without Write.
func (v View) CheckWrite(path string) error {
	z := v.find(path)
	if z == nil {
		return ErrNoNode
	}
	return v.permit(z.acl(), Write)
}

// Get returns a znode's data and Stat. The data is a copy that belongs to the caller. It is nil if
// it was set to nil. The errors are ErrNoNode, and ErrNoAuth without Read.
func (v View) Get(path string) ([]byte, Stat, error) {
	z, err := v.read(path)
	if err != nil {
		return nil, Stat{}, err
	}
	return bytes.Clone(z.bytes()), z.stat(), nil
}

// Find returns a znode in its present state. The errors are those of Get.
func (v View) Find(path string) (Found, error) {
	z, err := v.read(path)
	return Found{z}, err
}

// Newest returns the state of a znode that the last transaction has left, for the writer.
func (t *Tree) Newest(path string) (Found, bool) {
	e := t.index.get(path)
	if e == nil || e.current() == nil {
		return Found{}, false
	}
	return Found{e.current()}, true
}

// A Found is the state of a znode when it was found; later changes do not affect it. Finding copies
// nothing, so it may be done while holding a lock. The zero value is not usable.
type Found struct{ version *version }

// Detached returns the Found of a znode that another process has told of. It knows no children.
func Detached(data []byte, s Stat) Found {
	return Found{&version{zxid: s.Mzxid, state: state{
		czxid: s.Czxid, mzxid: s.Mzxid, ctime: s.Ctime.UnixMilli(), mtime: s.Mtime.UnixMilli(),
		data: string(data), null: data == nil, version: s.Version,
		more: &rest{pzxid: s.Pzxid, owner: s.EphemeralOwner, created: (s.Cversion + s.NumChildren) / 2, aversion: s.Aversion, numChildren: s.NumChildren},
	}}}
}

// Data returns the data, as Get does.
func (f Found) Data() []byte { return bytes.Clone(f.version.bytes()) }

// Stat returns the Stat.
func (f Found) Stat() Stat { return f.version.stat() }

// ACL returns the ACL as the tree keeps it; nil is the open one. It must not be changed.
func (f Found) ACL() []ACL { return f.version.acl() }

// Children returns the names of the children in byte order.
func (f Found) Children() []string { return f.version.names() }

// Exists returns a znode's Stat, or false if the znode does not exist. The errors are
// ErrInvalidPath if the path has a NUL, and ErrNoAuth without Read on a znode that exists.
func (v View) Exists(path string) (Stat, bool, error) {
	if strings.IndexByte(path, 0) >= 0 {
		return Stat{}, false, invalidPath(path, "has a control character")
	}
	z, err := v.read(path)
	switch err {
	case nil:
		return z.stat(), true, nil
	case ErrNoNode:
		return Stat{}, false, nil
	}
	return Stat{}, false, err
}

// Children returns the names of a znode's children in byte order, and its Stat, both of the same
// zxid. The errors are ErrNoNode, and ErrNoAuth without Read.
func (v View) Children(path string) ([]string, Stat, error) {
	z, err := v.read(path)
	if err != nil {
		return nil, Stat{}, err
	}
	return z.names(), z.stat(), nil
}

// Page returns the names of a znode's children after the given name, in byte order and at most n of
// them. n is positive. The cost does not grow with the number of children. The errors are
// ErrNoNode, and ErrNoAuth without Read.
func (v View) Page(path, after string, n int) ([]string, error) {
	z, err := v.read(path)
	if err != nil {
		return nil, err
	}
	return z.rest().children.page(after, n), nil
}

// Walk calls fn with a znode and all below it that the View may read, each before its children, in
// byte order, until fn returns false. It goes depth levels down, or all with zero. Only a View of a
// Pin shows all at one zxid. The errors are ErrNoNode, ErrNoAuth without Read on the first, and
// ErrPinLost.
func (v View) Walk(path string, depth int, fn func(path string, f Found) bool) error {
	_, err := v.read(path)
	w := tour{view: v, at: path}
	for ok := err == nil; ok && !v.isLost(); {
		exists, more := w.show(fn)
		if !more {
			return nil
		}
		ok = w.next(exists && (depth == 0 || w.level < depth)) // without a Pin it may be gone
	}
	if v.isLost() {
		return ErrPinLost
	}
	return err
}

// isLost reports whether what was found before may be wrong, because the pin was lost.
func (v View) isLost() bool { return v.pin != nil && v.pin.lost.Load() }

// A tour knows what a walk visits next. Between two znodes it keeps one path, and no names: a remote
// client may let it wait, and names would outlive their znodes and the pin.
type tour struct {
	view  View
	at    string // the path that was visited last
	level int    // of at, below the first path
}

// show calls fn with the present znode, if it exists and may be read, and returns what fn does. It uses
// the version last for that: while fn waits, nothing here keeps it in memory.
func (w *tour) show(fn func(path string, f Found) bool) (exists, more bool) {
	z := w.view.find(w.at)
	switch {
	case z == nil || w.view.isLost():
		return false, true
	case w.view.permit(z.acl(), Read) != nil:
		return true, true
	}
	return true, fn(w.at, Found{z})
}

// next goes to the next path, which may be below the present one if it goes down, or returns false if
// there is none.
func (w *tour) next(down bool) bool {
	above, after := strings.TrimSuffix(w.at, "/"), ""
	if down {
		w.level++
	} else if w.level > 0 {
		above, after = cut(above)
	}
	for ; w.level > 0; w.level-- {
		if z := w.view.find(cmp.Or(above, "/")); z != nil {
			if name := z.rest().children.next(after); name != "" {
				w.at = above + "/" + name
				return true
			}
		}
		if w.level > 1 {
			above, after = cut(above)
		}
	}
	return false
}

// cut returns the path above and the name.
func cut(path string) (above, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i], path[i+1:]
}

// Before is Tree.Before. The errors are ErrNoNode, and ErrNoAuth without Read on the parent, which
// hides whether the znode exists. The root counts as its own parent.
func (v View) Before(path string, match ...string) (name string, ok bool, err error) {
	parent, own := findParent(v.find, path)
	if parent == nil {
		return "", false, ErrNoNode
	}
	if err := v.permit(parent.acl(), Read); err != nil {
		return "", false, err
	}
	return parent.before(own, match)
}

// ACL returns a znode's list and its Stat, both of the same zxid. The list belongs to the caller.
// Without Admin, ids of the scheme digest show only the user, with "x" in place of the digest. The
// errors are ErrNoNode, and ErrNoAuth with neither Read nor Admin.
func (v View) ACL(path string) ([]ACL, Stat, error) {
	z := v.find(path)
	if z == nil {
		return nil, Stat{}, ErrNoNode
	}
	if err := v.permit(z.acl(), Read|Admin); err != nil {
		return nil, Stat{}, err
	}
	if len(z.acl()) == 0 {
		return OpenACL(), z.stat(), nil
	}
	list := slices.Clone(z.acl())
	if v.permit(z.acl(), Admin) != nil {
		for i := range list {
			if list[i].Scheme == digestName {
				list[i].ID = mask(list[i].ID)
			}
		}
	}
	return list, z.stat(), nil
}

// Descendants returns how many znodes are below the given one, at any depth. The errors are
// ErrNoNode, and ErrNoAuth without Read.
func (v View) Descendants(path string) (int, error) {
	z, err := v.read(path)
	if err != nil {
		return 0, err
	}
	return z.below(), nil
}

// find returns the visible version of a znode, or nil.
func (v View) find(path string) *version {
	if v.pin != nil {
		return v.pin.find(path)
	}
	return v.tree.find(path)
}

// read returns the visible version of a znode if the View may read it.
func (v View) read(path string) (*version, error) {
	z := v.find(path)
	if z == nil {
		return nil, ErrNoNode
	}
	if err := v.permit(z.acl(), Read); err != nil {
		return nil, err
	}
	return z, nil
}

// permit returns ErrNoAuth unless the ACL allows one of the needed permissions.
func (v View) permit(acl []ACL, need Perms) error {
	if v.tree.schemes.Load().permit(acl, v.who, need) {
		return nil
	}
	return ErrNoAuth
}
