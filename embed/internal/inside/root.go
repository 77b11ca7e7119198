package inside

import (
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/tree"
)

// A Root is the znode that a session knows as "/". Empty is the tree's own root.
type Root string

// In returns the tree's path for a path of the session.
func (r Root) In(path string) string {
	switch {
	case r == "":
		return path
	case path == "/":
		return string(r)
	}
	return string(r) + path
}

// Out returns the session's path for a path of the tree that is at or below the root. It returns
// every other path as it is.
func (r Root) Out(path string) string {
	switch {
	case !strings.HasPrefix(path, string(r)):
		return path
	case path == string(r):
		return "/"
	}
	return path[len(r):]
}

// created returns the tree's path for a znode to be created. A numbered child of the session's root
// must not become a sibling of that root.
func (r Root) created(path string, mode tree.CreateMode) string {
	if r != "" && path == "/" && mode.IsSequential() {
		return string(r) + "/"
	}
	return r.In(path)
}

// Op returns an operation with the tree's path. As in ZooKeeper a session cannot delete its root.
func (r Root) Op(o tree.Op) tree.Op {
	switch {
	case o.Kind == tree.KindCreate:
		o.Path = r.created(o.Path, o.Mode)
	case o.Kind != tree.KindDelete || o.Path != "/":
		o.Path = r.In(o.Path)
	}
	return o
}

// Results returns results with the session's paths.
func (r Root) Results(list []tree.Result) []tree.Result {
	if r == "" {
		return list
	}
	list = slices.Clone(list) // other goroutines may have been given the same list
	for i := range list {
		list[i].Path = r.Out(list[i].Path)
	}
	return list
}
