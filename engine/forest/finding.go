package forest

import (
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// The root and the parent of the quotas are on every shard. Each shard has the children that belong
// to it. The functions here read all shards, one after the other, and put the results together. The
// result is true for each shard at some moment, but not for all at the same moment.

// FromBirth is how many znodes below the root every shard has from the start. They are ZooKeeper's
// own.
const FromBirth = 3

// sum adds up the Stats of a znode on two shards. Zxids of two shards do not compare, so it takes
// the larger.
func sum(path string, a, b tree.Stat) tree.Stat {
	a.Czxid, a.Mzxid, a.Pzxid = max(a.Czxid, b.Czxid), max(a.Mzxid, b.Mzxid), max(a.Pzxid, b.Pzxid)
	a.Cversion += b.Cversion
	a.NumChildren += b.NumChildren
	if path == command.RootPath {
		a.NumChildren-- // both have /zookeeper
		a.Cversion++    // it begins at -1
	}
	return a
}

// A Finding is a znode as it was found on its shard, or on all shards.
type Finding struct {
	path string
	tree.Found
	others []tree.Found
}

// stat returns the Stat of the znode over all its shards.
func (f *Finding) stat() tree.Stat {
	stat := f.Stat()
	for _, other := range f.others {
		stat = sum(f.path, stat, other.Stat())
	}
	return stat
}

// children returns the sorted names on all shards.
func (f *Finding) children() []string {
	names := f.Children()
	if len(f.others) == 0 {
		return names
	}
	for _, other := range f.others {
		names = append(names, other.Children()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
