package replica

import (
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A gap is what lies between two states of a tree when the transactions in between were not seen. It can say of some
// znodes that nothing happened to them, never what happened to the others.
type gap struct {
	old, next *tree.Tree
	compared  map[string]comparison // on the paths of recursive watches: many may be on one, and apply stands still meanwhile
}

// A comparison is what touched says.
type comparison struct {
	first   watch.EventType
	touched bool
}

// touched implements the question of watch.Registry.Install. The ACL is that of the znode as it is, or was before it went.
func (g gap) touched(path string, mode watch.Mode) (watch.EventType, []tree.ACL, bool) {
	t, yes := g.compareOnce(path, mode)
	if !yes {
		return t, nil, false
	}
	super := []tree.Identity{{Scheme: "super"}}
	acl, _, err := g.next.As(super).ACL(path)
	if err != nil {
		acl, _, _ = g.old.As(super).ACL(path) // or none, of a znode that came and went
	}
	return t, acl, true
}

// compareOnce is touched for a path that is watched.
func (g gap) compareOnce(path string, mode watch.Mode) (watch.EventType, bool) {
	if mode != watch.Recursive {
		return g.compare(path, mode)
	}
	v, known := g.compared[path]
	if !known {
		v.first, v.touched = g.compare(path, mode)
		g.compared[path] = v
	}
	return v.first, v.touched
}

// touched says whether anything about a path may have changed, and what would be noticed first.
func (g gap) compare(path string, mode watch.Mode) (watch.EventType, bool) {
	before, was := g.old.Exists(path)
	after, is := g.next.Exists(path)
	switch {
	case !was && !is:
		return watch.NodeCreated, g.absentTouched(path)
	case !was:
		return watch.NodeCreated, true
	case !is:
		return watch.NodeDeleted, true
	case mode != watch.Children && (before.Czxid != after.Czxid || before.Mzxid != after.Mzxid):
		return watch.NodeDataChanged, true
	case mode != watch.Data && (before.Pzxid != after.Pzxid || before.NumChildren != after.NumChildren): // a create may leave Pzxid alone: see tree
		return watch.NodeChildrenChanged, true
	}
	return watch.NodeDataChanged, mode == watch.Recursive && g.belowTouched(path)
}

// absentTouched reports whether a znode that is missing before and after may have existed in between: not if the
// children of its nearest existing ancestor never changed.
func (g gap) absentTouched(path string) bool {
	for path != "/" {
		path = tree.Parent(path)
		before, was := g.old.Exists(path)
		after, is := g.next.Exists(path)
		if was || is {
			return !was || !is || before.Czxid != after.Czxid || before.Pzxid != after.Pzxid || before.NumChildren != after.NumChildren
		}
	}
	return true
}

// belowTouched reports whether anything below an untouched znode changed. Its children are the same ones then, unless
// their own Stats differ.
func (g gap) belowTouched(path string) bool {
	names, _, err := g.old.Children(path)
	if err != nil {
		return true
	}
	for _, name := range names {
		child := path + "/" + name
		if path == "/" {
			child = "/" + name
		}
		if _, yes := g.compare(child, watch.Recursive); yes {
			return true
		}
	}
	return false
}
