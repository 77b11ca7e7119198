package tree

import (
	"slices"
	"strings"
)

// Drain calls fn once for every path touched since the last Drain, in byte order, with the znode as the newest
// transaction left it, or with exists false if it is gone; then it forgets them. If fn returns an error Drain stops with
// it and forgets nothing. The znode's data and ACL are the tree's: fn may keep but must not change them.
//
// A tree made by New starts with the znodes it has from birth touched, one made by a Loader with none.
func (t *Tree) Drain(fn func(path string, z Znode, exists bool) error) error {
	slices.SortFunc(t.dirty, byPathGoneFirst)
	for i, e := range t.dirty {
		// A znode deleted in one transaction and created in a later one has two entries. The one that exists comes last, and
		// speaks for both.
		if i+1 < len(t.dirty) && t.dirty[i+1].path == e.path {
			continue
		}
		v, z := e.current(), Znode{}
		if v != nil {
			z = v.znode()
		}
		if err := fn(e.path, z, v != nil); err != nil {
			return err
		}
	}
	t.forgetDirty()
	return nil
}

func (t *Tree) forgetDirty() {
	for _, e := range t.dirty {
		e.newest.Load().dirty = false
	}
	t.dirty = reuse(t.dirty)
}

// Dirty returns how many paths Drain would name, or a few more. It belongs to the writer.
func (t *Tree) Dirty() int { return len(t.dirty) }

func (t *Tree) markDirty(e *entry) {
	v := e.newest.Load()
	if v.dirty {
		return
	}
	v.dirty = true
	t.dirty = append(t.dirty, e)
}

// Walk calls fn for every znode in byte order of the paths, as the newest transaction left it, and stops with the first
// error fn returns. The znode's data and ACL are the tree's: fn may keep but must not change them. It belongs to the writer, and
// sorts all paths: it is for checks and for whole copies, not for the path of a write.
func (t *Tree) Walk(fn func(path string, z Znode) error) error {
	all := t.index.all()
	slices.SortFunc(all, byPath)
	for _, e := range all {
		v := e.current()
		if v == nil {
			continue
		}
		if err := fn(e.path, v.znode()); err != nil {
			return err
		}
	}
	return nil
}

func byPath(a, b *entry) int { return strings.Compare(a.path, b.path) }

func byPathGoneFirst(a, b *entry) int {
	c := byPath(a, b)
	switch {
	case c != 0 || (a.current() == nil) == (b.current() == nil):
		return c
	case a.current() == nil:
		return -1
	}
	return 1
}
