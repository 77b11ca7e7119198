package forest

import (
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/watch"
)

// WatchedOn returns the index of the shard that has everything the watch sees, or watch.Everywhere.
func (f Forest) WatchedOn(path string, mode watch.Mode) int {
	if f.Spans(path) || mode == watch.Recursive && f.Reaches(path) {
		return watch.Everywhere
	}
	return int(command.ShardOf(path, len(f)) - 1)
}

// Watch arms a watch on every shard that has a part of what it sees.
func (f Forest) Watch(registries *watch.Shards, path string, mode watch.Mode, o watch.Options, who *watch.Watcher) keeper.Stream {
	at := f.WatchedOn(path, mode)
	if at == watch.Everywhere {
		return watch.Join(registries.Registries, path, mode, o, who)
	}
	return f[at].Watches.Add(path, mode, o, who)
}
