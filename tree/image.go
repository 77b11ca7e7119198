package tree

import (
	"slices"
	"strings"
)

// Drain calls fn once for every path changed since the last Drain, in byte order, and then forgets
// them. The znode is as the newest transaction left it; exists is false if it is gone. If fn
// returns an error, Drain stops, returns it, and forgets nothing. Data and ACL belong to the tree:
// fn may keep them but must not change them. Drain belongs to the writer.
//
// The first Drain of a tree made by New includes the initial znodes. That of a tree made by a
// Loader includes nothing.
func (t *Tree) Drain(fn func(path string, z Znode, exists bool) error) error {
	slices.SortFunc(t.dirty, byPathGoneFirst)
	for i, e := range t.dirty {
		// A znode deleted in one transaction and created in a later one has two entries. The
		// existing one comes last and counts.
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

// Walk calls fn for every znode in byte order of the paths, as the newest transaction left it. It
// stops at fn's first error and returns it. Data and ACL belong to the tree: fn may keep them but
// must not change them.
//
// Walk belongs to the writer. It sorts all paths, so it is meant for checks and for complete
// copies, and too slow for use in a write.
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
