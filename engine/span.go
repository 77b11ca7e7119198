package engine

import (
	"slices"

	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// The root and the parent of the quotas are on every shard, each with the children that belong there. What is said of them
// here is put together from all shards, one after the other: it is true of each of them at some moment, not of all at one.

// spans reports whether a znode is on every shard.
func (e *Engine) spans(path string) bool {
	return len(e.shards) > 1 && (path == rootPath || path == quotaPath)
}

// reaches reports whether znodes below one may be on other shards than it.
func (e *Engine) reaches(path string) bool {
	return e.spans(path) || len(e.shards) > 1 && path == rootPath+zookeeperName
}

// fromBirth is how many znodes there are below the root of every shard that are the same ones: ZooKeeper's own.
const fromBirth = 3

// sum adds up the Stats of a znode on two shards. Of zxids, which do not compare, it has the larger.
func sum(path string, a, b tree.Stat) tree.Stat {
	a.Czxid, a.Mzxid, a.Pzxid = max(a.Czxid, b.Czxid), max(a.Mzxid, b.Mzxid), max(a.Pzxid, b.Pzxid)
	a.Cversion += b.Cversion
	a.NumChildren += b.NumChildren
	if path == rootPath {
		a.NumChildren-- // /zookeeper, which both have
		a.Cversion++    // which begins with -1
	}
	return a
}

// A finding is a znode as somebody found it on its shard, or on all of them.
type finding struct {
	path string
	tree.Found
	others []tree.Found
}

// stat is what Stat and those of the other shards say together.
func (f *finding) stat() tree.Stat {
	stat := f.Stat()
	for _, other := range f.others {
		stat = sum(f.path, stat, other.Stat())
	}
	return stat
}

// children are the sorted names on all shards.
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

// watchedOn returns the index of the shard that has everything a watch sees, or watch.Everywhere.
func (e *Engine) watchedOn(path string, mode watch.Mode) int {
	if e.spans(path) || mode == watch.Recursive && e.reaches(path) {
		return watch.Everywhere
	}
	return shardOf(path, len(e.shards))
}

// watch arms a watch on every shard that has something of what it sees.
func (e *Engine) watch(path string, mode watch.Mode, who *watch.Watcher) keeper.Stream {
	at := e.watchedOn(path, mode)
	if at == watch.Everywhere {
		return watch.Join(e.registries.Registries, path, mode, who)
	}
	return e.shards[at].Watches.Add(path, mode, 0, who)
}
