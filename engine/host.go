package engine

import (
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/replication"
)

// hostConfig returns the config of the Raft groups of a member.
func (e *Engine) hostConfig(me replication.Identity) replication.Config {
	c := replication.Config{
		Dir: e.cfg.Dir, Disk: e.disk, Member: me.Member, Alone: e.cfg.Alone, Shards: e.cfg.Shards,
		Digest: me.Digest, Names: e.names, Tick: e.cfg.Tick, Logger: e.log, LeaderChanged: e.leaderChanged,
		Removed: e.removedFrom, KeepEntries: e.cfg.Seams.Keep,
	}
	if !me.Joined {
		c.Members = me.Founders
	}
	return c
}

// former returns what a former member has left in the directory.
func (e *Engine) former() datadir.Former {
	return datadir.Former{Disk: e.disk, Dir: e.cfg.Dir, Log: e.log}
}

// crampedLoop deletes what a former member has left when the disk lacks room. It ends with the node.
func (e *Engine) crampedLoop() {
	for {
		select {
		case <-e.cramped:
			e.former().MakeRoom()
		case <-e.disk.Failed():
			return
		case <-e.stop:
			return
		}
	}
}
