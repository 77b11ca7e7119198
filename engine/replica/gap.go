package replica

import (
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A gap is what lies between two states of a tree if this node has not seen the transactions in
// between. For some paths it can tell that nothing has happened to them. For the others it cannot
// tell what has happened.
type gap struct {
	old, next *tree.Tree
	compared  map[string]comparison // for the paths of recursive watches
}

// A comparison is what compare returns.
type comparison struct {
	first   watch.EventType
	touched bool
}

// superuser may read every ACL.
var superuser = []tree.Identity{{Scheme: "super"}}

// touched answers watch.Registry.Install. The ACL is the znode's in the new state, or in the old
// state if the znode is gone. A znode that came and went in the gap has none.
func (g gap) touched(path string, mode watch.Mode) (watch.EventType, []tree.ACL, bool) {
	t, yes := g.compareOnce(path, mode)
	if !yes {
		return t, nil, false
	}
	acl, _, err := g.next.As(superuser).ACL(path)
	if err != nil {
		acl, _, _ = g.old.As(superuser).ACL(path)
	}
	return t, acl, true
}

// compareOnce returns compare's result for a watched path. It compares the path of recursive
// watches only once, because many of them may be on it, and nothing is applied meanwhile.
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

// compare reports whether anything that a watch on a path sees may have changed, and which event
// its watcher would notice first. It is none, zero, if only the ACL may have changed.
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
	case mode != watch.Data && (before.Pzxid != after.Pzxid || before.NumChildren != after.NumChildren): // below command.LevelPzxid it may stand still
		return watch.NodeChildrenChanged, true
	case mode != watch.Children && mode != watch.Data && before.Aversion != after.Aversion:
		return 0, true
	}
	return watch.NodeDataChanged, mode == watch.Recursive && g.belowTouched(path)
}

// absentTouched reports whether a znode that both states lack may have existed in between. It
// cannot have if the children of its nearest existing ancestor never changed.
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

// belowTouched reports whether anything below an untouched znode may have changed. Both states have
// the same child names then. A child that was replaced has a different Stat.
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
