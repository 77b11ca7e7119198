package engine

import (
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// The root and the parent of the quotas are on every shard. Each shard has the children that belong
// to it. The functions here read all shards, one after the other, and put the results together. The
// result is true for each shard at some moment, but not for all at the same moment.

// fromBirth is how many znodes below the root every shard has from the start. They are ZooKeeper's
// own.
const fromBirth = 3

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

// A finding is a znode as it was found on its shard, or on all shards.
type finding struct {
	path string
	tree.Found
	others []tree.Found
}

// stat returns the Stat of the znode over all its shards.
func (f *finding) stat() tree.Stat {
	stat := f.Stat()
	for _, other := range f.others {
		stat = sum(f.path, stat, other.Stat())
	}
	return stat
}

// children returns the sorted names on all shards.
func (f *finding) children() []string {
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

// watchedOn returns the index of the shard that has everything the watch sees, or watch.Everywhere.
func (e *Engine) watchedOn(path string, mode watch.Mode) int {
	if e.spans(path) || mode == watch.Recursive && e.reaches(path) {
		return watch.Everywhere
	}
	return int(command.ShardOf(path, len(e.shards)) - 1)
}

// watch arms a watch on every shard that has a part of what it sees.
func (e *Engine) watch(path string, mode watch.Mode, o watch.Options, who *watch.Watcher) keeper.Stream {
	at := e.watchedOn(path, mode)
	if at == watch.Everywhere {
		return watch.Join(e.registries.Registries, path, mode, o, who)
	}
	return e.shards[at].Watches.Add(path, mode, o, who)
}
