package embed

import (
	"slices"

	"github.com/vivarium-go/vivarium/tree"
)

// A chroot is what a session knows as "/". Empty is the root itself.
type chroot string

// in returns the tree's path for one of the session's.
func (r chroot) in(path string) string {
	switch {
	case r == "":
		return path
	case path == "/":
		return string(r)
	}
	return string(r) + path
}

// out returns the session's path for one of the tree's, which is at or below the chroot.
func (r chroot) out(path string) string {
	switch {
	case r == "" || path == "":
		return path
	case path == string(r):
		return "/"
	}
	return path[len(r):]
}

// created returns the tree's path for one that is to be created: a numbered child of the session's root is none of the
// root's siblings.
func (r chroot) created(path string, mode CreateMode) string {
	if r != "" && path == "/" && mode.IsSequential() {
		return string(r) + "/"
	}
	return r.in(path)
}

// op returns an operation with the tree's path. As in ZooKeeper a session cannot delete its root.
func (r chroot) op(o tree.Op) tree.Op {
	switch {
	case o.Kind == tree.KindCreate:
		o.Path = r.created(o.Path, o.Mode)
	case o.Kind != tree.KindDelete || o.Path != "/":
		o.Path = r.in(o.Path)
	}
	return o
}

// results returns results with the session's paths.
func (r chroot) results(list []Result) []Result {
	if r == "" {
		return list
	}
	list = slices.Clone(list) // which others may ask for too
	for i := range list {
		list[i].Path = r.out(list[i].Path)
	}
	return list
}
