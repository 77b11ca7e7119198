package engine

import (
	"slices"

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

// whole returns what the Stat of a znode is once its other shards are looked at.
func (s *Session) whole(path string, stat tree.Stat) tree.Stat {
	if !s.engine.spans(path) {
		return stat
	}
	for _, m := range s.engine.shards[1:] {
		other, _ := m.tree.Load().Exists(path)
		stat = sum(path, stat, other)
	}
	return stat
}

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

// allChildren is Children of a znode that is on every shard.
func (s *Session) allChildren(path string) (names []string, stat tree.Stat, err error) {
	for i, m := range s.engine.shards {
		more, one, err := m.tree.Load().As(s.who).Children(path)
		if err != nil {
			return nil, tree.Stat{}, err
		}
		names = append(names, more...)
		if i == 0 {
			stat = one
		} else {
			stat = sum(path, stat, one)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), stat, nil
}

// allDescendants is Descendants of a znode with some below it on other shards.
func (s *Session) allDescendants(path string) (int, error) {
	n, err := s.view(path).Descendants(path)
	if err != nil {
		return 0, err
	}
	for _, m := range s.engine.shards[1:] {
		below := path
		if path != rootPath {
			below = quotaPath
		}
		more, err := m.tree.Load().As(s.who).Descendants(below)
		if err != nil {
			return 0, err
		}
		if n += more; path == rootPath {
			n -= fromBirth
		}
	}
	return n, nil
}

// watch arms a watch on every shard that has something of what it sees.
func (e *Engine) watch(path string, mode watch.Mode, who *watch.Watcher) stream {
	if !e.spans(path) && !(mode == watch.Recursive && e.reaches(path)) {
		return e.at(path).registry.Add(path, mode, 0, who)
	}
	registries := make([]*watch.Registry, len(e.shards))
	for i, m := range e.shards {
		registries[i] = m.registry
	}
	return watch.Join(registries, path, mode, who)
}
